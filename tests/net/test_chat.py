"""The chat of the README: three people, one address, and a fourth whom nobody has heard of."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from tests.pages import the_ports_of

ROOT = Path(__file__).resolve().parents[2]
FIRST = "127.0.0.1:7131"
BOUND_SECONDS = 60


class Person:
    """A process with the example, that types what it is told and hears what is printed."""

    def __init__(self, name: str, order: str, folder: Path) -> None:
        self.name, self._order, self._folder = name, order, folder
        self.lines: list[str] = []

    async def come(self, *seed: str) -> None:
        pipe = asyncio.subprocess.PIPE
        paths = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
        home = {"HOME": str(self._folder), "ORDERCAST_DATA": str(self._folder)}
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(ROOT / "examples" / "chat.py"), self.name, *seed),
            *("--order", self._order),
            stdin=pipe,
            stdout=pipe,
            cwd=self._folder,
            env=os.environ | home | {"PYTHONPATH": os.pathsep.join(paths)},
        )
        await self.hears("* type, and end with Ctrl-D")

    async def hears(self, *lines: str) -> None:
        assert self.process.stdout is not None
        while not set(lines) <= set(self.lines):
            line = await self.process.stdout.readline()
            assert line, f"{self.name} ended after {self.lines}"
            self.lines.append(line.decode().rstrip("\n"))

    def types(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())

    async def goes(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        await self.process.stdout.read()
        assert await self.process.wait() == 0


@pytest.mark.slow
@pytest.mark.parametrize("order", ["causal", "total"])
def test_a_fourth_person_joins_the_chat(order: str, tmp_path: Path) -> None:
    with the_ports_of("chat"):
        asyncio.run(asyncio.wait_for(chatted(order, tmp_path), BOUND_SECONDS))


async def chatted(order: str, folder: Path) -> None:
    ann, ben, cid, dan = people = [
        Person(name, order, folder) for name in ("ann", "ben", "cid", "dan")
    ]
    try:
        await ann.come()
        for person in (ben, cid):
            await person.come(FIRST)
        ann.types("anybody here?")
        await ben.hears("ann: anybody here?")
        ben.types("yes")
        for person in (ann, ben, cid):
            await person.hears("ann: anybody here?", "ben: yes")
        await dan.come(FIRST)
        await dan.hears("ann: anybody here?", "ben: yes")
        dan.types("so am I")
        for person in people:
            await person.hears("dan: so am I")
        said = [[line for line in person.lines if ": " in line] for person in people]
        for lines in said:
            assert lines.index("ann: anybody here?") < lines.index("ben: yes")
            assert lines.index("ben: yes") < lines.index("dan: so am I")
        await asyncio.gather(*(person.goes() for person in people))
    finally:
        for person in people:
            if hasattr(person, "process") and person.process.returncode is None:
                person.process.kill()
                await person.process.wait()
