"""A process and its disk: what is kept before it is said, and what is left after a crash."""

from __future__ import annotations

import pytest
from tests.sim.probes import (
    DATAGRAM,
    GROUP,
    LINK,
    MILLISECOND,
    SECOND,
    Ledger,
    Probe,
    Stage,
    deliver,
    fault,
    first,
    persist,
    ring,
    say,
)

from ordercast.kernel.step import Step
from ordercast.scenario.faults.fault import Fault
from ordercast.scenario.schema import GroupSettings
from ordercast.types import NodeId

SYNC = 100 * MILLISECOND


def slow_disk(node: str = "n1", at: int = SECOND, lasts: int | None = None) -> Fault:
    return fault("disk", at, node, lasts, mode="slow", sync=SYNC)


# --- what is left ---------------------------------------------------------------------------


def test_a_restarted_process_finds_its_records_in_order() -> None:
    stage = Stage(1, faults=[fault("restart", 3 * SECOND, "n1")])
    stage.at(SECOND, "n1", persist("a", "b")).at(2 * SECOND, "n1", persist("c")).run()
    assert stage.found == [(NodeId("n1", 0), []), (NodeId("n1", 1), ["a", "b", "c"])]


def test_every_later_incarnation_finds_the_records_of_all_earlier_ones() -> None:
    stage = Stage(1, faults=[fault("restart", at * SECOND, "n1") for at in (2, 4, 6)])
    for at in (1, 3, 5):
        stage.at(at * SECOND, "n1", persist(str(at)))
    stage.run()
    assert [found for _, found in stage.found] == [[], ["1"], ["1", "3"], ["1", "3", "5"]]


def test_a_lost_disk_is_empty_and_persists_new_records() -> None:
    faults = [fault("restart", 2 * SECOND, "n1", disk="lost"), fault("restart", 4 * SECOND, "n1")]
    stage = Stage(1, faults=faults)
    stage.at(SECOND, "n1", persist("old")).at(3 * SECOND, "n1", persist("new")).run()
    assert [found for _, found in stage.found] == [[], [], ["new"]]


def test_a_disk_is_lost_even_if_another_crash_keeps_the_process_down_longer() -> None:
    faults = [
        fault("crash", 2 * SECOND, "n1", 4 * SECOND),
        fault("restart", 3 * SECOND, "n1", SECOND, disk="lost"),
    ]
    stage = Stage(1, faults=faults).at(SECOND, "n1", persist("old"))
    stage.run()
    assert [found for _, found in stage.found] == [[], []]
    assert [row.at for row in stage.rows_of("start")] == [0, 6 * SECOND]


def test_each_process_has_a_disk_of_its_own() -> None:
    stage = Stage(2, faults=[fault("restart", 2 * SECOND, "n1 n2")])
    stage.at(SECOND, "n1", persist("mine")).run()
    assert dict(stage.found[2:]) == {NodeId("n1", 1): ["mine"], NodeId("n2", 1): []}


# --- kept before anything leaves ------------------------------------------------------------


def test_nothing_of_a_step_leaves_before_its_record_is_durable() -> None:
    stage = Stage(2, faults=[slow_disk()])
    acts = [persist("a"), say("n2", "word", DATAGRAM), deliver(1), ring("tea", SECOND)]
    stage.at(2 * SECOND, "n1", *acts).run()
    (heard,) = stage.heard
    assert heard.at == 2 * SECOND + SYNC + 2 * MILLISECOND
    assert [row.at for row in stage.rows_of("deliver")] == [2 * SECOND + SYNC]
    assert [rang.at for rang in stage.rang] == [3 * SECOND + SYNC], "a timer runs from there"


def test_later_steps_wait_behind_a_commit_in_order() -> None:
    stage = Stage(2, faults=[slow_disk()])
    stage.at(2 * SECOND, "n1", persist("a"), say(first("n2"), "kept", LINK), deliver(1))
    stage.at(2 * SECOND + MILLISECOND, "n1", say(first("n2"), "not kept", LINK), deliver(2))
    stage.at(2 * SECOND + 2 * MILLISECOND, "n1", persist("b"), say(first("n2"), "too", LINK))
    stage.run()
    assert stage.texts("n2") == ["kept", "not kept", "too"]
    waited = [(heard.at - 2 * SECOND - SYNC) // MILLISECOND - 2 for heard in stage.heard]
    assert waited == [0, 0, 2], "a step that keeps nothing waits its turn, and for no sync"
    assert [row.number for row in stage.rows_of("deliver")] == [1, 2]


def test_a_step_without_a_record_does_not_wait_for_a_slow_disk() -> None:
    stage = Stage(2, faults=[slow_disk()])
    stage.at(2 * SECOND, "n1", say("n2", "word", DATAGRAM)).run()
    assert [heard.at for heard in stage.heard] == [2 * SECOND + 2 * MILLISECOND]


def test_order_is_kept_when_the_disk_is_quick_again() -> None:
    stage = Stage(2, faults=[slow_disk(lasts=SECOND)])
    stage.at(2 * SECOND - MILLISECOND, "n1", persist("a"), say(first("n2"), "slow", LINK))
    stage.at(2 * SECOND + MILLISECOND, "n1", persist("b"), say(first("n2"), "quick", LINK))
    stage.run()
    assert stage.texts("n2") == ["slow", "quick"]


def test_a_step_that_was_not_durable_at_a_crash_had_no_effect() -> None:
    faults = [slow_disk(), fault("restart", 2 * SECOND + SYNC + 50 * MILLISECOND, "n1")]
    stage = Stage(2, faults=faults)
    stage.at(2 * SECOND, "n1", persist("a"), say(first("n2"), "a", LINK), deliver(1))
    later = 2 * SECOND + 60 * MILLISECOND
    stage.at(later, "n1", persist("b"), say(first("n2"), "b", LINK), deliver(2))
    stage.run()
    assert stage.found[-1] == (NodeId("n1", 1), ["a"])
    assert stage.texts("n2") == ["a"]
    assert [row.number for row in stage.rows_of("deliver")] == [1]


def test_a_new_incarnation_does_not_wait_for_the_syncs_of_the_old_one() -> None:
    faults = [
        fault("disk", SECOND, "n1", SECOND, mode="slow", sync=5 * SECOND),
        slow_disk(at=2 * SECOND),
        fault("restart", 2 * SECOND + MILLISECOND, "n1"),
    ]
    stage = Stage(2, faults=faults)
    stage.at(2 * SECOND - MILLISECOND, "n1", persist("old"))
    stage.at(3 * SECOND, "n1", persist("new"), say("n2", "new", DATAGRAM)).run()
    assert [heard.at for heard in stage.heard] == [3 * SECOND + SYNC + 2 * MILLISECOND]


def test_a_sync_of_the_old_incarnation_makes_no_record_of_the_new_one_durable() -> None:
    faults = [slow_disk(), fault("restart", 2 * SECOND + SYNC // 4, "n1", SYNC // 4)]
    stage = Stage(2, faults=faults).at(2 * SECOND, "n1", persist("old"))
    later = 2 * SECOND + 3 * SYNC // 4  # the sync of the old record would end in between
    stage.at(later, "n1", persist("new"), say("n2", "new", DATAGRAM)).run()
    assert [heard.at for heard in stage.heard] == [later + SYNC + 2 * MILLISECOND]


def test_a_ledger_never_answers_for_what_it_could_forget() -> None:
    """Whenever it crashes, what it answered is what its next incarnation finds, or less."""
    for crash_at in range(0, 300, 7):
        at = 2 * SECOND + crash_at * MILLISECOND
        faults = [slow_disk("n2"), fault("restart", at, "n2")]
        stage = Stage(2, probe=Ledger, faults=faults)
        for number in range(20):
            stage.at(2 * SECOND + number * 10 * MILLISECOND, "n1", say(first("n2"), str(number)))
        stage.run()
        answered = [text.removeprefix("re ") for text in stage.texts("n1")]
        _, found = stage.found[-1]
        assert answered == found[: len(answered)]


# --- disks that refuse ----------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["fail", "full"])
def test_a_disk_that_refuses_a_record_stops_the_process(mode: str) -> None:
    faults = [fault("disk", SECOND, "n1", 2 * SECOND, mode=mode)]
    stage = Stage(2, faults=faults)
    stage.at(SECOND // 2, "n1", persist("before"))
    stage.at(SECOND + MILLISECOND, "n1", say("n2", "keeps nothing", DATAGRAM))
    stage.at(2 * SECOND, "n1", persist("refused"), say("n2", "word", DATAGRAM), deliver(1))
    stage.at(3 * SECOND + MILLISECOND, "n1", say("n2", "from the dead", DATAGRAM))
    stage.run()
    assert [(row.at, row.cause) for row in stage.rows_of("crash")] == [(2 * SECOND, "disk")]
    assert stage.texts("n2") == ["keeps nothing"]
    assert stage.rows_of("deliver") == []


def test_a_process_can_be_restarted_when_its_disk_works_again() -> None:
    faults = [fault("disk", SECOND, "n1", SECOND, mode="fail"), fault("restart", 3 * SECOND, "n1")]
    stage = Stage(1, faults=faults)
    stage.at(SECOND // 2, "n1", persist("before")).at(
        SECOND + MILLISECOND, "n1", persist("refused")
    )
    stage.at(4 * SECOND, "n1", persist("after")).run()
    assert stage.found[-1] == (NodeId("n1", 1), ["before"])
    assert [row.cause for row in stage.rows_of("crash")] == ["disk"]


def test_a_step_without_a_record_does_not_notice_a_failing_disk() -> None:
    """Not even while an earlier record is still on its way."""
    faults = [slow_disk(), fault("disk", 2 * SECOND + MILLISECOND, "n1", mode="fail")]
    stage = Stage(2, faults=faults)
    stage.at(2 * SECOND, "n1", persist("a"))
    stage.at(2 * SECOND + 2 * MILLISECOND, "n1", say("n2", "word", DATAGRAM))
    stage.run()
    assert stage.texts("n2") == ["word"]
    assert stage.rows_of("crash") == []


class Registrar(Probe):
    """Says that it starts; in one of its groups only after it kept a record of that."""

    def start(self, step: Step) -> None:
        if self.groups == (GROUP,):
            persist("I was here")(step)
        say("n2", f"{self.groups[0]} begins", DATAGRAM)(step)


def test_a_process_that_meets_a_failing_disk_as_it_starts_does_not_start() -> None:
    """It has two machines; the second must not begin in a process that is dead."""
    groups = [GroupSettings(name=name, members=["n1"]) for name in ("g", "h")]
    faults = [
        fault("disk", SECOND, "n1", 10 * SECOND, mode="fail"),
        fault("restart", 2 * SECOND, "n1"),
    ]
    stage = Stage(2, probe=Registrar, faults=faults, scenario={"group": groups})
    outcome = stage.run()
    rows = [(row.incarnation, row.kind, row.cause) for row in stage.rows if row.process == "n1"]
    assert rows[-5:] == [
        (0, "crash", None),
        (1, "start", None),
        (1, "join", None),
        (1, "join", None),
        (1, "crash", "disk"),
    ]
    assert outcome.packets == 2, "those of the first incarnation"


def test_a_disk_fault_is_over_for_those_it_named_alone() -> None:
    faults = [
        fault("disk", SECOND, "n1", SECOND, mode="fail"),
        fault("disk", SECOND, "n2", 5 * SECOND, mode="slow", sync=SYNC),
    ]
    stage = Stage(3, faults=faults)
    for name in ("n1", "n2"):
        stage.at(3 * SECOND, name, persist("a"), say("n3", name, DATAGRAM))
    stage.run()
    arrivals = {heard.text: heard.at - 3 * SECOND for heard in stage.heard}
    assert arrivals == {"n1": 2 * MILLISECOND, "n2": SYNC + 2 * MILLISECOND}
