"""The chat of the README: three people, one address, and a fourth whom nobody has heard of."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
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
        await self.start(*seed)
        await self.hears("* type, and end with Ctrl-D")

    async def start(self, *seed: str) -> None:
        pipe = asyncio.subprocess.PIPE
        paths = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
        home = {"HOME": str(self._folder), "ORDERCAST_DATA": str(self._folder)}
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(ROOT / "examples" / "chat.py"), self.name, *seed),
            *("--order", self._order),
            stdin=pipe,
            stdout=pipe,
            cwd=self._folder,
            stderr=pipe,
            env=os.environ | home | {"PYTHONPATH": os.pathsep.join(paths)},
        )

    async def hears(self, *lines: str) -> None:
        assert self.process.stdout is not None
        while not set(lines) <= set(self.lines):
            line = await self.process.stdout.readline()
            assert line, f"{self.name} ended after {self.lines}"
            self.lines.append(line.decode().rstrip("\n"))

    def types(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())

    async def hears_prefix(self, prefix: str) -> str:
        assert self.process.stdout is not None
        while not (found := [line for line in self.lines if line.startswith(prefix)]):
            line = await self.process.stdout.readline()
            assert line, f"{self.name} ended after {self.lines}"
            self.lines.append(line.decode().rstrip("\n"))
        return found[0]

    async def goes(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert await self.ends() == (0, "")

    async def ends(self) -> tuple[int, str]:
        """What it exits with, and what it said of errors."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        _, errors = await asyncio.gather(self.process.stdout.read(), self.process.stderr.read())
        return await self.process.wait(), errors.decode()

    async def is_killed(self) -> None:
        if hasattr(self, "process") and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


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
            await person.is_killed()


@pytest.mark.slow
@pytest.mark.parametrize("order", ["causal", "total"])
def test_a_founder_that_lost_its_folder_joins_again(order: str, tmp_path: Path) -> None:
    with the_ports_of("chat"):
        asyncio.run(asyncio.wait_for(founder_returns(order, tmp_path), BOUND_SECONDS))


async def founder_returns(order: str, folder: Path) -> None:
    """She founds the room once more, meets the others, and joins theirs. She reads what is lost."""
    ann, ben, cid = people = [Person(name, order, folder) for name in ("ann", "ben", "cid")]
    try:
        await ann.come()
        await ben.come(FIRST)
        await cid.come((await ben.hears_prefix("* others can join at ")).split()[-1])
        ben.types("one")
        await cid.hears("ben: one")
        await ann.is_killed()
        shutil.rmtree(folder / "chat" / "ann")
        ann.lines = []
        for person in (ben, cid):
            person.process.send_signal(signal.SIGSTOP)
        await ann.start()
        ann.types("hello?")
        await ann.hears("ann: hello?")
        for person in (ben, cid):
            person.process.send_signal(signal.SIGCONT)
        await ann.hears("* lost, the others have not heard ann: hello?")
        assert "ben: one" in ann.lines
        ann.types("two")
        for person in people:
            await person.hears("ann: two")
    finally:
        for person in people:
            await person.is_killed()


@pytest.mark.slow
def test_it_can_be_ended_while_it_waits_and_a_second_of_a_name_is_told_so(tmp_path: Path) -> None:
    with the_ports_of("chat"):
        asyncio.run(asyncio.wait_for(ended_while_waiting(tmp_path), BOUND_SECONDS))


async def ended_while_waiting(folder: Path) -> None:
    ben, cid, other = people = [Person(name, "total", folder) for name in ("ben", "cid", "ben")]
    try:
        await ben.start(FIRST)
        waits = await ben.hears_prefix("* waiting: nobody answers")
        assert "start a node there, or check the address. This node may found 'room/total'" in waits
        await other.start(FIRST)
        status, errors = await other.ends()
        assert status == 1
        assert "Traceback" not in errors
        assert len(errors.splitlines()) == 1
        await cid.start(FIRST)
        await cid.hears_prefix("* waiting: nobody answers")
        cid.process.send_signal(signal.SIGINT)
        assert await cid.ends() == (130, "")
        ben.types("anybody here?")
        assert ben.process.stdin is not None
        ben.process.stdin.close()
        await ben.hears("* not sent: anybody here?")
        assert await ben.ends() == (0, "")
    finally:
        for person in people:
            await person.is_killed()
