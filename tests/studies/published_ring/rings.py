"""A family of members that do nothing but want tickets of the published ring.

Each creates events while it owns a ticket, and tells everybody at once of each grant and each end:
that is the PrCast, here by datagrams. Times at which members begin or stop to want a ticket are
options, so that a run can be laid out to the millisecond.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from ordercast.check.laws import check
from ordercast.check.verdict import Verdict
from ordercast.kernel.family import Family, Plan, machine_per_group
from ordercast.kernel.inputs import Input, Leave, StatusResult
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import DATAGRAM, Step, Timer
from ordercast.protocol.tickets.interface import TicketNews, Tickets
from ordercast.scenario.file import parse_scenario
from ordercast.sim.world import Simulation
from ordercast.studies.published_ring.failure_free import FailureFree
from ordercast.studies.published_ring.fault_tolerant import FaultTolerant
from ordercast.studies.published_ring.packets import PACKETS, Ring
from ordercast.studies.published_ring.rules import RingRules
from ordercast.trace.schema import Row, Trace, TraceLevel
from ordercast.trace.sinks import MemorySink
from ordercast.types import Event, NodeId, Payloads, event_number
from ordercast.units import MILLISECOND, Duration, take_units

TICK, TOGGLE = "tick", "toggle"
TICKS_AN_EVENT = 10


class Heard(Packet, frozen=True, tag="rings.heard"):
    ticket: int
    epoch: int
    owner: NodeId


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    algorithm: Literal["failure-free", "fault-tolerant"] = "fault-tolerant"
    tickets: Annotated[int, Meta(ge=1)] = 4
    k: int = 1
    round: Duration = Duration(1000 * MILLISECOND)
    delay: Duration = Duration(50 * MILLISECOND)
    p_exclude: float = 1.0
    grace: int = 2
    fickle: float = 0.0  # how likely in a tick a member stops or begins to want a ticket
    faithful: tuple[str, ...] = ("n1",)  # who never changes its mind by chance
    wants: dict[str, list[int]] = {}  # milliseconds at which wanting begins, ends, begins, ...
    preferred: dict[str, int] = {}  # tickets
    contacts: dict[str, list[str]] = {}  # whom it asks each time it wants one; else anybody
    ticking: bool = True  # else there is no clock but for those times, and no PrCast
    late: bool = False  # a leaver owns its ticket until it is told that it may go

    def __post_init__(self) -> None:
        take_units(self)


def part_of(me: NodeId, plan: Plan, known: Callable[[], Sequence[str]], chance: Random) -> Tickets:
    options = plan.options
    assert isinstance(options, Options)
    preferred = options.preferred.get(me.name)
    founder = me == NodeId("n1")
    if options.algorithm == "failure-free":
        return FailureFree(
            me,
            plan.group,
            options.tickets,
            int(options.round) // 40,
            known,
            chance,
            founder=founder,
            preferred=preferred,
        )
    rules = RingRules(
        options.tickets,
        options.k,
        int(options.round),
        int(options.delay),
        options.p_exclude,
        options.grace,
    )
    return FaultTolerant(me, plan.group, rules, known, chance, founder=founder, preferred=preferred)


class Holder:
    takes = (StatusResult, Leave)

    def __init__(self, me: NodeId, plan: Plan, chance: Random) -> None:
        assert isinstance(plan.options, Options)
        self.me, self.group = me, plan.group
        self.groups: tuple[str, ...] = (plan.group,)
        self.options = plan.options
        self.others = tuple(name for name in plan.members if name != me.name)
        self.part = part_of(me, plan, self._known, chance)
        self.times = 0  # that it began to want a ticket
        self.chance = chance
        self.toggles = [at * MILLISECOND for at in plan.options.wants.get(me.name, [0])]
        self.wanting = False
        self.noted: int | None = None
        self.ticks = self.sequence = self.made = 0
        self.heard: set[tuple[int, int, NodeId]] = set()

    def _known(self) -> Sequence[str]:
        contacts = self.options.contacts.get(self.me.name)
        return self.others if contacts is None else (contacts[min(self.times, len(contacts)) - 1],)

    def start(self, step: Step) -> None:
        self._tell(step, self.part.start(step))
        if self.options.ticking:
            step.set_timer(TICK, self.part.period)
        self._set_toggle(step)

    def _set_toggle(self, step: Step) -> None:
        if self.toggles:
            step.set_timer(TOGGLE, max(0, self.toggles.pop(0) - step.now))

    def expire(self, step: Step, timer: Timer) -> None:
        if timer == TOGGLE:
            self._want(step, not self.wanting)
            self._set_toggle(step)
            return
        fickle = self.options.fickle
        if fickle and self.me.name not in self.options.faithful and self.chance.random() < fickle:
            self._want(step, not self.wanting)
        self.ticks += 1
        if self.ticks % TICKS_AN_EVENT == 0:
            self._create(step)
        self._tell(step, self.part.tick(step, self.sequence))
        step.set_timer(TICK, self.part.period)

    def _want(self, step: Step, wanted: bool) -> None:
        self.wanting = wanted
        self.times += wanted
        if not wanted and not self.options.late:
            self._say(step, "released")
        self._tell(step, self.part.seek(step, wanted, self.sequence, ()))

    def _create(self, step: Step) -> None:
        """An event, if we may: written into the trace, and told as PrCast would."""
        part = self.part
        if not part.may_create(step.now) or part.ticket is None or self.noted is None:
            return
        self.made += 1
        self.sequence += 1
        entry = part.epoch << 32 | self.sequence
        stamp = tuple(entry * (place == part.ticket) for place in range(self.options.tickets))
        step.note(
            "submit",
            group=self.group,
            origin=self.me.name,
            number=event_number(self.me.incarnation, self.made),
            index=part.ticket,
            stamp=stamp,
        )
        self._spread(step, part.ticket, part.epoch)

    def _spread(self, step: Step, ticket: int, epoch: int) -> None:
        if self.others and self.options.ticking:
            step.send(self.others, Heard(self.group, ticket, epoch, self.me), DATAGRAM)

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        if isinstance(packet, Ring):
            self._tell(step, self.part.receive(step, sender, packet))
            return
        assert isinstance(packet, Heard)
        key = (packet.ticket, packet.epoch, packet.owner)
        if key not in self.heard:
            self.heard.add(key)
            self._tell(step, self.part.heard(step, *key))

    def on(self, step: Step, given: Input) -> None:
        if isinstance(given, StatusResult):
            self._tell(step, self.part.acknowledged(step, given.token, given.arrived))
        else:
            self._say(step, "released")

    def _tell(self, step: Step, news: TicketNews) -> None:
        part = self.part
        if news.lost is not None:
            self._say(step, "disconnected")
        if self.options.late and self.noted is not None and part.ticket is None:
            self._say(step, "released")
        if news.acquired:
            assert part.ticket is not None
            self.sequence = 0
            self.noted = part.ticket
            step.note("ticket", group=self.group, index=part.ticket, cause="acquired")
            self._spread(step, part.ticket, part.epoch)

    def _say(self, step: Step, cause: str) -> None:
        if self.noted is not None:
            step.note("ticket", group=self.group, index=self.noted, cause=cause)
            self.noted = None

    def accepts(self, group: str, now: int) -> bool:
        return False  # events are made by the clock

    def submit(self, step: Step, group: str, payloads: Payloads, size: int) -> Event:
        raise AssertionError("nobody submits")

    def stable_up_to(self, group: str) -> int:
        return 0

    def counters(self, group: str) -> dict[str, int]:
        return self.part.counters()


FAMILY = Family("rings", Options, (*PACKETS, Heard), machine_per_group(Holder), largest_group=100)


# --- runs ----------------------------------------------------------------------------------------


class Run(NamedTuple):
    rows: list[Row]
    verdict: Verdict
    error: str | None
    parts: dict[str, Any]  # as they were at the end, by name; of those who were alive

    def timeline(self, *, since: int = 0) -> list[str]:
        """Ticket and exclude rows as text, in milliseconds."""
        return [
            f"{row.at // MILLISECOND} {row.process} "
            + (f"{row.cause} {row.index}" if row.kind == "ticket" else f"excludes {row.peer}")
            for row in self.rows
            if row.kind in ("ticket", "exclude") and row.at >= since * MILLISECOND
        ]

    def count(self, cause: str) -> int:
        return sum(row.kind == "ticket" and row.cause == cause for row in self.rows)


def run(
    processes: int,
    options: dict[str, Any],
    faults: Sequence[dict[str, Any]] = (),
    *,
    seed: int = 1,
    duration: str = "12s",
    quiet: str = "0s",
    network: dict[str, Any] | None = None,
    level: TraceLevel = TraceLevel.APP,
) -> Run:
    """One run in virtual time. Unless said otherwise every packet takes a millisecond."""
    document: dict[str, Any] = {
        "name": "ring",
        "processes": processes,
        "duration": duration,
        "quiet": quiet,
        "workload": {"rate": 0.001},
        "network": {
            "delay": "1ms",
            "jitter": 0.0,
            "shape": "uniform",
            "answer_within": "50ms",
            **(network or {}),
        },
        "fault": list(faults),
    }
    scenario = msgspec.structs.replace(parse_scenario(document), family="rings", options=options)
    sink = MemorySink()
    world = Simulation(scenario, seed, sink=sink, families={"rings": FAMILY}, level=level)
    outcome = world.run()
    verdict = check(Trace(outcome.header, sink.rows), ["ticket-uniqueness"])[0]
    parts = {
        name: process.host.seats["g"].machine.part  # type: ignore[attr-defined]
        for name, process in world.processes.items()
        if process.host.seats
    }
    return Run(sink.rows, verdict, outcome.error, parts)
