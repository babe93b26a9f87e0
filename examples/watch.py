"""Watches a live group: three nodes, a recorder, the laws as a stream, and a page that updates.

    python examples/watch.py [SECONDS] [FOLDER]

Three nodes in processes of their own send to each other, and a fourth only records. A Spark query
reads the recording while it grows and judges it; FOLDER/live.html shows the verdicts. At half time
the recorder receives one event twice, as if the group had delivered a duplicate, so that the page
has a violation to show. Needs `pip install "ordercast[spark]"`.
"""

import asyncio
import multiprocessing
import socket
import sys
import tempfile
import time
from pathlib import Path

import ordercast
from ordercast.net.recorder import Recorder
from ordercast.report.live_page import LivePage
from ordercast.spark.online import judged
from ordercast.spark.session import open_session
from ordercast.spark.stream import register
from ordercast.trace.recording import Follower

NAMES = ["n1", "n2", "n3", "recorder"]
GROUP = "orders"


def free_places() -> dict[str, str]:
    """A free port for each node."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in NAMES]
    places = {
        name: f"127.0.0.1:{one.getsockname()[1]}" for name, one in zip(NAMES, sockets, strict=True)
    }
    for one in sockets:
        one.close()
    return places


def open_node(name: str, places: dict[str, str], folder: Path) -> ordercast.Node:
    peers = {other: place for other, place in places.items() if other != name}
    return ordercast.open(name=name, listen=places[name], peers=peers, data=str(folder / name))


async def send(name: str, places: dict[str, str], folder: Path, seconds: float) -> None:
    """A member that sends a hundred messages a second, and discards what it receives."""
    async with open_node(name, places, folder) as node, node.join(GROUP, ordercast.Fifo()) as group:

        async def read() -> None:
            async for _ in group:
                pass

        reading = asyncio.create_task(read())
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await group.send(b"an order")
            await asyncio.sleep(0.01)
        reading.cancel()


class Twice:
    """A group that delivers one event twice: the violation that the page shows."""

    def __init__(self, group: ordercast.Group, after: float) -> None:
        self._group = group
        self._due = time.monotonic() + after
        self._again: ordercast.Event | None = None

    async def next_batch(self) -> ordercast.Event | ordercast.View:
        if self._again is not None:
            again, self._again = self._again, None
            return again
        item = await self._group.next_batch()
        if isinstance(item, ordercast.Event) and time.monotonic() > self._due:
            self._again, self._due = item, float("inf")
        return item


async def record(places: dict[str, str], folder: Path, seconds: float) -> None:
    async with (
        open_node("recorder", places, folder) as node,
        node.join(GROUP, ordercast.Fifo()) as group,
    ):
        with Recorder(folder / "recording", node.me) as recorder:
            recording = asyncio.create_task(recorder.record(Twice(group, seconds / 2)))
            await asyncio.wait([recording], timeout=seconds)
            await group.leave()
            await recording


def run_node(name: str, places: dict[str, str], folder: Path, seconds: float) -> None:
    if name == "recorder":
        asyncio.run(record(places, folder, seconds + 1))
    else:
        asyncio.run(send(name, places, folder, seconds))


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp(prefix="ordercast-"))
    folder.mkdir(parents=True, exist_ok=True)
    page = LivePage(folder / "live.html", f"{GROUP}, watched")
    print(f"open {folder / 'live.html'} in a browser", flush=True)
    with open_session(light=True, **{"spark.sql.shuffle.partitions": "1"}) as spark:
        register(spark)
        spawned = multiprocessing.get_context("spawn")
        places = free_places()
        processes = [
            spawned.Process(target=run_node, args=(name, places, folder, seconds)) for name in NAMES
        ]
        for process in processes:
            process.start()
        while not list((folder / "recording").glob("*.segment")):
            if not processes[-1].is_alive():
                raise SystemExit("the recorder did not start")
            time.sleep(0.1)
        query = (
            judged(spark.readStream.format("ordercast").load(str(folder / "recording")))
            .writeStream.foreachBatch(page.take)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(processingTime="500 milliseconds")
            .start()
        )
        for process in processes:
            process.join()
        query.processAllAvailable()
        query.stop()
    page.close()
    print(f"{Follower(folder / 'recording').latest} records, all judged")


if __name__ == "__main__":
    main()
