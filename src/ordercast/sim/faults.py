"""Faults in virtual time: begun and ended on the event queue, and what they do to processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from ordercast.kernel.inputs import Form, named_input
from ordercast.scenario.faults.active import ActiveFaults
from ordercast.scenario.faults.fault import DiskFound, DiskMode, Fault, Pair
from ordercast.sim.event_queue import EventQueue
from ordercast.sim.identities import Identities
from ordercast.sim.memberships import Memberships
from ordercast.sim.network import Network
from ordercast.sim.process import Process
from ordercast.store.memory import Trouble
from ordercast.units import Duration


@dataclass(frozen=True, slots=True)
class SimulatedControls:
    """What faults can do here (`FaultControls`): everything."""

    queue: EventQueue
    network: Network
    processes: dict[str, Process]
    memberships: dict[str, Memberships]
    identities: Identities

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.processes)

    @property
    def physics(self) -> Self:
        return self

    def crash(self, name: str) -> None:
        self.processes[name].crash()

    def restart(self, name: str, disk: DiskFound, is_down: Callable[[], bool]) -> None:
        process = self.processes[name]
        if not process.alive and disk == "lost":
            process.disk.erase()
        if not process.alive and not is_down():
            self.identities.start(process)

    def pause(self, name: str) -> None:
        self.processes[name].pause()

    def resume(self, name: str) -> None:
        self.processes[name].resume()

    def cut(self, paths: Sequence[Pair]) -> None:
        self.network.cut(paths)

    def mend(self, paths: Sequence[Pair]) -> None:
        self.network.mend(paths)

    def form(self, name: str, group: str) -> None:
        self.processes[name].give(group, Form(group))

    def keep_out(self, name: str, group: str) -> None:
        self.memberships[name].kept_out.add(group)

    def join(self, name: str, group: str) -> None:
        self.memberships[name].join(group)

    def leave(self, name: str, group: str) -> None:
        self.memberships[name].leave(group)

    def give(self, name: str, group: str, word: str, values: Mapping[str, Any]) -> None:
        process = self.processes[name]
        seat = process.host.seats.get(group)
        if seat is not None:
            process.give(group, named_input(seat.takes, word, values))

    def stop_reading(self, name: str, group: str) -> None:
        self.processes[name].stop_reading(group)

    def read_on(self, name: str, group: str) -> None:
        self.processes[name].read_on(group)

    def set_disk(self, name: str, mode: DiskMode | None, sync: Duration) -> None:
        process = self.processes[name]
        process.disk.sync_time = sync if mode == "slow" else 0
        process.disk.trouble = None if mode is None else Trouble(mode)
        process.look_at_disk()

    def rot(self, name: str, places: Sequence[float]) -> None:
        for log in self.processes[name].disk.logs.values():
            for share in places:
                log.spoil(share)

    def shift_clock(self, name: str, by: Duration) -> None:
        process = self.processes[name]
        process.clock = process.clock.jumped(self.queue.now, by)

    def set_drift(self, name: str, drift: float) -> None:
        process = self.processes[name]
        process.clock = process.clock.drifting(self.queue.now, drift)


def schedule(faults: list[Fault], active: ActiveFaults, queue: EventQueue, until: int) -> None:
    """Puts faults on the event queue. Whatever lasts beyond `until` is ended when all is healed."""
    for fault in faults:
        # Plain numbers: the time of an entry becomes the clock, and packets may carry it.
        queue.add(int(fault.at), active.begin, fault)
        if fault.until is not None and fault.until < until:
            queue.add(int(fault.until), active.end, fault)
