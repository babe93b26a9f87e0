"""The program of one live member, spoken to line by line as its supervisor does."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from ordercast.net.identity import number_from_zero
from ordercast.trace.log import read_log

BOUND_SECONDS = 60


def bounded(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, BOUND_SECONDS))


def settings(folder: Path, **group: object) -> dict[str, Any]:
    if not (folder / "n1").exists():
        number_from_zero(folder / "n1")
    plan = {"name": "g", "family": "fifo", "members": ["n1"], "rate": 200.0, **group}
    node = {"name": "n1", "data": str(folder / "n1"), "trace": str(folder / "rows")}
    return {"node": node, "groups": [plan], "load": {"senders": ["n1"], "pattern": "steady"}}


async def member(first: dict[str, Any]) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ordercast.live.member"), stdin=pipe, stdout=pipe, stderr=pipe
    )
    tell(process, first)
    return process


def tell(process: asyncio.subprocess.Process, line: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(line).encode() + b"\n")


async def first_line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode()


def test_a_live_member_gets_ready_sends_and_stops_without_leaving(tmp_path: Path) -> None:
    async def scene() -> None:
        process = await member(settings(tmp_path))
        word, _, ready = (await first_line(process)).partition(" ")
        assert word == "READY"
        assert json.loads(ready)["incarnation"] == 0
        tell(process, {"do": "start", "seconds": 0.2})
        while not any(row.kind == "deliver" for row in read_log(tmp_path / "rows")):
            await asyncio.sleep(0)
        tell(process, {"do": "stop"})
        await process.communicate()
        assert process.returncode == 0

    bounded(scene())
    kinds = [row.kind for row in read_log(tmp_path / "rows")]
    assert kinds[:3] == ["start", "join", "view"]
    assert kinds[-1] == "stop"
    assert kinds.count("submit") == kinds.count("deliver") > 0
    assert "leave" not in kinds  # that would excuse it from what it owes


def test_a_live_member_ends_when_its_input_ends(tmp_path: Path) -> None:
    async def scene() -> None:
        process = await member(settings(tmp_path))
        assert (await first_line(process)).startswith("READY ")
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
        assert process.returncode == 1

    bounded(scene())


def test_each_start_has_the_next_incarnation(tmp_path: Path) -> None:
    async def scene() -> None:
        for node in range(3):
            process = await member(settings(tmp_path))
            assert f'"incarnation":{node}' in await first_line(process)
            process.kill()
            await process.communicate()

    bounded(scene())


def test_wrong_settings_of_a_live_member_are_one_sentence(tmp_path: Path) -> None:
    async def scene() -> None:
        for group, sentence in [
            ({"options": {"heartbeat": "0ms"}}, "heartbeat must be longer than nothing"),
            ({"options": {"windw": 3}}, "windw"),
            ({"family": "feeds"}, "unknown family 'feeds'"),
            ({"family": "ordercast.studies.published_feed:FAMILY"}, "in the simulator only"),
        ]:
            process = await member(settings(tmp_path, **group))
            said, errors = await process.communicate()
            assert process.returncode == 1
            assert said == b""
            assert sentence in errors.decode()
            assert "Traceback" not in errors.decode()

    bounded(scene())


def test_an_unknown_command_ends_a_live_member(tmp_path: Path) -> None:
    async def scene() -> None:
        process = await member(settings(tmp_path))
        tell(process, {"do": "dance"})
        _, errors = await process.communicate()
        assert process.returncode == 1
        assert "dance" in errors.decode()

    bounded(scene())
