"""Faults of what a process runs on: `disk`, `rot`, `skew`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta

from ordercast.scenario.faults.fault import (
    DiskMode,
    Families,
    Fault,
    FaultControls,
    Lot,
    Share,
)
from ordercast.units import MILLISECOND, Duration

if TYPE_CHECKING:
    from ordercast.scenario.schema import Scenario


class Disk(Fault, frozen=True, tag="disk"):
    """The disk fails, is full or is slow. The newest trouble counts."""

    why_not_live: ClassVar[str] = "the disk is this machine's"

    mode: DiskMode = "fail"
    sync: Duration = Duration(20 * MILLISECOND)  # slow: what one sync takes

    def begin(self, world: FaultControls, others: Sequence[Fault]) -> None:
        assert world.physics is not None, self.why_not_live
        for name in world.names:
            world.physics.set_disk(name, None, Duration(0))
        for fault in others:
            if isinstance(fault, Disk):
                for name in fault.nodes:
                    world.physics.set_disk(name, fault.mode, fault.sync)

    end = begin

    @classmethod
    def drawn(cls, lot: Lot) -> Fault:
        return cls(at=lot.at, nodes=lot.nodes, lasts=lot.lasts, mode=lot.rest.mode)


MOST_ROTTEN = 3
"""Entries of a log that one fault drawn at random makes unreadable."""


class Rot(Fault, frozen=True, tag="rot"):
    """Entries of the logs on the disk become unreadable, which is never undone by itself."""

    why_not_live: ClassVar[str] = "the disk is this machine's"

    places: list[Share] = []  # shares of each log: 0 is its oldest entry, 1 its newest

    def begin(self, world: FaultControls, others: Sequence[Fault]) -> None:
        assert world.physics is not None, self.why_not_live
        for name in self.nodes:
            world.physics.rot(name, self.places)

    def check(self, scenario: Scenario, families: Families) -> Iterator[tuple[str, str]]:
        yield from super().check(scenario, families)
        if self.lasts is not None:
            yield "for", "an entry rots at a time, not for a while: leave for out"
        if not self.places:
            yield "places", "say which entries: places = [0.5] is the one in the middle"
        if not any(family.logged for family in families.values()):
            yield "", "no group here has a log"

    @classmethod
    def chaos_check(cls, scenario: Scenario, families: Families) -> Iterator[str]:
        if not any(family.logged for family in families.values()):
            yield "no group here has a log: leave rot out"

    @classmethod
    def drawn(cls, lot: Lot) -> Fault:
        places = [lot.draw.random() for _ in range(lot.draw.randint(1, MOST_ROTTEN))]
        return cls(at=lot.at, nodes=lot.nodes[:1], places=places)


class Skew(Fault, frozen=True, tag="skew"):
    """The clock jumps, which is never undone, and then drifts as the newest of its faults says."""

    why_not_live: ClassVar[str] = "the clock is this machine's"

    by: Duration = Duration(0)
    drift: Annotated[float, Meta(gt=-0.5, le=1)] = 0.0  # seconds gained a second

    def begin(self, world: FaultControls, others: Sequence[Fault]) -> None:
        assert world.physics is not None, self.why_not_live
        for name in self.nodes:
            world.physics.shift_clock(name, self.by)
        self.end(world, others)

    def end(self, world: FaultControls, others: Sequence[Fault]) -> None:
        assert world.physics is not None, self.why_not_live
        for name in self.nodes:
            drifts = [one.drift for one in others if isinstance(one, Skew) and name in one.nodes]
            world.physics.set_drift(name, drifts[-1] if drifts else 0.0)

    def check(self, scenario: Scenario, families: Families) -> Iterator[tuple[str, str]]:
        yield from super().check(scenario, families)
        if not self.by and not self.drift:
            yield "", "say by how much: by, drift or both"

    @classmethod
    def drawn(cls, lot: Lot) -> Fault:
        rest = lot.rest
        return cls(at=lot.at, nodes=lot.nodes, lasts=lot.lasts, by=rest.by, drift=rest.drift)


KINDS = (Disk, Rot, Skew)
