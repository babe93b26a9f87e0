"""Groups that a sequencer orders (sections 4.2 and 4.3): turns, blocking, and its failure.

What they promise: one order among those who are in the same view. After a split, or a crash,
members that are no longer together may have delivered two events in different orders.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.protocol.newtop.forming_table import QUICK, known, view_of
from tests.protocol.newtop.storms import storm
from tests.protocol.newtop.stricter import AllHadIt, AllHaveIt, AllHaveSentMore, by_rule
from tests.protocol.newtop.table import carry, die, heard, member, messages, node, views, wait

from ordercast.check.history import PROMISES
from ordercast.check.implications import with_implied
from ordercast.check.laws import LAWS
from ordercast.errors import PeerError
from ordercast.kernel.family import Mutant, Plan, machine_for_all
from ordercast.protocol.newtop import FAMILY, SEQUENCED
from ordercast.protocol.newtop.epoch import GroupEpoch
from ordercast.protocol.newtop.member import NewtopMember
from ordercast.protocol.newtop.mutants import OF_SEQUENCED
from ordercast.protocol.newtop.options import NewtopOptions, SequencedOptions
from ordercast.protocol.newtop.packets import Turn
from ordercast.protocol.newtop.sequencer import BySequencer
from ordercast.testing import simulate
from ordercast.testing.stage import Stage
from ordercast.types import StateWanted

SCENARIOS = Path(__file__).resolve().parents[3] / "scenarios"


def staged(groups: dict[str, str], everyone: str = "") -> Stage:
    """A started stage. The groups named in `everyone` have no sequencer."""
    plans = [
        Plan(
            group,
            tuple(sorted(names.split())),
            NewtopOptions() if group in everyone else SequencedOptions(),
        )
        for group, names in groups.items()
    ]
    stage = Stage(SEQUENCED, plans)
    stage.start()
    return stage


def test_a_turn_of_the_sequencer_is_enough() -> None:
    """n3 delivers without a packet of n2, which a group without a sequencer would wait for."""
    stage = staged({"g": "n1 n2 n3"})
    stage.cut("n2", "n3")
    stage.cut("n2", "n1")
    stage.submit("n3", [b"a"])
    carry(stage, "n3", "n1")
    assert messages(stage, "n1") == ["a"], "the sequencer itself"
    assert messages(stage, "n3") == []
    carry(stage, "n1", "n3")
    assert messages(stage, "n3") == ["a"]


def b_before_a() -> Stage:
    """The sequencer n1 has b of n3 and then a of n2; nobody has a turn of it."""
    stage = staged({"g": "n1 n2 n3"})
    stage.submit("n2", [b"a"])
    stage.submit("n3", [b"b"])
    carry(stage, "n3", "n1")
    carry(stage, "n2", "n1")
    return stage


def test_events_are_delivered_in_the_order_of_their_turns() -> None:
    stage = b_before_a()
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
    assert member(stage, "n2").blocked_by("k") == "rule"
    stage.settle()
    event = stage.submit("n2", [b"c"], "k")
    assert event is not None
    turns = [what.order for what in stage.deliveries(node("n1"))]
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
    stage = b_before_a()
    carry(stage, "n1", "n2")
    die(stage, "n1")
    wait(stage)
    assert heard(stage, "n2") == heard(stage, "n3") == ["g{n1 n2 n3}", "b", "a", "g{n2 n3}"]


def test_an_event_without_a_turn_is_lost_with_its_sender() -> None:
    """n3's event is with n2, and the sequencer dies before it has it."""
    stage = staged({"g": "n1 n2 n3"})
    stage.submit("n3", [b"a"])
    carry(stage, "n3", "n2")
    die(stage, "n3")
    die(stage, "n1")
    wait(stage)
    assert heard(stage, "n2") == ["g{n1 n2 n3}", "g{n2}"]
    (lost,) = stage.notes(node("n2"), "lose")
    assert (lost.columns["origin"], lost.columns["number"]) == ("n3", 1)


def test_the_sequencer_announces_where_another_member_is_excluded() -> None:
    stage = staged({"g": "n1 n2 n3 n4"})
    stage.submit("n4", [b"last"])
    stage.settle()
    die(stage, "n4")
    wait(stage)
    for name in ("n1", "n2", "n3"):
        assert heard(stage, name) == ["g{n1 n2 n3 n4}", "last", "g{n1 n2 n3}"]


def test_members_without_a_cut_are_excluded_with_the_sequencer() -> None:
    """n4 dies, then n1 before its confirmation, the cut, is out: one view without both."""
    stage = staged({"g": "n1 n2 n3 n4"})
    die(stage, "n4")
    while stage.now < 800_000_000:
        stage.settle(ticks=1)
    for name in ("n2", "n3"):  # n1 cannot confirm what it does not hear of
        stage.cut(name, "n1", one_way=True)
    while stage.now < 1_600_000_000 and not stage.notes(node("n2"), "confirm"):
        stage.settle(ticks=1)
    assert stage.notes(node("n2"), "confirm")
    assert views(stage, "n2") == ["g{n1 n2 n3 n4}"], "the cut is not known"
    die(stage, "n1")
    wait(stage)
    assert views(stage, "n2") == views(stage, "n3") == ["g{n1 n2 n3 n4}", "g{n2 n3}"]


def test_in_a_group_without_a_sequencer_turns_are_rejected() -> None:
    stage = staged({"g": "n1 n2"}, everyone="g")
    with pytest.raises(PeerError, match="orders events"):
        stage.inject(node("n1"), "n2", Turn("g", "", 1, 0, 0, 0, node("n1"), 1))
    assert member(stage, "n2").order.clock.value == 0


@pytest.mark.parametrize("number", [0, 1, 513, 1 << 39])
def test_impossible_turns_are_rejected(number: int) -> None:
    """One again, and one of an event that its origin's window would not have let it send."""
    stage = staged({"g": "n1 n2 n3"})
    stage.submit("n2", [b"a"])
    carry(stage, "n2", "n1")
    carry(stage, "n1", "n3")
    wrong = Turn("g", "", 3, 2, 0, 0, node("n2"), number)
    with pytest.raises(PeerError, match="orders events"):
        stage.inject(node("n1"), "n3", wrong)
    epoch = member(stage, "n3").joined["g"]
    assert isinstance(epoch.placement, BySequencer)
    assert epoch.order.queue.count_of("g") == 1
    stage.inject(node("n1"), "n3", msgspec.structs.replace(wrong, number=512))


# --- storms ----------------------------------------------------------------------------------


EVERYTHING = with_implied(PROMISES["total"].laws, LAWS.values())


@pytest.mark.parametrize("first", range(1, 31, 10))
def test_without_faults_sequencers_keep_every_law(first: int) -> None:
    """Over all groups together, with a sequencer or without."""
    for seed in range(first, first + 10):
        run = storm(seed, kinds=(), sequenced=0.6, laws=EVERYTHING)
        assert not run.broken, f"seed {seed}: {run.broken}"
        assert run.causal_across_groups().answer == "holds", f"seed {seed}"


@pytest.mark.parametrize("first", range(9001, 9061, 10))
def test_whatever_goes_wrong_each_family_keeps_its_promise(first: int) -> None:
    for seed in range(first, first + 10):
        run = storm(seed, sequenced=0.6)
        assert not run.broken, f"seed {seed}: {run.broken}"


@pytest.mark.parametrize("first", range(9101, 9131, 10))
def test_members_that_leave_keep_what_is_promised(first: int) -> None:
    for seed in range(first, first + 10):
        kinds = ("crash", "pause", "partition", "one-way")
        run = storm(seed, kinds=kinds, sequenced=0.6, departures=4)
        assert not run.broken, f"seed {seed}: {run.broken}"


@pytest.mark.parametrize("seed", [30014, 30023])
def test_seeds_that_once_broke_a_law_keep_it_now(seed: int) -> None:
    """A lost event whose consequences were delivered; suspicions in a cycle, without end."""
    kinds = ("crash", "pause", "partition", "one-way", "slow")
    assert not storm(seed, kinds=kinds, sequenced=0.6, laws=EVERYTHING).broken


def test_after_a_partition_the_sides_may_order_differently() -> None:
    """The same events got other turns on the other side."""
    kinds = ("crash", "pause", "partition")
    run = storm(9004, kinds=kinds, sequenced=0.6, laws=EVERYTHING)
    assert [said.partition(":")[0] for said in run.broken] == ["total"]


@pytest.mark.parametrize("rule", [AllHaveSentMore, AllHaveIt, AllHadIt])
def test_stricter_rules_do_not_help(rule: type[BySequencer]) -> None:
    """The other side may have a turn, or order again: this side cannot know. Other laws hold."""
    run = storm(40_067, sequenced=1.0, laws=EVERYTHING, family=by_rule(rule))
    assert [said.partition(":")[0] for said in run.broken] == ["total"]


@pytest.mark.long
@pytest.mark.parametrize("first", range(40_001, 42_001, 50))
def test_thousands_of_storms_keep_what_is_promised(first: int) -> None:
    for seed in range(first, first + 50):
        run = storm(seed, sequenced=0.6)
        assert not run.broken, f"seed {seed}: {run.broken}"


def test_blocked_rows_say_that_a_rule_blocks() -> None:
    """A sender that a rule blocks has an event in another group that has no turn yet."""
    run = simulate(SCENARIOS / "sequenced-calm.toml", 1)
    blocked = [row for row in run.trace.rows if row.kind == "blocked" and row.cause == "rule"]
    assert blocked
    turned: dict[tuple[str | None, str, int | None], int] = {}
    for row in run.trace.rows:
        if row.kind == "deliver" and row.process == row.origin:
            turned[row.group, row.process, row.number] = row.at
    submits = [row for row in run.trace.rows if row.kind == "submit"]
    for row in blocked:
        assert any(
            one.process == row.process
            and one.group != row.group
            and one.at <= row.at <= turned[one.group, one.process, one.number]
            for one in submits
        )


class SendsBeforeItsTurn(NewtopMember):
    """Waits nowhere for the turn of what it sent elsewhere."""

    def _is_blocked(self, epoch: GroupEpoch) -> bool:
        return False


PLANTED = OF_SEQUENCED | {
    # Causal order across groups, which no law judges: those of a run are judged one by one.
    "sends-before-its-turn": Mutant("optimistic-causal", machine_for_all(SendsBeforeItsTurn))
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_caught(name: str) -> None:
    law, build = PLANTED[name]
    for seed in range(3001, 3021):
        run = storm(seed, kinds=(), sequenced=0.6, family=FAMILY._replace(build=build))
        verdicts = [*run.verdicts, run.causal_across_groups()]
        if any(one.law == law and one.witness for one in verdicts):
            return
    pytest.fail(f"{name} was not caught")


# --- a state above the cut that excludes its initiator ---------------------------------------


def excluded_with_the_sequencer(stage: Stage) -> None:
    """n2 forms the group anew, without n6, so its state is needed. n1, the sequencer, crashes
    before it has the state of n2, and n2 crashes when n3 and n4 have it: both are excluded at the
    last number of n1."""
    stage.start()
    member(stage, "n2").named["g"].giver.limit = 1 << 60  # it may take its time
    stage.form("n2", ("n1", "n3", "n4"))
    stage.settle(ticks=6)
    assert any(isinstance(what, StateWanted) for _, what in stage.log)
    die(stage, "n1")
    stage.settle(ticks=3)
    if "n5" in stage.actors:
        stage.cut("n5", "n3", one_way=True)
    stage.settle(ticks=2)
    stage.provide("n2", b"state")
    for name in ("n3", "n4"):
        carry(stage, "n2", name)
    die(stage, "n2")
    wait(stage, 100)


@pytest.mark.parametrize("waits", [False, True])
def test_a_state_above_the_cut_of_its_initiator_is_not_delivered(waits: bool) -> None:
    """Whether or not n3 waits, between the two numbers, for another group."""
    options = SequencedOptions(**QUICK)
    plans = [Plan("g", ("n1", "n2", "n3", "n4", "n6"), options)]
    if waits:
        plans.append(Plan("h", ("n3", "n5"), NewtopOptions(suspicion_limit="60s")))
    stage = Stage(SEQUENCED, plans)
    excluded_with_the_sequencer(stage)
    for name in ("n3", "n4"):
        assert view_of(stage, name) == ("", "n3 n4 n6"), "they continue where they were"
        assert known(stage, name) == []
        assert stage.accepts(name)
