"""Who may begin a cluster: a newcomer that nobody answers, and those that start with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ordercast.protocol.cluster.beginning import MOST_WAITED_FOR, Given, Majority
from ordercast.protocol.cluster.joining import PATIENCE, Joining
from ordercast.protocol.cluster.packets import MOST_JOINING, Ask, Update, Welcome
from ordercast.protocol.cluster.running import Running
from ordercast.testing import simulate
from ordercast.testing.stage import Stage
from ordercast.types import NodeId, StateGiven, StateWanted, Waiting
from ordercast.units import SECOND

ROOT = Path(__file__).resolve().parents[3]
N1, N2, N3 = NodeId("n1"), NodeId("n2"), NodeId("n3")
PATIENT = 3


def names(count: int) -> tuple[str, ...]:
    return tuple(f"n{number}" for number in range(1, count + 1))


def ask(*joining: str) -> Ask:
    return Ask("g", False, joining)


# --- a majority of listed members -------------------------------------------------------------


def test_a_majority_is_counted_with_ourselves_and_with_those_that_newcomers_name() -> None:
    majority = Majority("n1", names(5), 10)
    majority.heard(N2, ask())
    assert not majority.may_begin()
    majority.heard(N2, ask("n3"))
    assert majority.may_begin()


def test_who_is_not_listed_does_not_count_and_is_not_remembered() -> None:
    majority = Majority("n1", names(5), 10)
    for number in range(100):
        majority.heard(NodeId(f"ghost{number}"), ask(*(f"other{each}" for each in range(40))))
    assert not majority.may_begin()
    assert majority.question("g", False) == ask()


def test_only_those_that_asked_us_are_named_to_others_and_not_too_many() -> None:
    """Names that are only passed on would never be forgotten."""
    majority = Majority("n1", names(100), 10)
    majority.heard(N2, ask("n3"))
    assert majority.question("g", True) == Ask("g", True, ("n2",))
    for name in names(100)[1:]:
        majority.heard(NodeId(name), ask())
    assert majority.question("g", True).joining == names(100)[-MOST_JOINING:]


def test_a_reader_waits_for_most_updaters_and_an_only_updater_for_nobody() -> None:
    reader = Majority("n9", names(3), 10)
    reader.heard(N2, ask())
    assert not reader.may_begin()
    reader.heard(N3, ask())
    assert reader.may_begin()
    assert Majority("n1", ("n1",), 10).may_begin()


def test_a_member_that_has_not_asked_for_a_while_counts_no_more() -> None:
    """One that hears others and is not heard would count all that ever restart."""
    majority = Majority("n1", names(3), 4)
    majority.heard(N2, ask())
    for _ in range(3):
        majority.round()
        assert majority.may_begin()
    majority.round()
    assert not majority.may_begin()


def test_why_a_member_waits_names_those_that_are_missing() -> None:
    majority = Majority("n1", names(4), 10)
    majority.heard(N2, ask())
    on, why = majority.waits_for()
    assert on == ("n3", "n4")
    assert "of 4 that may update only 2 start: 3 are needed" in why
    assert len(Majority("n1", names(500), 10).waits_for()[0]) == MOST_WAITED_FOR


# --- where a newcomer begins --------------------------------------------------------------------


def update(entry: int) -> Update:
    return Update(0, (entry,), N1, entry, [b"x"], 1)


def test_patience_alone_is_no_reason_to_begin() -> None:
    majority = Majority("n1", names(3), 50)
    joining = Joining(2, majority)
    assert [joining.round(1) for _ in range(50)] == [None] * 50
    majority.heard(N2, ask())
    assert joining.round(1) == [0]


def test_events_alone_are_enough_unless_the_application_needs_a_state() -> None:
    for needs_state, begins in ((False, [6]), (True, None)):
        joining = Joining(2, Majority("n1", names(3), 50), needs_state=needs_state)
        joining.early(update(7), 1)
        assert joining.round(1) is None
        assert joining.round(1) == begins


def test_without_any_member_that_has_a_state_those_that_start_begin_at_the_events_they_have() -> (
    None
):
    majority = Majority("n1", names(3), 50)
    joining = Joining(1, majority, needs_state=True)
    joining.early(update(7), 1)
    assert joining.round(1) is None
    majority.heard(N2, ask())
    assert joining.round(1) == [6]


def test_a_member_that_answers_and_gives_no_state_is_waited_for_and_named() -> None:
    """Its application is slow. To begin without the state would be to lose it."""
    joining = Joining(1, Given(), needs_state=True)
    for second in range(3 * PATIENCE):
        if second % (PATIENCE - 1) == 0:
            joining.welcome("n2")
        assert joining.round(1) is None
        assert joining.is_late
        news = joining.waiting("g", second * SECOND)
        assert (news is not None) == (second == 1)
        assert news is None or (news.on == ("n2",) and "has not given it" in news.why)


def test_a_member_that_answered_and_is_silent_since_keeps_nobody_waiting() -> None:
    joining = Joining(1, Given(), needs_state=True)
    joining.welcome("n2")
    assert [joining.round(1) for _ in range(PATIENCE)] == [None] * (PATIENCE - 1) + [[0]]
    assert joining.is_first


def test_why_it_waits_is_told_when_it_changes_and_at_most_once_a_second() -> None:
    majority = Majority("n1", names(5), 50)
    joining = Joining(1, majority)
    joining.round(1)
    assert joining.waiting("g", 10 * SECOND) is None
    first = joining.waiting("g", 11 * SECOND)
    assert first is not None
    assert first.since == 10 * SECOND
    assert joining.waiting("g", 13 * SECOND) is None
    majority.heard(N2, ask())
    assert joining.waiting("g", 11 * SECOND + SECOND // 2) is None
    second = joining.waiting("g", 14 * SECOND)
    assert second is not None
    assert (second.on, second.since) == (("n3", "n4", "n5"), 10 * SECOND)


# --- on a stage ---------------------------------------------------------------------------------


def cluster(*, formed: bool, **options: Any) -> Stage:
    given = {"tickets": 3, "hops": 1, "fan_out": 2, "join_wait": "50ms", "ownership": "fixed"}
    return Stage.of("causal", "n1 n2 n3", formed=formed, **{**given, **options})


def is_running(stage: Stage, name: str) -> bool:
    machine: Any = stage.machine(name)
    return isinstance(machine.phase, Running)


def waits(stage: Stage, node: NodeId) -> list[Waiting]:
    return [what for who, what in stage.log if who == node and isinstance(what, Waiting)]


def isolate(stage: Stage, name: str) -> None:
    for other in stage.actors:
        if other != name:
            stage.cut(name, other)


def join_again(stage: Stage, name: str) -> None:
    for other in stage.actors:
        if other != name:
            stage.mend(name, other)


def test_members_that_start_together_begin_when_most_of_them_are_there() -> None:
    stage = cluster(formed=False)
    stage.crash("n2")
    stage.crash("n3")
    stage.settle(ticks=40)
    assert not is_running(stage, "n1")
    assert waits(stage, N1)[0].on == ("n2", "n3")
    stage.start("n2")
    stage.settle(ticks=2 * PATIENT)
    assert is_running(stage, "n1")
    assert is_running(stage, "n2")


def test_a_member_that_restarts_cut_off_takes_the_clock_when_it_is_connected() -> None:
    stage = cluster(formed=True, recovery_buffer=2)
    stage.settle(ticks=PATIENT)
    stage.crash("n3")
    stage.start("n3")
    isolate(stage, "n3")
    for number in range(20):
        stage.submit("n1", [b"%d" % number])
        stage.settle(ticks=1)
    assert not is_running(stage, "n3")
    join_again(stage, "n3")
    stage.settle(ticks=PATIENT)
    assert is_running(stage, "n3")
    stage.submit("n1", [b"new"])
    stage.settle(ticks=PATIENT)
    heard = [event.payloads[0] for event in stage.deliveries(NodeId("n3", 1))]
    assert heard == [b"18", b"19", b"new"]
    assert stage.notes(NodeId("n3", 1), "lose") == []


def test_a_member_that_restarts_cut_off_is_given_the_state_when_it_is_connected() -> None:
    stage = cluster(formed=True, state=True)
    stage.settle(ticks=PATIENT)
    stage.submit("n1", [b"a"])
    stage.settle(ticks=PATIENT)
    stage.crash("n3")
    stage.start("n3")
    isolate(stage, "n3")
    stage.settle(ticks=10 * PATIENT)
    join_again(stage, "n3")
    stage.fire("n3")
    stage.settle()
    giver = next(who.name for who, what in stage.log if isinstance(what, StateWanted))
    stage.provide(giver, b"all of it")
    stage.settle()
    given = [what.state for who, what in stage.log if isinstance(what, StateGiven)]
    assert given == [b"all of it"]
    assert is_running(stage, "n3")


def test_a_member_that_left_and_rejoins_cut_off_asks_on() -> None:
    stage = cluster(formed=True)
    stage.settle(ticks=PATIENT)
    isolate(stage, "n3")
    stage.rejoin("n3")
    stage.settle(ticks=10 * PATIENT)
    assert not is_running(stage, "n3")
    stage.inject(N1, "n3", Welcome("g", (4, 0, 0), (5, 0, 0)))
    assert is_running(stage, "n3")


# --- in a simulation ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_who_starts_cut_off_loses_nothing_that_came_before_it(seed: int) -> None:
    done = simulate(ROOT / "scenarios" / "causal-cut-off.toml", seed)
    assert not done.broken
    assert done.outcome.error is None
    lost = [row for row in done.trace.rows if row.kind == "lose"]
    assert [row for row in lost if (row.process, row.incarnation) in (("n5", 1), ("n6", 0))] == []
    assert min(len(done.delivered_by(name)) for name in ("n5", "n6")) > 100
