"""The rules of the explorer's world, shown on machines that do one thing each."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec
import pytest

from ordercast.check.verdict import Verdict
from ordercast.errors import UsageError
from ordercast.kernel.family import Family, Plan
from ordercast.kernel.inputs import Input, StatusResult
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import DATAGRAM, LINK, STATUS, Channel, Step, Timer
from ordercast.sim.explore import Bounds, Setting, explore, replay, setting
from ordercast.trace.schema import Ending, Trace
from ordercast.types import Event, NodeId, Payloads, event_number


class Ping(Packet, frozen=True, tag="toy.ping"):
    origin: NodeId
    number: int


class ToyOptions(msgspec.Struct, frozen=True):
    """Nothing can be set."""


class Toy:
    """Sends each submission to all others by one channel, and writes down what it hears."""

    takes = (StatusResult,)
    channel: Channel = LINK
    by_life = True

    def __init__(self, me: NodeId, plan: Plan, chance: Random, records: Sequence[Packet]) -> None:
        self.me = me
        self.groups: tuple[str, ...] = (plan.group,)
        self.others = tuple(name for name in plan.members if name != me.name)
        self.made = 0
        self.records = len(records)

    def start(self, step: Step) -> None:
        if self.records:
            step.note("recover", cause=f"found {self.records}")

    def accepts(self, group: str, now: int) -> bool:
        return True

    def stable_up_to(self, group: str) -> int:
        return 0

    def submit(self, step: Step, group: str, payloads: Payloads, size: int) -> Event:
        self.made += 1
        ping = Ping(group, self.me, self.made)
        for number, name in enumerate(self.others):
            token = f"{self.made}.{number}" if self.channel is STATUS else None
            step.send(NodeId(name) if self.by_life else name, ping, self.channel, token)
        return Event(group, self.me, event_number(self.me.incarnation, self.made), payloads)

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        assert isinstance(packet, Ping)
        step.note("recover", peer=str(sender), cause=f"ping {packet.number}")

    def expire(self, step: Step, timer: Timer) -> None:
        step.note("recover", cause=str(timer))

    def on(self, step: Step, given: Input) -> None:
        assert isinstance(given, StatusResult)
        step.note("recover", cause=f"told {given.token} {given.arrived}")


def toy_stage(kind: type[Toy], members: int = 2, **rules: Any) -> Setting:
    def build(
        me: NodeId, plans: tuple[Plan, ...], chance: Random, records: Sequence[Packet]
    ) -> list[Machine]:
        return [kind(me, plan, chance, records) for plan in plans]

    return setting(Family("toy", ToyOptions, (Ping,), build, 9), members, **rules)


def heard(trace: Trace, name: str) -> tuple[str, ...]:
    """What one member wrote down."""
    return tuple(r.cause or "" for r in trace.rows if r.process == name and r.kind == "recover")


def all_heard(where: Setting, bounds: Bounds, name: str, *, settle: bool = False) -> set[Any]:
    """What one member can have written down: in any state, or after a fair run only."""
    found = set()
    wanted = Ending.FINISHED if settle else Ending.CUT

    def judge(trace: Trace) -> list[Verdict]:
        if trace.header.ending is wanted:
            found.add(heard(trace, name))
        return []

    report = explore(where, bounds, judge, settle=settle)
    assert report.complete
    assert report.broken is None, report
    return found


N1_TWICE = {"n1": 2}
NOTHING: tuple[str, ...] = ()
ONE, TWO = ("ping 1",), ("ping 2",)
BOTH = ONE + TWO


class ByDatagram(Toy):
    channel = DATAGRAM


class ByName(ByDatagram):
    by_life = False


class ByStatus(Toy):
    channel = STATUS


# --- links -------------------------------------------------------------------------------------


def test_links_keep_the_order_and_lose_nothing() -> None:
    bounds = Bounds(submissions=N1_TWICE)
    assert all_heard(toy_stage(Toy), bounds, "n2") == {NOTHING, ONE, BOTH}
    assert all_heard(toy_stage(Toy), bounds, "n2", settle=True) == {BOTH}


def test_packets_of_a_dead_sender_arrive_up_to_any_point() -> None:
    bounds = Bounds(submissions=N1_TWICE, crashes=1)
    # The other sender is n2 itself, which wrote nothing when it crashed before.
    assert all_heard(toy_stage(Toy), bounds, "n2", settle=True) == {NOTHING, ONE, BOTH}


def test_a_link_connects_two_incarnations() -> None:
    """The new incarnation of n2 hears nothing: all pings are for its first."""
    bounds = Bounds(submissions=N1_TWICE, crashes=1, restarts=1)

    def judge(trace: Trace) -> list[Verdict]:
        second = [row for row in trace.rows if row.process == "n2" and row.incarnation == 1]
        assert all(row.kind in ("start", "join", "crash", "stop") for row in second)
        return []

    assert explore(toy_stage(Toy), bounds, judge, settle=True).complete


def test_a_network_cut_holds_links_until_it_is_healed() -> None:
    where = toy_stage(Toy)
    with pytest.raises(UsageError, match="cannot happen there"):
        replay(where, ["n1 submits", "cut: n1 and n2", "n1 → n2: toy.ping n1:1"], no_judge)
    lines = ["cut: n1 and n2", "n1 submits", "mended: n1 and n2", "n1 → n2: toy.ping n1:1"]
    assert heard(replay(where, lines, no_judge).trace, "n2") == ONE
    settled = replay(where, lines[:2], no_judge, settle=True).trace
    assert heard(settled, "n2") == ONE
    bounds = Bounds(submissions=N1_TWICE, cuts=1)
    assert all_heard(where, bounds, "n2", settle=True) == {BOTH}
    # What is sent by datagram during the cut is gone.
    lost = {NOTHING, ONE, TWO, BOTH, TWO + ONE}
    assert all_heard(toy_stage(ByDatagram), bounds, "n2", settle=True) == lost


def no_judge(trace: Trace) -> list[Verdict]:
    return []


# --- datagrams ---------------------------------------------------------------------------------


def test_datagrams_come_in_any_order() -> None:
    bounds = Bounds(submissions=N1_TWICE)
    found = all_heard(toy_stage(ByDatagram), bounds, "n2")
    assert found == {NOTHING, ONE, TWO, BOTH, TWO + ONE}


def test_losses_and_copies_happen_as_often_as_the_bounds_allow() -> None:
    where = toy_stage(ByDatagram)

    def ends(**more: int) -> set[Any]:
        return all_heard(where, Bounds(submissions=N1_TWICE, **more), "n2", settle=True)

    assert ends() == {BOTH, TWO + ONE}
    assert ends(losses=1) == {BOTH, TWO + ONE, ONE, TWO}
    assert ends(losses=2) == {BOTH, TWO + ONE, ONE, TWO, NOTHING}
    assert {len(each) for each in ends(duplicates=1)} == {2, 3}
    assert max(each.count("ping 1") for each in ends(duplicates=2)) == 3


def test_only_the_latest_datagram_is_left_where_that_is_asked_for() -> None:
    where = toy_stage(ByDatagram, latest_only=True)
    found = all_heard(where, Bounds(submissions=N1_TWICE), "n2")
    assert found == {NOTHING, ONE, TWO, BOTH}  # never the second before the first


def test_a_bare_name_reaches_the_next_incarnation_too() -> None:
    lines = ["n1 submits", "n2 crashes", "n2 restarts", "n1 → n2: toy.ping n1:1"]
    assert heard(replay(toy_stage(ByName), lines, no_judge).trace, "n2") == ONE
    with pytest.raises(UsageError, match="cannot happen there"):
        replay(toy_stage(ByDatagram), lines, no_judge)


# --- status ------------------------------------------------------------------------------------


def test_a_status_is_answered_once_and_ok_only_after_arrival() -> None:
    where, told = toy_stage(ByStatus), set()

    def judge(trace: Trace) -> list[Verdict]:
        answers, pings = heard(trace, "n1"), heard(trace, "n2")
        assert len(answers) <= 1
        assert pings == ONE or "told 1.0 True" not in answers
        told.add((answers, pings, trace.header.ending is Ending.FINISHED))
        return []

    bounds = Bounds(submissions={"n1": 1}, losses=1)
    assert explore(where, bounds, judge, settle=True).complete
    ok, not_ok = ("told 1.0 True",), ("told 1.0 False",)
    assert {(answers, pings) for answers, pings, ended in told if not ended} == {
        *((NOTHING, NOTHING), (NOTHING, ONE), (ok, ONE), (not_ok, NOTHING), (not_ok, ONE))
    }
    ends = {(answers, pings) for answers, pings, ended in told if ended}
    assert ends == {(ok, ONE), (not_ok, ONE), (not_ok, NOTHING)}


def test_a_status_to_the_dead_is_answered_not_ok() -> None:
    bounds = Bounds(submissions={"n1": 1}, crashes=1)
    ends = all_heard(toy_stage(ByStatus), bounds, "n1", settle=True)
    assert ends == {("told 1.0 True",), ("told 1.0 False",), NOTHING}
    lines = ["n2 crashes", "n1 submits", "n1 gets the status not OK: toy.ping n1:1 to n2"]
    assert heard(replay(toy_stage(ByStatus), lines, no_judge).trace, "n1") == ("told 1.0 False",)
    lines = ["n1 submits", "n1 crashes", "n1 → n2: toy.ping n1:1"]
    assert heard(replay(toy_stage(ByStatus), lines, no_judge).trace, "n2") == ONE


# --- timers and clocks -------------------------------------------------------------------------


class Timed(Toy):
    """Sets three timers, one of them again, and cancels one."""

    def start(self, step: Step) -> None:
        for timer, after in (("late", 100), ("never", 1), ("soon", 1), ("late", 50)):
            step.set_timer(timer, after)
        step.set_timer("never", None)


class Reads(Timed):
    def expire(self, step: Step, timer: Timer) -> None:
        step.note("recover", cause=f"{timer} at {step.now}")


def test_timers_expire_in_any_order_and_once_per_setting() -> None:
    found = all_heard(toy_stage(Timed, 1, prelude=False), Bounds(submissions=0, timers=9), "n1")
    assert found == {NOTHING, ("soon",), ("late",), ("soon", "late"), ("late", "soon")}
    found = all_heard(toy_stage(Timed, 1, prelude=False), Bounds(submissions=0, timers=1), "n1")
    assert found == {NOTHING, ("soon",), ("late",)}


def test_a_clock_is_read_only_where_clocks_are_explored() -> None:
    bounds = Bounds(submissions=0, timers=2)
    with pytest.raises(UsageError, match="clocks=True"):
        explore(toy_stage(Reads, 1, prelude=False), bounds, no_judge)
    found = all_heard(toy_stage(Reads, 1, prelude=False, clocks=True), bounds, "n1")
    assert {each for each in found if len(each) == 2} == {
        ("soon at 1", "late at 50"),
        ("late at 50", "soon at 50"),  # a clock never goes back
    }


class Leases(Toy):
    def submit(self, step: Step, group: str, payloads: Payloads, size: int) -> Event:
        step.note("ticket", group=group, index=1, cause="acquired", until=5)
        return super().submit(step, group, payloads, size)


def test_leases_are_refused() -> None:
    with pytest.raises(UsageError, match="leases need clocks that agree"):
        explore(toy_stage(Leases), Bounds(), no_judge)


# --- disks, strangers and lines ----------------------------------------------------------------


class Keeps(Toy):
    def submit(self, step: Step, group: str, payloads: Payloads, size: int) -> Event:
        event = super().submit(step, group, payloads, size)
        step.persist(Ping(group, self.me, self.made))
        return event


def test_a_new_incarnation_finds_the_records_of_the_old_one() -> None:
    bounds = Bounds(submissions=N1_TWICE, crashes=1, restarts=1)
    found = all_heard(toy_stage(Keeps), bounds, "n1")
    assert found == {NOTHING, ("found 1",), ("found 2",)}


class Restless(Toy):
    """Answers every ping."""

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        step.send(sender, packet)


def test_a_fair_run_without_rest_is_a_break() -> None:
    report = explore(toy_stage(Restless), Bounds(submissions=N1_TWICE), no_judge, settle=True)
    assert report.broken is None  # no state without choices, and no depth bound to settle at
    bounds = Bounds(submissions={"n1": 1}, depth=1)
    report = explore(toy_stage(Restless), bounds, no_judge, settle=True)
    assert report.broken is not None
    assert report.broken.error is not None
    assert report.broken.error.startswith("no rest")


def test_equal_lines_are_numbered() -> None:
    class Twice(ByDatagram):
        def submit(self, step: Step, group: str, payloads: Payloads, size: int) -> Event:
            event = super().submit(step, group, payloads, size)
            step.send(NodeId("n2"), Ping("h", self.me, self.made), DATAGRAM)
            return event

    where = toy_stage(Twice)
    line = "n1 → n2: toy.ping n1:1"
    for first, second in ((line, line), (f"{line} [2]", line)):
        trace = replay(where, ["n1 submits", first, second], no_judge).trace
        assert heard(trace, "n2") == ONE  # n2 has no group h, and ignores that one


class Deaf(Toy):
    def accepts(self, group: str, now: int) -> bool:
        return False


@pytest.mark.parametrize("settle", [False, True])
def test_a_setting_without_actions_has_one_state(settle: bool) -> None:
    report = explore(toy_stage(Deaf, prelude=False), Bounds(), no_judge, settle=settle)
    assert (report.states, report.transitions, report.depth) == (1, 0, 0)
    assert report.complete
    assert report.judged == 1 + settle


def test_a_machine_that_cannot_start_is_refused() -> None:
    class Stillborn(Toy):
        def start(self, step: Step) -> None:
            raise ValueError("no")

    with pytest.raises(UsageError, match="n1 cannot start: ValueError"):
        explore(toy_stage(Stillborn), Bounds(), no_judge)
