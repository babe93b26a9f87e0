"""Small machines that do what a test tells them and log what happens to them, and their stage.

    stage = Stage(2)
    stage.at(5 * MILLISECOND, "n1", say("n2", "hello", DATAGRAM))
    stage.run()
    assert stage.texts("n2") == ["hello"]

A machine logs true time, which it cannot see, through its stage; no protocol could do that.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from random import Random
from typing import Any, NamedTuple

import msgspec

from ordercast.kernel.family import Family, Plan
from ordercast.kernel.inputs import Input, StatusResult
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import DATAGRAM, LINK, STATUS, Address, Channel, Step, Timer
from ordercast.scenario.faults import FAULTS
from ordercast.scenario.faults.fault import Fault
from ordercast.scenario.schema import NetworkSettings, Scenario, WorkloadSettings
from ordercast.sim.world import Outcome, Simulation
from ordercast.trace.schema import Row, TraceLevel
from ordercast.trace.sinks import MemorySink
from ordercast.types import Event, NodeId, Payloads
from ordercast.units import MILLISECOND, SECOND, Duration

GROUP = "g"
FAMILY = "probe"
SILENT = WorkloadSettings(senders=0)
Act = Callable[[Step], None]


class Word(Packet, tag="probe.word"):
    text: str
    channel: str = "link"
    padding: bytes = b""


class Record(Packet, tag="probe.record"):
    text: str


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    window: int = 1_000_000  # submissions that are accepted in one incarnation
    opens_after: Duration = Duration(0)  # none is accepted before
    round: Duration = Duration(100 * MILLISECOND)


class Heard(NamedTuple):
    at: int  # true time
    clock: int  # the member's own
    by: NodeId
    sender: NodeId
    text: str


class Rang(NamedTuple):
    at: int
    clock: int
    by: NodeId
    timer: Timer


class Told(NamedTuple):
    at: int
    by: NodeId
    token: Hashable
    arrived: bool


class Probe:
    """Does what the stage says, logs what it hears, and answers nothing."""

    takes: tuple[type[Input], ...] = (StatusResult,)

    def __init__(self, stage: Stage, me: NodeId, plan: Plan, records: Sequence[Packet]) -> None:
        assert isinstance(plan.options, Options)
        self.stage = stage
        self.me = me
        self.groups = (plan.group,)
        self.options = plan.options
        self.orders: list[Act] = []
        self.submitted = 0
        self.open = not plan.options.opens_after
        stage.found.append((me, [record.text for record in records if isinstance(record, Record)]))

    def start(self, step: Step) -> None:
        if not self.open:
            step.set_timer("open", self.options.opens_after)

    def accepts(self, group: str, now: int) -> bool:
        return bool(self.orders) or (self.open and self.submitted < self.options.window)

    def stable_up_to(self, group: str) -> int:
        return 0

    def submit(self, step: Step, group: str, payloads: Payloads, size: int) -> Event:
        self.submitted += 1
        for order in self.orders:
            order(step)
        self.orders = []
        return Event(group, self.me, self.me.incarnation << 40 | self.submitted, payloads)

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        assert isinstance(packet, Word)
        self.stage.heard.append(Heard(self.stage.now, step.now, self.me, sender, packet.text))

    def expire(self, step: Step, timer: Timer) -> None:
        self.open = self.open or timer == "open"
        self.stage.rang.append(Rang(self.stage.now, step.now, self.me, timer))

    def on(self, step: Step, given: Input) -> None:
        assert isinstance(given, StatusResult)
        self.stage.told.append(Told(self.stage.now, self.me, given.token, given.arrived))


class Echo(Probe):
    """Answers every word, by the channel that it came by. An answer is not answered."""

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        super().receive(step, sender, packet)
        assert isinstance(packet, Word)
        if not packet.text.startswith("re "):
            answer = Word(packet.group, f"re {packet.text}", packet.channel)
            step.send(sender, answer, Channel(packet.channel))


class Ledger(Probe):
    """Keeps a record of every word before it delivers and answers it by link."""

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        super().receive(step, sender, packet)
        assert isinstance(packet, Word)
        if packet.text.startswith("re "):
            return
        step.persist(Record(packet.group, packet.text))
        step.send(sender, Word(packet.group, f"re {packet.text}"))
        self.submitted += 1
        step.deliver(Event(packet.group, self.me, self.submitted, [packet.text.encode()]))


class StatusProbe(Probe):
    """Asks its neighbour by status every 10 ms, and sends it the same word by nothing else."""

    period = 10 * MILLISECOND

    def start(self, step: Step) -> None:
        super().start(step)
        self.asked = 0
        if self.me.name == "n1":
            step.set_timer("ask", self.period)

    def expire(self, step: Step, timer: Timer) -> None:
        self.asked += 1
        token = (self.me.incarnation, self.asked)
        self.stage.asked.append(Told(self.stage.now, self.me, token, False))
        step.send("n2", Word(GROUP, f"{token}", "status"), STATUS, token)
        step.set_timer("ask", self.period)


class Stage:
    """A world of probes that follow a script."""

    def __init__(
        self,
        processes: int = 2,
        *,
        probe: type[Probe] = Probe,
        seed: int = 1,
        faults: Iterable[Fault] = (),
        network: NetworkSettings | None = None,
        workload: WorkloadSettings = SILENT,
        duration: int = 10 * SECOND,
        level: TraceLevel = TraceLevel.APP,
        scenario: dict[str, Any] | None = None,
        **world: Any,
    ) -> None:
        self.heard: list[Heard] = []
        self.rang: list[Rang] = []
        self.told: list[Told] = []
        self.asked: list[Told] = []
        self.found: list[tuple[NodeId, list[str]]] = []  # what each incarnation found on its disk
        self.sink = MemorySink()
        self._probe = probe
        settings: dict[str, Any] = {
            "name": "a stage",
            "family": FAMILY,
            "processes": processes,
            "duration": Duration(duration),
            "fault": list(faults),
            "network": network or NetworkSettings(jitter=0.0),
            "workload": workload,
            **(scenario or {}),
        }
        family = Family(
            FAMILY,
            Options,
            (Word, Record),
            self._build,
            largest_group=10_000,
            round=lambda options: options.round,
        )
        self.world = Simulation(
            Scenario(**settings),
            seed,
            sink=self.sink,
            level=level,
            families={FAMILY: family},
            **world,
        )

    def _build(
        self, me: NodeId, plans: tuple[Plan, ...], chance: Random, records: Sequence[Packet]
    ) -> list[Machine]:
        return [self._probe(self, me, plan, records) for plan in plans]

    @property
    def now(self) -> int:
        return self.world.queue.now

    def at(self, when: int, who: str, *acts: Act) -> Stage:
        """Lets a probe do something in one step of its own, if it lives and is not paused."""

        def perform(_: None) -> None:
            process = self.world.processes[who]
            if process.alive and not process.is_paused:
                machine = process.host.seats[GROUP].machine
                assert isinstance(machine, Probe)
                machine.orders = list(acts)
                process.submit(GROUP, [], 0)

        self.world.queue.add(when, perform, None)
        return self

    def run(self) -> Outcome:
        outcome = self.world.run()
        assert outcome.error is None, outcome.error
        return outcome

    @property
    def rows(self) -> list[Row]:
        return self.sink.rows

    def rows_of(self, kind: str, who: str | None = None) -> list[Row]:
        return [row for row in self.rows if row.kind == kind and who in (None, row.process)]

    def texts(self, by: str) -> list[str]:
        return [heard.text for heard in self.heard if heard.by.name == by]


# --- what probes may be told to do ----------------------------------------------------------


def say(
    to: Address | tuple[Address, ...],
    text: str,
    channel: Channel = LINK,
    *,
    token: Hashable = None,
    padding: int = 0,
) -> Act:
    word = Word(GROUP, text, channel.value, bytes(padding))
    return lambda step: step.send(to, word, channel, token)


def say_many(to: Address, count: int, channel: Channel = LINK, prefix: str = "") -> list[Act]:
    return [say(to, f"{prefix}{number}", channel) for number in range(count)]


def ring(timer: Timer, after: int | None) -> Act:
    return lambda step: step.set_timer(timer, after)


def persist(*texts: str) -> Act:
    def act(step: Step) -> None:
        for text in texts:
            step.persist(Record(GROUP, text))

    return act


def deliver(number: int) -> Act:
    return lambda step: step.deliver(Event(GROUP, NodeId("n1"), number, []))


def first(name: str) -> NodeId:
    """The first incarnation of a process."""
    return NodeId(name, 0)


# --- what may happen to them ------------------------------------------------------------------


def fault(kind: str, at: int, nodes: str = "", lasts: int | None = None, **settings: Any) -> Fault:
    """A fault on the named nodes, which are separated by spaces."""
    settings = {key: _as_written(value) for key, value in settings.items()}
    return FAULTS[kind](
        at=Duration(at),
        nodes=nodes.split(),
        lasts=None if lasts is None else Duration(lasts),
        **settings,
    )


def cut(at: int, sides: str, lasts: int | None = None, kind: str = "partition") -> Fault:
    """A partition between sides, written as "n1 n2 | n3"."""
    parted = [side.split() for side in sides.split("|")]
    return fault(kind, at, lasts=lasts, sides=parted)


def _as_written(value: object) -> object:
    return Duration(value) if type(value) is int else value


__all__ = [
    "DATAGRAM",
    "FAMILY",
    "GROUP",
    "LINK",
    "MILLISECOND",
    "SECOND",
    "STATUS",
    "Echo",
    "Heard",
    "Ledger",
    "Options",
    "Probe",
    "Rang",
    "Record",
    "Stage",
    "StatusProbe",
    "Told",
    "Word",
    "cut",
    "deliver",
    "fault",
    "first",
    "persist",
    "ring",
    "say",
    "say_many",
]
