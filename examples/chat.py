"""A chat: people find each other by the name of a room and the address of one who is there.

    python examples/chat.py ann                       # the first one, at 127.0.0.1:7131
    python examples/chat.py ben 127.0.0.1:7131
    python examples/chat.py cid 127.0.0.1:7131

Run each in its own terminal, and type. A person who comes later reads first what was said before,
though nobody has heard of that name. With `--order total` all see the same lines in the same order;
with `--order causal`, the default, an answer never comes before what it answers.
"""

import argparse
import asyncio
import json
import sys

import ordercast

ORDERS = {"causal": ordercast.Causal(state=True), "total": ordercast.Total()}
said: list[str] = []


def snapshot() -> bytes:
    return json.dumps(said).encode()


def restore(state: bytes) -> None:
    said.extend(json.loads(state))
    for line in said:
        print(line, flush=True)


def show(event: object) -> None:
    match event:
        case ordercast.Message(sender=sender, data=data):
            said.append(f"{sender.name}: {data.decode()}")
            print(said[-1], flush=True)
        case ordercast.View(members=members):
            print("* here are", *(member.name for member in members), flush=True)
        case ordercast.Joined(member=member):
            print(f"* {member.name} is here", flush=True)
        case ordercast.Left(member=member):
            print(f"* {member.name} is gone", flush=True)
        case ordercast.Waiting(why=why):
            print(f"* waiting: {why}", flush=True)


async def typed() -> asyncio.StreamReader:
    """What is typed, line by line."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    return reader


async def talk(room: ordercast.Group, order: str) -> None:
    await room.ready()
    if order == "causal":
        await room.become_updater()
    print("* type, and end with Ctrl-D", flush=True)
    async for line in await typed():
        await room.send(line.strip())


async def chat(name: str, seed: str | None, order: str) -> None:
    listen, seeds = ("127.0.0.1:0", [seed]) if seed else ("127.0.0.1:7131", [])
    async with (
        ordercast.open(name=name, cluster="chat", listen=listen, seeds=seeds) as node,
        node.join(f"room/{order}", ORDERS[order], snapshot=snapshot, restore=restore) as room,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(room.run(show))
        await talk(room, order)
        await room.leave()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("seed", nargs="?", help="where somebody is, such as 127.0.0.1:7131")
    parser.add_argument("--order", choices=ORDERS, default="causal")
    given = parser.parse_args()
    asyncio.run(chat(given.name, given.seed, given.order))
