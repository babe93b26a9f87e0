"""The live driver: calls the doors of the machines, and applies their steps to the world.

The order is the kernel's: what is kept is durable, then packets leave, then timers are set, then
the application and the trace hear. Machines are only ever called from here, one door at a time:
what an application does in reaction comes later, in a turn of its own.

The disk is waited for right here, with the event loop standing still. Records are few: a guardian
keeps one when a ticket gets another owner or the guard set changes, and none for a renewal. So it
is some milliseconds now and then, and no step can overtake another.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Literal, Protocol

from ordercast.errors import DiskError, OrdercastError, PeerError
from ordercast.kernel.family import Plan
from ordercast.kernel.machine import Bundled, Formed, Licensed, Machine
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import DATAGRAM, LINK, Channel, Note, Step, Timer
from ordercast.net.datagrams import Datagrams
from ordercast.net.link import Link
from ordercast.net.mesh import Contact, Mesh
from ordercast.net.message import Told
from ordercast.trace.journal import Journal
from ordercast.trace.log import RowLog
from ordercast.types import Event, NodeId, Payloads, View
from ordercast.wire.codec import Codec
from ordercast.wire.framing import Kind, frame

log = logging.getLogger("ordercast.net")

ANSWER_SECONDS = 0.5
PEER_FRAMES = 1 << 16
Action = Literal["join", "send"]


def _nobody(step: Step, sender: NodeId, packet: Packet) -> None:
    raise AssertionError("a packet is for a machine, or for nobody")


class Listener(Protocol):
    """The application's side of a group."""

    def take(self, item: Told) -> None: ...

    def stepped(self) -> None:
        """A step ended: perhaps there is room now, or something has become stable."""

    def failed(self, error: Exception) -> None:
        """A step was applied in part only: the group cannot go on."""


class Store(Protocol):
    """Where records are kept before anything leaves."""

    def append(self, records: list[Packet]) -> None: ...

    def sync(self) -> None: ...


class Crowd:
    """The links that hold more than is sensible, so that no group adds to that.

    All groups share one link to a peer, and each has a window of its own: without this, what waits
    for a peer would grow with the number of groups. Looked at where a link grows and where it is
    acknowledged, so that who sends only asks whether there is anybody at all. Once full, a link
    counts as full until half of it is free again: then there is room for all who wait.
    """

    def __init__(self, limit: int) -> None:
        self.contacts: dict[str, Contact] = {}  # the mesh's
        self.full: dict[str, Link] = {}  # by the peer's name
        self._limit = limit  # bytes

    def sent(self, to: tuple[NodeId, ...]) -> None:
        limit, frames = self._limit, PEER_FRAMES
        for life in to:
            contact = self.contacts.get(life.name)
            link = contact.link if contact is not None else None
            if link is not None and (link.size > limit or link.underway > frames):
                self.full[life.name] = link

    def has_room_again(self, contact: Contact) -> bool:
        """Whether its link was full and is not any more, or is not the same any more."""
        link = self.full.get(contact.name)
        if link is None:
            return False
        long = 2 * link.size > self._limit or 2 * link.underway > PEER_FRAMES
        if long and link is contact.link:
            return False
        del self.full[contact.name]
        return True

    def holds_up(self, members: tuple[NodeId, ...]) -> bool:
        """Whether one of these must be waited for. The link of a life that is gone holds nobody."""
        for life in members:
            link = self.full.get(life.name)
            if link is not None and link.peer == life:
                if self.contacts[life.name].link is link:
                    return True
                del self.full[life.name]
        return False


class Driver:
    def __init__(
        self,
        me: NodeId,
        codec: Codec,
        trace: RowLog | None,
        may: Callable[[str, str, Action], bool] = lambda name, group, action: True,
        peer_limit: int = 32 << 20,
    ) -> None:
        self.me = me
        self.crowd = Crowd(peer_limit)
        self._served_first = 0  # which group is served first when a peer has room again
        self._may = may
        self.mesh: Mesh  # both are given before the first machine
        self.datagrams: Datagrams
        self.store: Store | None = None
        self.disk_failed: Callable[[DiskError], None]  # a step could not be kept
        self.journal = Journal(me, trace.write) if trace else None
        self._trace = trace
        self.machines: dict[str, Machine] = {}
        self.listeners: dict[str, Listener] = {}
        self._bundled: dict[int, Bundled] = {}  # machines that take packets together, by identity
        self._codec = codec
        self._loop = asyncio.get_running_loop()
        self._timers: dict[tuple[int, Timer], asyncio.TimerHandle] = {}
        # Whom we asked, for which machine, its token, and the timer that answers in any case.
        self._statuses: dict[int, tuple[str, Machine, Hashable, asyncio.TimerHandle]] = {}
        self._status_count = 0

    # --- groups ------------------------------------------------------------------------------

    def add(self, machine: Machine, plan: Plan, listener: Listener) -> None:
        """The group is joined. A machine that groups share has been started before."""
        group = plan.group
        assert group not in self.machines
        self.machines[group] = machine
        self.listeners[group] = listener
        self.row("join", group=group)
        if isinstance(machine, Formed):
            self._enter(machine, machine.join, plan)
        else:
            self._enter(machine, machine.start)

    def start(self, machine: Machine) -> None:
        """A machine that groups will share."""
        if isinstance(machine, Bundled):
            self._bundled[id(machine)] = machine
        self._enter(machine, machine.start)

    def remove(self, group: str) -> None:
        """The group is left: nothing of it is driven any more."""
        machine = self.machines.pop(group, None)
        self.listeners.pop(group, None)
        if machine is None:
            return
        self.row("leave", group=group)
        if not isinstance(machine, Formed):  # what groups share may serve others later
            self._forget_waits(machine)

    def _forget_waits(self, machine: Machine) -> None:
        """Nothing that it has set or asked for comes to it any more."""
        for key in [key for key in self._timers if key[0] == id(machine)]:
            self._timers.pop(key).cancel()
        for number in [n for n, waiting in self._statuses.items() if waiting[1] is machine]:
            self._statuses.pop(number)[3].cancel()

    def close(self) -> None:
        """Nothing is driven any more, whatever still comes in by connections that are ending."""
        self.machines.clear()
        self.listeners.clear()
        for timer in self._timers.values():
            timer.cancel()
        for _, _, _, timer in self._statuses.values():
            timer.cancel()
        self._timers.clear()
        self._statuses.clear()

    # --- doors -------------------------------------------------------------------------------

    def room(self, group: str) -> Step | None:
        """The step in which one more batch may be submitted, right now. None: none may."""
        step = self._step()
        return step if self.machines[group].accepts(group, step.now) else None

    def submit(self, step: Step, group: str, payloads: Payloads, size: int) -> Event:
        """In a step of `room`: what was accepted at a time is made at that time."""
        machine = self.machines[group]
        assert self._may(self.me.name, group, "send"), "the group refuses it before"
        try:
            event = machine.submit(step, group, payloads, size)
        except Exception as error:
            self._break(machine, error)
            raise
        if self.journal is not None:
            self.journal.submit(time.time_ns(), event)
        self._apply(machine, step)
        return event

    def leave(self, group: str) -> None:
        machine = self.machines[group]
        self._enter(machine, machine.leave, group)

    def seek(self, group: str, wanted: bool) -> None:
        """The application wants to send, or no longer does."""
        machine = self.machines[group]
        assert isinstance(machine, Licensed), "the group refuses it before"
        self._enter(machine, machine.seek, group, wanted)

    def form(self, group: str, members: tuple[str, ...] | None) -> None:
        """The application wants the group formed anew, of these members or of all who are there."""
        machine = self.machines[group]
        assert isinstance(machine, Formed), "the node refuses it before"
        self._enter(machine, machine.form, group, members)

    def answer(self, group: str, formation: str, yes: bool, why: str) -> None:
        """Whether the application wants to be in a formation that it was asked about."""
        machine = self.machines.get(group)
        if isinstance(machine, Formed):
            self._enter(machine, machine.answer, group, formation, yes, why)

    def retire(self, group: str) -> None:
        """The application will leave."""
        machine = self.machines[group]
        if isinstance(machine, Licensed):
            self._enter(machine, machine.retire, group)

    def may_go(self, group: str) -> bool:
        """Whether others can do without us, now and for ever."""
        machine = self.machines[group]
        return not isinstance(machine, Licensed) or machine.may_go(group)

    def has_heirs(self, group: str) -> bool:
        """Whether anybody is there to hand over to what others need us for."""
        machine = self.machines[group]
        return isinstance(machine, Licensed) and machine.has_heirs(group, time.monotonic_ns())

    def has_company(self) -> bool:
        return any(contact.connection is not None for contact in self.mesh.contacts.values())

    def throttle(self, group: str, full: bool) -> None:
        machine = self.machines[group]
        self._enter(machine, machine.throttle, group, full)

    def provide(self, group: str, token: Hashable, state: bytes | None) -> None:
        """The application's state, which the machine has asked for."""
        machine = self.machines.get(group)
        if machine is not None:
            self._enter(machine, machine.provide, group, token, state)

    def receive(self, sender: NodeId, bodies: Iterable[bytes | memoryview]) -> bool:
        """Packets came together, by link or status. False: the last is for nobody here.

        Those in a row that are for one machine share a step, so that what is to be done once a step
        is done once for all of them. PeerError costs the sender its connection.
        """
        machine: Machine | None = None
        step = self._step()
        take: Callable[[Step, NodeId, Packet], None] = _nobody
        try:
            for body in bodies:
                packet = self._codec.decode(body)
                found = self._machine_for(sender, packet)
                if found is not machine:
                    if machine is not None:
                        self._taken(machine, step)
                    machine = found
                    step = self._step()
                    if machine is not None:
                        bundled = self._bundled.get(id(machine))
                        take = machine.receive if bundled is None else bundled.take
                if machine is not None:
                    take(step, sender, packet)
        except PeerError:
            # The machine did nothing at all about this one, and the peer is told.
            if machine is not None:
                self._taken(machine, step)
            raise
        except Exception as error:
            assert machine is not None
            self._break(machine, error)
            return True
        if machine is None:
            return False
        self._taken(machine, step)
        return True

    def _taken(self, machine: Machine, step: Step) -> None:
        """The last of some packets has come to a machine."""
        bundled = self._bundled.get(id(machine))
        if bundled is not None:
            try:
                bundled.settle(step)
            except Exception as error:
                self._break(machine, error)
                return
        self._apply(machine, step)

    def receive_datagram(self, sender: NodeId, body: bytes) -> None:
        try:
            self.receive(sender, (body,))
        except PeerError as error:
            self.mesh.count("refused_datagrams")
            self.mesh.warn("%s sent a datagram that is refused: %s", sender, error)

    def _machine_for(self, sender: NodeId, packet: Packet) -> Machine | None:
        """The one gate. Who is no member says nothing; what is relayed counts as its origin's."""
        group = packet.group
        machine = self.machines.get(group)
        if machine is None:
            self.mesh.count("packets_of_other_groups")
            return None
        permitted = self._may(sender.name, group, "join")
        for name in packet.makers():
            permitted = permitted and self._may(name, group, "send")
        if not permitted:
            self.mesh.count("packets_not_permitted")
            return None
        return machine

    def answered(self, sender: NodeId, key: int) -> None:
        """A peer has what we asked it about. Nobody can answer for another."""
        waiting = self._statuses.get(key)
        if waiting is not None and waiting[0] == sender.name:
            self._tell(key, True)

    def _tell(self, key: int, arrived: bool) -> None:
        _, machine, token, timer = self._statuses.pop(key)
        timer.cancel()
        self._enter(machine, machine.told, token, arrived)

    def met(self, contact: Contact) -> None:
        """A peer is connected, and has said how much it has. Machines hear of it by its packets."""
        self.acknowledged(contact)

    def acknowledged(self, contact: Contact) -> None:
        """A link got shorter. If groups wait for that they go on, each time another one first."""
        if self.crowd.full and self.crowd.has_room_again(contact):
            waiting = list(self.listeners.values())
            self._served_first = first = (self._served_first + 1) % max(1, len(waiting))
            for listener in waiting[first:] + waiting[:first]:
                listener.stepped()

    def _expire(self, machine: Machine, timer: Timer) -> None:
        self._timers.pop((id(machine), timer), None)
        self._enter(machine, machine.expire, timer)

    def _enter(self, machine: Machine, door: Callable[..., Any], *arguments: object) -> None:
        step = self._step()
        try:
            door(step, *arguments)
        except Exception as error:
            self._break(machine, error)
            return
        self._apply(machine, step)

    def _break(self, machine: Machine, error: Exception) -> None:
        """A bug of ours. Its timers may be gone: better no member than half a one."""
        log.exception("%s: %s broke", self.me, machine.groups)
        self._fail(machine, error)

    def _fail(self, machine: Machine, error: Exception) -> None:
        """All its groups fail: what a group shares with others is not only its own."""
        for group in [group for group, other in self.machines.items() if other is machine]:
            listener = self.listeners.get(group)
            if listener is not None:
                listener.failed(error)
        self._forget_waits(machine)

    def _step(self) -> Step:
        return Step(time.monotonic_ns())

    # --- effects -----------------------------------------------------------------------------

    def _apply(self, machine: Machine, step: Step) -> None:
        try:
            self._apply_all(machine, step)
        except DiskError as error:
            self.disk_failed(error)  # nothing of the step has left
        except Exception as error:
            # The machine believes in what did not happen. Better no member than a wrong one.
            log.exception("%s: a step of %s could not be applied", self.me, machine.groups)
            self._fail(machine, error)

    def _apply_all(self, machine: Machine, step: Step) -> None:
        if self._trace is not None:
            self._trace.flush()  # a submission is on record before anybody can hear of it
        if step.kept:
            if self.store is None:
                raise OrdercastError("a machine wants to keep a record, but there is no store")
            self.store.append(step.kept)
            self.store.sync()
        # The time of all its rows: nobody may have heard that a ticket is free before it is so.
        now = time.time_ns()
        for to, packet, channel, tokens in step.sent:
            self._send(machine, to, packet, channel, tokens)
        for timer, after in step.timers:
            self._set_timer(machine, timer, after)
        journal = self.journal
        for output in step.outputs:
            if isinstance(output, Event):
                if journal is not None:
                    journal.deliver(now, output)
            elif isinstance(output, View):
                if journal is not None:
                    journal.view(now, output)
            elif isinstance(output, Note):
                self._note(now, output)
                continue
            listener = self.listeners.get(output.group)
            if listener is not None:
                listener.take(output)
        for group in machine.groups:
            listener = self.listeners.get(group)
            if listener is not None:
                listener.stepped()

    def _send(
        self,
        machine: Machine,
        to: tuple[Any, ...],
        packet: Packet,
        channel: Channel,
        tokens: tuple[Hashable, ...],
    ) -> None:
        """Encoded once, whoever it goes to."""
        body = self._codec.encode(packet)
        if channel is LINK:
            framed = frame(Kind.DATA, body)
            for life in to:
                self.mesh.send(life, framed)
            self.crowd.sent(to)
        elif channel is DATAGRAM:
            for address in to:
                self.datagrams.send(address if isinstance(address, str) else address.name, body)
        else:
            for address, token in zip(to, tokens, strict=True):
                self._send_status(machine, address, body, token)

    def _send_status(
        self, machine: Machine, address: NodeId | str, body: bytes, token: Hashable
    ) -> None:
        self._status_count = key = self._status_count + 1
        name = address if isinstance(address, str) else address.name
        timer = self._loop.call_later(ANSWER_SECONDS, self._tell, key, False)
        self._statuses[key] = (name, machine, token, timer)
        contact = self.mesh.contacts.get(name)
        if contact is None or (isinstance(address, NodeId) and contact.life != address):
            return  # nobody there: the timer answers
        self.mesh.send_frame(contact, Kind.STATUS, key.to_bytes(8), body)

    def _set_timer(self, machine: Machine, timer: Timer, after: int | None) -> None:
        key = (id(machine), timer)
        old = self._timers.pop(key, None)
        if old is not None:
            old.cancel()
        if after is not None:
            self._timers[key] = self._loop.call_later(after / 1e9, self._expire, machine, timer)

    def _note(self, now: int, note: Note) -> None:
        columns, until = note.columns, note.columns.get("until")
        if isinstance(until, int):  # the machine knows its own clock only
            columns = {**columns, "until": until - time.monotonic_ns() + time.time_ns()}
        if self.journal is not None:
            self.journal.row(now, note.kind, **columns)

    def row(self, kind: str, **columns: object) -> None:
        if self.journal is not None:
            self.journal.row(time.time_ns(), kind, **columns)

    def flush(self) -> None:
        """All rows so far are the operating system's: for who ends without closing."""
        if self._trace is not None:
            self._trace.flush()
