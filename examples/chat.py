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

ORDERS = {"causal": ordercast.Causal(state=True), "total": ordercast.Total(reform="auto")}
said: list[str] = []


def snapshot() -> bytes:
    return json.dumps(said).encode()


def restore(state: bytes) -> None:
    said[:] = json.loads(state)  # in place of what was said while others could not hear it
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
            print(f"* waiting: {why}" if why else "* goes on", flush=True)


class Typed:
    """The lines that the person types, from the start on; None: Ctrl-D."""

    def __init__(self) -> None:
        self.lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.has_ended = asyncio.Event()

    async def read(self) -> None:
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        async for line in reader:
            await self.lines.put(line.strip())
        await self.lines.put(None)
        self.has_ended.set()


async def enter(room: ordercast.Group, order: str) -> None:
    await room.ready()
    if order == "causal":
        await room.become_updater()
    print("* type, and end with Ctrl-D", flush=True)


async def talk(room: ordercast.Group, order: str, typed: Typed) -> None:
    """Until Ctrl-D, also while nobody has let us in."""
    entering = asyncio.create_task(enter(room, order))
    ended = asyncio.create_task(typed.has_ended.wait())
    try:
        await asyncio.wait((entering, ended), return_when=asyncio.FIRST_COMPLETED)
        if entering.done() or typed.lines.qsize() > 1:
            await entering
            while (line := await typed.lines.get()) is not None:
                try:
                    await room.send(line)
                except ordercast.TicketLost as lost:  # this process stood still for some seconds
                    print(f"* {lost}", flush=True)
                    await room.become_updater()
                    await room.send(line)
    finally:
        entering.cancel()
        ended.cancel()
        await room.leave()


async def chat(name: str, seed: str | None, order: str) -> None:
    listen, seeds = ("127.0.0.1:0", [seed]) if seed else ("127.0.0.1:7131", [])
    typed = Typed()
    typing = asyncio.create_task(typed.read())
    async with ordercast.open(name=name, cluster="chat", listen=listen, seeds=seeds) as node:
        print("* others can join at", node.status()["listens"], flush=True)
        while True:
            try:
                await stay(node, order, typed)
                break
            except (ordercast.Abandoned, ordercast.FoundedTwice) as error:
                print(f"* joins again: {error}", flush=True)
    typing.cancel()


async def stay(node: ordercast.Node, order: str, typed: Typed) -> None:
    async with node.join(
        f"room/{order}", ORDERS[order], snapshot=snapshot, restore=restore
    ) as room:
        talking = asyncio.create_task(talk(room, order, typed))
        try:
            await room.run(show)  # until the room is left
        finally:
            talking.cancel()
            await asyncio.wait([talking])
        if not talking.cancelled():
            talking.result()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("seed", nargs="?", help="where somebody is, such as 127.0.0.1:7131")
    parser.add_argument("--order", choices=ORDERS, default="causal")
    given = parser.parse_args()
    try:
        asyncio.run(chat(given.name, given.seed, given.order))
    except ordercast.OrdercastError as error:
        sys.exit(f"* {error}")
    except KeyboardInterrupt:
        sys.exit(130)
