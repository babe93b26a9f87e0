"""A process and time: what waits comes in order, and its clock may be wrong in any way."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.sim.probes import (
    DATAGRAM,
    LINK,
    SECOND,
    Probe,
    Rang,
    Stage,
    cut,
    deliver,
    fault,
    first,
    ring,
    say,
)
from tests.sim.probes import MILLISECOND as MS

from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step, Timer
from ordercast.types import NodeId

DELAY = 2 * MS


class Metronome(Probe):
    """Rings every 100 ms by its own clock, from the start of its first life."""

    period = 100 * MS

    def start(self, step: Step) -> None:
        super().start(step)
        if self.me.incarnation == 0:
            step.set_timer("tick", self.period)

    def expire(self, step: Step, timer: Timer) -> None:
        super().expire(step, timer)
        step.set_timer("tick", self.period)


class Diary(Metronome):
    """Logs what it hears among what rang, so that their order shows."""

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        super().receive(step, sender, packet)
        heard = self.stage.heard[-1]
        self.stage.rang.append(Rang(heard.at, heard.clock, self.me, heard.text))


def words(*numbers: int) -> list[str]:
    return [str(number) for number in numbers]


def rang(stage: Stage, who: str = "n1") -> list[tuple[int, Timer]]:
    return [(each.at, each.timer) for each in stage.rang if each.by.name == who]


# --- what waits ------------------------------------------------------------------------------


def test_timers_that_are_due_at_once_run_out_in_the_order_in_which_they_were_set() -> None:
    stage = Stage(1)
    stage.at(0, "n1", *(ring(name, 10 * MS) for name in ("third", "first", "second"))).run()
    assert [timer for _, timer in rang(stage)] == ["third", "first", "second"]


def test_packets_and_timers_that_a_pause_held_come_in_the_order_of_their_times() -> None:
    stage = Stage(2, probe=Diary, faults=[fault("pause", 50 * MS, "n2", 100 * MS)])
    for number in range(20):
        stage.at(5 * MS + number * 10 * MS, "n1", say(first("n2"), str(number), LINK))
    stage.run()
    order = rang(stage, "n2")
    assert stage.texts("n2") == words(*range(20))
    assert not [at for at, _ in order if 50 * MS <= at < 150 * MS]
    # Word n arrives at 7 + 10 n ms; the timer was due at 100 ms, after 9 and before 10.
    after = [what for at, what in order if at == 150 * MS]
    assert after == [*words(*range(5, 10)), "tick", *words(*range(10, 15))]
    assert next(at for at, what in order if at > 150 * MS and what == "tick") == 250 * MS


def test_a_link_that_goes_on_after_a_cut_waits_for_a_pause_to_end_too() -> None:
    faults = [cut(SECOND, "n1 | n2", SECOND), fault("pause", SECOND, "n2", 2 * SECOND)]
    stage = Stage(2, faults=faults)
    for number in range(5):
        stage.at(SECOND + number * SECOND // 2, "n1", say(first("n2"), str(number), LINK))
    stage.run()
    assert stage.texts("n2") == words(0, 1, 2, 3, 4)
    assert stage.heard[0].at == 3 * SECOND


# --- clocks ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("drift", "takes"), [(0.25, 800 * MS), (-0.2, 1250 * MS)])
def test_a_clock_that_drifts_makes_a_timer_early_or_late_by_as_much(
    drift: float, takes: int
) -> None:
    stage = Stage(2, faults=[fault("skew", SECOND, "n1", 3 * SECOND, drift=drift)])
    for name in ("n1", "n2"):
        stage.at(2 * SECOND, name, ring("during", SECOND))
        stage.at(5 * SECOND, name, ring("after", SECOND))
    stage.run()
    assert rang(stage, "n1") == [(2 * SECOND + takes, "during"), (6 * SECOND, "after")]
    assert rang(stage, "n2") == [(3 * SECOND, "during"), (6 * SECOND, "after")]


def test_by_its_own_clock_a_timer_takes_the_time_that_it_was_set_for() -> None:
    stage = Stage(1, probe=Metronome, faults=[fault("skew", 50 * MS, "n1", drift=0.3)])
    stage.run()
    shown = [each.clock for each in stage.rang[1:] if each.at < 10 * SECOND]
    assert len(shown) > 100
    assert all(0 <= later - earlier - 100 * MS <= 1 for earlier, later in pairwise(shown))


def test_a_skew_jumps_the_clock_and_never_the_trace() -> None:
    faults = [fault("skew", 250 * MS, "n1", 200 * MS, by=SECOND)]
    stage = Stage(1, probe=Metronome, faults=faults)
    for tick in range(6):
        stage.at(tick * 100 * MS + 50 * MS, "n1", deliver(tick + 1))
    stage.run()
    shown = [each.clock // MS for each in stage.rang[:6]]
    assert shown == [100, 200, 1300, 1400, 1500, 1600], "a jump is never undone"
    assert [at for at, _ in rang(stage)][:6] == [100 * MS * tick for tick in range(1, 7)]
    delivered = [row.at // MS for row in stage.rows_of("deliver")]
    assert delivered == [50, 150, 250, 350, 450, 550]


def test_a_packet_is_dated_by_the_clock_of_who_receives_it() -> None:
    stage = Stage(2, faults=[fault("skew", 0, "n2", by=SECOND)])
    stage.at(MS, "n1", say("n2", "late?", DATAGRAM)).run()
    assert [(heard.at, heard.clock) for heard in stage.heard] == [(MS + DELAY, SECOND + MS + DELAY)]


def test_a_note_says_until_when_in_true_time() -> None:
    """A machine knows its own clock only; the trace knows no other than the true one."""
    stage = Stage(1, faults=[fault("skew", SECOND, "n1", by=SECOND, drift=0.25)])

    def hold(step: Step) -> None:
        step.note("ticket", cause="acquired", until=step.now + SECOND)

    stage.at(2 * SECOND, "n1", hold).run()
    assert [row.until for row in stage.rows_of("ticket")] == [2 * SECOND + 800 * MS]


def test_a_clock_may_be_set_back_and_timers_do_not_mind() -> None:
    stage = Stage(1, probe=Metronome, faults=[fault("skew", 250 * MS, "n1", by=-SECOND)])
    stage.run()
    assert [each.clock // MS for each in stage.rang[:4]] == [100, 200, -700, -600]
    assert [at for at, _ in rang(stage)][:4] == [100 * MS, 200 * MS, 300 * MS, 400 * MS]


def test_of_drifts_that_overlap_the_newest_counts_until_it_ends() -> None:
    faults = [
        fault("skew", SECOND, "n1", 5 * SECOND, drift=0.25),
        fault("skew", 2 * SECOND, "n1", 2 * SECOND, drift=-0.2),
    ]
    stage = Stage(1, faults=faults)
    for at in (0, 1, 2, 4, 6):
        stage.at(at * SECOND + MS, "n1", ring(f"set at {at}", 100 * MS))
    stage.run()
    assert [(at - MS) % SECOND // MS for at, _ in rang(stage)] == [100, 80, 125, 80, 100]


def test_a_new_life_has_the_clock_of_the_machine_that_it_runs_on() -> None:
    faults = [fault("skew", SECOND, "n1", by=SECOND), fault("restart", 2 * SECOND, "n1")]
    stage = Stage(1, faults=faults).at(3 * SECOND, "n1", ring("alarm", SECOND))
    stage.run()
    assert [(each.at, each.clock) for each in stage.rang] == [(4 * SECOND, 5 * SECOND)]
