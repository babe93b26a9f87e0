"""A node in a process of its own, that can be killed and started again on the same folder."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.net.halting_member import HALTED
from tests.net.nodes import Caller, place_of

from ordercast import Node
from ordercast.net.identity import number_from_zero
from ordercast.wire.framing import FrameKind

ROOT = Path(__file__).parents[2]


class MemberProcess:
    """n1, a member of one causal group and its bootstrap node."""

    def __init__(self, folder: Path, group: str, members: list[str]) -> None:
        self.folder = folder / "n1"
        self._group, self._members = group, members
        self._listen = "127.0.0.1:0"
        self._process: asyncio.subprocess.Process

    async def start(self, *others: Node, halting: tuple[int, str] | None = None) -> None:
        """It is in its group, and the others know where it is. Halting: see `halting_member`."""
        pipe = asyncio.subprocess.PIPE
        if not self.folder.exists():
            number_from_zero(self.folder)
        (self.folder / "halt").unlink(missing_ok=True)
        program = ["ordercast.live.member"]
        if halting is not None:
            program = ["tests.net.halting_member", *map(str, halting)]
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", *program),
            stdin=pipe,
            stdout=pipe,
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        )
        options = {"round": "10ms", "lease": "400ms", "join_wait": "10ms"}
        options |= {"tickets": 1, "guards": 1}
        group = {"name": self._group, "family": "causal", "members": self._members}
        node = {"name": "n1", "listen": self._listen, "data": str(self.folder)}
        self._tell({"node": node, "groups": [group | {"options": options}]})
        assert process.stdout is not None
        word, _, ready = (await process.stdout.readline()).decode().partition(" ")
        assert word == "READY"
        self._listen = json.loads(ready)["place"]
        places = {node.me.name: place_of(node) for node in others}
        self._tell({"do": "start", "places": places})
        for node in others:
            node.mesh.know("n1", self._listen)

    def _tell(self, line: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line).encode() + b"\n")

    def halt(self) -> None:
        """The disk halts at the call that was chosen at the start."""
        (self.folder / "halt").touch()

    async def halted(self) -> None:
        assert self._process.stdout is not None
        assert await self._process.stdout.readline() == HALTED
        await self.visit()

    async def visit(self) -> None:
        """Its event loop goes on, and what it had said until now has arrived."""
        host, _, port = self._listen.rpartition(":")
        caller = Caller(*await asyncio.open_connection(host, port))
        caller.greet("visitor")
        assert await caller.hear(FrameKind.HELLO)
        await caller.close()

    async def kill(self) -> None:
        self._process.kill()
        await self._process.communicate()
