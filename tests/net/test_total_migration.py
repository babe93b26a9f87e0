"""examples/migration.py: a server replica moves under load, as a reader starts it and judged."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tests.net.nodes import Cluster, live
from tests.net.ordered import judged, traced
from tests.pages import the_ports_of

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "migration.py"
BOUND_SECONDS = 60


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("migration", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_no_request_is_lost_or_answered_twice_while_a_server_moves(tmp_path: Path) -> None:
    with the_ports_of("migration"):
        ran = subprocess.run(
            [sys.executable, str(EXAMPLE)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=BOUND_SECONDS,
            check=False,
        )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    for name in ("tom", "zoe"):
        found = re.search(
            rf"{name}: (\d+) requests, each answered once: (\d+) by p2, (\d+) by p3", ran.stdout
        )
        assert found is not None, ran.stdout
        sent, by_old, by_new = map(int, found.groups())
        assert sent == by_old + by_new
        assert by_old >= 100 and by_new >= 100
    assert "p1 and p3 have the same accounts" in ran.stdout
    assert list(tmp_path.iterdir()) == []


@live
async def test_the_laws_hold_over_both_groups(cluster: Cluster) -> None:
    migration = example()
    nodes = {node.me.name: node for node in await traced(cluster, *migration.NEW)}
    servers = {name: migration.Server(nodes[name]) for name in ("p1", "p2", "p3")}
    clients = {name: migration.Client(nodes[name]) for name in ("tom", "zoe")}
    await migration.migrate(servers, clients)
    assert servers["p1"].balances == servers["p3"].balances
    for node in nodes.values():
        node.driver.flush()
    laws = judged(cluster.folder)
    assert laws["total"] == laws["causal"] == laws["virtual-synchrony"] == "holds"


def test_the_client_notices_requests_that_are_answered_twice_or_skipped() -> None:
    migration = example()

    class Named:
        me = type("Me", (), {"name": "tom"})

    client = migration.Client(Named)
    client.open = {1: "old", 2: "old"}
    client.take_answer(1, 1, "p2")
    with pytest.raises(AssertionError, match="answered twice"):
        client.take_answer(1, 1, "p3")
    client.open[3] = "new"
    with pytest.raises(AssertionError, match="a request before 3 was skipped"):
        client.take_answer(3, 6, "p3")
    with pytest.raises(AssertionError, match="unanswered"):
        client.check()
