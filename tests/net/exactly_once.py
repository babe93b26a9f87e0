"""Programs that are killed: a writer that posts numbers, and a reader that books each of them.

    python -m tests.net.exactly_once write FOLDER PORT COUNT
    python -m tests.net.exactly_once relay FOLDER PORT SEED
    python -m tests.net.exactly_once read FOLDER PORT SEED COUNT

Each is a node and its application in one process. The writer learns from its own log what it has
posted; the reader keeps its mark beside the numbers, in one transaction. It ends when it has booked
the last number.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from pathlib import Path

import ordercast
from ordercast import Feed, Mark, Post

TOLD = 10
"""Each of so many numbers the reader prints one."""
FEED = Feed(beat="50ms", fan_out=1)


def node(name: str, folder: Path, port: str, seed: str | None = None) -> ordercast.Node:
    seeds = [f"127.0.0.1:{seed}"] if seed else []
    data, listen = str(folder / name), f"127.0.0.1:{port}"
    return ordercast.open(name=name, listen=listen, seeds=seeds, data=data)


async def write(folder: Path, port: str, count: int) -> None:
    async with node("writer", folder, port) as here, here.join("numbers", FEED) as feed:
        following = 0
        reader = feed.since(feed.committed() or "earliest")
        while reader.behind:
            item = await anext(reader)
            if isinstance(item, Post):
                following = int(item.data) + 1
        while following < count:
            batch = [b"%d" % number for number in range(following, min(following + 7, count))]
            marks = await feed.post_many(batch)
            following += len(batch)
            if len(marks) > 1:  # at the next start only the last number is read again
                await feed.commit(marks[-2])
        await asyncio.Event().wait()


async def relay(folder: Path, port: str, seed: str) -> None:
    async with node("relay", folder, port, seed) as here, here.join("numbers", FEED):
        await asyncio.Event().wait()


async def read(folder: Path, port: str, seed: str, count: int) -> None:
    books = sqlite3.connect(folder / "books", isolation_level=None)
    books.execute("CREATE TABLE IF NOT EXISTS booked (number INTEGER)")
    books.execute("CREATE TABLE IF NOT EXISTS mark (text TEXT)")
    found = books.execute("SELECT text FROM mark").fetchone()
    async with node("reader", folder, port, seed) as here, here.join("numbers", FEED) as feed:
        async for item in feed.since(Mark.parse(found[0]) if found else "earliest"):
            if not isinstance(item, Post):
                continue
            books.execute("BEGIN")
            books.execute("INSERT INTO booked VALUES (?)", (int(item.data),))
            books.execute("DELETE FROM mark")
            books.execute("INSERT INTO mark VALUES (?)", (str(item.mark),))
            books.execute("COMMIT")
            if int(item.data) % TOLD == 0:
                print(int(item.data), flush=True)
            if int(item.data) == count - 1:
                return


def main(what: str, folder: str, *more: str) -> None:
    place = Path(folder)
    if what == "write":
        asyncio.run(write(place, more[0], int(more[1])))
    elif what == "relay":
        asyncio.run(relay(place, more[0], more[1]))
    else:
        asyncio.run(read(place, more[0], more[1], int(more[2])))


if __name__ == "__main__":
    main(*sys.argv[1:])
