"""`ordercast node` and `members`: where it takes a ticket to send, and where a node is outdated."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest
from tests.net.nodes import Caller, Cluster, live
from tests.net.test_updaters import ONE as ONE_TICKET
from tests.net.test_updaters import WORLD, disconnect, joined, next_word, reconnect, three

from ordercast import Total
from ordercast.cli.members import _updates, _who
from ordercast.net.control import ask
from ordercast.net.identity import number_from_zero

BOUND_SECONDS = 60


async def started(*arguments: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "ordercast", *arguments)
    return await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_node_that_sends_lines_becomes_an_updater(tmp_path: Path, form: list[str]) -> None:
    number_from_zero(tmp_path / "n1")
    settings = tmp_path / "n1.toml"
    settings.write_text(
        f'name = "n1"\ndata = "{tmp_path / "n1"}"\n[group.g]\nfamily = "causal"\n'
        'members = ["n1"]\noptions = { tickets = 1, lease = "400ms", round = "10ms" }\n',
        encoding="utf-8",
    )

    async def scene() -> list[str]:
        process = await started("node", str(settings), "--send", "g", *form)
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"hello\n")
        lines = [(await process.stdout.readline()).decode().strip() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        _, errors = await process.communicate()
        assert process.returncode == 0, errors
        assert errors.decode() == "n1 joins g; Ctrl-C leaves\n", "it may have to wait"
        return lines

    lines = asyncio.run(asyncio.wait_for(scene(), BOUND_SECONDS))
    if form:
        assert [json.loads(line) for line in lines] == [
            {"group": "g", "joined": "n1"},
            {"group": "g", "ticket": 0, "updating": "acquired"},
            {"group": "g", "sender": "n1", "data": "hello"},
        ]
    else:
        assert lines == ["g: joined n1", "g: ticket 0 acquired", "g: n1: hello"]


@live
async def test_members_shows_whether_a_node_updates(cluster: Cluster) -> None:
    socket = cluster.folder / "n1.sock"
    n1 = await cluster.open("n1", control=str(socket), metrics="127.0.0.1:0")
    (group,) = joined(n1, level=ONE_TICKET)
    assert _updates(group.status()) == "no"
    await group.become_updater()
    process = await started("members", str(socket))
    said, _ = await process.communicate()
    (row,) = [line for line in said.decode().splitlines() if WORLD in line]
    assert "ticket 0" in row
    samples = [sample for family in n1.metrics.collect() for sample in family.samples]
    (updates,) = [each for each in samples if each.name == "ordercast_group_updating"]
    assert (updates.labels, updates.value) == ({"group": WORLD}, 1)


@live
async def test_members_shows_for_whom_a_node_waits(cluster: Cluster) -> None:
    n1 = await cluster.open("n1")
    group = n1.join("orders", Total(), ["n1", "n2"])
    assert _who(group.status()).startswith("waits for n2")
    assert "no address of n2 is known" in _who(group.status())


@live
async def test_members_shows_who_waits_or_is_suspended(cluster: Cluster) -> None:
    first, _, third = await three(cluster, ONE_TICKET)
    await third.become_updater()
    waiting = asyncio.create_task(first.become_updater())
    await asyncio.sleep(0)
    assert _updates(first.status()) == "wants a ticket"
    waiting.cancel()
    await asyncio.wait([waiting])
    assert await next_word(third) == "acquired"
    disconnect(third)
    assert await next_word(third) == "suspended"
    assert _updates(third.status()) == "ticket 0 (suspended)"
    reconnect(third)


def test_a_node_whose_incarnation_is_outdated_ends_4_and_comes_back_newer(tmp_path: Path) -> None:
    settings, control = tmp_path / "n1.toml", tmp_path / "n1.sock"
    settings.write_text(
        f'name = "n1"\ndata = "{tmp_path / "n1"}"\ncontrol = "{control}"\n[group.g]\n'
        'members = ["n1"]\n',
        encoding="utf-8",
    )

    async def begun() -> tuple[asyncio.subprocess.Process, dict[str, object]]:
        process = await started("node", str(settings))
        assert process.stdout is not None
        assert await process.stdout.readline(), "it printed its view"
        return process, await ask(control)

    async def scene() -> None:
        process, status = await begun()
        drawn = int(str(status["node"]).partition("#")[2])
        host, _, port = str(status["listens"]).rpartition(":")
        caller = Caller(*await asyncio.open_connection(host, int(port)))
        await caller.connect("n2", newest={"n1": drawn + 7})
        _, errors = await process.communicate()
        assert process.returncode == 4, errors
        assert f"others have met n1#{drawn + 7}".encode() in errors
        await caller.close()
        process, status = await begun()
        assert int(str(status["node"]).partition("#")[2]) > drawn + 7
        process.send_signal(signal.SIGINT)
        await process.communicate()

    asyncio.run(asyncio.wait_for(scene(), BOUND_SECONDS))
