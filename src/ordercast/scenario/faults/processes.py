"""Faults of processes: `crash`, `restart`, `pause`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ordercast.scenario.faults.fault import DiskFound, Families, Fault, FaultControls, Lot
from ordercast.units import MILLISECOND, Duration

if TYPE_CHECKING:
    from ordercast.scenario.schema import Scenario

RESTART_PAUSE = 100 * MILLISECOND
"""How long a process is down, if its `restart` has no `for`."""


class ProcessDown(Fault, frozen=True):
    """The process crashes. It is down until the last of its crashes is over."""

    disk: DiskFound = "kept"  # what the next incarnation finds

    def begin(self, world: FaultControls, others: Sequence[Fault]) -> None:
        for name in self.nodes:
            world.crash(name)

    def end(self, world: FaultControls, others: Sequence[Fault]) -> None:
        for name in self.nodes if not self.is_for_good else ():
            world.restart(name, self.disk, partial(is_down, name, others))


def is_down(name: str, faults: Sequence[Fault]) -> bool:
    """Whether one of these faults holds the process down."""
    return any(isinstance(fault, ProcessDown) and name in fault.nodes for fault in faults)


class Crash(ProcessDown, frozen=True, tag="crash"):
    """The process crashes; with `for` it restarts afterwards."""

    @property
    def is_for_good(self) -> bool:
        return self.lasts is None

    @classmethod
    def drawn(cls, lot: Lot) -> Fault:
        nodes = lot.nodes[:1]
        for_good = lot.draw.random() < 0.5 and lot.loses(nodes[0])
        lasts = None if for_good else lot.lasts
        return cls(at=lot.at, nodes=nodes, lasts=lasts, disk=lot.rest.disk)


class Restart(ProcessDown, frozen=True, tag="restart"):
    """The process crashes and restarts."""

    @property
    def until(self) -> Duration:
        return Duration(self.at + (RESTART_PAUSE if self.lasts is None else self.lasts))

    def check(self, scenario: Scenario, families: Families) -> Iterator[tuple[str, str]]:
        """A crash without `for` is for good: a restart later on would do nothing."""
        yield from super().check(scenario, families)
        for name in self.nodes:
            since = [
                other.at
                for other in scenario.fault
                if isinstance(other, Crash) and other.is_for_good
                if name in other.nodes and other.at <= self.at
            ]
            if since:
                yield "nodes", f"{name} crashed for good at {min(since)}: give that crash a for"

    @classmethod
    def drawn(cls, lot: Lot) -> Fault:
        return cls(at=lot.at, nodes=lot.nodes[:1], lasts=lot.lasts, disk=lot.rest.disk)


class Pause(Fault, frozen=True, tag="pause"):
    """The process stands still until the last of its pauses is over; a restart begins without."""

    def begin(self, world: FaultControls, others: Sequence[Fault]) -> None:
        for name in self.nodes:
            world.pause(name)

    def end(self, world: FaultControls, others: Sequence[Fault]) -> None:
        for name in self.nodes:
            if not any(isinstance(other, Pause) and name in other.nodes for other in others):
                world.resume(name)


KINDS = (Crash, Restart, Pause)
