"""What goes wrong: listed faults and chaos drawn from the seed, begun and ended on the agenda."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Literal

from ordercast.scenario.schema import ChaosSettings, Fault, Scenario
from ordercast.sim.agenda import Agenda
from ordercast.sim.network import Network
from ordercast.sim.process import Process
from ordercast.store.memory import Trouble
from ordercast.units import MILLISECOND, Duration

_KEPT: Literal["kept"] = "kept"
_DISKS: tuple[Literal["kept", "lost"], ...] = (_KEPT, "lost")

RESTART_PAUSE = 100 * MILLISECOND
"""How long a process is down that is restarted without a word on how long."""


class Faults:
    """Begins and ends faults. Of those of a kind that overlap, each is ended by itself.

    What lies on a process meanwhile: all cuts, the worst loss and slowness, the newest disk
    trouble and drift; it is down until the last crash ends, and paused until the last pause
    does, which a restart begins without.
    """

    def __init__(self, agenda: Agenda, network: Network, processes: dict[str, Process]) -> None:
        self._agenda = agenda
        self._network = network
        self._processes = processes
        self._active: list[Fault] = []
        self._begin: dict[str, Callable[[Fault], None]] = {
            "crash": self._crash,
            "restart": self._crash,
            "pause": self._pause,
            "partition": lambda fault: network.cut(self._paths(fault)),
            "one-way": lambda fault: network.cut(self._paths(fault)),
            "loss": lambda fault: self._weigh(),
            "slow": lambda fault: self._weigh(),
            "disk": lambda fault: self._disks(),
            "skew": self._skew,
            "reform": self._reform,
        }

    def schedule(self, faults: list[Fault], until: int) -> None:
        """Puts faults on the agenda. Whatever lasts beyond `until` is ended then."""
        for fault in faults:
            self._agenda.add(fault.at, self._start, fault)
            end = end_of(fault)
            if end is not None and end < until:
                self._agenda.add(end, self._end, fault)

    def heal(self) -> None:
        """Ends every fault. A process that crashed for good stays down."""
        # Those for good end last: until then they hold down whom a shorter crash would restart.
        for fault in sorted(self._active, key=_is_for_good):
            self._end(fault)

    def _start(self, fault: Fault) -> None:
        self._active.append(fault)
        self._begin[fault.kind](fault)

    def _end(self, fault: Fault) -> None:
        if not any(fault is other for other in self._active):
            return
        self._active = [other for other in self._active if other is not fault]
        if fault.kind in ("crash", "restart"):
            if fault.lasts is not None or fault.kind == "restart":
                self._restart(fault)
        elif fault.kind in ("partition", "one-way"):
            self._network.mend(self._paths(fault))
        elif fault.kind in ("loss", "slow"):
            self._weigh()
        elif fault.kind == "disk":
            self._disks()
        elif fault.kind == "pause":
            for process in self._named(fault):
                if not any(
                    other.kind == "pause" and process in self._named(other)
                    for other in self._active
                ):
                    process.resume()
        elif fault.kind == "skew":
            for process in self._named(fault):
                self._drift(process)

    def _named(self, fault: Fault) -> list[Process]:
        return [self._processes[name] for name in fault.nodes or self._processes]

    def _crash(self, fault: Fault) -> None:
        for process in self._named(fault):
            process.crash()

    def _restart(self, fault: Fault) -> None:
        for process in self._named(fault):
            if not process.alive and fault.disk == "lost":
                process.disk.erase()
            if not process.alive and not self._is_down(process.name):
                process.start()

    def _is_down(self, name: str) -> bool:
        """Whether another crash still holds the process down."""
        return any(
            other.kind in ("crash", "restart") and name in (other.nodes or self._processes)
            for other in self._active
        )

    def _pause(self, fault: Fault) -> None:
        for process in self._named(fault):
            process.pause()

    def _skew(self, fault: Fault) -> None:
        for process in self._named(fault):
            process.clock = process.clock.jumped(self._agenda.now, fault.by)
            self._drift(process)

    def _reform(self, fault: Fault) -> None:
        """No fault, but it happens at a given time like one."""
        for process in self._named(fault):
            process.form(fault.group or next(iter(process.machines), ""))

    def _drift(self, process: Process) -> None:
        """A clock drifts as the newest of its faults says. A jump is never undone."""
        drift = 0.0
        for fault in self._active:
            if fault.kind == "skew" and process.name in (fault.nodes or self._processes):
                drift = fault.drift
        process.clock = process.clock.drifting(self._agenda.now, drift)

    def _paths(self, fault: Fault) -> list[tuple[str, str]]:
        return cut_paths(fault, tuple(self._processes))

    def _weigh(self) -> None:
        """Loss and slowness of each process are the worst of the faults that lie on it."""
        loss: dict[str, float] = {}
        slow: dict[str, float] = {}
        for fault in self._active:
            for name in fault.nodes or self._processes:
                if fault.kind == "loss":
                    loss[name] = max(loss.get(name, 0.0), fault.rate)
                elif fault.kind == "slow":
                    slow[name] = max(slow.get(name, 1.0), fault.factor)
        self._network.loss_at, self._network.slow_at = loss, slow

    def _disks(self) -> None:
        for process in self._processes.values():
            process.disk.trouble, process.disk.sync_time = None, 0
        for fault in self._active:
            if fault.kind == "disk":
                for process in self._named(fault):
                    process.disk.trouble = Trouble(fault.mode)
                    process.disk.sync_time = fault.sync if fault.mode == "slow" else 0


def _is_for_good(fault: Fault) -> bool:
    return fault.kind == "crash" and fault.lasts is None


def end_of(fault: Fault) -> Duration | None:
    """When it ends; None: with the load."""
    if fault.kind == "restart" and fault.lasts is None:
        return Duration(fault.at + RESTART_PAUSE)
    return None if fault.lasts is None else Duration(fault.at + fault.lasts)


def cut_paths(fault: Fault, names: tuple[str, ...]) -> list[tuple[str, str]]:
    """The one-way paths that a cut lies on. Who is on no side reaches everybody."""
    sides = fault.sides or [fault.nodes, [name for name in names if name not in fault.nodes]]
    paths = []
    for index, side in enumerate(sides):
        for other in sides[index + 1 :]:
            for one in side:
                for two in other:
                    paths.append((one, two))
                    if fault.kind == "partition":
                        paths.append((two, one))
    return paths


def draw_chaos(chaos: ChaosSettings, scenario: Scenario, draw: Random) -> list[Fault]:
    """The faults of one run: one every so often, of a random kind, place and length."""
    faults: list[Fault] = []
    crashed_for_good: list[str] = []
    names = scenario.names
    at = 0
    while True:
        at += round(draw.expovariate(1 / chaos.every)) + MILLISECOND
        if at >= scenario.duration:
            return faults
        kind = draw.choice(chaos.faults)
        nodes = draw.sample(names, draw.randint(1, max(1, len(names) // 2)))
        shortest = min(MILLISECOND, chaos.longest)
        lasts: Duration | None = Duration(draw.randint(shortest, chaos.longest))
        sides: list[list[str]] = []
        group = ""
        if kind == "reform":
            chosen = draw.choice(scenario.groups())
            nodes, lasts, group = [draw.choice(chosen.members)], None, chosen.name
        elif kind in ("crash", "restart"):
            nodes = nodes[:1]
            if kind == "crash" and draw.random() < 0.5:
                room = len(names) - len(crashed_for_good) > chaos.survivors
                if nodes[0] not in crashed_for_good and room:
                    crashed_for_good.append(nodes[0])
                    lasts = None
        elif kind in ("partition", "one-way"):
            sides = [nodes, [name for name in names if name not in nodes]]
            nodes = []
            if not sides[1]:
                continue
            if draw.random() < 0.5:  # so that a one-way cut may lie on either way
                sides.reverse()
        faults.append(
            Fault(
                at=Duration(at),
                kind=kind,
                nodes=nodes,
                sides=sides,
                lasts=lasts,
                disk=_KEPT if chaos.disks == "kept" else draw.choice(_DISKS),
                rate=draw.uniform(0.05, 0.6),
                factor=draw.uniform(2, 50),
                by=Duration(draw.randint(0, chaos.jump)),
                drift=draw.uniform(-0.05, 0.05),
                mode=draw.choice(("fail", "full", "slow")),
                group=group,
            )
        )
