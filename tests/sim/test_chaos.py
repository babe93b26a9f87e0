"""Faults drawn from the seed: where they lie, whom they spare, and that they are all healed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from ordercast.scenario.chaos import draw_chaos
from ordercast.scenario.faults import FAULTS
from ordercast.scenario.faults.fault import Fault
from ordercast.scenario.faults.hardware import Disk, Rot
from ordercast.scenario.faults.members import OfMembers
from ordercast.scenario.faults.paths import Cut
from ordercast.scenario.faults.processes import Crash, ProcessDown, Restart
from ordercast.scenario.file import parse_scenario
from ordercast.scenario.schema import Scenario
from ordercast.sim.clock import Clock
from ordercast.sim.world import Simulation
from ordercast.units import SECOND, Duration

HOUR = Duration.parse("1h")
NOT_HERE = (OfMembers, Rot)  # groups of this family have no logs
KINDS = [kind for kind, fault in FAULTS.items() if not issubclass(fault, NOT_HERE)]


def scenario(processes: int = 5, duration: str = "5s", **chaos: Any) -> Scenario:
    settings = {"faults": KINDS, "every": "300ms", "longest": "2s", **chaos}
    return parse_scenario(
        {
            "name": "chaos",
            "processes": processes,
            "duration": duration,
            "quiet": "1s",
            "workload": {"rate": 2},
            "chaos": settings,
        }
    )


def drawn(scenario: Scenario, seed: int) -> list[Fault]:
    return draw_chaos(scenario, seed)


def gone(faults: list[Fault]) -> list[str]:
    """Who crashes for good, each time that it does."""
    return [
        name
        for fault in faults
        if fault.kind == "crash" and fault.lasts is None
        for name in fault.nodes
    ]


# --- what is drawn ---------------------------------------------------------------------------


def test_every_fault_begins_within_the_duration_and_lasts_no_longer_than_it_may() -> None:
    for seed in range(100):
        for fault in drawn(scenario(), seed):
            assert 0 < fault.at < 5 * SECOND
            assert fault.lasts is None or 0 < fault.lasts <= 2 * SECOND


def test_only_a_crash_is_for_good() -> None:
    for seed in range(100):
        assert all(
            fault.lasts is not None or fault.kind == "crash" for fault in drawn(scenario(), seed)
        )


def test_every_kind_occurs_and_none_that_was_not_asked_for() -> None:
    faults = [fault for seed in range(100) for fault in drawn(scenario(), seed)]
    counts = Counter(fault.kind for fault in faults)
    assert set(counts) == set(KINDS)
    assert min(counts.values()) > max(counts.values()) / 2
    assert {fault.mode for fault in faults if isinstance(fault, Disk)} == {"fail", "full", "slow"}
    assert {fault.disk for fault in faults if isinstance(fault, ProcessDown)} == {"kept", "lost"}
    few = [fault for seed in range(20) for fault in drawn(scenario(faults=["loss"]), seed)]
    assert {fault.kind for fault in few} == {"loss"}


def test_faults_come_at_the_mean_interval_of_the_scenario() -> None:
    count = sum(len(drawn(scenario(every="100ms"), seed)) for seed in range(100))
    assert 4000 < count < 6000  # 5 s, 100 seeds


def test_drawn_faults_are_valid_in_a_file() -> None:
    """The rules for listed faults hold for the drawn ones too."""
    names = set(scenario().names)
    for seed in range(100):
        for fault in drawn(scenario(), seed):
            assert set(fault.nodes) <= names
            if isinstance(fault, Cut):
                one, two = fault.sides
                assert one
                assert two
                assert sorted(one + two) == sorted(names)
            else:
                assert fault.nodes


def test_a_one_way_cut_may_go_in_either_direction() -> None:
    one_way = scenario(faults=["one-way"])
    cuts = [fault for seed in range(20) for fault in drawn(one_way, seed)]
    sides = [cut.sides for cut in cuts if isinstance(cut, Cut)]
    assert len(sides) == len(cuts)
    assert any(len(one) < len(two) for one, two in sides)
    assert any(len(one) > len(two) for one, two in sides)


@pytest.mark.parametrize("survivors", [1, 2, 4, 5, 99])
def test_the_configured_number_of_processes_never_crash_for_good(survivors: int) -> None:
    most = 0
    for seed in range(50):
        crashes = gone(drawn(scenario(faults=["crash"], survivors=survivors), seed))
        assert len(crashes) == len(set(crashes))
        assert len(crashes) <= max(0, 5 - survivors)
        most = max(most, len(crashes))
    assert most == max(0, 5 - survivors)  # and with bad luck no more than those are left


def test_a_single_process_gets_no_network_cut() -> None:
    alone = scenario(processes=1, faults=["partition", "one-way"])
    assert not any(drawn(alone, seed) for seed in range(20))


MEMBERS = {"leave": "500ms", "join": "500ms", "slow-reader": "500ms"}


def test_kinds_in_also_do_not_change_the_other_faults() -> None:
    for seed in range(50):
        plain = drawn(scenario(), seed)
        assert drawn(scenario(also=MEMBERS), seed)[: len(plain)] == plain
        fewer = {"leave": MEMBERS["leave"]}
        both = drawn(scenario(also=fewer | {"slow-reader": "1s"}), seed)
        assert [fault for fault in both if fault.kind != "slow-reader"] == drawn(
            scenario(also=fewer), seed
        )


def test_the_configured_number_of_members_stays_throughout() -> None:
    seen = Counter()
    for seed in range(50):
        faults = drawn(scenario(also=MEMBERS), seed)
        seen.update(fault.kind for fault in faults)
        moved = {
            name for fault in faults if fault.kind in ("leave", "join") for name in fault.nodes
        }
        assert len(moved | set(gone(faults))) <= 3
    assert set(MEMBERS) <= set(seen)


# --- what is left of it at the end -----------------------------------------------------------


# In runs 35 and 41 a short crash that lasts beyond the end hits a process that is gone for good.
@pytest.mark.parametrize("seed", [*range(13), 35, 41])
def test_at_the_end_only_processes_that_crashed_for_good_are_down(seed: int) -> None:
    world = Simulation(scenario(), seed)
    assert world.run().error is None
    network = world.network
    assert not network.cuts
    assert not network.loss_at
    assert not network.slow_at
    for process in world.processes.values():
        assert not process.is_paused
        assert process.disk.trouble is None
        assert runs_true(process.clock)
    alive = [name for name, process in world.processes.items() if process.alive]
    down = gone(drawn(scenario(), seed))
    assert alive == [name for name in world.scenario.names if name not in down]
    assert len(alive) >= 2


def runs_true(clock: Clock) -> bool:
    """Whether the clock is as fast as time is. What it jumped it keeps."""
    return clock.read(9 * SECOND) - clock.read(8 * SECOND) == SECOND


@pytest.mark.parametrize(
    "later",
    [
        Crash(at=Duration.parse("1500ms"), nodes=["n1", "n2"], lasts=HOUR),
        Restart(at=Duration.parse("1950ms"), nodes=["n1", "n2"]),
    ],
    ids=["crash", "restart"],
)
def test_the_end_of_a_shorter_crash_does_not_restart_a_process_that_crashed_for_good(
    later: Fault,
) -> None:
    """The later fault hits a process that is down already, and lasts beyond the end."""
    for_good = Crash(at=Duration.parse("1s"), nodes=["n1"])
    duration = Duration.parse("2s")
    world = Simulation(
        Scenario(name="x", processes=3, duration=duration, fault=[for_good, later]), 1
    )
    world.run()
    assert [name for name, process in world.processes.items() if process.alive] == ["n2", "n3"]


def test_listed_faults_come_beside_the_drawn_ones() -> None:
    both = parse_scenario(
        {
            "name": "x",
            "processes": 5,
            "duration": "2s",
            "fault": [{"at": "1s", "kind": "crash", "nodes": ["n5"]}],
            "chaos": {"faults": ["pause"], "every": "200ms"},
        }
    )
    world = Simulation(both, 1)
    assert world.run().error is None
    assert [process.alive for process in world.processes.values()] == [True] * 4 + [False]
