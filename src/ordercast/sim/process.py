"""One simulated process: it drives the machines of its groups through their steps.

The order in which a step takes effect is the law of the kernel: what it keeps is durable, then
its packets leave, then timers are set, then the application and the trace hear of it. A slow
disk delays all of that, and every later step queues behind it.

A crash ends a life: timers, unsynced records and queued effects are gone. A pause ends nothing:
packets and timers wait, as they do for a process that the operating system stopped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

from ordercast.errors import DiskError
from ordercast.kernel.machine import Formed, Licensed, Machine
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Note, Step, Timer
from ordercast.sim.agenda import Agenda
from ordercast.sim.clock import TRUE
from ordercast.sim.network import Link, Network, Parcel
from ordercast.store.memory import SimulatedDisk
from ordercast.trace.journal import Journal
from ordercast.trace.schema import Level, Row
from ordercast.types import (
    Event,
    Invitation,
    NodeId,
    Payloads,
    Refused,
    StateGiven,
    StateWanted,
    Subgroup,
    Updating,
    View,
)

DISK_RECORDS = 10_000_000

Start: TypeAlias = Callable[[NodeId, Sequence[Packet]], list[Machine]]
Heard: TypeAlias = (
    Event | View | StateWanted | StateGiven | Updating | Subgroup | Invitation | Refused
)
Application: TypeAlias = Callable[[NodeId, Heard], bytes | bool | None]
"""What an application is handed, in order. What it returns is its state, if that was asked for,
or False if it was invited and does not come."""
Act: TypeAlias = tuple[Callable[[Any], None], Any]
"""What is to be done, and its one argument, as on the agenda."""


class Process:
    __slots__ = (
        "_application",
        "_build",
        "_paused",
        "_settings",
        "_synced_at",
        "_timers",
        "_traced",
        "_unsynced",
        "_write",
        "agenda",
        "alive",
        "busy_until",
        "clock",
        "delivered",
        "disk",
        "door",
        "journal",
        "life",
        "links",
        "machines",
        "name",
        "network",
        "on_room",
        "on_start",
        "submitted",
        "wire_rows",
    )

    def __init__(
        self,
        name: str,
        agenda: Agenda,
        network: Network,
        build: Start,
        write: Callable[[Row], None],
        level: Level,
        application: Application | None,
    ) -> None:
        self.name = name
        self.door: Callable[[Parcel], None] = self.arrive  # bound once, for millions of packets
        self.agenda = agenda
        self.network = network
        self.clock = TRUE
        self.disk = SimulatedDisk(DISK_RECORDS)
        self.life = NodeId(name, -1)
        self.alive = False
        self.machines: dict[str, Machine] = {}  # by group
        self.links: dict[NodeId, Link] = {}  # outgoing, of this life
        self.busy_until = 0  # when the outgoing line is free again
        self.delivered = 0
        self.submitted = 0
        # What the load wants to do as soon as a step may have made room, by group.
        self.on_room: dict[str, Callable[[], None]] = {}
        self.on_start: list[Callable[[], None]] = []  # what its applications do in every life
        self.wire_rows = level is Level.WIRE
        self._traced = level is not Level.OFF
        self._build = build
        self._write = write
        self._application = application
        self._paused: list[Act] | None = None  # what waits; None while it runs
        self._timers: dict[tuple[int, Timer], int] = {}  # the valid setting of each timer
        self._settings = 0  # how many times any timer was set, over all lives
        self._unsynced: deque[tuple[int, Machine, Step]] = deque()
        self._synced_at = 0
        self.journal = Journal(self.life, write)

    # --- life --------------------------------------------------------------------------------

    def start(self) -> None:
        assert not self.alive
        self.life = NodeId(self.name, self.life.incarnation + 1)
        self.alive = True
        self.journal = Journal(self.life, self._write)
        machines = self._build(self.life, self.disk.records())
        self.machines = {group: machine for machine in machines for group in machine.groups}
        self._row("start")
        for group in self.machines:
            self._row("join", group=group)
        for machine in machines:
            if self.alive:  # a step before may have met a broken disk
                step = self._step()
                machine.start(step)
                self._apply(machine, step)
        for begin in self.on_start:
            if self.alive:
                begin()

    def crash(self, cause: str | None = None) -> None:
        if not self.alive:
            return
        self._row("crash", cause=cause)
        self.alive = False
        self._paused = None
        self._timers.clear()
        self._unsynced.clear()
        self._synced_at = 0
        self.busy_until = 0
        self.disk.crash()
        self.network.forget(self)
        self.links = {}
        self.machines = {}
        self.on_room = {}

    def stop(self) -> None:
        """The end of the run, for who is still there."""
        if self.alive:
            self._row("stop")

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

    # --- doors, as the network, the agenda and the load call them ---------------------------------

    def arrive(self, parcel: Parcel) -> None:
        if self._paused is not None:
            self._paused.append((self.arrive, parcel))
            return
        sender, to, packet, size = parcel
        if to is not None and to is not self.life and to != self.life:
            return
        if self.wire_rows and self.alive:
            self._wire_row("receive", sender.name, packet, size)
        machine = self.machines.get(packet.group)  # none while it is down
        if machine is None:
            return
        network, now = self.network, self.agenda.now
        step = network.blank
        step.now = now if self.clock is TRUE else self.clock.read(now)
        machine.receive(step, sender, packet)
        if step.sent or step.outputs or step.timers or step.kept or self.on_room:
            network.blank = Step(0)
            self._apply(machine, step)

    def told(self, answer: tuple[NodeId, Machine, Hashable, bool]) -> None:
        life, machine, token, arrived = answer
        if self._paused is not None:
            self._paused.append((self.told, answer))
        elif self.alive and life == self.life:
            step = self._step()
            machine.told(step, token, arrived)
            self._apply(machine, step)

    def submit(self, group: str, payloads: Payloads, size: int) -> None:
        machine = self.machines[group]
        step = self._step()
        event = machine.submit(step, group, payloads, size)
        self.submitted += 1
        if self._traced:
            self.journal.submit(self.agenda.now, event)
        self._apply(machine, step)

    def accepts(self, group: str) -> bool:
        if not self.alive or self._paused is not None:
            return False
        return self.machines[group].accepts(group, self.clock.read(self.agenda.now))

    def seek(self, group: str, wanted: bool) -> None:
        """The application wants to send from now on, or no longer does."""
        machine = self.machines.get(group)
        if self._paused is not None:
            self._paused.append((self._seek, (self.life, group, wanted)))
        elif isinstance(machine, Licensed):
            step = self._step()
            machine.seek(step, group, wanted)
            self._apply(machine, step)

    def _seek(self, wish: tuple[NodeId, str, bool]) -> None:
        life, group, wanted = wish
        if life == self.life:
            self.seek(group, wanted)

    def form(self, group: str) -> None:
        """The application wants the group formed anew."""
        machine = self.machines.get(group)
        if self._paused is not None:
            self._paused.append((self.form, group))
        elif isinstance(machine, Formed) and group in machine.groups:
            step = self._step()
            machine.form(step, group)
            self._apply(machine, step)

    def await_room(self, group: str, retry: Callable[[], None]) -> None:
        """The load is blocked, and wants to be called when a step may have made room."""
        if self.alive and group not in self.on_room:
            self.on_room[group] = retry
            machine = self.machines.get(group)
            cause = machine.blocked_by(group) if isinstance(machine, Formed) else "window"
            self._row("blocked", group=group, cause=cause)

    def _expire(self, setting_of: tuple[Machine, Timer, int]) -> None:
        machine, timer, setting = setting_of
        if self._paused is not None:
            self._paused.append((self._expire, setting_of))
        elif self._timers.get((id(machine), timer)) == setting:
            del self._timers[id(machine), timer]
            step = self._step()
            machine.expire(step, timer)
            self._apply(machine, step)

    def _provide(self, machine: Machine, asked: StateWanted, state: bytes | None) -> None:
        step = self._step()
        machine.provide(step, asked.group, asked.token, state)
        self._apply(machine, step)

    def _answer(self, machine: Machine, invited: Invitation, yes: bool) -> None:
        assert isinstance(machine, Formed)
        step = self._step()
        machine.answer(step, invited.group, invited.formation, yes)
        self._apply(machine, step)

    def _step(self) -> Step:
        return Step(self.clock.read(self.agenda.now))

    # --- effects -----------------------------------------------------------------------------

    def _apply(self, machine: Machine, step: Step) -> None:
        if step.kept or self._unsynced:
            self._keep(machine, step)
        else:
            self._take_effect(machine, step)

    def _keep(self, machine: Machine, step: Step) -> None:
        try:
            self.disk.append(step.kept)
        except DiskError:
            self.crash("disk")
            return
        if not self.disk.sync_time and not self._unsynced:
            self.disk.sync()
            self._take_effect(machine, step)
            return
        self._unsynced.append((len(step.kept), machine, step))
        # A step that keeps nothing only waits its turn.
        takes = self.disk.sync_time if step.kept else 0
        self._synced_at = max(self._synced_at, self.agenda.now + takes)
        self.agenda.add(self._synced_at, self._sync, self.life)

    def _sync(self, life: NodeId) -> None:
        if self._paused is not None:
            self._paused.append((self._sync, life))
        elif self.alive and life == self.life:
            count, machine, step = self._unsynced.popleft()
            self.disk.sync(count)
            self._take_effect(machine, step)

    def _take_effect(self, machine: Machine, step: Step) -> None:
        post = self.network.post
        for to, packet, channel, tokens in step.sent:
            post(self, machine, to, packet, channel, tokens)
        for timer, after in step.timers:
            self._set_timer(machine, timer, after)
        answers: list[tuple[StateWanted | Invitation, bytes | bool | None]] = []
        for output in step.outputs:
            if isinstance(output, Event):
                self.delivered += 1
                if self._traced:
                    self.journal.deliver(self.agenda.now, output)
            elif isinstance(output, View):
                if self._traced:
                    self.journal.view(self.agenda.now, output)
            elif isinstance(output, Note):
                self._note(output.kind, output.columns)
                continue
            answer = None
            if self._application is not None:
                answer = self._application(self.life, output)
            if isinstance(output, StateWanted | Invitation):
                answers.append((output, answer))
        # What comes of an answer comes after all that the application hears of this step.
        for asked, answer in answers:
            if self.alive and isinstance(asked, StateWanted):
                self._provide(machine, asked, answer if isinstance(answer, bytes) else None)
            elif self.alive and isinstance(asked, Invitation):
                self._answer(machine, asked, answer is not False)
        if self.on_room:
            for retry in list(self.on_room.values()):
                retry()

    def _set_timer(self, machine: Machine, timer: Timer, after: int | None) -> None:
        # Machines live as long as this life does, so their identity is a sound key.
        key = (id(machine), timer)
        if after is None:
            self._timers.pop(key, None)
            return
        assert after >= 0, f"{timer} is set into the past"
        self._settings = setting = self._settings + 1
        self._timers[key] = setting
        at = self.agenda.now + self.clock.span(after)
        self.agenda.add(at, self._expire, (machine, timer, setting))

    def _note(self, kind: str, columns: dict[str, object]) -> None:
        until = columns.get("until")
        if isinstance(until, int):  # the machine knows its own clock only
            columns = {**columns, "until": self.clock.true_time(until)}
        self._row(kind, **columns)

    def _row(self, kind: str, **columns: object) -> None:
        if self._traced:
            self.journal.row(self.agenda.now, kind, **columns)

    def _wire_row(self, kind: str, peer: str, packet: Packet, size: int) -> None:
        self._row(
            kind,
            group=packet.group,
            peer=peer,
            message=type(packet).__name__,
            size=size,
        )

    def note_sent(self, peer: str, packet: Packet, size: int) -> None:
        if self.wire_rows:
            self._wire_row("send", peer, packet, size)
