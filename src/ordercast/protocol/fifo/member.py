"""A member of a fifo group: its inputs, and the rules that join streams and peers.

A strategy (membership.py) says which nodes may be in the group, and what that changes: a closed
group has the members that its plan lists, and anybody may join an open one.

What it decides: to whom an event goes, when it is delivered, when a submission must wait, who is
present, and who gets what from whom after a failure.

Rules.
 1. Own events are delivered here at once, and go by link to every present peer.
 2. An event is delivered when it is the next of its origin's stream. Nothing orders two streams.
 3. Submissions wait while the group forms, and while the window is full: that is, while the
    slowest present member lacks so many of our events, or so many bytes of them.
 4. A peer that is silent, or deaf to us, for the suspicion limit is set aside: nobody waits for
    it and nothing is queued for it, but what it misses is retained while the buffers allow.
 5. A peer that returns is sent what is retained beyond what it has. What is no longer retained is
    lost to it, and its trace says so.
 6. A member that retains events of an origin that is gone, or that another member cannot hear,
    relays them to the members that lack them. So an event of a crashed sender that reached one
    survivor reaches all.
 7. A restarted member is a new incarnation: it receives from then on, with what is still retained.
    It is answered, and so can send, when the others have the same of its earlier incarnation. An
    event of an earlier incarnation that arrives after one of the new was delivered is reported as
    lost.

Failure detection only decides for whom members wait and who relays; no law depends on its being
right. Views are this member's own opinion: other members may have others at the same time.

What it does not do: agree on views, order events of different senders, or persist anything.
"""

from __future__ import annotations

from random import Random

from ordercast.errors import PeerError, UsageError
from ordercast.kernel import inputs
from ordercast.kernel.buffers import Limit, Retained
from ordercast.kernel.family import Plan
from ordercast.kernel.inputs import Input
from ordercast.kernel.losses import Losses
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import DATAGRAM, Step, Timer
from ordercast.protocol.fifo.membership import FifoMembership, ListedMembers
from ordercast.protocol.fifo.options import FifoOptions
from ordercast.protocol.fifo.packets import Alive, Begin, Data, Leave, Start
from ordercast.protocol.fifo.peers import PRESENT, Peer, Peers, Standing
from ordercast.protocol.fifo.stream import OriginStream
from ordercast.protocol.fifo.streams import INCARNATIONS_REMEMBERED, OriginStreams
from ordercast.types import Event, NodeId, Payloads, View, event_number, view_identity

TICK = "tick"
MOST_UNREPORTED = 1000
"""So many jumps of streams may wait to be reported as losses before another one is refused."""
STREAMS_IN_A_REPORT = 200
"""A heartbeat is a datagram, so a long list of streams is sent in several."""


class FifoMember:
    def __init__(
        self,
        me: NodeId,
        plan: Plan,
        chance: Random,
        membership: FifoMembership | None = None,  # None: the plan lists the members
    ) -> None:
        assert isinstance(plan.options, FifoOptions) and me.name in plan.members
        options = plan.options
        self.me = me
        self.membership = membership or ListedMembers()
        own_inputs = self.membership.takes
        self.takes: tuple[type[Input], ...] = (inputs.Backpressure, inputs.Leave, *own_inputs)
        self.group = plan.group
        self.groups: tuple[str, ...] = (plan.group,)
        self.options = options
        self.others = tuple(name for name in plan.members if name != me.name)
        self.peers = Peers(self.others, is_open=plan.entry is not None)
        self.streams = OriginStreams(me, Limit(options.retain, options.retain_size), self.peers)
        self.own = self.streams.own
        # By name: the newest incarnation of which we have delivered an event.
        self.newest_delivered: dict[str, int] = {}
        # Own events that some present peer lacks: what the window is measured by.
        self.unstable: Retained[None] = Retained(Limit(options.window, options.window_size))
        self.forming = options.silence_ticks  # ticks left to meet everybody; 0: we have a view
        self.early: list[Data] = []  # arrived while forming: no event is delivered before a view
        self.views_installed = 0
        self.losses: Losses[NodeId] = Losses()
        self.is_full = False  # the application takes no more: we acknowledge nothing that is new
        self.own_stable = 0  # the number of our last event that all present members have
        self.unreported = 0  # events received since our last heartbeat
        self.unreported_size = 0  # and their bytes
        self.first_tick = chance.randrange(1, options.heartbeat + 1)  # members out of step

    # --- inputs ------------------------------------------------------------------------------

    def start(self, step: Step) -> None:
        step.set_timer(TICK, self.first_tick)
        self.membership.start(self, step)

    def accepts(self, group: str, now: int) -> bool:
        return not self.forming and not self.unstable.full

    def stable_up_to(self, group: str) -> int:
        return self.own_stable

    def behind(self, group: str) -> tuple[NodeId, ...]:
        oldest = self.unstable.oldest
        return () if oldest is None else self.own.acknowledged.behind(oldest)

    def submit(self, step: Step, group: str, payloads: Payloads, size: int) -> Event:
        assert not self.forming and not self.unstable.full, "the host asks first"
        if size > self.options.window_size:
            raise UsageError(
                f"a batch of {size} bytes does not fit the window of "
                f"{self.options.window_size} (window_size) of group {group!r}"
            )
        number = self.own.received_up_to + 1
        data = Data(self.group, self.me, number, payloads, size)
        self.own.append(data)
        self.unstable.append(number, None, size)
        event = self._event(data)
        step.deliver(event)
        present = self.peers.present
        if present:
            step.send(present, data)
        if not present or self.own.held.over_limit:
            self._trim_own()  # otherwise nothing has become stable by this
        return event

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        # All that can be refused is refused before anything changes.
        peer = self.peers.by_name.get(sender.name)
        if peer is None:
            peer = self.membership.admit(self, sender, packet)
            if peer is None:
                return
        # Of the events of others all are taken that are the next ones.
        if type(packet) is not Data or packet.origin == self.me:
            self.refuse_invalid(sender, packet)
        if peer.node != sender:
            if peer.node is not None and sender.incarnation < peer.node.incarnation:
                return
            peer = self._meet(step, peer, sender)
        peer.silent = 0
        if type(packet) is Data:
            self._receive_data(step, peer, packet)
        elif type(packet) is Alive:
            self._receive_alive(step, peer, packet)
        elif isinstance(packet, Start):
            self.membership.receive_start(self, step, peer, packet)
        elif isinstance(packet, Leave):
            self._receive_leave(step, peer)
        else:
            self.membership.receive(self, step, peer, packet)

    def expire(self, step: Step, timer: Timer) -> None:
        assert timer == TICK
        self.report_losses(step)
        if self.forming:
            self.membership.form(self, step)
        ticks = self.options.silence_ticks
        for peer in self.peers:
            peer.tick(ticks)
            if peer.answer_in:
                peer.answer_in = 0 if self.streams.is_agreed(peer) else peer.answer_in - 1
            if peer.standing is PRESENT and peer.is_lost(ticks):
                self._set_aside(step, peer)
        self._relay(step)
        if self.others:
            self.report(step)
        step.set_timer(TICK, self.options.heartbeat)
        self.membership.tick(self, step)

    def on(self, step: Step, given: Input) -> None:
        match given:
            case inputs.Backpressure(full=full):
                self._throttle(step, full)
            case inputs.Leave():
                if self.peers.present:
                    step.send(self.peers.present, Leave(self.group))
            case _:
                self.membership.take(self, step, given)

    def _throttle(self, step: Step, full: bool) -> None:
        self.is_full = full
        if not full and not self.forming:
            for stream in self.streams.by_origin.values():
                stream.reported_up_to = stream.received_up_to
            self.report(step)

    def counters(self, group: str) -> dict[str, int]:
        return {
            "present": len(self.peers.present),
            "unstable": self.unstable.count,
            "held": sum(stream.held.count for stream in self.streams.by_origin.values()),
        }

    # --- receiving ---------------------------------------------------------------------------

    def refuse_invalid(self, sender: NodeId, packet: Packet) -> None:
        """What no member that follows the rules would send."""
        if type(packet) is Data:
            if packet.origin == self.me and packet.number > self.own.received_up_to:
                raise PeerError(f"{sender} relays what {self.me} never sent")
        elif type(packet) is Alive:
            by_name, is_open = self.peers.by_name, self.peers.is_open
            for origin, up_to in packet.received:
                if origin == self.me and up_to > self.own.received_up_to:
                    raise PeerError(f"{sender} acknowledges what {self.me} never sent")
                # In an open group a peer may know members that we do not.
                if not (origin.name in by_name or is_open or origin.name == self.me.name):
                    raise PeerError(f"{sender} reports {origin}, which is not in {self.group}")
        elif isinstance(packet, Start):
            if len(self.losses) >= MOST_UNREPORTED:
                raise PeerError(f"{sender} skips more events than {self.me} can report as lost")
        elif not isinstance(packet, Leave):
            self.membership.refuse_invalid(self, sender, packet)

    def _receive_data(self, step: Step, peer: Peer, data: Data) -> None:
        if peer.standing is not PRESENT:
            self._connect(step, peer)
        peer.unheard = 0  # as `proves_contact`, for millions of packets
        stream = self.streams.by_origin.get(data.origin)
        if stream is None or (self.forming and stream.held.full) or not stream.append(data):
            return
        if self.forming:
            self.early.append(data)
        else:
            self._deliver(step, stream, data)
        number = data.number
        if stream.held.over_limit or stream.acknowledged.stable_up_to(number) >= number:
            stream.trim(self.peers.is_any_away)  # otherwise some member still lacks it
        self.unreported += 1
        self.unreported_size += data.size
        if (
            4 * self.unreported >= self.options.window
            or 4 * self.unreported_size >= self.options.window_size
        ):
            self.report(step)  # before the sender has to wait for a heartbeat

    def _deliver(self, step: Step, stream: OriginStream, data: Data) -> None:
        """Delivers an event, unless one of a later incarnation of its origin was delivered."""
        origin = stream.origin
        if not self.is_full:
            stream.reported_up_to = data.number
        if data.number <= stream.covered_up_to:
            return
        if origin.incarnation < self.newest_delivered.get(origin.name, 0):
            self._lose(step, origin, data.number, "obsolete")
        else:
            self.newest_delivered[origin.name] = origin.incarnation
            step.deliver(self._event(data))

    def _receive_alive(self, step: Step, peer: Peer, alive: Alive) -> None:
        assert peer.node is not None
        received, each = alive.received, INCARNATIONS_REMEMBERED + 1
        if self.peers.is_open:
            received = [one for one in received if self._is_known(one[0].name)]
        peer.note_received(received, each, 2 * each * (len(self.others) + 1))
        peer.hears, peer.full = frozenset(alive.hears), alive.full
        moved = [
            stream
            for origin, up_to in received
            if (stream := self.streams.by_origin.get(origin))
            and stream.acknowledged.acknowledge(peer.node, up_to)
        ]
        if self.me in peer.hears:
            peer.proves_contact()
            if peer.standing in (Standing.EXPECTED, Standing.AWAY) and not peer.answer_in:
                self._connect(step, peer)
        for stream in moved:
            stream.trim(self.peers.is_any_away)
        self._trim_own()

    def _is_known(self, name: str) -> bool:
        """Whether it counts what peers report about this name."""
        return name == self.me.name or self.membership.may_follow(self, name)

    def receive_start(self, step: Step, peer: Peer, start: Start) -> None:
        origin = start.origin
        peer.proves_contact()
        if not self.membership.may_follow(self, origin.name) or self.streams.is_forgotten(origin):
            return  # our own, that of a node that is no member, or of a forgotten incarnation
        # Only the origin itself may say what can no longer be had, unless it is gone.
        from_origin = origin == peer.node
        if not from_origin and (self.forming or self.peers.is_present(origin)):
            return
        stream = self.streams.by_origin.get(origin)
        if stream is None:
            # An origin that does not owe us what is before would have said `Begin`.
            stream = self.begin_stream(origin, start.after, is_owed=from_origin)
        self.losses.add(origin, stream.skip_to(start.after))
        self.report_losses(step)

    def begin_stream(self, origin: NodeId, after: int, is_owed: bool) -> OriginStream:
        """Follows a stream that begins after this number, of which we hear for the first time."""
        missed = self.membership.missed(self, origin, after, is_owed)
        stream = self.streams.follow(origin, after - missed)
        self.streams.forget_old()  # a relaying peer may know newer incarnations than we do
        return stream

    def _receive_leave(self, step: Step, peer: Peer) -> None:
        """Nobody waits for it any more, and nothing is retained for it."""
        was_present = peer.standing is PRESENT
        self._disconnect(peer, Standing.LEFT)
        if was_present:
            self._install_change(step)

    def report_losses(self, step: Step) -> None:
        if self.membership.awaits_state:
            return
        for origin, number in self.losses.take():
            self._lose(step, origin, number, "overflow")

    def _lose(self, step: Step, origin: NodeId, number: int, cause: str) -> None:
        stream = self.streams.by_origin.get(origin)
        if stream is not None and number <= stream.covered_up_to:
            return
        step.note(
            "lose",
            group=self.group,
            origin=origin.name,
            number=event_number(origin.incarnation, number),
            cause=cause,
        )

    # --- who is present ----------------------------------------------------------------------

    def install_first(self, step: Step) -> None:
        """The first view, and then the events that arrived before it."""
        self.forming = 0
        self._install(step)
        early, self.early = self.early, []
        for data in early:
            stream = self.streams.by_origin.get(data.origin)
            if stream is not None:
                self._deliver(step, stream, data)

    def _meet(self, step: Step, peer: Peer, sender: NodeId) -> Peer:
        """We hear of a peer for the first time, or of a newer incarnation, which proves that the
        earlier one is dead."""
        answer_in = 0
        if peer.node is not None:
            answer_in = self.options.silence_ticks // 2
            step.note("confirm", group=self.group, peer=peer.name)
            if peer.standing is PRESENT:
                self._disconnect(peer, Standing.AWAY)
                self._install_change(step)
        met = Peer(sender.name, sender, answer_in)
        self.peers.replace(met)
        self.streams.forget_old()
        self.membership.met(self, peer, met)
        return met

    def _connect(self, step: Step, peer: Peer) -> None:
        """Both directions are proven: our events go to the peer from now on, and we wait for it."""
        assert peer.node is not None and peer.standing is not PRESENT
        if peer.standing is Standing.AWAY:
            step.note("refute", group=self.group, peer=peer.name)
        peer.answer_in = peer.unheard = 0
        is_newcomer = self.peers.is_newcomer(peer)
        has = peer.received.get(self.me, 0)
        self.peers.set_standing(peer, PRESENT)
        self.streams.connect(peer, is_newcomer)
        if is_newcomer and not has:
            step.send(peer.node, Begin(self.group, self.me, self.own.received_up_to))
        else:
            self.own.resend(step, self.group, peer.node, has)
        self._count_unstable_again()
        self.trim_all()
        if self.forming:
            self.membership.enter(self, step)
        else:
            self._install(step)
        self.membership.connected(self, step, peer)

    def _set_aside(self, step: Step, peer: Peer) -> None:
        self._disconnect(peer, Standing.AWAY)
        step.note("suspect", group=self.group, peer=peer.name)
        self._install_change(step)

    def _disconnect(self, peer: Peer, standing: Standing) -> None:
        """Nothing is sent to this incarnation, and nobody waits for it."""
        assert peer.node is not None
        self.peers.set_standing(peer, standing)
        self.streams.disconnect(peer.node)
        self.trim_all()

    def _install_change(self, step: Step) -> None:
        if not self.forming:  # the first view comes at once, not member by member
            self._install(step)

    def _install(self, step: Step) -> None:
        self.views_installed += 1
        members = tuple(sorted((self.me, *self.peers.present)))
        identity = view_identity(self.group, self.me, self.views_installed)
        step.install(View(self.group, identity, members))

    # --- heartbeats, relaying, the window ----------------------------------------------------

    def _relay(self, step: Step) -> None:
        self.streams.relay(step, self.group, self.options.silence_ticks)

    def report(self, step: Step) -> None:
        self.unreported = self.unreported_size = 0
        self.send_heartbeat(step, self.others)

    def send_heartbeat(self, step: Step, to: tuple[str, ...]) -> None:
        """How far we have received every stream, and whom we hear."""
        self.own.reported_up_to = self.own.received_up_to
        streams, ticks = self.streams.by_origin, self.options.silence_ticks
        received = [(stream.origin, stream.reported_up_to) for stream in streams.values()]
        # Incarnations of which we have nothing yet are named too: others wait for that.
        received += [(one.node, 0) for one in self.peers if one.node and one.node not in streams]
        hears = [one.node for one in self.peers if one.node and one.is_heard(ticks)]
        for start in range(0, len(received), STREAMS_IN_A_REPORT):
            part = received[start : start + STREAMS_IN_A_REPORT]
            step.send(to, Alive(self.group, part, hears, self.is_full), DATAGRAM)

    def trim_all(self) -> None:
        self.streams.trim()
        self._trim_own()

    def _trim_own(self) -> None:
        stable = self.own.trim(self.peers.is_any_away)
        self.unstable.discard_up_to(stable)
        stable = min(stable, self.own.received_up_to)
        self.own_stable = event_number(self.me.incarnation, stable) if stable else 0

    def _count_unstable_again(self) -> None:
        """A returned peer lacks events that were stable without it: the window counts them."""
        self.unstable = Retained(self.unstable.limit)
        stable = self.own.acknowledged.stable_up_to(self.own.received_up_to)
        for data in self.own.held.after(stable):
            self.unstable.append(data.number, None, data.size)

    def _event(self, data: Data) -> Event:
        number = event_number(data.origin.incarnation, data.number)
        return Event(self.group, data.origin, number, data.payloads, size=data.size)
