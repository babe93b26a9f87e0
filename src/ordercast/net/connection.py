"""One TCP connection: frames in, frames out, and the greeting that opens it.

It decides nothing: the handshake answers greetings, and the receiver takes packets. A connection is
of use between `ready` and its end; the link that it carries outlives it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from time import monotonic_ns
from typing import TYPE_CHECKING, Protocol, cast

from ordercast.errors import PeerError
from ordercast.types import NodeId
from ordercast.wire import greeting
from ordercast.wire.codec import LARGEST_PACKET
from ordercast.wire.framing import HEADER, LARGEST_GREETING, FrameKind, FrameReader, frame
from ordercast.wire.greeting import Hello, NewKey, Refuse, Resume

if TYPE_CHECKING:
    from ordercast.net.accept_limiter import AcceptLimiter
    from ordercast.net.contact import Contact
    from ordercast.net.handshake import Handshake
    from ordercast.net.incidents import Incidents
    from ordercast.net.link import Link
    from ordercast.net.links import Links
    from ordercast.net.vouching import Vouching

GREETING_SECONDS = 5.0
PERHAPS = "it may be paused or overloaded, or no ordercast node"
UNPROVEN_BYTES = 2 * LARGEST_GREETING
"""Of frames in all before both ends know who is there: more than a Hello and a Resume can have."""
DATA = int(FrameKind.DATA)
OTHERS = (
    FrameKind.STATUS,
    FrameKind.ANSWER,
    FrameKind.KEY,
    FrameKind.GROUPS,
    FrameKind.NAMES,
    FrameKind.GROUP_KEY,
)
ACKNOWLEDGE_SECONDS = 0.02
ACKNOWLEDGE_BYTES = 256 << 10
FEW_BYTES = 1 << 10
"""So little, heartbeats for instance, is acknowledged together with the next small frame that goes
the other way, or when a ping asks for it, and at the latest after so many seconds."""
LAZY_SECONDS = 1.0
SMALL_FRAME = 4 << 10
WRITE_BUFFER = 1 << 20


class Receiver(Protocol):
    """Takes what peers send."""

    def receive(self, sender: NodeId, bodies: Iterable[memoryview]) -> None: ...

    def receive_status(
        self, sender: NodeId, body: memoryview, answer: Callable[[], None]
    ) -> None: ...

    def answered(self, sender: NodeId, number: int) -> None: ...

    def receive_groups(self, contact: Contact, body: memoryview) -> None: ...

    def receive_group_key(self, contact: Contact, body: memoryview) -> None: ...

    def acknowledged(self, contact: Contact) -> None:
        """Room was made on the link to this contact."""

    def met(self, contact: Contact) -> None:
        """A connection with this contact is ready."""


class ConnectionOwner(Protocol):
    """What a connection uses of its mesh."""

    handshake: Handshake
    receiver: Receiver
    incidents: Incidents
    accept_limiter: AcceptLimiter
    links: Links
    vouching: Vouching
    connections: set[Connection]  # those that are made and have not ended
    closing: bool  # no more are made


class Connection(asyncio.Protocol):
    def __init__(self, owner: ConnectionOwner, dialled: bool, source: str = "") -> None:
        """With a source: it has passed the accept limiter, and counts as half open from now on."""
        self._owner = owner
        self._handshake, self._receiver = owner.handshake, owner.receiver
        self._incidents = owner.incidents
        self._loop = asyncio.get_running_loop()
        self.dialled = dialled
        self.source = source
        self.target = ""  # where we dialled, as whoever configured it says it
        self.contact: Contact | None = None  # set when the peer has greeted
        self.ready = False
        self.is_made = False
        self.heard_at = self.wrote_at = monotonic_ns()
        self.is_busy = False  # packets came by it since `Links.tend` looked last
        self.is_new = True  # it has not looked yet
        self.offered_at = 0  # when we last said that we do not need it
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self.greeted: asyncio.Future[NodeId] = self._loop.create_future()
        self.transport: asyncio.Transport
        self._reader = FrameReader()
        self._entered = bool(source)  # it counts as half open
        self._unproven = 0  # bytes of frames from before it was ready
        self._reading = False
        self._replies: list[bytes] = []  # to what is being read, written together
        self._unacknowledged = 0  # bytes of data frames since our last acknowledgement
        self._acknowledged = 0  # frames in that acknowledgement
        self.is_lazy = False  # our next one waits for a frame with which it goes
        self._ack_timer: asyncio.TimerHandle | None = None
        self._greeting_timer: asyncio.TimerHandle | None = None

    @property
    def place(self) -> str:
        """Where the other end is; the port too if we dialled it."""
        if self.target:
            return self.target
        address = self.transport.get_extra_info("peername") if self.dialled else None
        if not address:
            return self.source
        return f"[{address[0]}]:{address[1]}" if ":" in address[0] else "{}:{}".format(*address)

    # --- asyncio -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER)
        self.is_made = True
        if not self.source:
            address = transport.get_extra_info("peername")
            self.source = str(address[0]) if address else "local"
        self._owner.connections.add(self)
        if self._owner.closing:
            self.abort()
            return
        self._expect_greeting()
        if self.dialled:
            self.write(FrameKind.HELLO, self._handshake.hello())

    def data_received(self, data: bytes) -> None:
        self.heard_at = monotonic_ns()
        packets: list[memoryview] = []  # of the link: those in a row are handed over together
        self._reading = True
        try:
            for kind, body in self._reader.feed(data):
                if kind == DATA and self.ready:
                    packets.append(body)
                    continue
                if packets:
                    self._receive_packets(packets)
                    packets = []
                if self.transport.is_closing():
                    return
                if not self.ready:
                    self._unproven += HEADER.size + len(body)
                    if self._unproven > UNPROVEN_BYTES:
                        raise PeerError(f"over {UNPROVEN_BYTES} bytes before the greeting is over")
                self._receive(kind, body)
            if packets:
                self._receive_packets(packets)
            if self._reader.is_within:
                self.is_busy = True  # a large frame takes its time on a slow line
            if self._replies:
                replies, self._replies = self._replies, []
                self.put(b"".join(replies))
        except PeerError as error:
            self._incidents.count("refused_frames")
            if self.dialled and self.contact is None:
                self._not_a_node(str(error))
            else:
                self.refuse(str(error))
        finally:
            self._reading = False

    def connection_lost(self, error: Exception | None) -> None:
        """Also of one that was never made, and a second time if need be."""
        self.ready = False
        self._leave_limiter()
        for timer in (self._ack_timer, self._greeting_timer):
            if timer is not None:
                timer.cancel()
        self._owner.connections.discard(self)
        why = f": {error}" if error else ""
        if self.is_made and not self._owner.closing:
            self._is_silent(f"ends the connection without a greeting{why}")
        self._lost(f"the connection ended before the greeting{why}")
        if not self.ended.done():
            self.ended.set_result(None)

    # --- frames ------------------------------------------------------------------------------

    def _receive(self, kind: int, body: memoryview) -> None:
        if kind == FrameKind.ACK and self.ready:
            assert self.contact is not None and self.contact.link is not None
            if len(body) != 8:
                raise PeerError("an acknowledgement is a number of eight bytes")
            self.contact.link.acknowledge(int.from_bytes(body))
            self._receiver.acknowledged(self.contact)
        elif kind == FrameKind.HELLO and self.contact is None:
            self._handshake.greeted(self, greeting.decode(body, Hello))
        elif kind == FrameKind.RESUME and self.contact and not (self.dialled or self.ready):
            resume = greeting.decode(body, Resume)
            self._handshake.resumed(self, resume.received)
            self._handshake.reported(resume.newest, self.contact.name)
        elif kind == FrameKind.REFUSE:
            refuse = greeting.decode(body, Refuse)
            self._refused_by_peer(refuse)
            self._fail_greeting(refuse.reason)
            self._handshake.refused(self, refuse)
            self.abort()
        elif kind == FrameKind.PING:  # its arrival counts (`heard_at`), and it carries nothing
            self.acknowledge()
        elif kind == FrameKind.BYE and self.ready:
            assert self.contact is not None
            if len(body):
                raise PeerError("a goodbye carries nothing")
            self._owner.links.offered(self.contact)
        elif kind in OTHERS and self.ready:
            assert self.contact is not None
            self._receive_other(self.contact, FrameKind(kind), body)
        else:
            raise PeerError(f"a frame of kind {kind} that has no place here")

    def _not_a_node(self, error: str) -> None:
        """What answers where we dialled does not greet as nodes do."""
        why = f"answers, but not as an ordercast node: {error}"
        self._incidents.refused(self.place, why)
        self._incidents.refusal("%s %s", self.place, why)
        self._end_with(Refuse(error[:500]))

    def _is_silent(self, what: str) -> None:
        """Something is there where we dialled, and does not say what it is."""
        if self.dialled and self.contact is None and not self.greeted.done():
            self._incidents.refused(self.place, f"{what}: {PERHAPS}")

    def _refused_by_peer(self, refuse: Refuse) -> None:
        place, incidents = self.place, self._incidents
        what = f"refuses this node: {refuse.reason}"
        incidents.count("refused_by_peers")
        is_newer = 0 <= refuse.newest < self._handshake.us.node.incarnation
        is_passing = refuse.code == "taken" and is_newer and incidents.is_passing(refuse.reason)
        if is_passing:
            what = "does not talk to this node yet: it heard the former one of this name just now"
        else:
            incidents.refusal("%s refuses this node: %s", str(self.contact or place), refuse.reason)
        if self.dialled:
            incidents.refused(place, what)

    def _receive_other(self, contact: Contact, kind: FrameKind, body: memoryview) -> None:
        assert contact.node is not None
        self.is_busy = self.is_busy or kind in (FrameKind.STATUS, FrameKind.ANSWER)
        if kind == FrameKind.STATUS:
            if len(body) < 8:
                raise PeerError("a status frame without its number")
            answer = partial(_answer, contact, contact.node, bytes(body[:8]))
            self._receiver.receive_status(contact.node, body[8:], answer)
        elif kind == FrameKind.ANSWER:
            if len(body) != 8:
                raise PeerError("an answer is a number of eight bytes")
            self._receiver.answered(contact.node, int.from_bytes(body))
        elif kind == FrameKind.GROUPS:
            self._receiver.receive_groups(contact, body)
        elif kind == FrameKind.GROUP_KEY:
            self._receiver.receive_group_key(contact, body)
        elif kind == FrameKind.NAMES:
            self._owner.vouching.receive(contact, body)
        else:
            self._handshake.take_key(contact, greeting.decode(body, NewKey))

    def _receive_packets(self, packets: list[memoryview]) -> None:
        contact = self.contact
        assert contact is not None and contact.link is not None and contact.node is not None
        self.is_busy = True
        self._receiver.receive(contact.node, self._counted(contact.link, packets))
        self._unacknowledged += sum(map(len, packets))
        if self._unacknowledged >= ACKNOWLEDGE_BYTES:
            self.acknowledge()
        elif self._ack_timer is None:
            self._ack_timer = self._loop.call_later(ACKNOWLEDGE_SECONDS, self._acknowledge_soon)
        elif self.is_lazy and self._unacknowledged > FEW_BYTES:
            self.acknowledge()

    def _acknowledge_soon(self) -> None:
        """A little can wait for company."""
        self.is_lazy = self._unacknowledged <= FEW_BYTES
        if self.is_lazy:
            self._ack_timer = self._loop.call_later(LAZY_SECONDS, self.acknowledge)
        else:
            self.acknowledge()

    def _counted(self, link: Link, packets: list[memoryview]) -> Iterator[memoryview]:
        """Each counts when it is taken: after one that is refused the peer sends the rest again."""
        closing = self.transport.is_closing
        for packet in packets:
            if closing():
                return
            link.received += 1
            yield packet

    def acknowledge(self) -> None:
        """Reports how many data frames came, so that the peer holds them no longer."""
        report = self._acknowledgement()
        if report:
            self.put(report)

    def _acknowledgement(self) -> bytes:
        """The frame that reports it; empty if there is nothing new."""
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        self.is_lazy, contact = False, self.contact
        if not self.ready or contact is None or contact.link is None:
            return b""
        self._unacknowledged = 0
        if contact.link.received == self._acknowledged:
            return b""
        self._acknowledged = contact.link.received
        return frame(FrameKind.ACK, self._acknowledged.to_bytes(8))

    @property
    def is_sending(self) -> bool:
        """Whether something waits to be written: what is on its way may take its time."""
        return self.transport.get_write_buffer_size() > 0

    def write(self, kind: FrameKind, body: bytes) -> None:
        self.put(frame(kind, body))

    def reply(self, kind: FrameKind, body: bytes) -> None:
        """Writes a short frame: at once, or together with others when all that came was read."""
        if self._reading:
            self._replies.append(frame(kind, body))
        else:
            self.write(kind, body)

    def put_parts(self, kind: FrameKind, *parts: bytes) -> None:
        """Writes one frame whose body lies in several pieces, without putting them together."""
        if not self.transport.is_closing():
            head = HEADER.pack(sum(map(len, parts)), kind)
            self.transport.writelines([head + parts[0], *parts[1:]])

    def put(self, framed: bytes) -> None:
        """Writes whole frames; nothing on a connection that is ending, which loses them anyway."""
        if not self.transport.is_closing():
            if self.is_lazy and len(framed) <= SMALL_FRAME:
                framed = self._acknowledgement() + framed
            self.transport.write(framed)
            self.wrote_at = monotonic_ns()

    def become_ready(self) -> None:
        """Both ends know who is there. From now on large frames are read."""
        self.ready = True
        self._reader.limit = LARGEST_PACKET
        if self._greeting_timer is not None:
            self._greeting_timer.cancel()
        assert self.contact is not None and self.contact.node is not None
        self._incidents.refused_by.pop(self.place, None)
        if not self.greeted.done():
            self.greeted.set_result(self.contact.node)

    def refuse_greeting(
        self, reason: str, code: str, newest: int, place: str = "", *, is_newer: bool = False
    ) -> None:
        """The other end is not let in. It will try again."""
        if not (is_newer and code == "taken" and self._incidents.is_passing(reason)):
            self._incidents.refusal("refusing %s: %s", self.source, reason)
        self._end_with(Refuse(reason[:500], code, newest, place))

    def refuse(self, reason: str) -> None:
        """Ends the connection. Both ends log the reason."""
        self._incidents.warn("refusing %s: %s", self.contact or self.source, reason)
        self._end_with(Refuse(reason[:500]))

    def _end_with(self, refuse: Refuse) -> None:
        if not self.transport.is_closing():
            self.write(FrameKind.REFUSE, greeting.encode(refuse))
        self.end()
        self._lost(refuse.reason)

    def end(self) -> None:
        """Ends the connection, after what was written."""
        if not self.transport.is_closing():
            self.transport.close()
            self._end_in_time()
        self.ready = False

    def offer(self) -> None:
        """We do not need it any more. The other end closes it, or needs it."""
        self.write(FrameKind.BYE, b"")

    def part(self) -> None:
        """Ends it because nobody needs it, when the other end has our last acknowledgement."""
        self.acknowledge()
        self.offer()
        self.end()
        self._lost("the connection was not needed")

    def give_way(self, to: NodeId) -> None:
        """The node that we dialled has dialled us too: its connection counts."""
        if not self.greeted.done():
            self.greeted.set_result(to)
        self.abort()

    def _lost(self, why: str) -> None:
        if self.contact is not None:
            self.contact.lost(self)
            self._owner.vouching.changed()
        self._fail_greeting(why)

    def _fail_greeting(self, why: str) -> None:
        if not self.greeted.done():
            self.greeted.set_exception(PeerError(why))
            self.greeted.exception()  # whoever waits sees it; nobody has to

    def abort(self) -> None:
        self.ready = False
        self.transport.abort()

    def _end_in_time(self) -> None:
        """A peer that reads nothing must not keep a refused connection open."""
        if self._greeting_timer is not None:
            self._greeting_timer.cancel()
        self._greeting_timer = self._loop.call_later(GREETING_SECONDS, self.abort)

    def _expect_greeting(self) -> None:
        if self._greeting_timer is not None:
            self._greeting_timer.cancel()
        self._greeting_timer = self._loop.call_later(GREETING_SECONDS, self._too_slow)

    def half_greeted(self) -> None:
        """We know who the other end is, and have answered. It makes room for others in the limiter,
        and has as long for its next word: an end that is overloaded would never come in, and keep
        others out meanwhile."""
        self._leave_limiter()
        self._expect_greeting()

    def _too_slow(self) -> None:
        if not self.ready:
            self._incidents.count("slow_greetings")
            self._is_silent(f"can be reached, and says nothing for {GREETING_SECONDS:g} s")
            self._fail_greeting("no greeting came")
            self.abort()

    def _leave_limiter(self) -> None:
        if self._entered:
            self._entered = False
            self._owner.accept_limiter.leave(self.source)


def _answer(contact: Contact, node: NodeId, key: bytes) -> None:
    """What the peer asked about has arrived, if it is still the one that asked."""
    if contact.connection is not None and contact.node == node:
        contact.connection.reply(FrameKind.ANSWER, key)
