"""What a node's folder remembers about the groups that it was in."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from pathlib import Path

import msgspec
import pytest
from tests.net.held_disk import disk_held
from tests.net.nodes import Cluster, kill, live, place_of, until
from tests.net.test_open import OPEN, enter, found, in_families
from tests.store.stored import opened

from ordercast import Fifo
from ordercast.errors import DiskError, UsageError
from ordercast.kernel.family import Level
from ordercast.kernel.step import Heard, Step
from ordercast.levels import level_type
from ordercast.net import last_members
from ordercast.net.committer import Committer
from ordercast.net.incidents import Incidents
from ordercast.net.last_members import MOST_LEFT, MOST_NAMES, LastMembers
from ordercast.net.node import NodeState
from ordercast.protocol.families import FAMILIES
from ordercast.testing.stage import Stage
from ordercast.types import Joined, NodeId, View


class Folder:
    """A folder, and who writes its file in a thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failures: list[DiskError] = []
        self.incidents = Incidents()
        self._store = opened(path)
        self.committer = Committer(self._store, self.failures.append)
        self.members = LastMembers(path, self.committer, self.incidents)

    async def __aenter__(self) -> Folder:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.members.close()
        await self.committer.close()
        self._store.close()

    async def written(self) -> None:
        """All that was given is on the disk, or failed."""
        await self.committer.close()


def on_disk(path: Path) -> dict[str, list[str]]:
    """What another incarnation would find, by group, whatever its family."""
    file = path / "groups"
    found = msgspec.json.decode(file.read_bytes()) if file.exists() else {}
    return {text.partition("+")[0]: names for text, names in found.items()}


def told(stage: Stage, *news: Heard) -> None:
    """One step of the machine of n1 says this."""

    def say(step: Step) -> None:
        for item in news:
            step.notify(item)

    stage.act("n1", say)


@live
async def test_the_last_members_of_a_group_are_found_again(cluster: Cluster) -> None:
    async with Folder(cluster.folder) as first:
        assert first.members.of("orders", "fifo") == ()
        first.members.note("orders", "fifo", ["n2", "n1"])
        first.members.note("prices", "fifo", ["n1"])
    async with Folder(cluster.folder) as again:
        assert again.members.of("orders", "fifo") == ("n1", "n2")
        assert again.members.of("prices", "fifo") == ("n1",)
        assert again.members.has_been_alone("n1")
        assert await again.members.drop("n3") == []
        assert await again.members.drop("n2") == ["orders"]
        assert on_disk(cluster.folder)["orders"] == ["n1"], "when it returns"
    async with Folder(cluster.folder) as last:
        forgotten = asyncio.Event()
        last.members.forget(forgotten.set)
        await forgotten.wait()
        assert on_disk(cluster.folder) == {}


@live
async def test_a_group_of_another_family_is_another_group(cluster: Cluster) -> None:
    async with Folder(cluster.folder) as first:
        first.members.note("orders", "total", ["n1", "n2"])
        first.members.note("orders", "causal", ["n1"])
    async with Folder(cluster.folder) as again:
        assert again.members.of("orders", "total") == ("n1", "n2")
        assert again.members.of("orders", "causal") == ("n1",)
        assert again.members.of("orders", "fifo") == ()
        assert await again.members.drop("n1") == ["orders"]


@live
async def test_a_file_of_an_earlier_version_counts_for_every_family(cluster: Cluster) -> None:
    """Until the node is in the group again: then it is known which family it was."""
    (cluster.folder / "groups").write_bytes(b'{"orders": ["n1", "n2"]}')
    async with Folder(cluster.folder) as folder:
        assert folder.members.of("orders", "causal") == ("n1", "n2")
        folder.members.note("orders", "total", ["n1"])
        assert folder.members.of("orders", "total") == ("n1",)
        assert folder.members.of("orders", "causal") == ()


@live
async def test_nothing_is_written_that_has_not_changed(cluster: Cluster) -> None:
    async with Folder(cluster.folder) as first:
        first.members.note("orders", "fifo", ["n1"])
    (cluster.folder / "groups").rename(cluster.folder / "groups.before")
    (cluster.folder / "groups").write_bytes(b'{"orders+fifo": ["n1"]}')
    written = (cluster.folder / "groups").stat().st_ino
    async with Folder(cluster.folder) as again:
        again.members.note("orders", "fifo", ["n1"])
    assert (cluster.folder / "groups").stat().st_ino == written


@live
async def test_of_many_members_some_are_remembered(cluster: Cluster) -> None:
    names = [f"n{number:04}" for number in range(1000)]
    async with Folder(cluster.folder) as first:
        first.members.note("orders", "fifo", names)
        assert first.members.of("orders", "fifo") == tuple(names[:MOST_NAMES])
        first.members.note("orders", "fifo", names[1:])
        assert first.members.of("orders", "fifo") == tuple(names[:MOST_NAMES]), "one more or less"


@live
async def test_of_groups_that_were_left_the_last_are_remembered(cluster: Cluster) -> None:
    """A node that goes from room to room for years must not remember all of them."""
    async with Folder(cluster.folder) as folder:
        members, host = folder.members, Stage.of("fifo", "n1").actors["n1"].host
        members.watch("home", "fifo", host)
        members.note("home", "fifo", ["n1"])
        for number in range(MOST_LEFT + 3):
            members.watch(f"room{number}", "fifo", host)
            members.note(f"room{number}", "fifo", ["n1", "n2"])
        assert len(members.of("room0", "fifo")) == 2, "it is in all of them"
        for number in reversed(range(MOST_LEFT + 3)):
            members.left(f"room{number}")
        assert folder.incidents.counters["groups_forgotten"] == 3
        assert members.of("home", "fifo") == ("n1",)
        last, first = members.of("room0", "fifo"), members.of(f"room{MOST_LEFT + 2}", "fifo")
        assert (len(last), len(first)) == (2, 0)
        members.left("nowhere")
    assert len(on_disk(cluster.folder)) == MOST_LEFT + 1


@live
async def test_groups_of_former_incarnations_are_bounded_too(cluster: Cluster) -> None:
    """A node that is killed again and again leaves no group."""
    former = {f"room{number}": ["n1"] for number in range(MOST_LEFT + 3)}
    (cluster.folder / "groups").write_bytes(msgspec.json.encode(former))
    async with Folder(cluster.folder) as folder:
        folder.members.watch("room1", "fifo", Stage.of("fifo", "n1").actors["n1"].host)
        assert folder.members.of("room0", "fifo") == folder.members.of("room2", "fifo") == ()
        assert folder.members.of("room1", "fifo") == folder.members.of("room4", "fifo") == ("n1",)


@live
async def test_a_damaged_file_is_rejected(cluster: Cluster) -> None:
    (cluster.folder / "groups").write_bytes(b'{"orders": 7}')
    with pytest.raises(UsageError, match="groups is damaged"):
        Folder(cluster.folder)


def break_disk(folder: Path) -> None:
    """Something else is in the place of the file that is written first."""
    (folder / "groups.tmp").unlink(missing_ok=True)
    (folder / "groups.tmp").mkdir()


def mend_disk(folder: Path) -> None:
    (folder / "groups.tmp").rmdir()


@live
async def test_a_file_that_cannot_be_written_is_an_error(cluster: Cluster) -> None:
    break_disk(cluster.folder)
    async with Folder(cluster.folder) as folder:
        folder.members.note("orders", "fifo", ["n1"])
        await folder.written()
        assert "groups cannot be written: Is a directory" in str(folder.failures[0])


@live
async def test_what_cannot_be_written_is_not_dropped(cluster: Cluster) -> None:
    async with Folder(cluster.folder) as before:
        before.members.note("orders", "fifo", ["n1", "n2"])
    break_disk(cluster.folder)
    async with Folder(cluster.folder) as folder:
        for _ in range(2):  # the disk is not asked again
            with pytest.raises(DiskError):
                await folder.members.drop("n2")
            folder.members.note("orders", "fifo", ["n1", "n2"])
    mend_disk(cluster.folder)
    async with Folder(cluster.folder) as again:
        assert await again.members.drop("n2") == ["orders"]
    assert on_disk(cluster.folder) == {"orders": ["n1"]}


@live
async def test_a_step_takes_effect_when_the_file_has_its_view(cluster: Cluster) -> None:
    """And so does a later step that says the same, while the disk is busy with the first."""
    stage = Stage.of("fifo", "n1")
    view, heard = View("orders", 1, (NodeId("n1"), NodeId("n2"))), len(stage.log)
    async with Folder(cluster.folder) as folder:
        folder.members.watch("orders", "fifo", stage.actors["n1"].host)
        with disk_held() as held:
            told(stage, view)
            told(stage, view)
            await until(held.is_held)
            assert len(stage.log) == heard
            assert on_disk(cluster.folder) == {}
            held.let_go()
            await until(lambda: len(stage.log) == heard + 2)
            assert on_disk(cluster.folder) == {"orders": ["n1", "n2"]}


@live
async def test_of_a_large_group_without_views_members_are_written_together(
    cluster: Cluster,
) -> None:
    """A thousand nodes that start at once would wait for their disks for minutes."""
    stage = Stage.of("fifo", "n1")

    def names_on_disk() -> int:
        return len(on_disk(cluster.folder).get("orders", ()))

    async with Folder(cluster.folder) as folder:
        members = folder.members
        members.watch("orders", "fifo", stage.actors["n1"].host)
        for number in range(1, 9):
            heard = len(stage.log)
            told(stage, Joined("orders", NodeId(f"n{number}")))
            await until(lambda heard=heard: len(stage.log) > heard)
            assert names_on_disk() >= number, "each before its step takes effect, of few"
        for number in range(10, 60):
            heard = len(stage.log)
            told(stage, Joined("orders", NodeId(f"n{number}")))
            assert len(stage.log) > heard, "it takes effect at once"
        assert len(members.of("orders", "fifo")) == 58
        assert names_on_disk() == 8
        members.close()
        await until(lambda: names_on_disk() == 58)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(last_members, "GATHERING_SECONDS", 0)
            told(stage, Joined("orders", NodeId("n60")))
            await until(lambda: names_on_disk() == 59)


# --- in a node ---------------------------------------------------------------------------------


async def let_nobody_in(cluster: Cluster, level: Level) -> None:
    """As if it was killed then: its folder says that it was alone, and nobody knows better."""
    n1, first = await found(cluster, level)
    break_disk(cluster.folder / "n1")
    _, second = await enter(cluster, "n2", n1, level)
    await until(lambda: not first.is_open)
    assert isinstance(first.ended, DiskError)
    assert on_disk(cluster.folder / "n1") == {"orders": ["n1"]}
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


async def wait_for_no_disk(cluster: Cluster, level: Level) -> None:
    """While the view with n2 is being written, n1 talks to n3 in another group."""
    n1, first = await found(cluster, level)
    n2, n3 = [await cluster.open(name, seeds=[place_of(n1)]) for name in ("n2", "n3")]
    members, quick = ["n1", "n3"], Fifo(heartbeat="10ms")
    ours, theirs = (node.join("prices", quick, members) for node in (n1, n3))
    await theirs.ready()
    await ours.ready()
    with disk_held() as held:
        second = n2.join("orders", level)
        await until(held.is_held)
        await ours.send(b"while the disk is busy", until="stable")
        assert [member.name for member in first.members] == ["n1"]
        held.let_go()
        await second.ready()
        await until(lambda: len(first.members) == 2)
        assert threading.get_ident() not in held.threads, "the event loop waited for the disk"
    assert on_disk(cluster.folder / "n1")["orders"] == ["n1", "n2"]


@live
async def test_a_fifo_member_goes_on_while_a_view_is_written(cluster: Cluster) -> None:
    await wait_for_no_disk(cluster, OPEN["fifo"])


@live
async def test_a_member_of_an_ordered_group_goes_on_while_a_view_is_written(
    cluster: Cluster,
) -> None:
    await wait_for_no_disk(cluster, OPEN["total"])


@live
async def test_a_causal_member_goes_on_while_a_member_is_written(cluster: Cluster) -> None:
    await wait_for_no_disk(cluster, OPEN["causal"])


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
    await until(lambda: "n3" in on_disk(cluster.folder / "n1")["orders"])
    assert on_disk(cluster.folder / "n1")["orders"][:2] == ["n1", "n2"]


FOUNDER = """
import asyncio, json, sys
import ordercast
from ordercast.levels import level_type
from ordercast.protocol.families import FAMILIES

async def main(data, family, options):
    level = level_type(FAMILIES[family])(**json.loads(options))
    async with ordercast.open(name="n1", data=data, listen="127.0.0.1:0") as node:
        group = node.join("orders", level)
        await group.ready()
        print(node.status()["listens"], flush=True)
        await group.run(lambda item: None)

asyncio.run(main(*sys.argv[1:]))
"""
QUICKLY: dict[str, dict[str, object]] = {
    "fifo": {"heartbeat": "10ms"},
    "causal": {"round": "10ms", "lease": "400ms"},
}


@pytest.mark.parametrize("family", QUICKLY)
def test_a_member_that_is_killed_right_after_a_view_remembers_it(
    family: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is killed as soon as another one has heard of it as a member. (In `total` that one may be
    ahead: see docs/node.md on two groups of one name.)"""

    @live
    async def story(cluster: Cluster) -> None:
        options, folder = QUICKLY[family], cluster.folder / "n1"
        n1 = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", FOUNDER, str(folder), family, json.dumps(options)),
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert n1.stdout is not None
            place = (await n1.stdout.readline()).decode().strip()
            n2 = await cluster.open("n2", seeds=[place])
            second = n2.join("orders", level_type(FAMILIES[family])(**options))
            await until(lambda: "n1" in [member.name for member in second.members])
        finally:
            n1.kill()
            await n1.wait()
        assert on_disk(folder) == {"orders": ["n1", "n2"]}

    story("asyncio", tmp_path, caplog)


@in_families("fifo", "total", "atomic")
async def test_a_causal_cluster_is_founded_where_another_level_had_its_name(
    cluster: Cluster, level: Level
) -> None:
    """It would begin again without tickets, for ever, as if its lease replicas were elsewhere."""
    n1, _ = await found(cluster, level)
    await n1.__aexit__(None, None, None)
    _, group = await found(cluster, OPEN["causal"])
    assert await group.become_updater(timeout=20) == group.updating
