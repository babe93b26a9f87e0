"""The host, rule by rule, in a world whose disk is as slow as the test wants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from ordercast.errors import PeerError, UsageError
from ordercast.kernel import host as host_module
from ordercast.kernel.family import Plan
from ordercast.kernel.host import Host
from ordercast.kernel.inputs import Backpressure, Input, Join, Leave, StatusResult
from ordercast.kernel.packet import Packet
from ordercast.kernel.seat import Seat
from ordercast.kernel.step import STATUS, Heard, Sent, Step, Timer
from ordercast.types import Event, NodeId, Payloads, View

PEER = NodeId("peer")
Act = Callable[[Step], None]


class Word(Packet, tag="host.word"):
    text: str


class Desk:
    """The world: writes down what the host asks for. Commits are done when the test says so."""

    def __init__(self, patient: bool = False, flushes: bool = False) -> None:
        self.log: list[str] = []
        self.patient = patient
        self.commits: list[Callable[[], None]] = []
        self.broken: list[Exception] = []
        self.alarms: list[tuple[Seat, Timer, int]] = []
        flush = partial(self.log.append, "flush") if flushes else None
        self.host = Host(self, journal=self, flush=flush)

    def send(self, seat: Seat, sent: Sent) -> None:
        packet: Any = sent[1]
        self.log.append(f"send {packet.text}")

    def wake(self, seat: Seat, timer: Timer, setting: int, after: int) -> int:
        self.log.append(f"wake {timer}")
        self.alarms.append((seat, timer, setting))
        return setting

    def cancel(self, alarm: int) -> None:
        self.log.append("cancel")

    def commit(self, records: list[Packet], done: Callable[[], None]) -> None:
        self.log.append("commit")
        if self.patient:
            self.commits.append(done)
        else:
            done()

    def hear(self, seat: Seat, output: Heard) -> None:
        self.log.append(f"hear {type(output).__name__}")

    def stepped(self, seat: Seat) -> None: ...

    def broke(self, seat: Seat, error: Exception) -> None:
        self.broken.append(error)

    def trace_time(self) -> int:
        return 1

    def on_trace_scale(self, local: int) -> int:
        return local + 1000

    def row(self, at: int, kind: str, **columns: Any) -> None:
        self.log.append(
            f"row {kind}" + (f" until {columns['until']}" if "until" in columns else "")
        )

    def note(
        self, at: int, kind: str, columns: Mapping[str, Any], on_trace_scale: Callable[[int], int]
    ) -> None:
        self.row(at, kind, until=on_trace_scale(columns["until"]))

    def submit(self, at: int, event: Event) -> None:
        self.log.append("row submit")

    def deliver(self, at: int, event: Event) -> None:
        self.log.append("row deliver")

    def view(self, at: int, view: View) -> None:
        self.log.append("row view")

    def durable(self) -> None:
        """The oldest commit is on the disk."""
        self.commits.pop(0)()

    def ring(self, which: int = -1) -> None:
        self.host.expire(*self.alarms[which], 5)

    def seat(self, *groups: str, drains: bool = False, takes: tuple[Any, ...] = ()) -> Seat:
        machine = (Draining if drains else Plain)(groups, takes)
        seat = self.host.seat(machine)
        self.log.clear()
        return seat


class Plain:
    """Does in its step what the test says, and writes down its inputs."""

    def __init__(self, groups: tuple[str, ...], takes: tuple[Any, ...] = ()) -> None:
        self.groups = groups
        self.takes: tuple[type[Input], ...] = takes or (StatusResult, Leave)
        self.given: list[object] = []
        self.stable = 0
        self.on_input: Act = lambda step: None

    def start(self, step: Step) -> None: ...

    def accepts(self, group: str, now: int) -> bool:
        return True

    def stable_up_to(self, group: str) -> int:
        return self.stable

    def submit(self, step: Step, group: str, payloads: Payloads, size: int) -> Event:
        if size > 9:
            raise UsageError("too much")
        event = Event(group, NodeId("me"), 1, payloads)
        step.deliver(event)
        self.on_input(step)
        return event

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        assert isinstance(packet, Word)
        if packet.text == "bad":
            raise PeerError("bad")
        if packet.text == "bug":
            raise AssertionError("bug")
        self.given.append(packet.text)
        self.on_input(step)

    def expire(self, step: Step, timer: Timer) -> None:
        self.given.append(timer)
        self.on_input(step)

    def on(self, step: Step, given: Input) -> None:
        self.given.append(given)
        self.on_input(step)

    def counters(self, group: str) -> dict[str, int]:
        return {}


class Draining(Plain):
    def drain(self, step: Step) -> None:
        self.given.append("drain")


def plain(seat: Seat) -> Plain:
    assert isinstance(seat.machine, Plain)
    return seat.machine


def words(*texts: str, group: str = "g") -> list[Packet]:
    return [Word(group, text) for text in texts]


def say(text: str) -> Act:
    return lambda step: step.send("peer", Word("g", text), STATUS, token=1)


def persist(step: Step) -> None:
    step.persist(Word("g", "record"))


def do(desk: Desk, seat: Seat, *acts: Act) -> None:
    def act(step: Step) -> None:
        for each in acts:
            each(step)

    desk.host.act(seat, act, 0)


# --- 1: the order of a step --------------------------------------------------------------------


def test_a_step_takes_effect_as_records_packets_timers_outputs() -> None:
    desk = Desk()
    seat = desk.seat("g")
    do(
        desk,
        seat,
        lambda step: step.install(View("g", 1, ())),
        lambda step: step.note("ticket", group="g", until=5),
        lambda step: step.set_timer("t", 7),
        say("hello"),
        persist,
    )
    assert desk.log == [
        "commit",
        "send hello",
        "wake t",
        "row view",
        "hear View",
        "row ticket until 1005",
    ]


def test_rows_are_flushed_before_packets_and_after_notes_only() -> None:
    """Nobody else knows yet of what a step without packets has delivered."""
    desk = Desk(flushes=True)
    seat = desk.seat("g")
    do(desk, seat, lambda step: step.install(View("g", 1, ())))
    assert desk.log == ["row view", "hear View"]
    desk.log.clear()
    do(desk, seat, say("hello"), lambda step: step.note("ticket", group="g", until=5))
    assert desk.log == ["flush", "send hello", "row ticket until 1005", "flush"]
    desk.log.clear()
    desk.host.submit("g", [b"x"], 1, 5)
    assert desk.log == ["row submit", "flush", "row deliver", "hear Event"]


def test_a_submission_has_its_trace_row_before_any_packet_leaves() -> None:
    desk = Desk()
    seat = desk.seat("g")
    plain(seat).on_input = say("event")
    desk.host.submit("g", [b"x"], 1, 0)
    assert desk.log == ["row submit", "send event", "row deliver", "hear Event"]


def test_a_submission_that_the_machine_refuses_changes_nothing() -> None:
    desk = Desk()
    seat = desk.seat("g")
    with pytest.raises(UsageError, match="too much"):
        desk.host.submit("g", [b"x"], 10, 0)
    assert not seat.closed
    assert not desk.broken


# --- 2: steps wait for the disk, in order, a machine --------------------------------------------


def test_steps_behind_a_commit_wait_in_order_and_other_machines_go_on() -> None:
    desk = Desk(patient=True)
    one, other = desk.seat("g"), desk.seat("h")
    do(desk, one, persist, say("first"))
    do(desk, one, say("second"))
    do(desk, one, persist, say("third"))
    do(desk, other, say("elsewhere"))
    assert desk.log == ["commit", "commit", "send elsewhere"]
    desk.durable()
    assert desk.log[3:] == ["send first", "send second"]
    desk.durable()
    assert desk.log[5:] == ["send third"]


def test_a_disk_that_does_not_keep_up_stops_the_application_and_then_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host_module, "WAITING_STEPS", 2)
    monkeypatch.setattr(host_module, "MOST_WAITING_STEPS", 3)
    desk = Desk(patient=True)
    seat = desk.seat("g")
    do(desk, seat, persist)
    assert desk.host.accepts("g", 0)
    do(desk, seat, persist)
    assert not desk.host.accepts("g", 0)
    desk.durable()
    assert desk.host.accepts("g", 0)
    for _ in range(3):
        do(desk, seat, persist)
    assert str(desk.broken[0]) == "the disk does not keep up: 3 steps wait for it"
    assert seat.closed


def test_a_submission_that_waits_has_its_trace_row_when_it_takes_effect() -> None:
    desk = Desk(patient=True)
    seat = desk.seat("g")
    do(desk, seat, persist)
    desk.host.submit("g", [b"x"], 1, 0)
    assert desk.log == ["commit"]
    desk.durable()
    assert desk.log == ["commit", "row submit", "row deliver", "hear Event"]


def test_an_action_after_a_machine_waits_for_the_steps_of_the_machine() -> None:
    """A status answer, for instance: the peer may rely on it."""
    desk = Desk(patient=True)
    seat = desk.seat("g")
    do(desk, seat, persist)
    desk.host.after(seat, lambda: desk.log.append("answered"))
    assert desk.log == ["commit"]
    desk.durable()
    assert desk.log == ["commit", "answered"]
    desk.host.after(seat, lambda: desk.log.append("at once"))
    assert desk.log[-1] == "at once"


def test_stability_is_never_ahead_of_what_has_taken_effect() -> None:
    desk = Desk(patient=True)
    seat = desk.seat("g")
    machine = plain(seat)

    def stable(number: int) -> Act:
        return lambda step: setattr(machine, "stable", number)

    do(desk, seat, stable(1))
    assert desk.host.stable_up_to("g") == 1
    do(desk, seat, persist, stable(2))
    do(desk, seat, persist, stable(3))
    assert desk.host.stable_up_to("g") < 2
    desk.durable()
    assert desk.host.stable_up_to("g") == 2
    desk.durable()
    assert desk.host.stable_up_to("g") == 3


def test_a_group_is_left_after_the_steps_that_wait() -> None:
    desk = Desk(patient=True)
    seat = desk.seat("g")
    plain(seat).on_input = say("bye")
    do(desk, seat, persist)
    desk.host.leave("g", 0)
    assert "g" in desk.host.leaving
    desk.durable()
    assert desk.log == ["commit", "send bye", "row leave"]
    assert "g" not in desk.host.seats
    assert seat.closed


def test_a_machine_whose_last_step_waits_gets_no_more_inputs() -> None:
    desk = Desk(patient=True)
    seat = desk.seat("g")
    machine = plain(seat)
    do(desk, seat, persist, lambda step: step.set_timer("t", 1))
    do(desk, seat, persist)
    left: list[str] = []
    desk.host.leave("g", 0, lambda: left.append("g"))
    assert machine.given == [Leave("g")]
    desk.durable()  # the timer is set, and the second step still waits
    desk.ring()
    desk.host.status(seat, 1, True, 0)
    assert not desk.host.receive(PEER, Word("g", "late"), 0)
    assert machine.given == [Leave("g")]
    assert not left
    desk.durable()
    assert left == ["g"]
    desk.host.seat(machine)  # it is joined again


def test_a_crash_forgets_the_steps_that_wait() -> None:
    desk = Desk(patient=True)
    seat = desk.seat("g")
    do(desk, seat, persist, say("never"))
    desk.host.end()
    desk.durable()
    assert desk.log == ["commit"]


# --- 3: timers -----------------------------------------------------------------------------------


def test_a_timer_that_was_set_again_or_cancelled_does_not_expire() -> None:
    desk = Desk()
    seat = desk.seat("g")
    do(desk, seat, lambda step: step.set_timer("t", 1), lambda step: step.set_timer("u", 1))
    do(desk, seat, lambda step: step.set_timer("t", 9), lambda step: step.set_timer("u", None))
    for which in range(3):
        desk.ring(which)
    assert plain(seat).given == ["t"]
    desk.ring()
    assert plain(seat).given == ["t"]


def test_a_timer_that_a_waiting_step_sets_does_not_expire_meanwhile() -> None:
    desk = Desk(patient=True)
    seat = desk.seat("g")
    do(desk, seat, lambda step: step.set_timer("t", 1))
    do(desk, seat, persist, lambda step: step.set_timer("t", 9))
    desk.ring()
    assert plain(seat).given == []
    desk.durable()
    desk.ring()
    assert plain(seat).given == ["t"]


# --- 4: packets that come together ---------------------------------------------------------------


def test_packets_in_a_row_for_one_machine_share_a_step_and_are_drained_once() -> None:
    desk = Desk()
    one, other = desk.seat("g", drains=True), desk.seat("h", drains=True)
    packets = [*words("a", "b"), *words("c", group="h"), *words("d")]
    assert desk.host.receive_all(PEER, packets, 0) is one
    assert plain(one).given == ["a", "b", "drain", "d", "drain"]
    assert plain(other).given == ["c", "drain"]


def test_packets_before_a_bad_packet_of_a_bundle_count() -> None:
    desk = Desk()
    seat = desk.seat("g", drains=True)
    plain(seat).on_input = say("heard")
    with pytest.raises(PeerError):
        desk.host.receive_all(PEER, words("a", "bad", "b"), 0)
    assert plain(seat).given == ["a", "drain"]
    assert desk.log == ["send heard"]
    assert not seat.closed


def test_a_packet_of_a_group_that_no_machine_serves_is_dropped() -> None:
    desk = Desk()
    desk.seat("g")
    assert not desk.host.receive(PEER, Word("h", "a"), 0)
    assert desk.host.receive_all(PEER, words("a", group="h"), 0) is None


# --- 5: bugs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [True, False])
def test_a_machine_that_raises_is_closed_and_no_other(together: bool) -> None:
    desk = Desk()
    broken, sound = desk.seat("g"), desk.seat("h")
    do(desk, broken, lambda step: step.set_timer("t", 1))
    if together:
        desk.host.receive_all(PEER, words("bug"), 0)
    else:
        desk.host.receive(PEER, Word("g", "bug"), 0)
    assert [str(error) for error in desk.broken] == ["bug"]
    assert broken.closed
    desk.ring()
    assert not desk.host.give(broken, Leave("g"), 0)
    assert plain(broken).given == []
    assert not sound.closed


def test_packets_behind_one_that_broke_a_machine_reach_other_machines() -> None:
    desk = Desk()
    seat, other = desk.seat("g"), desk.seat("h")
    several = [*words("bug", "lost"), *words("kept", group="h"), *words("lost")]
    assert desk.host.receive_all(PEER, several, 0) is None
    assert [plain(seat).given, plain(other).given] == [[], ["kept"]]
    assert not desk.host.receive(PEER, Word("g", "lost"), 0)


def test_a_machine_that_breaks_while_it_leaves_has_left() -> None:
    desk = Desk(patient=True)
    seat = desk.seat("g")
    do(desk, seat, persist, lambda step: step.set_timer("t", -1))
    left: list[str] = []
    desk.host.leave("g", 0, lambda: left.append("g"))
    desk.durable()
    assert [seat.closed, left, desk.host.leaving] == [True, ["g"], {}]


def test_a_step_that_cannot_be_carried_out_closes_the_machine() -> None:
    desk = Desk()
    seat = desk.seat("g")
    do(desk, seat, lambda step: step.set_timer("t", -1))
    assert "set into the past" in str(desk.broken[0])
    assert seat.closed


# --- inputs and groups ---------------------------------------------------------------------------


def test_a_machine_is_given_only_what_it_takes() -> None:
    desk = Desk()
    seat = desk.seat("g")
    assert not desk.host.give(seat, Backpressure("g", True), 0)
    desk.host.status(seat, "token", True, 0)
    assert plain(seat).given == [StatusResult("token", True)]


def test_a_machine_that_serves_many_groups_outlives_each_of_them() -> None:
    desk = Desk()
    seat = desk.seat(takes=(Join, Leave))
    plan = Plan("g", ("me",), None)
    desk.host.join(seat, plan, 0)
    desk.host.leave("g", 0)
    desk.host.join(seat, plan, 0)
    assert desk.log == ["row join", "row leave", "row join"]
    assert plain(seat).given == [Join(plan), Leave("g"), Join(plan)]


def test_only_steps_without_effects_are_reused() -> None:
    desk = Desk()
    seat = desk.seat("g")
    steps: list[Step] = []
    machine = plain(seat)
    machine.on_input = steps.append
    for text in "ab":
        desk.host.receive(PEER, Word("g", text), 0)
    assert steps[0] is steps[1]
    machine.on_input = lambda step: (steps.append(step), say("c")(step))
    desk.host.receive(PEER, Word("g", "c"), 0)
    machine.on_input = steps.append
    desk.host.receive(PEER, Word("g", "d"), 0)
    assert steps[2] is not steps[3]
