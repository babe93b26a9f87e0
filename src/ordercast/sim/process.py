"""One simulated process: the world around the host of its machines.

A crash ends an incarnation: timers, unsynced records and waiting steps are gone. A pause ends
nothing: packets, timers and syncs wait, as they do for a process that the operating system stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, TypeAlias
from zlib import crc32

from ordercast.errors import DiskError
from ordercast.kernel.family import Plan
from ordercast.kernel.host import Host
from ordercast.kernel.identity import Acquaintances
from ordercast.kernel.inputs import Backpressure, Input, StateProvided, Vote
from ordercast.kernel.log import Recall, Reference, Strained
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.kernel.seat import Seat
from ordercast.kernel.step import Heard, Timer
from ordercast.sim.clock import TRUE
from ordercast.sim.event_queue import EventQueue
from ordercast.sim.network import InFlight, Network, SimulatedLink
from ordercast.store.memory import SimulatedDisk
from ordercast.trace.journal import TraceJournal
from ordercast.trace.schema import Row, TraceLevel
from ordercast.types import Event, Invitation, NodeId, Payloads, StateWanted
from ordercast.units import MILLISECOND

READ_TIME = MILLISECOND
"""What one read of a log takes."""

Start: TypeAlias = Callable[[NodeId, Sequence[Packet]], list[Machine]]
Application: TypeAlias = Callable[[NodeId, Heard], bytes | bool | None]
"""What an application is handed, in order. What it returns is its state, if that was asked for,
or False if it was invited and does not come."""
Session: TypeAlias = tuple[NodeId, int]
"""An application's stay in a group: the incarnation, and how many times it has joined."""
Act: TypeAlias = tuple[Callable[[Any], None], Any]
"""What is to be done, and its one argument, as on the event queue."""


class Process:
    __slots__ = (
        *("_answers", "_application", "_paused", "_synced_at", "_traced", "_unread", "_unsynced"),
        *("_write",),
        *("queue", "alive", "busy_until", "clock", "delivered", "disk", "host", "node", "links"),
        *("_strained", "counted", "recent"),
        *("acquaintances", "build", "founds", "joins", "leaving", "meets", "name", "network"),
        *("on_enter", "on_news", "on_room", "on_step"),
        *("send", "submitted", "submitted_up_to", "wire_rows"),
    )

    def __init__(
        self,
        name: str,
        queue: EventQueue,
        network: Network,
        write: Callable[[Row], None],
        level: TraceLevel,
        application: Application | None,
    ) -> None:
        self.name = name
        self.send = partial(network.post, self)  # bound once, for millions of packets
        self.queue = queue
        self.network = network
        self.clock = TRUE
        self.disk = SimulatedDisk()
        self.node = NodeId(name, -1)
        self.alive = False
        # Whom this incarnation knows. None: in this run nobody has to ask.
        self.acquaintances: Acquaintances | None = None
        self.meets: Callable[[NodeId], bool]  # whether it talks to an incarnation that is new to it
        self.founds = False  # whether this incarnation may found an open group alone
        self.links: dict[NodeId, SimulatedLink] = {}  # outgoing, of this incarnation
        self.busy_until = 0  # when the outgoing line is free again
        self.delivered = 0  # by earlier incarnations
        self.submitted = 0
        # What the load wants to do as soon as a step may have made room, by group.
        self.on_room: dict[str, Callable[[], None]] = {}
        self.on_step: dict[str, Callable[[], None]] = {}  # the same for who waits to leave
        self.on_enter: dict[str, list[Callable[[], None]]] = {}  # what is done first, always
        self.on_news: Callable[[Heard], None] | None = None  # what its folder remembers
        self.leaving: set[str] = set()  # groups that it is about to leave
        self.joins: dict[str, int] = {}  # how often this incarnation has joined a group
        self.submitted_up_to: dict[str, int] = {}  # by group: the last number of this incarnation
        self.build: Start  # makes the machines of an incarnation; given before the first
        # By group whose load replies: the last event that its application heard of.
        self.recent: dict[str, Event | None] = {}
        # Sees the machines of an incarnation when it is over, for tests that count what they did.
        self.counted: Callable[[Machine], None] | None = None
        self._strained = False  # what machines with a log know of the disk
        self.wire_rows = level is TraceLevel.WIRE
        self._traced = level is not TraceLevel.OFF
        self._write = write
        self._application = application
        self._answers: list[tuple[Seat, Input]] = []  # what the application says to what it heard
        # By group that the application does not read: the states that it will give when it does.
        self._unread: dict[str, list[tuple[Seat, Input]]] = {}
        self._paused: list[Act] | None = None  # what waits; None while it runs
        self._synced_at = 0  # when all that was given to the disk is durable
        self._unsynced = 0  # commits that are not
        self.host = self._new_host()

    def _new_host(self) -> Host:
        journal = TraceJournal(self.node, self._write) if self._traced else None
        host = Host(self, journal, spare=self.network.spare)
        host.stepped = None  # until somebody waits for that
        return host

    # --- start and stop ----------------------------------------------------------------------

    def start(self, node: NodeId | None = None) -> None:
        """As this incarnation, or as the next one after that which the folder remembers."""
        assert not self.alive
        if node is None:
            assert self.disk.incarnation is not None
            node = NodeId(self.name, self.disk.incarnation + 1)
        cause = "empty" if self.disk.incarnation is None else None
        self.node = node
        self.disk.incarnation = node.incarnation
        self.alive = True
        self.founds = False
        if self.acquaintances is not None:
            self.acquaintances = Acquaintances()
            self.acquaintances.note([node])
        self.submitted, self.delivered = self.events()
        self.host = host = self._new_host()
        machines = self.build(self.node, self.disk.records())
        host.row("start", cause=cause)
        seats = [self._seat(machine) for machine in machines]
        self.joins = dict.fromkeys(host.seats, 1)
        for seat in seats:
            if self.alive:  # a step before may have met a broken disk
                host.start(seat, self.now())
        for group in self.on_enter:
            self._begin(group)
        self._strained = False
        self.look_at_disk()

    def events(self) -> tuple[int, int]:
        """How many were submitted and delivered, by all incarnations."""
        return self.submitted + self.host.submitted, self.delivered + self.host.delivered

    def crash(self, cause: str | None = None) -> None:
        if not self.alive:
            return
        self.host.row("crash", cause=cause)
        self.alive = False
        self._paused = None
        self._answers, self._unread = [], {}
        self._synced_at = self._unsynced = 0
        self.busy_until = 0
        # By the moment alone: it changes no other chance.
        moment = f"{self.node}/{self.queue.now}".encode()
        self.disk.crash(0 if cause == "disk" else crc32(moment))
        self.network.forget(self)
        self.links = {}
        self._count()
        self.host.end()
        self.recent = dict.fromkeys(self.recent)
        self.on_room, self.on_step = {}, {}
        self.leaving, self.joins, self.submitted_up_to = set(), {}, {}

    def stop(self) -> None:
        """The end of the run, for who is still there."""
        if self.alive:
            self.host.row("stop")
            self._count()

    def _count(self) -> None:
        if self.counted is not None:
            for seat in self.host.seated:
                self.counted(seat.machine)

    def pause(self) -> None:
        if self.alive and self._paused is None:
            self._paused = []

    @property
    def is_paused(self) -> bool:
        return self._paused is not None

    def resume(self) -> None:
        waiting, self._paused = self._paused or [], None
        for act, argument in waiting:
            act(argument)

    def now(self) -> int:
        """What the member's own clock shows."""
        now = self.queue.now
        return now if self.clock is TRUE else self.clock.read(now)

    # --- inputs, as the network, the event queue and the load call them ----------------------

    def arrive(self, message: InFlight) -> None:
        if self._paused is not None:
            self._paused.append((self.arrive, message))
            return
        sender, to, packet, size = message
        if to is not None and to is not self.node and to != self.node:
            return
        if self.acquaintances is not None and not self._talks_to(sender):
            return
        if self.wire_rows and self.alive:
            self._wire_row("receive", sender.name, packet, size)
        now = self.queue.now
        self.host.receive(sender, packet, now if self.clock is TRUE else self.clock.read(now))

    def arrive_together(self, messages: list[InFlight]) -> None:
        """Messages of one link that come at once, as live ones do: they may share a step."""
        if self._paused is not None:
            self._paused.append((self.arrive_together, messages))
            return
        if self.acquaintances is not None and not self._talks_to(messages[0][0]):
            return
        packets = []
        for sender, to, packet, size in messages:
            if to == self.node:
                packets.append(packet)
                if self.wire_rows and self.alive:
                    self._wire_row("receive", sender.name, packet, size)
        if packets:
            self.host.receive_all(messages[0][0], packets, self.now())

    def _talks_to(self, sender: NodeId) -> bool:
        known = self.acquaintances
        return known is None or known.known.get(sender.name) is sender or self.meets(sender)

    def has_met(self, name: str) -> bool:
        """Whether this incarnation has met one of that name."""
        return self.acquaintances is not None and name in self.acquaintances.known

    def submit(
        self,
        group: str,
        payloads: Payloads,
        size: int,
        service: str = "",
        reply: Reference | None = None,
    ) -> None:
        event = self.host.submit(group, payloads, size, self.now(), service, reply)
        self.submitted_up_to[group] = event.number

    def accepts(self, group: str) -> bool:
        if not self.alive or self._paused is not None or group not in self.host.seats:
            return False
        return self.host.accepts(group, self.now())

    def session(self, group: str) -> Session | None:
        """The incarnation, and how often it joined; None: its application submits nothing now."""
        if not self.alive or group not in self.host.seats or group in self.leaving:
            return None
        return self.node, self.joins[group]

    def enter(self, machine: Machine) -> Seat:
        """One more machine serves its groups: they are joined, later than others or again."""
        seat = self._seat(machine)
        self.host.start(seat, self.now())
        for group in machine.groups:
            self._entered(group)
        return seat

    def _seat(self, machine: Machine) -> Seat:
        """It hears of what its log has and no incarnation has seen."""
        seat, disk = self.host.seat(machine), self.disk
        for group in machine.groups:
            if entries := disk.unseen.pop(group, None):
                log = disk.logs[group]
                stream = self.name, log.identity
                self.host.retell(group, log.tail - len(entries), entries, stream, 0)
        return seat

    def join(self, seat: Seat, plan: Plan) -> None:
        """One more group of a machine that serves many."""
        self.host.join(seat, plan, self.now())
        self._entered(plan.group)

    def _entered(self, group: str) -> None:
        self.joins[group] = self.joins.get(group, 0) + 1
        self._begin(group)

    def _begin(self, group: str) -> None:
        for begin in self.on_enter.get(group, ()):
            if self.alive and group in self.host.seats:
                begin()

    def when_awake(self, act: Callable[[Any], None], argument: Any) -> None:
        """Does what an application wants as soon as the process runs, in the same incarnation."""
        self._when_awake((self.node, act, argument))

    def _when_awake(self, request: tuple[NodeId, Callable[[Any], None], Any]) -> None:
        node, act, argument = request
        if self._paused is not None:
            self._paused.append((self._when_awake, request))
        elif self.alive and node is self.node:
            act(argument)

    def give(self, group: str, given: Input) -> None:
        """The application wants something of the group. Nothing happens if it is not in it."""
        self.when_awake(self._give, (group, given))

    def _give(self, request: tuple[str, Input]) -> None:
        group, given = request
        if group in self.host.seats:
            self.host.give(self.host.seats[group], given, self.now())

    def stop_reading(self, group: str) -> None:
        """The application reads nothing of the group any more, and answers nothing."""
        self.when_awake(self._stop_reading, group)

    def _stop_reading(self, group: str) -> None:
        self._unread.setdefault(group, [])
        self._give((group, Backpressure(group, True)))

    def read_on(self, group: str) -> None:
        self.when_awake(self._read_on, group)

    def _read_on(self, group: str) -> None:
        for seat, given in self._unread.pop(group, ()):
            if self.host.seats.get(group) is seat:
                self.host.give(seat, given, self.now())
        self._give((group, Backpressure(group, False)))

    def leave(self, group: str) -> None:
        """The application leaves the group."""
        self._unread.pop(group, None)
        self.on_room.pop(group, None)
        self.host.leave(group, self.now())

    def await_room(self, group: str, retry: Callable[[], None]) -> None:
        """The load is blocked, and wants to be called when a step may have made room."""
        if self.alive and group not in self.on_room and group in self.host.seats:
            self.on_room[group] = retry
            self.host.stepped = self.stepped
            self.host.blocked(group)

    def watch(self, group: str, look: Callable[[], None]) -> None:
        """Calls `look` after every step, for an application that waits to leave the group."""
        self.on_step[group] = look
        self.host.stepped = self.stepped

    def status(self, answer: tuple[Host, Seat, Hashable, bool]) -> None:
        """The answer to a status send of this incarnation or of an earlier one."""
        host, seat, token, arrived = answer
        if self._paused is not None:
            self._paused.append((self.status, answer))
        else:
            host.status(seat, token, arrived, self.now())

    # --- the world of the host -------------------------------------------------------------------

    def wake(self, seat: Seat, timer: Timer, setting: int, after: int) -> None:
        at = self.queue.now + self.clock.span(after)
        self.queue.add(at, self._expire, (self.host, seat, timer, setting))

    def _expire(self, alarm: tuple[Host, Seat, Timer, int]) -> None:
        if self._paused is not None:
            self._paused.append((self._expire, alarm))
        else:
            host, seat, timer, setting = alarm
            host.expire(seat, timer, setting, self.now())

    def cancel(self, alarm: None) -> None:
        """It stays on the event queue, and the host ignores it."""

    def commit(self, records: list[Packet], done: Callable[[], None]) -> None:
        try:
            self.disk.append(records)
        except DiskError:
            self.crash("disk")
            return
        if not self.disk.sync_time and not self._unsynced:
            self.disk.sync(len(records))
            done()
            return
        self._unsynced += 1
        self._synced_at = max(self._synced_at, self.queue.now + self.disk.sync_time)
        self.queue.add(self._synced_at, self._sync, (self.node, len(records), done))

    def _sync(self, commit: tuple[NodeId, int, Callable[[], None]]) -> None:
        node, count, done = commit
        if self._paused is not None:
            self._paused.append((self._sync, commit))
        elif self.alive and node is self.node:
            self._unsynced -= 1
            self.disk.sync(count)
            done()

    def recall(self, seat: Seat, recall: Recall) -> None:
        at = self.queue.now + READ_TIME + self.disk.sync_time
        self.queue.add(at, self._recalled, (self.node, seat, recall))

    def _recalled(self, wanted: tuple[NodeId, Seat, Recall]) -> None:
        node, seat, recall = wanted
        if self._paused is not None:
            self._paused.append((self._recalled, wanted))
        elif self.alive and node is self.node:
            self.host.give(seat, self.disk.logs[recall.group].answer(recall), self.now())

    def look_at_disk(self) -> None:
        """Machines with a log hear of it soon, if there is too little room or room again."""
        if self.alive and self.disk.logs:
            self.queue.add(self.queue.now, self._look_at_disk, self.node)

    def _look_at_disk(self, node: NodeId) -> None:
        if self._paused is not None:
            self._paused.append((self._look_at_disk, node))
        elif self.alive and node is self.node and self._strained is not self.disk.is_strained:
            self._strained = not self._strained
            for group in self.disk.logs:
                self._give((group, Strained(group, self._strained)))

    def hear(self, seat: Seat, output: Heard) -> None:
        answer = None
        if self.recent and type(output) is Event and output.group in self.recent:
            self.recent[output.group] = output
        if self.on_news is not None:
            self.on_news(output)
        if self._application is not None:
            answer = self._application(self.node, output)
        if type(output) is StateWanted:
            state = answer if isinstance(answer, bytes) else None
            given = StateProvided(output.group, output.token, state)
            if output.group in self._unread:  # its state is that of this place in what it reads
                self._unread[output.group].append((seat, given))
            else:
                self._answer(seat, given)
        elif type(output) is Invitation:
            self._answer(seat, Vote(output.group, output.formation, answer is not False))

    def _answer(self, seat: Seat, given: Input) -> None:
        """What comes of an answer comes after all that the application hears of this step."""
        self._answers.append((seat, given))
        self.host.stepped = self.stepped

    def stepped(self, seat: Seat) -> None:
        if self._answers:
            answers, self._answers = self._answers, []
            for asked, given in answers:
                self.host.give(asked, given, self.now())
        if self.on_room:
            for retry in list(self.on_room.values()):
                retry()
        if self.on_step:
            for look in list(self.on_step.values()):
                look()
        if not self.on_room and not self.on_step and not self._answers:
            self.host.stepped = None

    def broke(self, seat: Seat, error: Exception) -> None:
        raise error

    def trace_time(self) -> int:
        return self.queue.now

    def on_trace_scale(self, local: int) -> int:
        return self.clock.true_time(local)

    # --- rows of packets -----------------------------------------------------------------------

    def _wire_row(self, kind: str, peer: str, packet: Packet, size: int) -> None:
        message = type(packet).__name__
        self.host.row(kind, group=packet.group, peer=peer, message=message, size=size)

    def note_sent(self, peer: str, packet: Packet, size: int) -> None:
        if self.wire_rows:
            self._wire_row("send", peer, packet, size)
