"""Faults drawn from the seed: one every so often, of a random kind, place and length."""

from __future__ import annotations

from ordercast.scenario import chance
from ordercast.scenario.faults import FAULTS
from ordercast.scenario.faults.fault import Fault, Lot
from ordercast.scenario.schema import Scenario
from ordercast.units import MILLISECOND, Duration


def faults_of(scenario: Scenario, seed: int) -> list[Fault]:
    """All faults of one run: those that the scenario lists, and those that its chaos draws."""
    return [*scenario.fault, *draw_chaos(scenario, seed)]


def draw_chaos(scenario: Scenario, seed: int) -> list[Fault]:
    """What the scenario's chaos comes to with this seed."""
    chaos = scenario.chaos
    if chaos is None:
        return []
    draw = chance.stream(seed, "faults")
    names = scenario.names
    faults: list[Fault] = []
    gone: list[str] = []
    at = 0
    while True:
        at += round(draw.expovariate(1 / chaos.every)) + MILLISECOND
        if at >= scenario.duration:
            return faults
        kind = FAULTS[draw.choice(chaos.faults)]
        nodes = draw.sample(names, draw.randint(1, max(1, len(names) // 2)))
        lasts = Duration(draw.randint(min(MILLISECOND, chaos.longest), chaos.longest))
        lot = Lot(Duration(at), nodes, lasts, draw, scenario, chaos, gone)
        fault = kind.drawn(lot)
        if fault is not None:
            assert lot.rest, "is drawn for every fault"
            faults.append(fault)
