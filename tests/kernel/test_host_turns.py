"""The host in a world that says when all that came at the same time was received (its rule 4)."""

from __future__ import annotations

import pytest
from tests.kernel.test_host import PEER, Desk, Draining, do, persist, plain, say, words

from ordercast.errors import UsageError
from ordercast.kernel.host import Host
from ordercast.kernel.inputs import StatusResult
from ordercast.kernel.seat import Seat
from ordercast.types import NodeId


class Turns(Desk):
    def __init__(self, patient: bool = False) -> None:
        super().__init__(patient)
        self.turns = 0  # whose end the host waits for
        self.host = Host(self, journal=self, later=self._later)

    def _later(self) -> None:
        self.turns += 1


class Patient(Draining):
    gathers = True


def gathering(desk: Desk, group: str) -> Seat:
    seat = desk.host.seat(Patient((group,)))
    desk.log.clear()
    return seat


def test_packets_of_several_senders_share_a_step_until_the_turn_ends() -> None:
    desk = Turns()
    seat, other = gathering(desk, "g"), gathering(desk, "h")
    plain(seat).on_input = say("heard")
    desk.host.receive_all(PEER, words("a", "b"), 1)
    desk.host.receive_all(NodeId("another"), [*words("c"), *words("d", group="h")], 2)
    assert (desk.turns, desk.log) == (1, [])
    desk.host.drain()
    assert plain(seat).given == ["a", "b", "c", "drain"]
    assert plain(other).given == ["d", "drain"]
    assert desk.log == ["send heard"] * 3
    desk.host.receive_all(PEER, words("e"), 3)
    assert desk.turns == 2


def test_machines_that_do_not_gather_are_drained_after_each_sender() -> None:
    desk = Turns()
    seat = desk.seat("g", drains=True)
    desk.host.receive_all(PEER, words("a"), 0)
    desk.host.receive_all(NodeId("another"), words("b"), 0)
    assert plain(seat).given == ["a", "drain", "b", "drain"]


def test_a_submission_joins_the_step_of_packets_before_it() -> None:
    desk = Turns()
    seat = gathering(desk, "g")
    plain(seat).on_input = say("said")
    desk.host.receive_all(PEER, words("a"), 0)
    with pytest.raises(UsageError):
        desk.host.submit("g", [b"x"], 10, 1)
    assert desk.log == []  # the step is open as before
    desk.host.submit("g", [b"x"], 1, 1)
    assert plain(seat).given == ["a", "drain"]
    assert desk.log == ["row submit", "send said", "send said", "row deliver", "hear Event"]
    desk.host.drain()
    assert plain(seat).given == ["a", "drain"]


@pytest.mark.parametrize("what", ["timer", "input", "after", "leave"])
def test_any_other_input_comes_after_the_packets_before_it(what: str) -> None:
    desk = Turns()
    seat = gathering(desk, "g")
    do(desk, seat, lambda step: step.set_timer("t", 1))
    desk.host.receive_all(PEER, words("a"), 0)
    match what:
        case "timer":
            desk.ring()
        case "input":
            desk.host.give(seat, StatusResult(1, True), 0)
        case "after":
            desk.host.after(seat, lambda: plain(seat).given.append("then"))
        case "leave":
            desk.host.leave("g", 0)
    assert plain(seat).given[:2] == ["a", "drain"]
    assert len(plain(seat).given) == 3
    desk.host.drain()
    assert len(plain(seat).given) == 3


def test_a_timer_that_an_open_step_cancels_does_not_expire() -> None:
    desk = Turns()
    seat = gathering(desk, "g")
    do(desk, seat, lambda step: step.set_timer("t", 1))
    plain(seat).on_input = lambda step: step.set_timer("t", None)
    desk.host.receive_all(PEER, words("a"), 0)
    desk.ring()
    assert plain(seat).given == ["a", "drain"]


def test_packets_behind_a_step_that_waits_for_the_disk_are_not_gathered() -> None:
    desk = Turns(patient=True)
    seat = gathering(desk, "g")
    do(desk, seat, persist, say("first"))
    plain(seat).on_input = say("second")
    desk.host.receive_all(PEER, words("a"), 0)
    assert plain(seat).given == ["a", "drain"]
    desk.durable()
    assert desk.log == ["commit", "send first", "send second"]


def test_what_a_broken_machine_gathered_never_takes_effect() -> None:
    desk = Turns()
    seat = gathering(desk, "g")
    plain(seat).on_input = say("said")
    desk.host.receive_all(PEER, words("a", "bug"), 0)
    desk.host.drain()
    assert desk.log == ["row leave"]
    assert plain(seat).given == ["a"]
