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
from collections import Counter, deque

import ordercast

ORDERS = {"causal": ordercast.Causal(state=True), "total": ordercast.Total(reform="auto")}
PATIENCE = 3  # seconds after Ctrl-D in which lines that were typed before may still be sent
said: list[str] = []


def snapshot() -> bytes:
    return json.dumps(said).encode()


def restore(state: bytes) -> None:
    theirs: list[str] = json.loads(state)
    unheard = Counter(said) - Counter(theirs)
    said[:] = theirs  # in place of what was said while others could not hear it
    for line in said:
        print(line, flush=True)
    for line in unheard.elements():
        print("* lost, the others have not heard", line, flush=True)


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
    """The lines that the person has typed, and that are not sent yet."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque()
        self.has_ended = asyncio.Event()  # by Ctrl-D
        self._more = asyncio.Event()

    async def read(self) -> None:
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        async for line in reader:
            self.lines.append(line.decode(errors="replace").strip())
            self._more.set()
        self.has_ended.set()
        self._more.set()

    async def first(self) -> str | None:
        """The next line to send; it stays until it was sent. None: Ctrl-D."""
        while not self.lines and not self.has_ended.is_set():
            self._more.clear()
            await self._more.wait()
        return self.lines[0] if self.lines else None


async def say(room: ordercast.Group, order: str, typed: Typed) -> None:
    await room.ready()
    if order == "causal":
        await room.become_updater()
    print("* type, and end with Ctrl-D", flush=True)
    while (line := await typed.first()) is not None:
        try:
            await room.send(line.encode(), until="delivered")
        except ordercast.TicketLost as lost:  # this process stood still for some seconds
            print(f"* {lost}", flush=True)
            await room.become_updater()
            continue
        typed.lines.popleft()


async def talk(room: ordercast.Group, order: str, typed: Typed) -> None:
    """Until Ctrl-D, also while nobody has let us in."""
    saying = asyncio.create_task(say(room, order, typed))
    ended = asyncio.create_task(typed.has_ended.wait())
    try:
        await asyncio.wait((saying, ended), return_when=asyncio.FIRST_COMPLETED)
        if typed.lines:
            await asyncio.wait([saying], timeout=PATIENCE)
        if saying.done():
            saying.result()
    finally:
        saying.cancel()
        ended.cancel()
        await leave(room, order)


async def leave(room: ordercast.Group, order: str) -> None:
    leaving = asyncio.create_task(room.leave())
    await asyncio.wait([leaving], timeout=0.5)
    if not leaving.done():
        what = "know who may type" if order == "causal" else "have all your lines"
        print(f"* leaving: waits until the others {what}", flush=True)
    await leaving


async def chat(name: str, seed: str | None, order: str) -> None:
    listen, seeds = ("127.0.0.1:0", [seed]) if seed else ("127.0.0.1:7131", [])
    typed = Typed()
    typing = asyncio.create_task(typed.read())
    try:
        async with ordercast.open(name=name, cluster="chat", listen=listen, seeds=seeds) as node:
            print("* others can join at", node.status()["listens"], flush=True)
            while True:
                try:
                    await stay(node, order, typed)
                    break
                except (ordercast.Abandoned, ordercast.FoundedTwice) as error:
                    print(f"* joins again: {error}", flush=True)
    finally:
        typing.cancel()
        for line in typed.lines:
            print("* not sent:", line, flush=True)


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
