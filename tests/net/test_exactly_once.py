"""Each message once: its writer, a node in between and its reader are killed again and again."""

from __future__ import annotations

import asyncio
import os
import socket
import sqlite3
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from random import Random

from tests.net.exactly_once import TOLD

ROOT = Path(__file__).parents[2]
COUNT = 1200
KILLS = 9
SECONDS = 120  # generous


class Program:
    """One of the three, whichever process it is right now."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self.process: Process

    async def start(self) -> None:
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.net.exactly_once", *self._arguments),
            stdout=PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        )

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


def free_ports(count: int) -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [str(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


async def scene(folder: Path) -> list[int]:
    """Kills after about so many numbers each; returns how often each of the three was killed."""
    first, second, third = free_ports(3)
    programs = [
        Program("write", str(folder), first, str(COUNT)),
        Program("relay", str(folder), second, first),
        Program("read", str(folder), third, second, str(COUNT)),
    ]
    reader, kills, draw = programs[2], [0, 0, 0], Random(1)
    try:
        for program in programs:
            await program.start()
        booked = 0
        while True:
            assert reader.process.stdout is not None
            line = await reader.process.stdout.readline()
            if not line:
                break
            booked = max(booked, int(line))
            if sum(kills) < KILLS and booked >= (sum(kills) + 1) * COUNT // (KILLS + 1):
                which = draw.choice([at for at in range(3) if kills[at] == min(kills)])
                kills[which] += 1
                await programs[which].kill()
                await programs[which].start()
        assert await reader.process.wait() == 0
    finally:
        for program in programs:
            await program.kill()
    return kills


def test_each_number_is_booked_once_and_in_order(tmp_path: Path) -> None:
    async def bounded() -> list[int]:
        async with asyncio.timeout(SECONDS):
            return await scene(tmp_path)

    kills = asyncio.run(bounded())
    with sqlite3.connect(tmp_path / "books") as books:
        booked = [number for (number,) in books.execute("SELECT number FROM booked ORDER BY rowid")]
    assert booked == list(range(COUNT))
    assert kills == [3, 3, 3]
    assert TOLD * KILLS < COUNT
