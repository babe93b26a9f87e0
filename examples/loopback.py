"""Several nodes in one process, and a network between them that can be cut: for the examples.

    async with Loopback(make, ["n1", "n2", "n3"], first_port=7151) as group:
        await group.start()
        await group.cut("n1 n2", "n3")

`make(me, voters, journal)` makes the core of a node: an object whose `take` gets what the group
yields and returns what to send, and whose `journal` returns what must survive a crash. The `news`
of a core are printed. A core with `wants_differences` also takes what other sides delivered apart.
`cut`, `crash`, `restart` and `heal` do what happens to a real network.
"""

import asyncio
import logging
import tempfile
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import ordercast

GROUP = "example"
LEVEL = ordercast.Synchrony(
    service="safe",
    silence_limit="100ms",
    suspicion_limit="800ms",
    stage_limit="400ms",
    rest="50ms",
    hello="20ms",
)
PATIENCE_SECONDS = 30.0


class Loopback:
    def __init__(self, make: Callable[..., Any], names: Iterable[str], *, first_port: int) -> None:
        self._make = make
        self._first_port = first_port
        self.names = tuple(names)
        self._voters: tuple[ordercast.NodeId, ...] = ()
        self._nodes: dict[str, ordercast.Node] = {}
        self._cores: dict[str, Any] = {}
        self._reading: dict[str, asyncio.Task[None]] = {}
        self._sides: list[list[str]] = [list(self.names)]
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Loopback":
        log = logging.getLogger("ordercast.net")
        self._stack.callback(log.setLevel, log.level)
        log.setLevel(logging.ERROR)  # connections fail here on purpose
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        for name in self.names:
            await self._open(name)
        self._voters = tuple(node.me for node in self._nodes.values())
        return self

    async def __aexit__(self, *error: object) -> None:
        for name in list(self._nodes):
            await self._stop_reading(name)
        await self._stack.aclose()

    @property
    def cores(self) -> list[Any]:
        """Of those who are alive, by name."""
        return [self._cores[name] for name in self.names if name in self._cores]

    def core(self, name: str) -> Any:
        return self._cores[name]

    def is_alive(self, name: str) -> bool:
        return name in self._cores

    async def start(self) -> None:
        """All join the group."""
        for name in self.names:
            self._join(name)

    async def send(self, name: str, messages: list[bytes]) -> None:
        """Writes the journal down, and sends."""
        (self._folder / f"{name}.journal").write_bytes(self._cores[name].journal())
        for data in messages:
            await self._nodes[name].groups[GROUP].send(data)

    async def until(self, condition: Callable[[], object]) -> None:
        """Waits until it is so. TimeoutError: it takes too long. A node that broke says why."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():
                for task in self._reading.values():
                    if task.done():
                        task.result()
                await asyncio.sleep(0.01)

    # --- what goes wrong -----------------------------------------------------------------------

    async def cut(self, *sides: str) -> None:
        """Nothing passes between the sides, each of which is a line of names."""
        print("* the network is cut:", " | ".join(sides), flush=True)
        self._sides = [side.split() for side in sides]
        self._apply_cuts()

    async def heal(self) -> None:
        print("* the network heals", flush=True)
        self._sides = [list(self.names)]
        self._apply_cuts()

    async def crash(self, name: str) -> None:
        print(f"* {name} crashes", flush=True)
        await self._stop_reading(name)
        del self._cores[name]
        await self._nodes.pop(name).abort()

    async def restart(self, name: str) -> None:
        print(f"* {name} starts again", flush=True)
        await self._open(name)
        self._apply_cuts()
        self._join(name)

    def _apply_cuts(self) -> None:
        for name, node in self._nodes.items():
            others = [side for side in self._sides if name not in side]
            away = frozenset(one for side in others for one in side)
            node.mesh.set_cuts(away, away)

    # --- nodes ---------------------------------------------------------------------------------

    async def _open(self, name: str) -> None:
        ports = range(self._first_port, self._first_port + len(self.names))
        places = {one: f"127.0.0.1:{port}" for one, port in zip(self.names, ports, strict=True)}
        peers = {one: place for one, place in places.items() if one != name}
        data = str(self._folder / name)
        node = ordercast.open(name=name, listen=places[name], peers=peers, data=data)
        self._nodes[name] = await self._stack.enter_async_context(node)

    def _join(self, name: str) -> None:
        journal = self._folder / f"{name}.journal"
        node = self._nodes[name]
        saved = journal.read_bytes() if journal.exists() else b"{}"
        self._cores[name] = self._make(node.me, self._voters, saved)
        group = node.join(GROUP, LEVEL, list(self.names))
        self._reading[name] = asyncio.create_task(self._read(name, group))

    async def _read(self, name: str, group: ordercast.Group) -> None:
        core = self._cores[name]
        async for item in group:
            if isinstance(item, ordercast.Merged) and item.view.members[0].name == name:
                sides = [" ".join(one.name for one in side) for side in item.sides]
                print(f"{name}: sides merge:", " | ".join(sides), flush=True)
            messages = core.take(item)
            if isinstance(item, ordercast.Merged) and getattr(core, "wants_differences", False):
                for side in item.sides[1:]:
                    messages += core.take(await _difference(item, side))
            await self.send(name, messages)
            for line in core.news:
                print(f"{name}: {line}", flush=True)
            core.news.clear()

    async def _stop_reading(self, name: str) -> None:
        task = self._reading.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _difference(
    merged: ordercast.Merged, side: tuple[ordercast.NodeId, ...]
) -> ordercast.Difference:
    try:
        return await merged.difference(side)
    except ordercast.DifferenceLost:
        return ordercast.Difference(merged.group, merged.view.id, side, unheard=side)
