"""Who founds an open group again, and who joins it: members that come back with their folders."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from tests.scenarios.test_scenarios import assert_lawful

from ordercast.scenario.file import load_scenario
from ordercast.testing import Simulated, simulate
from ordercast.types import Event, Waiting
from ordercast.units import SECOND

HEAD = """
name = "founded again"
family = "{family}"
processes = {processes}
duration = "{seconds}s"
quiet = "4s"
[workload]
rate = 5
[[group]]
name = "orders"
members = [{names}]
open = true
anchors = [{names}]
expect = {expect}
"""
BLOCKED = """
[[fault]]
at = "2s"
kind = "partition"
sides = [["n1", "n2", "n3"], ["n4", "n5"]]
for = "3s"
[[fault]]
at = "6s"
kind = "crash"
nodes = ["n4"]
[[fault]]
at = "6s"
kind = "restart"
nodes = ["n1", "n2", "n3", "n5"]
for = "500ms"
"""
ALONE = """
[[fault]]
at = "2s"
kind = "partition"
nodes = ["n1"]
for = "3s"
[[fault]]
at = "6s"
kind = "restart"
nodes = ["n1"]
for = "500ms"
"""
CUT_OFF = """
[options]
tickets = 1
[[fault]]
at = "{at}ms"
kind = "partition"
nodes = ["n1"]
for = "6s"
"""


def play(
    folder: Path,
    seed: int,
    family: str,
    processes: int,
    expect: int,
    text: str,
    *,
    seconds: int = 12,
) -> Simulated:
    names = ", ".join(f'"n{number}"' for number in range(1, processes + 1))
    head = HEAD.format(
        family=family, processes=processes, seconds=seconds, names=names, expect=expect
    )
    path = folder / "scenario.toml"
    path.write_text(head + text, encoding="utf-8")
    run = simulate(load_scenario(path), seed)
    assert_lawful(run)
    return run


def views_after(run: Simulated, seconds: int) -> list[tuple[str, str]]:
    """Process and members."""
    rows = [row for row in run.trace.rows if row.kind == "view" and row.at > seconds * SECOND]
    return [(row.process, " ".join(row.members)) for row in rows]


@pytest.mark.parametrize("seed", [1, 6, 7, 10, 12])
def test_one_that_waits_for_others_keeps_nobody_from_founding_the_group(
    seed: int, tmp_path: Path
) -> None:
    """n5 was in the group with n4, which does not come back. n1, n2 and n3 are all there."""
    run = play(tmp_path, seed, "total", 5, 3, BLOCKED)
    last = dict(views_after(run, 6))
    assert last == dict.fromkeys(("n1", "n2", "n3", "n5"), "n1 n2 n3 n5")


@pytest.mark.parametrize("family", ["fifo", "total", "sequenced", "atomic"])
@pytest.mark.parametrize("seed", range(1, 4))
def test_one_that_was_cut_off_alone_joins_the_others_when_it_restarts(
    seed: int, family: str, tmp_path: Path
) -> None:
    run = play(tmp_path, seed, family, 3, 2, ALONE)
    views = [members for process, members in views_after(run, 6) if process == "n1"]
    assert views == ["n1 n2 n3"]


@pytest.mark.parametrize("at", range(100, 1000, 200))
def test_one_that_is_cut_off_while_it_begins_a_cluster_begins_the_only_one(
    at: int, tmp_path: Path
) -> None:
    """The others have promised their votes, and wait for it: no ticket has two owners."""
    run = play(tmp_path, 1, "causal", 3, 2, CUT_OFF.format(at=at))
    first = {row.process for row in run.trace.rows if row.kind == "deliver"}
    assert first == {"n1", "n2", "n3"}


# --- one partition, two clusters ------------------------------------------------------------------


@pytest.mark.parametrize("at", [100, 500, 1000, 1050, 1100])
@pytest.mark.parametrize(("processes", "expect"), [(3, 2), (5, 3)])
def test_one_that_is_cut_off_while_several_begin_a_cluster_begins_no_second_one(
    processes: int, expect: int, at: int, tmp_path: Path
) -> None:
    """The only ticket would have two owners."""
    for seed in (1, 2):
        run = play(tmp_path, seed, "causal", processes, expect, CUT_OFF.format(at=at))
        assert len(run.delivered_by("n1")) > 0


def storm(seed: int, processes: int) -> str:
    """Partitions and restarts, while the cluster begins."""
    chance, text = Random(seed), "[options]\ntickets = 1\n"
    names = [f"n{number}" for number in range(1, processes + 1)]
    at = 0
    while at < 5000:
        at += chance.randint(50, 700)
        some = chance.sample(names, chance.randint(1, processes // 2))
        kind = chance.choice(("partition", "partition", "restart"))
        some = some if kind == "partition" else some[:1]
        text += f'[[fault]]\nat = "{at}ms"\nkind = "{kind}"\nnodes = {some}\n'
        text += f'for = "{chance.randint(50, 1500)}ms"\n'
    return text


def silent_after(run: Simulated, seconds: int, processes: int) -> set[str]:
    late = [row for row in run.trace.rows if row.at > seconds * SECOND]
    names = {f"n{number}" for number in range(1, processes + 1)}
    return names - {row.process for row in late if row.kind == "deliver"}


# The last ones once broke a law, or nobody delivered anything any more.
@pytest.mark.parametrize("seed", [*range(20), 25, 60, 90, 93, 123, 186])
def test_in_a_storm_of_partitions_and_restarts_one_cluster_begins(
    seed: int, tmp_path: Path
) -> None:
    processes, expect = ((3, 2), (4, 3), (5, 3))[seed % 3]
    run = play(tmp_path, seed, "causal", processes, expect, storm(seed, processes))
    assert not silent_after(run, 10, processes)


GONE = """
[options]
tickets = 1
[[fault]]
at = "{at}ms"
kind = "restart"
nodes = ["n1"]
for = "5s"
"""


@pytest.mark.parametrize("at", [980, 1000, 1020, 1040, 1060])
def test_who_was_chosen_to_begin_and_crashed_begins_when_it_is_back(
    at: int, tmp_path: Path
) -> None:
    run = play(tmp_path, 1, "causal", 3, 2, GONE.format(at=at))
    assert min(len(run.delivered_by(name)) for name in ("n1", "n2", "n3")) > 0


# --- begun again ----------------------------------------------------------------------------------


GUARD_CUT_OFF = """
[options]
tickets = 1
lease = "4s"
guards = 1
[[fault]]
at = "1500ms"
kind = "partition"
nodes = ["n1"]
for = "8s"
[[fault]]
at = "2500ms"
kind = "restart"
nodes = ["n2", "n3"]
"""
GUARDS_GONE = """
[options]
tickets = 1
lease = "400ms"
[[fault]]
at = "1200ms"
kind = "crash"
nodes = ["n1", "n3"]
[[fault]]
at = "1500ms"
kind = "restart"
nodes = ["n2", "n4", "n5"]
"""


@pytest.mark.parametrize("seed", range(1, 6))
def test_members_that_begin_again_do_not_own_what_a_cut_off_replica_grants(
    seed: int, tmp_path: Path
) -> None:
    """n1 is the only lease replica, and grants itself the ticket. The others are a majority."""
    run = play(tmp_path, seed, "causal", 3, 2, GUARD_CUT_OFF)
    acquired = [row for row in run.trace.rows if row.kind == "ticket" and row.cause == "acquired"]
    assert {row.process for row in acquired if row.at < 9 * SECOND} == {"n1"}
    heard = run.heard["n2"]
    assert isinstance(heard[-1], Event), "it delivers when n1 is back"


def test_members_that_begin_again_say_which_lease_replicas_they_wait_for(tmp_path: Path) -> None:
    """The first three that came are the lease replicas, and n5 alone grants nothing."""
    run = play(tmp_path, 1, "causal", 5, 3, GUARDS_GONE)
    for name in ("n2", "n4", "n5"):
        told = [item for item in run.heard[name] if isinstance(item, Waiting)]
        assert told[-1].on == ("n1", "n3")
        assert "no ticket can be had" in told[-1].why


def restarts(seed: int, processes: int) -> str:
    """Many restart at once, and come back one after the other, some of them cut off."""
    chance, text = Random(seed), '[options]\ntickets = 1\nlease = "400ms"\n'
    names = [f"n{number}" for number in range(1, processes + 1)]
    at = chance.randint(1000, 2500)
    while at < 6000:
        down = chance.randint(100, 1500)
        for name in chance.sample(names, chance.randint(1, processes)):
            text += f'[[fault]]\nat = "{at + chance.randint(0, 400)}ms"\nkind = "restart"\n'
            text += f'nodes = ["{name}"]\nfor = "{down + chance.randint(0, 600)}ms"\n'
        if chance.random() < 0.5:
            some = chance.sample(names, chance.randint(1, processes // 2))
            text += f'[[fault]]\nat = "{at + chance.randint(0, 600)}ms"\nkind = "partition"\n'
            text += f'nodes = {some}\nfor = "{down + 1000}ms"\n'
        at += chance.randint(300, 2500)
    return text


# The last ones once broke the run.
@pytest.mark.parametrize("seed", [*range(12), 51, 67])
def test_in_a_storm_of_restarts_members_begin_again_and_all_deliver(
    seed: int, tmp_path: Path
) -> None:
    processes, expect = ((3, 2), (4, 3), (5, 3))[seed % 3]
    text = restarts(seed, processes)
    run = play(tmp_path, seed, "causal", processes, expect, text, seconds=15)
    assert not silent_after(run, 12, processes)


# --- nodes without their folders ------------------------------------------------------------------

RESTARTED_FIRST = """
of = 3
[[fault]]
at = "1s"
kind = "restart"
nodes = ["n1"]
for = "200ms"
disk = "lost"
[[fault]]
at = "3s"
kind = "join"
nodes = ["n3"]
group = "orders"
"""
ONE_BY_ONE = """
of = 3
[[fault]]
at = "4s"
kind = "restart"
nodes = ["n1"]
for = "200ms"
disk = "lost"
[[fault]]
at = "4205ms"
kind = "restart"
nodes = ["n2"]
for = "200ms"
disk = "lost"
[[fault]]
at = "4210ms"
kind = "restart"
nodes = ["n3"]
for = "200ms"
disk = "lost"
"""

TWO_FOLDERS = """
[[fault]]
at = "4s"
kind = "restart"
nodes = ["{}"]
for = "200ms"
disk = "lost"
[[fault]]
at = "4300ms"
kind = "restart"
nodes = ["{}"]
for = "200ms"
disk = "lost"
"""

LEAVES = """
[[fault]]
at = "4s"
kind = "leave"
nodes = ["{}"]
"""


def last_words(run: Simulated, name: str) -> str:
    """Why it waits."""
    return [item.why for item in run.heard[name] if isinstance(item, Waiting)][-1]


@pytest.mark.parametrize("family", ["causal", "total"])
def test_nodes_that_lost_their_folders_say_what_helps(family: str, tmp_path: Path) -> None:
    """Without `of` five nodes may expect three: n1 may be in the group with two that are away."""
    text = RESTARTED_FIRST.replace("of = 3", "")
    run = play(tmp_path, 1, family, 3, 3, text)
    assert not run.delivered_by("n2")
    for name in ("n1", "n2"):
        why = last_words(run, name)
        assert "n1 lost the data folder, and may have been in the group" in why
        assert "if fewer than 5 nodes give expect, say how many at each of them (of=...)" in why


def is_reborn(run: Simulated, name: str) -> bool:
    """Whether it took a number that is not drawn, in its last start: others knew its name."""
    last = [row for row in run.trace.rows if row.kind == "start" and row.process == name][-1]
    return 0 < last.incarnation < 100


@pytest.mark.parametrize("lost", [("n2", "n1"), ("n1", "n2")])
def test_a_lease_replica_that_lost_its_folder_is_replaced_before_the_next_one_loses_its_own(
    lost: tuple[str, str], tmp_path: Path
) -> None:
    """The second is killed a tenth of a second after the first one is back."""
    run = play(tmp_path, 2, "causal", 4, 3, TWO_FOLDERS.format(*lost), seconds=10)
    assert all(is_reborn(run, name) for name in lost)
    assert not silent_after(run, 9, 4)


@pytest.mark.parametrize("name", ["n1", "n3"])
def test_a_lease_replica_leaves_within_a_lease_although_nobody_can_take_its_place(
    name: str, tmp_path: Path
) -> None:
    """Of three members two stay, and one of these is the only lease replica then."""
    run = play(tmp_path, 1, "causal", 3, 2, LEAVES.format(name))
    (left,) = [row.at for row in run.trace.rows if row.kind == "leave"]
    assert 4 * SECOND < left < (4 + 2 + 0.1) * SECOND
    assert silent_after(run, 11, 3) == {name}


@pytest.mark.parametrize(
    ("family", "text"),
    [
        *((family, RESTARTED_FIRST) for family in ("fifo", "causal", "total", "atomic")),
        # Each is back in a causal cluster at once.
        *((family, ONE_BY_ONE) for family in ("fifo", "total", "sequenced")),
    ],
)
def test_three_nodes_found_the_group_although_they_lost_their_folders(
    family: str, text: str, tmp_path: Path
) -> None:
    """n1 lost it before the group was founded, or all of them one after the other."""
    for seed in range(1, 4):
        run = play(tmp_path, seed, family, 3, 3, text)
        assert is_reborn(run, "n1"), "others knew its name"
        assert min(delivered_after(run, name, 8) for name in ("n1", "n2", "n3")) > 0, seed


def delivered_after(run: Simulated, name: str, seconds: int) -> int:
    rows = [row for row in run.trace.rows if row.kind == "deliver" and row.process == name]
    return sum(row.at > seconds * SECOND for row in rows)


INITIATOR_LOST = """
of = 15
[[fault]]
at = "11ms"
kind = "restart"
nodes = ["n1"]
for = "300ms"
disk = "lost"
"""


def test_fourteen_wait_for_an_initiator_that_lost_its_folder_and_not_for_ever(
    tmp_path: Path,
) -> None:
    """n1 has invited the others; the first view would come at 33 ms."""
    run = play(tmp_path, 1, "total", 15, 15, INITIATOR_LOST)
    first = dict(reversed(views_after(run, 0)))
    assert len(first) == 15
    assert {len(members.split()) for members in first.values()} == {15}
