"""A process: its incarnations, timers and pauses, and the order in which a step takes effect."""

from __future__ import annotations

import pytest
from tests.sim.probes import (
    DATAGRAM,
    GROUP,
    LINK,
    MILLISECOND,
    SECOND,
    STATUS,
    Ledger,
    Probe,
    Rang,
    Stage,
    Word,
    cut,
    fault,
    first,
    ring,
    say,
    say_many,
)

from ordercast.kernel.inputs import Input, StateProvided
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step, Timer
from ordercast.scenario.schema import NetworkSettings
from ordercast.sim.process import Heard
from ordercast.types import Event, NodeId, StateWanted, View

SECOND_LIFE = NodeId("n2", 1)


# --- lives -----------------------------------------------------------------------------------


def test_a_restart_is_the_next_incarnation_of_the_name() -> None:
    faults = [fault("restart", at * SECOND, "n2", SECOND // 2) for at in (1, 3, 5)]
    stage = Stage(2, faults=faults)
    stage.run()
    nodes = [(row.incarnation, row.kind) for row in stage.rows if row.process == "n2"]
    assert nodes == [
        *((node, kind) for node in range(3) for kind in ("start", "join", "crash")),
        (3, "start"),
        (3, "join"),
        (3, "stop"),
    ]
    assert [row.incarnation for row in stage.rows_of("start", "n1")] == [0]


def test_a_restart_takes_a_tenth_of_a_second_unless_it_says_otherwise() -> None:
    stage = Stage(1, faults=[fault("restart", SECOND, "n1")])
    stage.run()
    assert [row.at for row in stage.rows_of("start")] == [0, SECOND + 100 * MILLISECOND]


def test_a_crash_without_for_is_for_good() -> None:
    stage = Stage(2, faults=[fault("crash", SECOND, "n2")])
    stage.at(2 * SECOND, "n1", say("n2", "anybody?", DATAGRAM)).run()
    assert [row.kind for row in stage.rows if row.process == "n2"] == ["start", "join", "crash"]
    assert stage.heard == []


def test_a_crash_with_for_ends_at_the_latest_when_all_is_healed() -> None:
    stage = Stage(
        3, faults=[fault("crash", SECOND, "n2", SECOND), fault("crash", SECOND, "n3", 60 * SECOND)]
    )
    stage.run()
    assert [row.at for row in stage.rows_of("start", "n2")] == [0, 2 * SECOND]
    assert [row.at for row in stage.rows_of("start", "n3")] == [0, 10 * SECOND]


def test_crashes_that_overlap_keep_a_process_down_until_the_last_ends() -> None:
    stage = Stage(
        1, faults=[fault("crash", SECOND, "n1", 3 * SECOND), fault("restart", 2 * SECOND, "n1")]
    )
    stage.run()
    assert [row.at for row in stage.rows_of("start")] == [0, 4 * SECOND]
    assert len(stage.rows_of("crash")) == 1


def test_steps_of_an_incarnation_are_numbered_from_one() -> None:
    stage = Stage(2, faults=[fault("restart", SECOND, "n2")])
    stage.run()
    for node in (0, 1):
        rows = [row for row in stage.rows if (row.process, row.incarnation) == ("n2", node)]
        assert [row.step for row in rows] == list(range(1, len(rows) + 1))


# --- timers ----------------------------------------------------------------------------------


def test_a_timer_expires_once_when_it_is_due() -> None:
    stage = Stage(1).at(SECOND, "n1", ring("tea", 3 * SECOND))
    stage.run()
    assert [(rang.at, rang.timer) for rang in stage.rang] == [(4 * SECOND, "tea")]


def test_a_timer_of_zero_expires_at_once_in_a_step_of_its_own() -> None:
    stage = Stage(1).at(SECOND, "n1", ring("now", 0))
    stage.run()
    assert [rang.at for rang in stage.rang] == [SECOND]


def test_timers_due_at_the_same_time_expire_in_the_order_in_which_they_were_set() -> None:
    stage = Stage(1)
    stage.at(SECOND, "n1", *(ring(name, SECOND) for name in ("third", "first", "second"))).run()
    assert [rang.timer for rang in stage.rang] == ["third", "first", "second"]


def test_setting_a_timer_again_replaces_it_and_none_cancels_it() -> None:
    stage = Stage(1)
    stage.at(SECOND, "n1", ring("sooner", 3 * SECOND), ring("later", SECOND), ring("not", SECOND))
    stage.at(SECOND + MILLISECOND, "n1", ring("sooner", SECOND), ring("later", 3 * SECOND))
    stage.at(SECOND + MILLISECOND, "n1", ring("not", None), ring("never set", None))
    stage.run()
    assert [(rang.at - SECOND - MILLISECOND, rang.timer) for rang in stage.rang] == [
        (SECOND, "sooner"),
        (3 * SECOND, "later"),
    ]


def test_a_timer_that_was_cancelled_can_be_set_again() -> None:
    stage = Stage(1)
    stage.at(SECOND, "n1", ring("tea", 2 * SECOND), ring("tea", None), ring("tea", 4 * SECOND))
    stage.run()
    assert [rang.at for rang in stage.rang] == [5 * SECOND]


def test_timers_are_any_values_and_equal_ones_are_the_same() -> None:
    stage = Stage(1)
    stage.at(SECOND, "n1", ring(("peer", 1), SECOND), ring(("peer", 2), SECOND))
    stage.at(SECOND, "n1", ring(("peer", 1), None))
    stage.run()
    assert [rang.timer for rang in stage.rang] == [("peer", 2)]


def test_a_crash_loses_timers_and_the_next_incarnation_does_not_get_them() -> None:
    stage = Stage(1, faults=[fault("restart", 2 * SECOND, "n1", MILLISECOND)])
    stage.at(SECOND, "n1", ring("old", 2 * SECOND), ring("done", SECOND // 2))
    stage.at(5 * SECOND, "n1", ring("old", SECOND))
    stage.run()
    assert [(rang.at, rang.by.incarnation, rang.timer) for rang in stage.rang] == [
        (SECOND + SECOND // 2, 0, "done"),
        (6 * SECOND, 1, "old"),
    ]


# --- pauses ----------------------------------------------------------------------------------


def test_a_pause_holds_packets_and_timers_and_loses_none() -> None:
    stage = Stage(2, faults=[fault("pause", SECOND, "n2", 2 * SECOND)])
    stage.at(SECOND // 2, "n2", ring("first", SECOND), ring("second", 2 * SECOND))
    for number in range(10):
        at = SECOND + (number + 1) * 150 * MILLISECOND
        stage.at(at, "n1", say("n2", str(number), DATAGRAM))
    stage.run()
    assert [heard.at for heard in stage.heard] == [3 * SECOND] * 10
    assert [(rang.at, rang.timer) for rang in stage.rang] == [
        (3 * SECOND, "first"),
        (3 * SECOND, "second"),
    ]


class Diary(Probe):
    """Rings every 100 ms, and logs what it hears among what rang, so that their order shows."""

    def start(self, step: Step) -> None:
        step.set_timer("tick", 100 * MILLISECOND)

    def expire(self, step: Step, timer: Timer) -> None:
        super().expire(step, timer)
        step.set_timer("tick", 100 * MILLISECOND)

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        super().receive(step, sender, packet)
        heard = self.stage.heard[-1]
        self.stage.rang.append(Rang(heard.at, heard.clock, self.me, heard.text))


def test_inputs_held_by_a_pause_come_in_the_order_of_their_times() -> None:
    pause = fault("pause", 50 * MILLISECOND, "n2", 100 * MILLISECOND)
    stage = Stage(2, probe=Diary, faults=[pause])
    words = [str(number) for number in range(20)]
    for number, word in enumerate(words):
        at = (5 + 10 * number) * MILLISECOND
        stage.at(at, "n1", say(first("n2"), word, LINK))
    stage.run()
    order = [(rang.at // MILLISECOND, rang.timer) for rang in stage.rang if rang.by.name == "n2"]
    assert stage.texts("n2") == words
    assert not [at for at, _ in order if 50 <= at < 150]
    # Word n arrives at 7 + 10 n ms; the timer was due at 100 ms, after 9 and before 10.
    assert [what for at, what in order if at == 150] == [*words[5:10], "tick", *words[10:15]]
    assert next(at for at, what in order if at > 150 and what == "tick") == 250


def test_a_link_that_continues_after_a_cut_waits_for_the_end_of_a_pause() -> None:
    faults = [cut(SECOND, "n1 | n2", SECOND), fault("pause", SECOND, "n2", 2 * SECOND)]
    stage = Stage(2, faults=faults)
    for number in range(5):
        stage.at(SECOND + number * SECOND // 2, "n1", say(first("n2"), str(number), LINK))
    stage.run()
    assert stage.texts("n2") == ["0", "1", "2", "3", "4"]
    assert stage.heard[0].at == 3 * SECOND


def test_inputs_held_by_a_pause_come_before_later_ones() -> None:
    stage = Stage(2, faults=[fault("pause", SECOND, "n2", SECOND)])
    stage.at(2 * SECOND - MILLISECOND, "n1", say(first("n2"), "held", LINK))
    stage.at(2 * SECOND, "n1", say(first("n2"), "after", LINK))
    stage.run()
    assert stage.texts("n2") == ["held", "after"]


def test_a_paused_process_gets_its_status_results_when_it_continues() -> None:
    stage = Stage(2, faults=[fault("pause", SECOND, "n1", 2 * SECOND)])
    stage.at(SECOND - MILLISECOND, "n1", say("n2", "asked", STATUS, token="t")).run()
    assert [(told.at, told.token, told.arrived) for told in stage.told] == [(3 * SECOND, "t", True)]


def test_pauses_that_overlap_end_with_the_last() -> None:
    faults = [fault("pause", SECOND, "n2", 2 * SECOND), fault("pause", 2 * SECOND, "n2", SECOND)]
    faults.append(fault("pause", SECOND, "n2", 3 * SECOND))
    stage = Stage(2, faults=faults)
    stage.at(SECOND + MILLISECOND, "n1", say("n2", "hello", DATAGRAM)).run()
    assert [heard.at for heard in stage.heard] == [4 * SECOND]


def test_a_pause_is_over_at_the_latest_when_all_is_healed() -> None:
    stage = Stage(2, faults=[fault("pause", SECOND, "n2")])
    stage.at(2 * SECOND, "n1", say("n2", "hello", DATAGRAM)).run()
    assert [heard.at for heard in stage.heard] == [10 * SECOND]


def test_a_crash_ends_a_pause_and_loses_what_the_pause_held() -> None:
    faults = [fault("pause", SECOND, "n2", 5 * SECOND), fault("restart", 2 * SECOND, "n2")]
    stage = Stage(2, faults=faults)
    stage.at(SECOND // 2, "n2", ring("tea", SECOND))
    stage.at(SECOND + MILLISECOND, "n1", say("n2", "held", DATAGRAM))
    stage.at(3 * SECOND, "n1", say("n2", "to the next", DATAGRAM))
    stage.run()
    assert [(heard.by, heard.text) for heard in stage.heard] == [(SECOND_LIFE, "to the next")]
    assert stage.rang == []


def test_a_paused_process_does_nothing_even_when_its_disk_is_done() -> None:
    """The record was on its way to the disk when the process was stopped."""
    faults = [
        fault("disk", SECOND, "n2", 5 * SECOND, mode="slow", sync=100 * MILLISECOND),
        fault("pause", 2 * SECOND + 50 * MILLISECOND, "n2", SECOND),
    ]
    stage = Stage(2, probe=Ledger, faults=faults)
    stage.at(2 * SECOND, "n1", say(first("n2"), "a", LINK)).run()
    goes_on = 3 * SECOND + 50 * MILLISECOND
    assert [row.at for row in stage.rows_of("deliver")] == [goes_on]
    assert [heard.at for heard in stage.heard if heard.text == "re a"] == [
        goes_on + 2 * MILLISECOND
    ]


# --- a step ----------------------------------------------------------------------------------


def test_outputs_come_in_the_order_of_the_step() -> None:
    def act(step: Step) -> None:
        step.deliver(Event(GROUP, first("n1"), 1, [b"a"]))
        step.install(View(GROUP, 7, (first("n1"), first("n2"))))
        step.note("suspect", group=GROUP, peer="n2")
        step.deliver(Event(GROUP, first("n1"), 2, []))

    heard: list[tuple[NodeId, Event | View]] = []
    stage = Stage(2, application=lambda node, item: heard.append((node, item)))
    stage.at(SECOND, "n1", act).run()
    rows = [row for row in stage.rows if row.at == SECOND]
    assert [(row.kind, row.number, row.view) for row in rows[1:]] == [
        ("deliver", 1, None),
        ("view", None, 7),
        ("suspect", None, None),
        ("deliver", 2, 7),
    ]
    assert rows[0].kind == "submit"
    assert rows[2].members == ("n1", "n2")
    assert [type(item) for _, item in heard] == [Event, View, Event]
    assert {node for node, _ in heard} == {first("n1")}


class Giver(Probe):
    """Delivers the state that it is given."""

    takes = (StateProvided,)

    def on(self, step: Step, given: Input) -> None:
        assert isinstance(given, StateProvided)
        step.deliver(Event(given.group, self.me, 9, [given.state or b""]))


def test_the_effects_of_an_answer_come_after_the_rest_of_the_step() -> None:
    def act(step: Step) -> None:
        step.deliver(Event(GROUP, first("n1"), 1, [b"before"]))
        step.ask_state(GROUP, "token")
        step.deliver(Event(GROUP, first("n1"), 2, [b"after"]))

    known: list[bytes] = []

    def application(node: NodeId, item: Heard) -> bytes | None:
        if isinstance(item, StateWanted):
            return b" ".join(known)
        assert isinstance(item, Event)
        known.extend(item.payloads)
        return None

    Stage(2, probe=Giver, application=application).at(SECOND, "n1", act).run()
    assert known == [b"before", b"after", b"before"]


def test_an_input_that_raises_had_no_effect() -> None:
    def act(step: Step) -> None:
        step.send("n2", stage.world.network, DATAGRAM)  # type: ignore[arg-type]
        step.deliver(Event(GROUP, first("n1"), 1, []))
        raise ZeroDivisionError("in the middle")

    stage = Stage(2)
    outcome = stage.at(SECOND, "n1", act).world.run()
    assert outcome.error is not None
    assert outcome.error.startswith("ZeroDivisionError at ")
    assert stage.rows_of("deliver") == []
    assert stage.world.network.posted == 0


@pytest.mark.parametrize("count", [1, 5])
def test_a_packet_to_many_is_one_packet_for_each(count: int) -> None:
    stage = Stage(4, network=NetworkSettings(jitter=0.0))
    to = tuple(f"n{number}" for number in range(2, 5))
    stage.at(SECOND, "n1", *[say(to, "all", DATAGRAM)] * count)
    outcome = stage.run()
    assert outcome.packets == 3 * count
    assert all(stage.texts(name) == ["all"] * count for name in to)


def test_a_packet_for_a_group_that_a_process_is_not_in_is_dropped() -> None:
    foreign = Word("another group", "who?")
    stage = Stage(2)
    stage.at(SECOND, "n1", lambda step: step.send("n2", foreign, DATAGRAM))
    stage.at(SECOND, "n1", *say_many("n2", 1, DATAGRAM))
    stage.run()
    assert stage.texts("n2") == ["0"]
