"""Faults of the paths between processes: `partition`, `one-way`, `loss`, `slow`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Protocol

from msgspec import Meta

from ordercast.scenario.faults.fault import Families, Fault, FaultControls, Lot, Pair, Share

if TYPE_CHECKING:
    from ordercast.scenario.schema import Scenario

MOST_PATHS = 4_000_000
"""Paths between two processes that one cut may lie on: each is remembered by itself."""


class Cut(Fault, frozen=True):
    """Nothing passes from one side to another. A process on no side reaches everybody."""

    both_ways: ClassVar[bool] = True

    sides: list[list[str]] = []

    def begin(self, world: FaultControls, others: Sequence[Fault]) -> None:
        world.cut(self.paths(world.names))

    def end(self, world: FaultControls, others: Sequence[Fault]) -> None:
        world.mend(self.paths(world.names))

    def paths(self, names: Sequence[str]) -> list[Pair]:
        """The one-way paths that the cut lies on."""
        sides = self.sides or [self.nodes, [name for name in names if name not in self.nodes]]
        paths = []
        for index, side in enumerate(sides):
            for other in sides[index + 1 :]:
                for one in side:
                    for two in other:
                        paths.append((one, two))
                        if self.both_ways:
                            paths.append((two, one))
        return paths

    def check_place(self, scenario: Scenario, families: Families) -> Iterator[tuple[str, str]]:
        listed = [name for side in self.sides for name in side]
        for name in (*self.nodes, *listed):
            if name not in scenario.names:
                yield ("nodes" if name in self.nodes else "sides"), scenario.no_such(name)
        if self.sides and self.nodes:
            yield "nodes", "say sides or nodes, not both"
        elif not self.sides and not self.nodes:
            yield "", 'says no sides: add sides = [["n1"], ["n2"]]'
        elif len(set(listed)) < len(listed):
            yield "sides", "a process cannot be on two sides"
        elif self.sides and (len(self.sides) < 2 or not all(self.sides)):
            yield "sides", "takes two sides or more, none of them empty"
        elif not self.both_ways and len(self.sides) > 2:
            yield "sides", "a one-way cut has two sides: from the first to the second"
        if {*scenario.names} <= {*self.nodes}:
            yield "nodes", "names all processes, so nothing is on the other side: leave some out"
        sizes = [len(side) for side in self.sides] or [len(self.nodes), scenario.processes]
        if sum(sizes) ** 2 - sum(size**2 for size in sizes) > 2 * MOST_PATHS:
            yield "sides" if self.sides else "nodes", f"cuts over {MOST_PATHS} paths: name fewer"

    @classmethod
    def chaos_check(cls, scenario: Scenario, families: Families) -> Iterator[str]:
        if scenario.processes**2 // 4 > MOST_PATHS:
            kind = cls.__struct_config__.tag
            what = f"a {kind} of {scenario.processes} processes cuts over {MOST_PATHS} paths"
            yield f"{what}: leave it out, or lower processes"

    @classmethod
    def drawn(cls, lot: Lot) -> Fault | None:
        sides = [lot.nodes, [name for name in lot.scenario.names if name not in lot.nodes]]
        if not sides[1]:
            return None
        if lot.draw.random() < 0.5:  # so that a one-way cut may lie on either way
            sides.reverse()
        return cls(at=lot.at, sides=sides, lasts=lot.lasts)


class Partition(Cut, frozen=True, tag="partition"):
    """No path between the sides, in both directions."""


class OneWay(Cut, frozen=True, tag="one-way"):
    """No path from the first side to the second."""

    both_ways: ClassVar[bool] = False


class Weather(Protocol):
    """What befalls packets on their way in a simulated network, by process: from it and to it."""

    loss_at: dict[str, float]  # they are lost at these rates
    slow_at: dict[str, float]  # they take so many times longer


class Loss(Fault, frozen=True, tag="loss"):
    """Packets from and to the nodes get lost; without nodes, everybody's. The worst loss counts."""

    why_not_live: ClassVar[str] = "real packets between the members are not ours to lose"

    rate: Share = 0.3

    def begin(self, world: FaultControls, others: Sequence[Fault]) -> None:
        rates: dict[str, float] = {}
        for fault in others:
            if isinstance(fault, Loss):
                for name in fault.nodes or world.names:
                    rates[name] = max(rates.get(name, 0.0), fault.rate)
        assert world.physics is not None, self.why_not_live
        world.physics.network.loss_at = rates

    end = begin

    def check_place(self, scenario: Scenario, families: Families) -> Iterator[tuple[str, str]]:
        return super().check_place(scenario, families) if self.nodes else iter(())

    @classmethod
    def drawn(cls, lot: Lot) -> Fault:
        return cls(at=lot.at, nodes=lot.nodes, lasts=lot.lasts, rate=lot.rest.rate)


class Slow(Fault, frozen=True, tag="slow"):
    """Delays from and to the nodes are so many times longer. The slowest counts."""

    why_not_live: ClassVar[str] = "real packets between the members are not ours to delay"

    factor: Annotated[float, Meta(ge=1, le=1_000_000)] = 10.0

    def begin(self, world: FaultControls, others: Sequence[Fault]) -> None:
        factors: dict[str, float] = {}
        for fault in others:
            if isinstance(fault, Slow):
                for name in fault.nodes:
                    factors[name] = max(factors.get(name, 1.0), fault.factor)
        assert world.physics is not None, self.why_not_live
        world.physics.network.slow_at = factors

    end = begin

    @classmethod
    def drawn(cls, lot: Lot) -> Fault:
        return cls(at=lot.at, nodes=lot.nodes, lasts=lot.lasts, factor=lot.rest.factor)


KINDS = (Partition, OneWay, Loss, Slow)
