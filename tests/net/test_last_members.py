"""What a node's folder remembers about the groups that it was in."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NoReturn

import pytest
from tests.net.nodes import GENEROUS, Cluster, kill, live, place_of, until
from tests.net.test_open import OPEN, enter, found

from ordercast.errors import DiskError, UsageError
from ordercast.kernel.family import Level
from ordercast.kernel.step import Heard, Step
from ordercast.net import last_members
from ordercast.net.last_members import MOST_NAMES, LastMembers
from ordercast.net.node import NodeState
from ordercast.testing.stage import Stage
from ordercast.types import Joined, NodeId, View


def failing(error: DiskError) -> NoReturn:
    raise AssertionError(error)


def test_the_last_members_of_a_group_are_found_again(tmp_path: Path) -> None:
    first = LastMembers(tmp_path, failing)
    assert first.of("orders") == ()
    first.note("orders", ["n2", "n1"])
    first.note("prices", ["n1"])
    again = LastMembers(tmp_path, failing)
    assert again.of("orders") == ("n1", "n2")
    assert again.of("prices") == ("n1",)
    assert again.drop("n3") == []
    assert again.drop("n2") == ["orders"]
    assert LastMembers(tmp_path, failing).of("orders") == ("n1",)
    again.forget()
    assert LastMembers(tmp_path, failing).of("orders") == ()


def test_nothing_is_written_that_has_not_changed(tmp_path: Path) -> None:
    members = LastMembers(tmp_path, failing)
    members.note("orders", ["n1"])
    (tmp_path / "groups").unlink()
    members.note("orders", ["n1"])
    assert not (tmp_path / "groups").exists()


def test_of_many_members_some_are_remembered(tmp_path: Path) -> None:
    members = LastMembers(tmp_path, failing)
    names = [f"n{number:04}" for number in range(1000)]
    members.note("orders", names)
    assert members.of("orders") == tuple(names[:MOST_NAMES])
    (tmp_path / "groups").unlink()
    members.note("orders", names[1:])
    assert not (tmp_path / "groups").exists(), "one member more or less is no news"


def test_a_damaged_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "groups").write_bytes(b'{"orders": 7}')
    with pytest.raises(UsageError, match="groups is damaged"):
        LastMembers(tmp_path, failing)


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    members = LastMembers(tmp_path / "gone", failing)
    with pytest.raises(DiskError, match="groups cannot be written"):
        members.note("orders", ["n1"])


def break_disk(folder: Path) -> None:
    """Something else is in the place of the file that is written first."""
    (folder / "groups.tmp").unlink(missing_ok=True)
    (folder / "groups.tmp").mkdir()


def mend_disk(folder: Path) -> None:
    (folder / "groups.tmp").rmdir()


def test_what_cannot_be_written_is_not_dropped(tmp_path: Path) -> None:
    members = LastMembers(tmp_path, failing)
    members.note("orders", ["n1", "n2"])
    break_disk(tmp_path)
    with pytest.raises(DiskError):
        members.drop("n2")
    with pytest.raises(DiskError):
        members.forget()
    mend_disk(tmp_path)
    assert members.of("orders") == ("n1", "n2")
    assert members.drop("n2") == ["orders"]
    assert LastMembers(tmp_path, failing).of("orders") == ("n1",)


def told(stage: Stage, *news: Heard) -> None:
    """One step of the machine of n1 says this."""

    def say(step: Step) -> None:
        for item in news:
            step.notify(item)

    stage.act("n1", say)


def durable(folder: Path) -> tuple[str, ...]:
    """What another incarnation would find."""
    return LastMembers(folder, failing).of("orders")


def test_of_a_large_group_without_views_members_are_written_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand nodes that start at once would wait for their disks for minutes."""

    async def story() -> None:
        stage, members = Stage.of("fifo", "n1"), LastMembers(tmp_path, failing)
        members.watch("orders", stage.actors["n1"].host)
        told(stage, *(Joined("orders", NodeId(f"n{number}")) for number in range(1, 4)))
        assert durable(tmp_path) == ("n1", "n2", "n3")
        for number in range(4, 9):
            told(stage, Joined("orders", NodeId(f"n{number}")))
            assert len(durable(tmp_path)) == number, "each at once, of few"
        for number in range(10, 60):
            told(stage, Joined("orders", NodeId(f"n{number}")))
        assert len(members.of("orders")) == 58
        assert len(durable(tmp_path)) == 8
        members.close()
        assert durable(tmp_path) == members.of("orders")
        told(stage, View("orders", 1, (NodeId("n1"), NodeId("n2"))))
        assert durable(tmp_path) == ("n1", "n2"), "a view at once"
        monkeypatch.setattr(last_members, "FEW_NAMES", 2)
        monkeypatch.setattr(last_members, "GATHERING_SECONDS", 0)
        told(stage, Joined("orders", NodeId("n3")))
        assert durable(tmp_path) == ("n1", "n2")
        async with asyncio.timeout(GENEROUS):
            await until(lambda: durable(tmp_path) == ("n1", "n2", "n3"))

    asyncio.run(story())


# --- in a node ---------------------------------------------------------------------------------


async def let_nobody_in(cluster: Cluster, level: Level) -> None:
    """As if it was killed then: its folder says that it was alone, and nobody knows better."""
    n1, first = await found(cluster, level)
    break_disk(cluster.folder / "n1")
    _, second = await enter(cluster, "n2", n1, level)
    await until(lambda: not first.is_open)
    assert isinstance(first.ended, DiskError)
    assert LastMembers(cluster.folder / "n1", failing).of("orders") == ("n1",)
    assert n1.state is NodeState.BROKEN
    assert "groups cannot be written: Is a directory" in cluster.log.text
    assert "broke" not in cluster.log.text, "it is no bug of a machine"
    with pytest.raises(TimeoutError):
        await second.ready(timeout=1)


@live
async def test_a_fifo_member_that_cannot_remember_another_has_not_let_it_in(
    cluster: Cluster,
) -> None:
    await let_nobody_in(cluster, OPEN["fifo"])


@live
async def test_a_member_of_an_ordered_group_that_cannot_remember_another_stops(
    cluster: Cluster,
) -> None:
    """All its groups end, and nothing more is sent: the others go on as after a crash."""
    n1, first = await found(cluster, OPEN["total"])
    other = n1.join("prices", OPEN["fifo"])
    await other.ready()
    break_disk(cluster.folder / "n1")
    _, second = await enter(cluster, "n2", n1, OPEN["total"])
    await until(lambda: not first.is_open and not other.is_open)
    assert isinstance(first.ended, DiskError)
    assert isinstance(other.ended, DiskError)
    assert n1.state is NodeState.BROKEN
    assert "broke" not in cluster.log.text
    await until(lambda: [member.name for member in second.members] == ["n2"])


@live
async def test_a_causal_member_that_cannot_remember_another_has_not_let_it_in(
    cluster: Cluster,
) -> None:
    await let_nobody_in(cluster, OPEN["causal"])


@live
async def test_a_member_that_comes_back_remembers_those_that_it_has_not_met_yet(
    cluster: Cluster,
) -> None:
    """Who is not there now may have the group, and a majority needs its name."""
    level = OPEN["gossip"]
    n1, first = await found(cluster, level)
    _, second = await enter(cluster, "n2", n1, level)
    await until(lambda: len(first.members) == len(second.members) == 2)
    place = place_of(n1)
    await kill(n1)
    await kill(second.node)
    again = await cluster.open("n1", listen=place)
    again.join("orders", level)
    _, third = await enter(cluster, "n3", again, level)
    await third.ready()
    file = LastMembers(cluster.folder / "n1", failing)
    await until(lambda: "n3" in LastMembers(cluster.folder / "n1", failing).of("orders"))
    assert file.of("orders")[:2] == ("n1", "n2")
