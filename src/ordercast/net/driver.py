"""The live driver: the world around the host of a node's machines.

It decodes what comes in, checks what its sender may send, and hands it to the host; what
machines send goes to the mesh or into datagrams, encoded once. Machines are only ever called by
the host, one input at a time: what an application does in reaction comes in a later turn.

Records are made durable in a thread (`Committer`). The steps of a machine that has to wait for that
take effect in order afterwards; other machines go on meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from ordercast.errors import OrdercastError, PeerError
from ordercast.kernel.family import Multicast, Plan
from ordercast.kernel.host import Host
from ordercast.kernel.inputs import Forgotten, Input, Join
from ordercast.kernel.log import Recall, Recalled, Reference, Strained
from ordercast.kernel.machine import Acknowledged, Machine, Remembering
from ordercast.kernel.machines import seat_of
from ordercast.kernel.packet import Packet
from ordercast.kernel.seat import Seat
from ordercast.kernel.step import Heard, Sent, Timer
from ordercast.net.committer import Committer
from ordercast.net.contact import Contact
from ordercast.net.datagrams import Datagrams, encode_places
from ordercast.net.directory import Directory
from ordercast.net.link_backpressure import LinkBackpressure
from ordercast.net.mesh import Mesh
from ordercast.net.multicast import Multicasts
from ordercast.net.node_logs import NodeLogs
from ordercast.net.statuses import Statuses
from ordercast.trace.journal import TraceJournal
from ordercast.trace.log import RowLog, ToldOf, read_log, told_in
from ordercast.types import Event, NodeId, Payloads, Unreached, View
from ordercast.units import MILLISECOND
from ordercast.wire.codec import Codec
from ordercast.wire.framing import FrameKind, frame

log = logging.getLogger("ordercast.net")

Action = Literal["join", "send"]
Asked: TypeAlias = str | Reference | None
"""Of a batch: its service, or what it replies to."""


class GroupObserver(Protocol):
    """The application's side of a group."""

    def take(self, item: Any) -> None: ...

    def stepped(self) -> None:
        """A step took effect: perhaps there is room now, or something has become stable."""

    def failed(self, error: Exception) -> None:
        """The machine broke, or a step took effect in part only: the group cannot go on."""


class _Returning(NamedTuple):
    """A group that is joined again while the last step of the earlier membership waits."""

    machine: Machine
    observer: GroupObserver
    acts: list[Callable[[], object]]  # done afterwards: the join, and inputs that were given


class Driver:
    def __init__(
        self,
        me: NodeId,
        codec: Codec,
        trace: RowLog | None,
        may: Callable[[str, str, Action], bool] = lambda name, group, action: True,
        peer_limit: int = 32 << 20,
    ) -> None:
        self.backpressure = LinkBackpressure(peer_limit)
        self._served_first = 0  # which group is served first when a peer has room again
        self._may = may
        self.mesh: Mesh  # these are given before the first machine
        self.datagrams: Datagrams
        self.multicasts: Multicasts
        self.directory: Directory
        self.logs: NodeLogs
        self.committer: Committer | None = None
        self._trace = trace
        # By group with a log, what traces of this node that are elsewhere know (`told_in`).
        self.told: Mapping[str, ToldOf] = {}
        self._loop = asyncio.get_running_loop()
        self.become(me)
        self.observers: dict[str, GroupObserver] = {}
        self._returning: dict[str, _Returning] = {}
        self._codec = codec
        self.statuses = Statuses(self._status_result)
        self._views: dict[str, View] = {}  # by group, the last one
        self._shared: dict[str, Collection[type[Packet]]] = {}  # by group: what may be multicast

    def become(self, me: NodeId) -> None:
        """The machines of this incarnation are driven from now on; those of the last are closed."""
        self.me, trace = me, self._trace
        journal = TraceJournal(me, trace.write) if trace else None
        flush = trace.flush if trace else None
        self.host = Host(self, journal, flush, later=self._drain_later)

    # --- groups ------------------------------------------------------------------------------

    def add(
        self,
        machine: Machine,
        plan: Plan,
        observer: GroupObserver,
        multicast: Multicast | None = None,
    ) -> None:
        """The group is joined."""
        if multicast is not None and (place := multicast.address(plan.options)):
            self._shared[plan.group] = multicast.packets
            self.multicasts.open(plan.group, place)
        join = partial(self._add, machine, plan, observer)
        if plan.group in self.host.leaving:  # its last step is not on the disk yet
            self._returning[plan.group] = _Returning(machine, observer, [join])
        else:
            join()

    def _unshare(self, group: str) -> None:
        if self._shared.pop(group, None) is not None:
            self.multicasts.forget_group(group)

    def _add(self, machine: Machine, plan: Plan, observer: GroupObserver) -> None:
        self.observers[plan.group] = observer
        host, now = self.host, time.monotonic_ns()
        seat = seat_of(host, machine)
        if seat is None:
            seat = host.seat(machine)
            if self._trace is not None and Recalled in seat.takes:
                self._retell(self._trace, plan.group)
            host.start(seat, now)
            if Strained in seat.takes:
                self.logs.joined(plan.group)
        if Join in machine.takes:  # groups share it
            host.join(seat, plan, now)

    def _retell(self, trace: RowLog, group: str) -> None:
        trace.flush()
        name = self.me.name
        told = told_in(read_log(trace.path), name, self.told).get(group, ToldOf())
        entries = self.logs.from_position(group, told.entries)
        self.host.retell(group, *entries, (name, self.logs.of(group).identity), told.submitted)

    def behind(self, group: str) -> tuple[NodeId, ...]:
        """The members that have not acknowledged what we sent, as far as that is known."""
        machine = self.machine(group)
        return machine.behind(group) if isinstance(machine, Acknowledged) else ()

    def machine(self, group: str) -> Machine | None:
        """The machine that serves this group."""
        if group in self._returning:
            return self._returning[group].machine
        seat = self.host.seats.get(group)
        return seat.machine if seat is not None else None

    def leave(self, group: str) -> None:
        """The group is left: the machine notifies the others, and gets no more inputs."""
        if self._returning.pop(group, None) is None:  # otherwise it has not joined yet
            self.observers.pop(group, None)
            self._views.pop(group, None)
            self.host.leave(group, time.monotonic_ns(), partial(self._left, group))
        self._unshare(group)

    def _left(self, group: str) -> None:
        """The last step of a membership took effect: the next one begins, if there is one."""
        returning = self._returning.pop(group, None)
        for act in returning.acts if returning is not None else ():
            act()

    def close(self) -> None:
        """Nothing is driven any more, whatever still comes in by connections that are ending."""
        self.host.end()
        self.observers.clear()
        self._returning.clear()
        self.statuses.close()
        self._views.clear()
        for group in list(self._shared):
            self._unshare(group)

    # --- inputs ------------------------------------------------------------------------------

    def room(self, group: str) -> int | None:
        """The time, if one more batch may be submitted right now. None: none may, as while the
        group is joined again, or waits for the end of an incarnation that is over."""
        now, host = time.monotonic_ns(), self.host
        return now if group in host.seats and host.accepts(group, now) else None

    def submit(
        self,
        now: int,
        group: str,
        payloads: Payloads,
        size: int,
        asked: Asked = "",
    ) -> Event:
        """At a time given by `room`: what was accepted at a time is made at that time."""
        assert self._may(self.me.name, group, "send"), "the group refuses it before"
        if isinstance(asked, str):
            return self.host.submit(group, payloads, size, now, asked)
        return self.host.submit(group, payloads, size, now, reply=asked)

    def give(self, group: str, given: Input) -> bool:
        """What the application of a group wants. False: this group takes no such input."""
        if group in self._returning:
            self._returning[group].acts.append(lambda: self.give(group, given))
            return True
        seat = self.host.seats.get(group)  # None: this incarnation is over
        return seat is None or self.host.give(seat, given, time.monotonic_ns())

    def forget(self, name: str) -> bool:
        """The operator knows that this node is gone for good. Whether a machine waits for it."""
        waiting = [
            group
            for group, seat in self.host.seats.items()
            if isinstance(seat.machine, Remembering) and seat.machine.remembers(group, name)
        ]
        for group in waiting:
            self.give(group, Forgotten(group, name))
        return bool(waiting)

    def after(self, group: str, then: Callable[[], None]) -> None:
        """Calls `then` once all inputs that were given to the group so far have taken effect."""
        if group in self._returning:
            self._returning[group].acts.append(lambda: self.after(group, then))
        elif group in self.host.seats:
            self.host.after(self.host.seats[group], then)

    def has_company(self) -> bool:
        return self.mesh.contacts.has_company()

    def receive(self, sender: NodeId, bodies: Iterable[bytes | memoryview]) -> None:
        """Packets came together by a link. PeerError costs the sender its connection."""
        self.host.receive_all(sender, self._permitted(sender, bodies), time.monotonic_ns())

    def _drain_later(self) -> None:
        """In a turn of the loop everything is read that has come, by all connections. Then it calls
        what is called soon."""
        self._loop.call_soon(self.host.drain)

    def receive_status(
        self, sender: NodeId, body: bytes | memoryview, answer: Callable[[], None]
    ) -> None:
        """A packet came whose sender wants to know. It is answered when it has taken effect."""
        packets = self._permitted(sender, (body,))
        seat = self.host.receive_all(sender, packets, time.monotonic_ns())
        if seat is not None:
            self.host.after(seat, answer)

    def receive_datagram(self, sender: NodeId, body: bytes) -> None:
        try:
            self.receive(sender, (body,))
        except PeerError as error:
            self.mesh.incidents.count("refused_datagrams")
            self.mesh.incidents.warn("%s sent a datagram that is refused: %s", sender, error)

    def receive_multicast(self, sender: NodeId, group: str | None, body: bytes) -> None:
        """A packet of this group, or of any if that is not known."""
        packets = self._multicast(sender, group, body)
        try:
            self.host.receive_all(sender, packets, time.monotonic_ns())
        except PeerError as error:
            self.mesh.incidents.count("refused_datagrams")
            self.mesh.incidents.warn("%s sent a multicast that is refused: %s", sender, error)

    def _multicast(self, sender: NodeId, group: str | None, body: bytes) -> Iterator[Packet]:
        for packet in self._permitted(sender, (body,)):
            if group not in (None, packet.group) or type(packet) not in self._shared.get(
                packet.group, ()
            ):
                raise PeerError(f"a {type(packet).__name__} of {packet.group!r} by multicast")
            yield packet

    def unreached(self, news: Unreached) -> None:
        self.mesh.incidents.count("multicast_unreached")
        names = ", ".join(node.name for node in news.members)
        warn = self.mesh.incidents.warn
        warn("the multicast of %s does not get to %s: links carry it", news.group, names)

    def receive_group_key(self, contact: Contact, body: memoryview) -> None:
        self.multicasts.wrapper.receive_key(contact, body)

    def _permitted(self, sender: NodeId, bodies: Iterable[bytes | memoryview]) -> Iterator[Packet]:
        """Packets of permitted members only. A relayed event needs its origin's permission."""
        decode, seats, may = self._codec.decode, self.host.seats, self._may
        # Of the group of the last packet: whether the sender may be in it, and who may send. Asked
        # once for packets that came together.
        last, is_member = "", False
        may_send: dict[str, bool] = {}
        for body in bodies:
            packet = decode(body)
            group = packet.group
            if group not in seats:
                self.mesh.incidents.count("packets_of_other_groups")
                continue
            if group != last:
                last, is_member = group, may(sender.name, group, "join")
                may_send.clear()
            permitted = is_member
            for name in packet.makers():
                if name not in may_send:
                    may_send[name] = may(name, group, "send")
                permitted = permitted and may_send[name]
            if permitted:
                yield packet
            else:
                self.mesh.incidents.count("packets_not_permitted")

    def answered(self, sender: NodeId, number: int) -> None:
        """A peer says that it has the STATUS send of this number."""
        self.statuses.answered(sender, number)

    def _status_result(self, seat: Seat, token: Hashable, arrived: bool) -> None:
        self.host.status(seat, token, arrived, time.monotonic_ns())

    def met(self, contact: Contact) -> None:
        """A peer is connected, and has said how much it has. Machines hear of it by its packets,
        and by the groups that it is in."""
        self.statuses.connected(self.mesh, contact)
        self.acknowledged(contact)
        self.directory.met(contact)
        self.multicasts.wrapper.met(contact)

    def receive_groups(self, contact: Contact, body: memoryview) -> None:
        self.directory.receive(contact, body)

    def acknowledged(self, contact: Contact) -> None:
        """A link got shorter. If groups wait for that they go on, each time another one first."""
        if self.backpressure.full and self.backpressure.has_room_again(contact):
            waiting = list(self.observers.values())
            self._served_first = first = (self._served_first + 1) % max(1, len(waiting))
            for observer in waiting[first:] + waiting[:first]:
                observer.stepped()

    # --- the world of the host -------------------------------------------------------------------

    def send(self, seat: Seat, sent: Sent) -> None:
        """Encoded once, whoever it goes to."""
        to, packet, channel, tokens = sent
        body = self._codec.encode(packet)
        by_link = channel.shared and not self.multicasts.send(packet.group, body)
        if channel.in_order or by_link:
            framed = frame(FrameKind.DATA, body)
            peers: tuple[Any, ...] = to  # never bare names: a link joins two incarnations
            if packet.introduces_by_link and (names := [*packet.introduces()]):
                self.directory.introduce(packet.group, names, peers)
            for peer in peers:
                self.mesh.send(peer, framed)
            self.backpressure.sent(peers)
        elif channel.fleeting and not channel.shared:
            places = encode_places(self.mesh.contacts.places_of(packet.introduces()))
            for address in to:
                name = address if isinstance(address, str) else address.name
                self.datagrams.send(name, body, places)
        elif channel.answered:
            for address, token in zip(to, tokens, strict=True):
                self.statuses.send(self.mesh, seat, address, body, token)

    def wake(self, seat: Seat, timer: Timer, setting: int, after: int) -> asyncio.TimerHandle:
        # Loops count milliseconds. uvloop takes the nearest number of them, and a machine whose
        # timer runs out early sets it again: less than half a millisecond would be a busy wait.
        seconds = -(-after // MILLISECOND) / 1e3
        return self._loop.call_later(seconds, self._expire, seat, timer, setting)

    def _expire(self, seat: Seat, timer: Timer, setting: int) -> None:
        self.host.expire(seat, timer, setting, time.monotonic_ns())

    def cancel(self, alarm: asyncio.TimerHandle) -> None:
        alarm.cancel()

    def commit(self, records: list[Packet], done: Callable[[], None]) -> None:
        if self.committer is None:
            raise OrdercastError("a machine wants to persist records, but the node has no store")
        self.committer.commit(records, done)

    def recall(self, seat: Seat, recall: Recall) -> None:
        def answer(recalled: Recalled) -> None:
            self.host.give(seat, recalled, time.monotonic_ns())

        self.logs.recall(recall, answer)

    def viewed(self) -> set[str]:
        """The names in the views of all groups: links to them are kept."""
        return {member.name for view in self._views.values() for member in view.members}

    def hear(self, seat: Seat, output: Heard) -> None:
        if type(output) is View:
            self._views[output.group] = output
            if output.group in self._shared:
                self.multicasts.viewed(output)
        observer = self.observers.get(output.group)
        if observer is not None:
            observer.take(output)

    def stepped(self, seat: Seat) -> None:
        for group in seat.machine.groups:
            observer = self.observers.get(group)
            if observer is not None:
                observer.stepped()

    def broke(self, seat: Seat, error: Exception) -> None:
        """A bug of ours. All its groups fail: what a group shares with others is not its own."""
        log.error("%s: %s broke", self.me, seat.machine.groups, exc_info=error)
        for group in [group for group, other in self.host.seats.items() if other is seat]:
            observer = self.observers.get(group)
            if observer is not None:
                observer.failed(error)
        for returning in list(self._returning.values()):
            if returning.machine is seat.machine:
                returning.observer.failed(error)

    def trace_time(self) -> int:
        return time.time_ns()

    def on_trace_scale(self, local: int) -> int:
        return local + self.unix_time_of_zero()

    def unix_time_of_zero(self) -> int:
        """What the clock of the world showed when that of the machines was 0."""
        return time.time_ns() - time.monotonic_ns()

    def flush(self) -> None:
        """All rows so far are the operating system's: for a process that ends without closing."""
        if self._trace is not None:
            self._trace.flush()
