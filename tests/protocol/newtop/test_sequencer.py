"""Groups that a sequencer orders (sections 4.2 and 4.3): turns, blocking, and its failure.

They are not offered: after a split two members may have delivered two events in different orders.
What is shown here is what they keep: every other law, and one order among who stays together.
"""

from __future__ import annotations

from itertools import combinations

import pytest
from tests.protocol.newtop.storms import Storm, storm
from tests.protocol.newtop.table import carry, die, heard, life, member, messages, views, wait

from ordercast.errors import PeerError
from ordercast.kernel.machine import Plan
from ordercast.protocol.newtop import WITH_SEQUENCER
from ordercast.protocol.newtop.options import SequencedOptions
from ordercast.protocol.newtop.packets import Turn
from ordercast.testing.stage import Stage
from ordercast.trace.schema import Row


def staged(groups: dict[str, str], everyone: str = "") -> Stage:
    """A started stage. The groups named in `everyone` have no sequencer."""
    plans = [
        Plan(
            group,
            tuple(sorted(names.split())),
            SequencedOptions(by="everyone" if group in everyone else "sequencer"),
        )
        for group, names in groups.items()
    ]
    stage = Stage(WITH_SEQUENCER, plans)
    stage.start()
    return stage


def test_the_sequencers_word_is_enough() -> None:
    """n3 delivers without a word of n2, which a group without a sequencer would wait for."""
    stage = staged({"g": "n1 n2 n3"})
    stage.cut("n2", "n3")
    stage.cut("n2", "n1")
    stage.submit("n3", [b"a"])
    carry(stage, "n3", "n1")
    assert messages(stage, "n1") == ["a"], "the sequencer itself"
    assert messages(stage, "n3") == []
    carry(stage, "n1", "n3")
    assert messages(stage, "n3") == ["a"]


def test_events_come_in_the_order_of_their_turns() -> None:
    stage = staged({"g": "n1 n2 n3"})
    stage.submit("n2", [b"a"])
    stage.submit("n3", [b"b"])
    carry(stage, "n3", "n1")
    carry(stage, "n2", "n1")
    stage.settle()
    assert [messages(stage, name) for name in stage.actors] == [["b", "a"]] * 3


def test_a_turn_waits_for_its_event() -> None:
    stage = staged({"g": "n1 n2 n3"})
    stage.submit("n2", [b"a"])
    carry(stage, "n2", "n1")
    carry(stage, "n1", "n3")
    assert messages(stage, "n3") == []
    carry(stage, "n2", "n3")
    assert messages(stage, "n3") == ["a"]


def test_a_sender_waits_in_its_other_groups_until_its_event_has_a_turn() -> None:
    """The blocking rules, with a sequencer there and without one (mixed mode)."""
    stage = staged({"g": "n1 n2", "h": "n2 n3", "k": "n2 n3"}, everyone="k")
    assert stage.submit("n2", [b"a"], "g")
    assert stage.submit("n2", [b"b"], "g"), "but not in the same group"
    assert not stage.accepts("n2", "h")
    assert not stage.accepts("n2", "k")
    stage.settle()
    event = stage.submit("n2", [b"c"], "k")
    assert event is not None
    turns = [what.order for what in stage.deliveries(life("n1"))]
    assert all((order or 0) < (event.order or 0) for order in turns)
    assert len(turns) == 2


def test_an_event_without_a_turn_gets_one_from_the_next_sequencer() -> None:
    stage = staged({"g": "n1 n2 n3"})
    stage.submit("n3", [b"a"])
    carry(stage, "n3", "n2")
    die(stage, "n1")
    wait(stage)
    expected = ["g{n1 n2 n3}", "g{n2 n3}", "a"]
    assert heard(stage, "n2") == heard(stage, "n3") == expected
    stage.submit("n2", [b"b"])
    stage.settle(ticks=2)
    assert messages(stage, "n3") == ["a", "b"]


def test_turns_that_one_survivor_has_hold_for_all() -> None:
    """n1 ordered b before a and died; only n2 has these turns."""
    stage = staged({"g": "n1 n2 n3"})
    stage.submit("n2", [b"a"])
    stage.submit("n3", [b"b"])
    carry(stage, "n3", "n1")
    carry(stage, "n2", "n1")
    carry(stage, "n1", "n2")
    die(stage, "n1")
    wait(stage)
    assert heard(stage, "n2") == heard(stage, "n3") == ["g{n1 n2 n3}", "b", "a", "g{n2 n3}"]


def test_the_sequencer_says_where_another_is_excluded() -> None:
    stage = staged({"g": "n1 n2 n3 n4"})
    stage.submit("n4", [b"last"])
    stage.settle()
    die(stage, "n4")
    wait(stage)
    for name in ("n1", "n2", "n3"):
        assert heard(stage, name) == ["g{n1 n2 n3 n4}", "last", "g{n1 n2 n3}"]


def test_who_was_about_to_be_excluded_goes_with_the_sequencer() -> None:
    """n4 dies, then n1 before its confirmation, the cut, is out: one view without both."""
    stage = staged({"g": "n1 n2 n3 n4"})
    die(stage, "n4")
    while stage.now < 800_000_000:
        stage.settle(ticks=1)
    for name in ("n2", "n3"):  # n1 cannot confirm what it does not hear of
        stage.cut(name, "n1", one_way=True)
    while stage.now < 1_600_000_000 and not stage.notes(life("n2"), "confirm"):
        stage.settle(ticks=1)
    assert stage.notes(life("n2"), "confirm")
    assert views(stage, "n2") == ["g{n1 n2 n3 n4}"], "the cut is not known"
    die(stage, "n1")
    wait(stage)
    assert views(stage, "n2") == views(stage, "n3") == ["g{n1 n2 n3 n4}", "g{n2 n3}"]


def test_in_a_group_without_a_sequencer_nobody_gives_turns() -> None:
    stage = staged({"g": "n1 n2"}, everyone="g")
    with pytest.raises(PeerError, match="orders events"):
        stage.inject(life("n1"), "n2", Turn("g", 1, 0, 0, 0, life("n1"), 1))
    assert member(stage, "n2").order.clock.value == 0


# --- storms ----------------------------------------------------------------------------------


def together(run: Storm) -> list[str]:
    """Two that never crashed and had the same views in all their common groups: one order."""
    logs: dict[str, list[Row]] = {}
    for row in run.rows:
        logs.setdefault(row.process, []).append(row)
    whole = {name: log for name, log in logs.items() if not any(r.kind == "crash" for r in log)}
    found = []
    for one, other in combinations(whole, 2):
        common = {r.group for r in whole[one]} & {r.group for r in whole[other]} - {None}
        if all(_views(whole[one], group) == _views(whole[other], group) for group in common):
            ours, theirs = _delivered(whole[one]), _delivered(whole[other])
            shared = set(ours) & set(theirs)
            if [e for e in ours if e in shared] != [e for e in theirs if e in shared]:
                found.append(f"{one} and {other}")
    return found


def _views(log: list[Row], group: str | None) -> list[int | None]:
    return [row.view for row in log if row.kind == "view" and row.group == group]


def _delivered(log: list[Row]) -> list[tuple[str | None, str | None, int | None]]:
    return [(row.group, row.origin, row.number) for row in log if row.kind == "deliver"]


@pytest.mark.parametrize("first", range(1, 31, 10))
def test_without_faults_sequencers_keep_every_law(first: int) -> None:
    for seed in range(first, first + 10):
        run = storm(seed, kinds=(), sequenced=0.6, family=WITH_SEQUENCER)
        assert not run.broken, f"seed {seed}: {run.broken}"


@pytest.mark.parametrize("first", range(9001, 9061, 10))
def test_whatever_goes_wrong_only_who_parted_may_disagree(first: int) -> None:
    for seed in range(first, first + 10):
        run = storm(seed, sequenced=0.6, family=WITH_SEQUENCER)
        broken = [said for said in run.broken if not said.startswith("total")]
        assert not broken, f"seed {seed}: {broken}"
        assert not together(run), f"seed {seed}"


@pytest.mark.parametrize("seed", [30014, 30023])
def test_seeds_that_once_broke_a_law_keep_it_now(seed: int) -> None:
    """A lost event whose consequences were delivered; suspicions in a circle, without end."""
    kinds = ("crash", "pause", "partition", "one-way", "slow")
    assert not storm(seed, kinds=kinds, sequenced=0.6, family=WITH_SEQUENCER).broken


def test_after_a_split_a_sequencers_order_is_not_everybodys() -> None:
    """Why such groups are not offered: the same events got other turns on the other side."""
    run = storm(9004, kinds=("crash", "pause", "partition"), sequenced=0.6, family=WITH_SEQUENCER)
    assert [said.partition(":")[0] for said in run.broken] == ["total"]
