"""`ordercast node` and `members` with totally ordered groups."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest
from tests.net.nodes import Cluster, live, until
from tests.net.ordered import QUICK
from tests.net.test_node_commands import BOUND_SECONDS, started

from ordercast.cli.members import _who
from ordercast.net.identity import number_from_zero


def settings(folder: Path, name: str, family: str) -> Path:
    number_from_zero(folder / name)
    path = folder / f"{name}.toml"
    path.write_text(
        f'name = "{name}"\ndata = "{folder / name}"\nlisten = "127.0.0.1:0"\n[group.g]\n'
        f'family = "{family}"\nmembers = ["{name}"]\noptions = {{ window = 8 }}\n',
        encoding="utf-8",
    )
    return path


@pytest.mark.parametrize("family", ["total", "sequenced", "atomic"])
def test_a_node_alone_forms_its_group_and_sends_lines(tmp_path: Path, family: str) -> None:
    async def scene() -> list[dict[str, object]]:
        path = settings(tmp_path, "n1", family)
        process = await started("node", str(path), "--send", "g", "--json")
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"hello\n")
        lines = [json.loads(await process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        _, errors = await process.communicate()
        assert process.returncode == 0, errors
        return lines

    assert asyncio.run(asyncio.wait_for(scene(), BOUND_SECONDS)) == [
        {"group": "g", "members": ["n1"]},
        {"group": "g", "sender": "n1", "data": "hello"},
    ]


def test_a_family_that_does_not_run_live_is_named(tmp_path: Path) -> None:
    async def scene() -> tuple[int | None, str]:
        process = await started("node", str(settings(tmp_path, "n1", "totl")))
        _, errors = await process.communicate()
        return process.returncode, errors.decode()

    code, said = asyncio.run(asyncio.wait_for(scene(), BOUND_SECONDS))
    assert code == 2
    assert "unknown family 'totl': did you mean 'total'?" in said


@live
async def test_members_shows_formations_and_who_waits(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    group = n1.join("orders", QUICK, ["n1", "n2"])
    assert _who(group.status()) == "waits for n2: n2 is not connected"
    n2.join("orders", QUICK, ["n1", "n2"])
    await until(lambda: group.status()["members"])
    assert _who(group.status()) == "n1 n2 (n1.0.1)"
    suspicious = {**group.status(), "counters": {"suspected": 1}}
    assert _who(suspicious) == "n1 n2 (n1.0.1), 1 suspected"
