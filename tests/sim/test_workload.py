"""The load: who sends, how often, how much at once, and what happens when there is no room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any, cast

import pytest
from tests.sim.probes import DATAGRAM, Probe, Stage, say

from ordercast.scenario import chance
from ordercast.scenario.file import parse_scenario
from ordercast.scenario.schema import BACKLOG_LIMIT, Scenario, WorkloadSettings
from ordercast.sim.event_queue import EventQueue
from ordercast.sim.process import Process, Session
from ordercast.sim.workload import BATCH_SIZE, Sender
from ordercast.sim.world import Simulation
from ordercast.testing import simulate
from ordercast.trace.schema import Row
from ordercast.trace.sinks import MemorySink
from ordercast.types import NodeId, Payloads
from ordercast.units import MILLISECOND, SECOND, Size


def scenario(**keys: Any) -> Scenario:
    return parse_scenario({"name": "x", "processes": 4, "duration": "5s", "quiet": "5s", **keys})


def rows_of(scenario: Scenario, kind: str, seed: int = 1) -> list[Row]:
    sink = MemorySink()
    outcome = Simulation(scenario, seed, sink=sink).run()
    assert outcome.error is None
    return [row for row in sink.rows if row.kind == kind]


def cut_off(at: str = "1s", lasts: str = "20s") -> dict[str, str | list[str]]:
    """A cut, so long that only patience (`suspicion_limit`) says how long one waits for n1."""
    return {"at": at, "kind": "partition", "nodes": ["n1"], "for": lasts}


PATIENT = {"suspicion_limit": "30s"}


# --- who, how often, how much ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("senders", "who"),
    [
        ("all", {"n1", "n2", "n3", "n4"}),
        (2, {"n1", "n2"}),
        (0, set()),
        (["n4", "n2"], {"n2", "n4"}),
        ([], set()),
    ],
)
def test_only_the_configured_senders_send(senders: Any, who: set[str]) -> None:
    submits = rows_of(scenario(workload={"senders": senders}), "submit")
    assert {row.process for row in submits} == who


def test_senders_may_begin_later() -> None:
    load = {"begins": {"n2": "2s", "n4": "4s"}, "rate": 100}
    first: dict[str, int] = {}
    for row in rows_of(scenario(workload=load), "submit"):
        first.setdefault(row.process, row.at)
    assert first["n1"] < SECOND
    assert 2 * SECOND <= first["n2"] < 2.2 * SECOND
    assert 4 * SECOND <= first["n4"] < 4.2 * SECOND


def test_a_sender_that_begins_later_requests_its_ticket_later() -> None:
    options = {"tickets": 2, "lease": "400ms", "round": "20ms"}
    load = {"senders": 3, "begins": {"n3": "2s"}}
    settings = scenario(family="causal", options=options, workload={**load, "rate": 10})
    wanted = [row for row in rows_of(settings, "ticket") if row.cause == "wanted"]
    assert [(row.process, row.at) for row in wanted] == [("n1", 0), ("n2", 0), ("n3", 2 * SECOND)]


def test_a_hold_ends_and_another_begins() -> None:
    options = {"tickets": 4, "lease": "400ms", "round": "20ms"}
    settings = scenario(family="causal", options=options, workload={"hold_for": "500ms"})
    causes = Counter(row.cause for row in rows_of(settings, "ticket"))
    assert causes["wanted"] > 8
    assert causes["released"] > 4


def test_a_process_without_a_group_sends_nothing() -> None:
    groups = [{"name": "a", "members": ["n1", "n2"]}, {"name": "b", "members": ["n2", "n3"]}]
    submits = rows_of(scenario(group=groups), "submit")
    assert {(row.process, row.group) for row in submits} == {
        ("n1", "a"),
        ("n2", "a"),
        ("n2", "b"),
        ("n3", "b"),
    }


def test_a_steady_sender_submits_at_even_intervals() -> None:
    load = {"senders": 1, "rate": 100, "pattern": "steady"}
    times = [row.at for row in rows_of(scenario(workload=load), "submit")]
    after_forming = [at for at in times if at > SECOND]
    assert after_forming == list(range(1010 * MILLISECOND, 5 * SECOND, 10 * MILLISECOND))


def test_a_poisson_sender_submits_as_often_on_average_and_at_uneven_times() -> None:
    load = {"rate": 100}
    submits = rows_of(scenario(workload=load, duration="20s"), "submit")
    for name, count in Counter(row.process for row in submits).items():
        assert 1800 < count < 2200, name  # four and a half standard deviations
    times = [row.at for row in submits if row.process == "n1"]
    gaps = [two - one for one, two in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    assert 0.8 < variance / mean**2 < 1.25  # as of an exponential distribution


def test_messages_are_submitted_in_batches_at_the_same_rate() -> None:
    load = {"senders": 1, "rate": 100, "batch": 10, "payload": 50, "pattern": "steady"}
    run = simulate(scenario(workload=load), 1)
    events = run.delivered_by("n2")
    assert len(events) in (48, 49)  # 100 messages a second for 5 s; those of the forming in one
    assert {len(event.payloads) for event in events[1:]} == {10}
    assert {event.size for event in events[1:]} == {500}


# --- no room ---------------------------------------------------------------------------------


def test_a_full_window_shows_as_one_blocked_row_until_there_is_room() -> None:
    narrow = scenario(
        workload={"senders": 1, "rate": 100},
        options={"window": 10, **PATIENT},
        fault=[cut_off(lasts="2s")],
    )
    blocked = [row for row in rows_of(narrow, "blocked") if row.at > SECOND]
    submits = [row.at for row in rows_of(narrow, "submit") if row.at > SECOND]
    assert (blocked[0].process, blocked[0].group, blocked[0].cause) == ("n1", "g", "window")
    assert sum(row.at < 3 * SECOND for row in blocked) == 1
    assert not [at for at in submits if blocked[0].at < at < 3 * SECOND]
    assert [at for at in submits if at > 3 * SECOND]


class Gate(Probe):
    """Has no room until it hears a word, of which it records nothing."""

    def accepts(self, group: str, now: int) -> bool:
        return bool(self.stage.heard)


def test_a_step_that_only_makes_room_lets_the_load_continue() -> None:
    load = WorkloadSettings(senders=["n2"], rate=1, pattern="steady")
    stage = Stage(2, probe=Gate, workload=load)
    stage.at(2 * SECOND + SECOND // 2, "n1", say("n2", "open", DATAGRAM)).run()
    waited, *later = (row for row in stage.rows_of("submit", "n2"))
    assert (waited.at, waited.count) == (2 * SECOND + SECOND // 2 + 2 * MILLISECOND, 2)
    assert [row.at // SECOND for row in later] == list(range(3, 10))


def test_nothing_is_submitted_after_the_load_not_even_waiting_messages() -> None:
    """The cut ends with the load. Then there is room again, but no load."""
    waiting = scenario(workload={"rate": 100}, options={"window": 10, **PATIENT}, fault=[cut_off()])
    assert rows_of(waiting, "blocked")
    assert max(row.at for row in rows_of(waiting, "submit")) < 5 * SECOND


def test_a_paused_process_submits_nothing() -> None:
    pause = {"at": "2s", "kind": "pause", "nodes": ["n1"], "for": "1s"}
    submits = rows_of(scenario(workload={"rate": 100}, fault=[pause]), "submit")
    times = [row.at for row in submits if row.process == "n1"]
    assert not [at for at in times if 2 * SECOND < at < 3 * SECOND]
    assert [at for at in times if at > 3 * SECOND]


def test_waiting_messages_leave_at_once_through_a_wide_window() -> None:
    """Messages too large to share a batch, so each is a submission of its own."""
    wide = scenario(
        processes=2,
        duration="8s",
        workload={"senders": 1, "rate": 500, "payload": BATCH_SIZE, "pattern": "steady"},
        options={
            "window": 1000,
            "window_size": "1GiB",
            "retain_size": "2GiB",
            **PATIENT,
        },
        fault=[cut_off(lasts="6s")],
    )
    submits = [row.at for row in rows_of(wide, "submit")]
    at, count = Counter(submits).most_common(1)[0]
    assert at > 7 * SECOND
    assert count > 200
    assert not [time for time in submits if 4 * SECOND < time < 7 * SECOND]


# --- one application, by itself --------------------------------------------------------------


class Desk:
    """What a sender sees of its process, with so much room as the test gives it."""

    def __init__(self, room: int) -> None:
        self.name = "n1"
        self.node = NodeId("n1")
        self.alive = True
        self.is_paused = False
        self.room = room
        self.counts: list[int] = []  # of messages, by submission
        self.on_room: dict[str, Callable[[], None]] = {}

    def accepts(self, group: str) -> bool:
        return self.alive and not self.is_paused and self.room > 0

    def session(self, group: str) -> Session | None:
        return (self.node, 1) if self.alive else None

    def submit(self, group: str, payloads: Payloads, size: int, service: str, reply: None) -> None:
        self.room -= 1
        assert size == sum(map(len, payloads))
        self.counts.append(len(payloads))
        self.make_room(0)  # a submission is a step, after which room is asked for again

    def await_room(self, group: str, retry: Callable[[], None]) -> None:
        self.on_room.setdefault(group, retry)

    def make_room(self, more: int) -> None:
        self.room += more
        for retry in list(self.on_room.values()):
            retry()

    def restart(self) -> None:
        self.node = NodeId("n1", self.node.incarnation + 1)
        self.on_room = {}


def one_application(desk: Desk, queue: EventQueue, **load: Any) -> None:
    """Ten messages a second, until 1000 s."""
    settings = WorkloadSettings(**{"rate": 10.0, "pattern": "steady", **load})
    draw = chance.stream(1, "workload")
    process = cast(Process, desk)
    Sender(queue, process, "g", settings, settings.rate, draw, 1000 * SECOND)


def run_until(queue: EventQueue, seconds: int) -> None:
    assert queue.run(seconds * SECOND, 1_000_000)


@pytest.mark.parametrize("batch", [1, 64, 5000])
def test_a_blocked_application_creates_no_more_than_its_limit(batch: int) -> None:
    desk, queue = Desk(room=0), EventQueue()
    one_application(desk, queue, batch=batch, rate=10.0 * batch)
    run_until(queue, 999)
    desk.make_room(BACKLOG_LIMIT)
    assert BACKLOG_LIMIT <= sum(desk.counts) < BACKLOG_LIMIT + batch


def test_waiting_messages_leave_in_batches_of_a_limited_size() -> None:
    desk, queue = Desk(room=0), EventQueue()
    one_application(desk, queue, payload=Size(BATCH_SIZE // 10))
    run_until(queue, 4)
    assert not desk.counts
    desk.make_room(3)
    assert desk.counts == [10, 10, 10]
    desk.make_room(3)
    assert desk.counts == [10, 10, 10, 10]
    assert not desk.on_room  # nothing waits any more


def test_messages_larger_than_that_size_leave_one_by_one() -> None:
    desk, queue = Desk(room=0), EventQueue()
    one_application(desk, queue, payload=Size(3 * BATCH_SIZE))
    run_until(queue, 1)
    desk.make_room(100)
    assert desk.counts == [1] * 10


def test_a_thousand_batches_leave_one_after_the_other_not_one_inside_the_other() -> None:
    """Every submission asks for room again: that must not go deeper each time."""
    desk, queue = Desk(room=0), EventQueue()
    one_application(desk, queue, payload=Size(BATCH_SIZE))
    run_until(queue, 500)
    desk.make_room(2 * BACKLOG_LIMIT)
    assert desk.counts == [1] * BACKLOG_LIMIT


def test_a_restarted_process_has_no_waiting_messages() -> None:
    desk, queue = Desk(room=0), EventQueue()
    one_application(desk, queue)
    run_until(queue, 50)
    desk.restart()
    desk.make_room(1)
    assert desk.counts == []
    run_until(queue, 51)
    assert desk.counts == [1]


def test_a_crashed_or_paused_application_creates_nothing() -> None:
    desk, queue = Desk(room=1000), EventQueue()
    one_application(desk, queue)
    desk.alive = False
    run_until(queue, 10)
    desk.alive, desk.is_paused = True, True
    run_until(queue, 20)
    desk.is_paused = False
    run_until(queue, 30)
    assert desk.counts == [1] * 100
