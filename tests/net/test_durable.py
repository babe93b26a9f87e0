"""What a node persists: its next incarnation reads it, and nothing is sent before it is durable."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.net.nodes import Cluster, data_of, live, until
from tests.net.processes import MemberProcess
from tests.net.test_updaters import LEASE, ROUND, joined, next_word

from ordercast import Causal, Group, Node, UsageError
from ordercast.cli.main import main
from ordercast.store.file import NAME

GUARDED = Causal(round=ROUND, lease=LEASE, tickets=1, guards=1, join_wait=ROUND)
"""The bootstrap node alone is the lease replica, whichever other members there are."""
WORLD = "world/7"
MEMBERS = ["n1", "n2", "n3"]


# --- a lease replica that is killed ---------------------------------------------------------------


@live
async def test_a_lease_replica_that_is_killed_keeps_its_promises(cluster: Cluster) -> None:
    n2, n3 = await cluster.nodes("n2", "n3")
    bootstrap_node = MemberProcess(cluster.folder, WORLD, MEMBERS)
    await bootstrap_node.start(n2, n3)
    try:
        second, third = (node.join(WORLD, GUARDED, MEMBERS) for node in (n2, n3))
        await second.become_updater()
        assert await next_word(second) == "acquired"
        await bootstrap_node.kill()
        assert await next_word(second) == "suspended"
        waiting = asyncio.create_task(third.become_updater())
        await bootstrap_node.start(n2, n3)
        assert await next_word(second) == "resumed", "it knows whom it gave the ticket to"
        await second.send(b"still mine")
        assert await data_of(third, 1) == [b"still mine"]
        assert not waiting.done()
        await second.stop_updating()
        assert await waiting == 0
    finally:
        await bootstrap_node.kill()


@live
async def test_a_group_gets_only_its_own_records_back(cluster: Cluster) -> None:
    """Two groups in one node: the next incarnation is the lease replica of both."""
    for _ in range(2):
        n1 = await cluster.open("n1")
        for name in ("west", "east"):
            (group,) = joined(n1, level=GUARDED, name=name)
            await group.become_updater()
            await group.send(name.encode(), until="delivered")
        kinds = [(record.group, type(record).__name__) for record in n1.store.records()]
        assert sorted(kinds) == [
            (name, kind) for name in ("east", "west") for kind in ("EntryRecord", "ReplicaRecord")
        ]
        await n1.abort()
    # The second incarnation found its cluster, and did not begin another one.
    epochs = {record.epoch for record in n1.store.records() if hasattr(record, "epoch")}
    assert min(epochs) > 1


# --- a disk that is slow --------------------------------------------------------------------------


class SlowDisk:
    """The disk of a node, which may stand still."""

    def __init__(self, node: Node, patch: pytest.MonkeyPatch) -> None:
        self._works = threading.Event()
        self._works.set()
        self.stop, self.go_on = self._works.clear, self._works.set
        self._sync = node.store.sync
        patch.setattr(node.store, "sync", self._wait)

    def _wait(self) -> None:
        self._works.wait()
        self._sync()


@asynccontextmanager
async def giving_back(cluster: Cluster) -> AsyncIterator[tuple[Node, Group, SlowDisk]]:
    """A member that gives its ticket back, while nobody waits for its disk any more."""
    n1 = await cluster.open("n1")
    (group,) = joined(n1, level=GUARDED)
    with pytest.MonkeyPatch.context() as patch:
        disk = SlowDisk(n1, patch)
        await group.become_updater()
        disk.stop()
        stopping = asyncio.create_task(group.stop_updating())
        await until(lambda: group.node.driver.host.seats[group.name].waiting)
        stopping.cancel()
        await asyncio.wait([stopping])
        yield n1, group, disk


@live
async def test_a_ticket_that_is_being_given_back_has_no_owner(cluster: Cluster) -> None:
    async with giving_back(cluster) as (_, group, disk):
        assert group.updating is None
        with pytest.raises(UsageError, match="not an updater"):
            await group.send(b"too late")
        again = asyncio.create_task(group.become_updater())
        await until(lambda: group.status()["updating"]["wanted"])
        assert not again.done()
        disk.go_on()
        assert await again == group.updating
        await group.send(b"mine again", until="delivered")


@live
async def test_a_group_can_be_joined_again_while_the_commit_of_its_leave_waits(
    cluster: Cluster,
) -> None:
    async with giving_back(cluster) as (n1, group, disk):
        for _ in range(3):  # each of them leaves before it has joined
            n1.leave(group)
            (group,) = joined(n1, level=GUARDED)
        becoming = asyncio.create_task(group.become_updater())
        await until(lambda: group.status()["updating"]["wanted"])
        disk.go_on()
        await becoming
        await group.send(b"here again", until="delivered")
        assert await data_of(group, 1) == [b"here again"]


@live
async def test_a_damaged_file_is_rejected_before_anything_is_sent(cluster: Cluster) -> None:
    n1 = await cluster.open("n1")
    (group,) = joined(n1, level=GUARDED)
    await group.become_updater()
    await n1.abort()
    path = cluster.folder / "n1" / NAME
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    with pytest.raises(UsageError, match=r"records is damaged at byte \d+"):
        await cluster.open("n1")
    path.unlink()
    again = await cluster.open("n1")  # the folder is not locked any more
    assert again.me.incarnation == 2


def test_the_command_exits_2_for_a_damaged_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "n1"
    folder.mkdir()
    (folder / NAME).write_bytes(b"a letter to somebody else")
    settings = tmp_path / "n1.toml"
    settings.write_text(f'name = "n1"\ndata = "{folder}"\n[group.g]\n', encoding="utf-8")
    assert main(["node", str(settings)]) == 2
    said = capsys.readouterr().err
    assert (
        said
        == f"ordercast: {folder / NAME} is not a store of records: something else is in its place\n"
    )
