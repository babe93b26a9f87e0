"""Faults drawn from the seed: one every so often, of a random kind, place and length."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import NamedTuple

from ordercast.kernel.family import Family
from ordercast.protocol.families import FAMILIES
from ordercast.scenario import chance
from ordercast.scenario.faults import FAULTS
from ordercast.scenario.faults.fault import Families, Fault, Lot
from ordercast.scenario.file import family_of_each
from ordercast.scenario.schema import ChaosSettings, Scenario
from ordercast.units import MILLISECOND, Duration


def faults_of(
    scenario: Scenario, seed: int, families: Mapping[str, Family] = FAMILIES
) -> list[Fault]:
    """All faults of one run: those that the scenario lists, and those that its chaos draws."""
    listed = [fault.settled(scenario) for fault in scenario.fault]
    return [*listed, *draw_chaos(scenario, seed, families)]


def draw_chaos(
    scenario: Scenario, seed: int, families: Mapping[str, Family] = FAMILIES
) -> list[Fault]:
    """What the scenario's chaos comes to with this seed."""
    chaos = scenario.chaos
    if chaos is None:
        return []
    by_group = family_of_each(scenario, families)
    gone: list[str] = []
    lots = Lots(scenario, chaos, by_group, gone)
    faults = lots.drawn(chance.stream(seed, "faults"), chaos.faults, chaos.every)
    for kind, every in chaos.also.items():
        faults += lots.drawn(chance.stream(seed, "faults", kind), [kind], every)
    return faults


class Lots(NamedTuple):
    """What all faults that are drawn for one run have in common."""

    scenario: Scenario
    chaos: ChaosSettings
    families: Families
    gone: list[str]  # processes that what was drawn so far takes away

    def drawn(self, draw: Random, kinds: list[str], every: Duration) -> list[Fault]:
        """Faults of these kinds, one every so often."""
        faults: list[Fault] = []
        names, longest = self.scenario.names, self.chaos.longest
        at = 0
        while True:
            at += round(draw.expovariate(1 / every)) + MILLISECOND
            if at >= self.scenario.duration:
                return faults
            kind = FAULTS[draw.choice(kinds)]
            nodes = draw.sample(names, draw.randint(1, max(1, len(names) // 2)))
            lasts = Duration(draw.randint(min(MILLISECOND, longest), longest))
            lot = Lot(Duration(at), nodes, lasts, draw, *self)
            fault = kind.drawn(lot)
            if fault is not None:
                _ = lot.rest  # drawn for every fault, whether its kind needs it or not
                faults.append(fault)
