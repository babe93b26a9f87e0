"""A member of a fifo group: the doors, and the rules that join streams and peers.

What it decides: whom an event goes to, when it is delivered, when a submission must wait, who
is present, and who gets what from whom after a failure.

Rules.
 1. Own events are delivered here at once, and go by link to every present peer.
 2. An event is delivered when it is the next of its origin's stream. Nothing orders two streams.
 3. Submissions wait while the group forms, and while the window is full: that is, while the
    slowest present member lacks so many of our events, or so many bytes of them.
 4. A peer that is silent, or deaf to us, for the suspicion limit is set aside: nobody waits for
    it, nothing is queued for it, but what it misses is held while the buffers allow.
 5. A peer that returns is sent what is held beyond what it has. What is held no longer is lost
    to it, and it says so in its trace.
 6. Whoever holds events of an origin that is gone, or that another member cannot hear, relays
    them to the members that lack them. So what a crashed sender got to one survivor gets to all.
 7. A restarted member is a new life: it receives from then on, with what is still held. It is
    answered, and so can send, when the others have settled how far its old life got. An event
    of an old life that turns up after one of the new was delivered is given up openly.

Failure detection only ever changes who is waited for and who relays; no law rests on it being
right. Views are this member's own opinion: other members may see others at the same time.

What it does not do: agree on views, order anything across senders, or keep anything on disk.
"""

from __future__ import annotations

from random import Random

from ordercast.errors import PeerError, UsageError
from ordercast.kernel import inputs
from ordercast.kernel.buffers import Limit, Retained
from ordercast.kernel.family import Plan, machine_per_group
from ordercast.kernel.inputs import Input
from ordercast.kernel.losses import Losses
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import DATAGRAM, Step, Timer
from ordercast.protocol.fifo.options import Options
from ordercast.protocol.fifo.packets import Alive, Data, Leave, Start
from ordercast.protocol.fifo.peers import Peer
from ordercast.protocol.fifo.stream import Stream
from ordercast.types import Event, NodeId, Payloads, View, event_number, view_identity

TICK = "tick"
LIVES_REMEMBERED = 8
"""Older lives of a name than this many are forgotten, and their packets ignored."""
UNTOLD_LOSSES = 1000
"""So many jumps of streams may wait to be told before another one is refused."""
STREAMS_IN_A_REPORT = 200
"""A heartbeat is a datagram, so a long list of streams is told in several."""


class Member:
    takes = (inputs.Backpressure, inputs.Leave)

    def __init__(self, me: NodeId, plan: Plan, chance: Random) -> None:
        assert isinstance(plan.options, Options) and me.name in plan.members
        options = plan.options
        self.me = me
        self.group = plan.group
        self.groups: tuple[str, ...] = (plan.group,)
        self.options = options
        self.others = tuple(name for name in plan.members if name != me.name)
        self.peers = {name: Peer(name) for name in self.others}
        self.present: tuple[NodeId, ...] = ()  # the lives of the present peers, by name
        self.somebody_away = bool(self.others)  # who may yet return: what it misses is held
        self.limit = Limit(options.retain, options.retain_size)
        self.own = Stream(me, 0, self.limit)
        self.streams: dict[NodeId, Stream] = {me: self.own}
        self.newest_delivered: dict[str, int] = {}  # by name: the incarnation we are past
        # Own events that some present peer lacks: what the window is measured by.
        self.unstable: Retained[None] = Retained(Limit(options.window, options.window_size))
        self.forming = options.silence_ticks if self.others else 0  # ticks left to meet everybody
        self.early: list[Data] = []  # admitted while forming: nobody hears an event before a view
        self.views_installed = 0
        self.losses: Losses[NodeId] = Losses()
        self.throttled = False  # the application is full: we acknowledge nothing that is new
        self.own_stable = 0  # the number of our last event that all present members have
        self.unreported = 0  # events received since our last heartbeat
        self.unreported_size = 0  # and their bytes
        self.first_tick = chance.randrange(1, options.heartbeat + 1)  # members out of step

    # --- doors -------------------------------------------------------------------------------

    def start(self, step: Step) -> None:
        step.set_timer(TICK, self.first_tick)
        if self.others:
            self._report(step)
        else:
            self._install(step)

    def accepts(self, group: str, now: int) -> bool:
        return self._has_room()

    def _has_room(self) -> bool:
        return not self.forming and not self.unstable.full

    def stable_up_to(self, group: str) -> int:
        return self.own_stable

    def submit(self, step: Step, group: str, payloads: Payloads, size: int) -> Event:
        assert self._has_room(), "the driver asks first"
        if size > self.options.window_size:
            raise UsageError(
                f"a batch of {size} bytes does not fit the window of "
                f"{self.options.window_size} (window_size) of group {group!r}"
            )
        number = self.own.received_up_to + 1
        data = Data(self.group, self.me, number, payloads, size)
        self.own.admit(data)
        self.unstable.append(number, None, size)
        event = self._event(data)
        step.deliver(event)
        if self.present:
            step.send(self.present, data)
        if not self.present or self.own.held.over_limit:
            self._trim_own()  # otherwise nothing has become stable by this
        return event

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        # All that can be refused is refused before anything changes.
        peer = self.peers.get(sender.name)
        if peer is None:
            raise PeerError(f"{sender} is not a member of {self.group}")
        self._refuse_nonsense(sender, packet)
        if peer.life != sender and not self._is_new_life(step, peer, sender):
            return
        peer = self.peers[sender.name]
        peer.silent = 0
        if isinstance(packet, Data):
            self._receive_data(step, peer, packet)
        elif isinstance(packet, Alive):
            self._receive_alive(step, peer, packet)
        elif isinstance(packet, Start):
            self._receive_start(step, peer, packet)
        else:
            self._receive_leave(step, peer)

    def expire(self, step: Step, timer: Timer) -> None:
        assert timer == TICK
        self._tell_losses(step)
        if self.forming:
            self._form(step)
        for peer in self.peers.values():
            peer.tick(self.options.silence_ticks)
            if peer.settling:
                peer.settling = 0 if self._is_settled(peer) else peer.settling - 1
            if peer.present and peer.is_lost(self.options.silence_ticks):
                self._set_aside(step, peer)
        self._relay(step)
        if self.others:
            self._report(step)
        step.set_timer(TICK, self.options.heartbeat)

    def on(self, step: Step, given: Input) -> None:
        match given:
            case inputs.Backpressure(full=full):
                self._throttle(step, full)
            case inputs.Leave():
                if self.present:
                    step.send(self.present, Leave(self.group))

    def _throttle(self, step: Step, full: bool) -> None:
        self.throttled = full
        if not full and not self.forming:
            for stream in self.streams.values():
                stream.reported_up_to = stream.received_up_to
            self._report(step)

    def counters(self, group: str) -> dict[str, int]:
        return {
            "present": len(self.present),
            "unstable": self.unstable.count,
            "held": sum(stream.held.count for stream in self.streams.values()),
        }

    # --- receiving ---------------------------------------------------------------------------

    def _refuse_nonsense(self, sender: NodeId, packet: Packet) -> None:
        """What no member that follows the rules would send."""
        if isinstance(packet, Data):
            if packet.origin == self.me and packet.number > self.own.received_up_to:
                raise PeerError(f"{sender} relays what {self.me} never sent")
        elif isinstance(packet, Alive):
            for origin, up_to in packet.received:
                if origin == self.me and up_to > self.own.received_up_to:
                    raise PeerError(f"{sender} acknowledges what {self.me} never sent")
                if origin.name not in self.peers and origin.name != self.me.name:
                    raise PeerError(f"{sender} tells of {origin}, which is not in {self.group}")
        elif isinstance(packet, Start):
            if len(self.losses) >= UNTOLD_LOSSES:
                raise PeerError(f"{sender} gives up more than can be written down")
        elif not isinstance(packet, Leave):
            raise PeerError(f"{sender} sent {type(packet).__name__}, which fifo does not know")

    def _receive_data(self, step: Step, peer: Peer, data: Data) -> None:
        if not peer.present:
            self._welcome(step, peer)
        peer.proves_contact()
        origin = data.origin
        stream = self.streams.get(origin)
        if stream is None or (self.forming and stream.held.full) or not stream.admit(data):
            return
        if self.forming:
            self.early.append(data)
        else:
            self._hand_over(step, stream, data)
        number = data.number
        if stream.held.over_limit or stream.acknowledged.stable_up_to(number) >= number:
            stream.trim(self.somebody_away)  # otherwise somebody still lacks it
        self.unreported += 1
        self.unreported_size += data.size
        if (
            4 * self.unreported >= self.options.window
            or 4 * self.unreported_size >= self.options.window_size
        ):
            self._report(step)  # before the sender has to wait for a heartbeat

    def _hand_over(self, step: Step, stream: Stream, data: Data) -> None:
        """Delivers an admitted event, unless a later life of its origin came before it."""
        origin = stream.origin
        if not self.throttled:
            stream.reported_up_to = data.number
        if origin.incarnation < self.newest_delivered.get(origin.name, 0):
            self._give_up(step, origin, data.number, "obsolete")
        else:
            self.newest_delivered[origin.name] = origin.incarnation
            step.deliver(self._event(data))

    def _receive_alive(self, step: Step, peer: Peer, alive: Alive) -> None:
        assert peer.life is not None
        most = 2 * (LIVES_REMEMBERED + 1) * (len(self.others) + 1)
        peer.hears_of(alive.received, LIVES_REMEMBERED + 1, most)
        peer.hears, peer.full = frozenset(alive.hears), alive.full
        moved = [
            stream
            for origin, up_to in alive.received
            if (stream := self.streams.get(origin))
            and stream.acknowledged.acknowledge(peer.life, up_to)
        ]
        if self.me in peer.hears:
            peer.proves_contact()
            if not peer.present and not peer.settling and not peer.left:
                self._welcome(step, peer)
        away = self.somebody_away
        for stream in moved:
            stream.trim(away)
        self._trim_own()

    def _receive_start(self, step: Step, peer: Peer, start: Start) -> None:
        origin = start.origin
        peer.proves_contact()
        if origin.name not in self.peers or self._is_forgotten(origin):
            return  # ours, a stranger's, or that of a life long gone
        # Only the origin itself may say what can no longer be had, unless it is gone.
        from_origin = origin == peer.life
        if not from_origin and (self.forming or self._is_present(origin)):
            return
        stream = self.streams.get(origin)
        if stream is None:
            # Nothing is before our time if ours is a first life, or if the origin's is younger.
            owner = self.peers[origin.name]
            owed = not self.me.incarnation or (owner.restarted and owner.life == origin)
            stream = self._follow(origin, 0 if owed else start.after)
            self._forget_old_lives()  # a relayer may tell of newer lives than we have met
        self.losses.add(origin, stream.skip_to(start.after))
        self._tell_losses(step)

    def _receive_leave(self, step: Step, peer: Peer) -> None:
        """Its life in this group is over: it is not waited for, and nothing is held for it."""
        was_present = peer.present
        peer.left = True
        self._let_go(peer)
        if was_present:
            self._install_change(step)

    def _tell_losses(self, step: Step) -> None:
        for origin, number in self.losses.take():
            self._give_up(step, origin, number, "overflow")

    def _give_up(self, step: Step, origin: NodeId, number: int, cause: str) -> None:
        step.note(
            "lose",
            group=self.group,
            origin=origin.name,
            number=event_number(origin.incarnation, number),
            cause=cause,
        )

    # --- who is there ------------------------------------------------------------------------

    def _form(self, step: Step) -> None:
        """Counts down the time in which everybody should have been met."""
        self.forming -= 1
        if self.forming == 0:
            for peer in self.peers.values():
                if not peer.present:
                    peer.away = True
                    step.note("suspect", group=self.group, peer=peer.name)
            self._formed(step)

    def _formed(self, step: Step) -> None:
        """The first view, and then what was admitted before it."""
        self._install(step)
        early, self.early = self.early, []
        for data in early:
            stream = self.streams.get(data.origin)
            if stream is not None:
                self._hand_over(step, stream, data)

    def _is_new_life(self, step: Step, peer: Peer, sender: NodeId) -> bool:
        """Meets a newer incarnation, which proves the older one dead. No: it is an old one."""
        if peer.life is not None:
            if sender.incarnation < peer.life.incarnation:
                return False
            step.note("confirm", group=self.group, peer=peer.name)
            if peer.present:
                self._let_go(peer)
                self._install_change(step)
        settling = self.options.silence_ticks // 2 if peer.life else 0
        self.peers[sender.name] = Peer(sender.name, sender, settling)
        self._who_is_present()
        self._forget_old_lives()
        return True

    def _forget_old_lives(self) -> None:
        for origin in [origin for origin in self.streams if self._is_forgotten(origin)]:
            del self.streams[origin]

    def _is_settled(self, peer: Peer) -> bool:
        """Whether all who are present have the same of the peer's old lives, and know the new."""
        old = [
            stream
            for stream in self.streams.values()
            if stream.origin.name == peer.name and stream.origin != peer.life
        ]
        return all(
            peer.life in other.received
            and all(other.received.get(stream.origin, 0) == stream.received_up_to for stream in old)
            for other in self.peers.values()
            if other.present
        )

    def _is_forgotten(self, origin: NodeId) -> bool:
        peer = self.peers.get(origin.name)
        lives = [life.incarnation for life in self.streams if life.name == origin.name]
        if peer is not None and peer.life is not None:
            lives.append(peer.life.incarnation)
        return origin.incarnation <= max(lives, default=0) - LIVES_REMEMBERED

    def _welcome(self, step: Step, peer: Peer) -> None:
        """Both directions are proven: our events go to the peer from now on, and we wait for it."""
        assert peer.life is not None and not peer.present
        if peer.away:
            step.note("refute", group=self.group, peer=peer.name)
        peer.present, peer.away, peer.settling, peer.unheard = True, False, 0, 0
        self._who_is_present()
        for stream in self.streams.values():
            self._wait_for(stream, peer)
        theirs = self.streams.get(peer.life)
        for life in self.present if theirs else ():
            # Who came while the origin was away is owed its events from now on.
            if theirs and theirs.acknowledged.acknowledged(life) is None:
                self._wait_for(theirs, self.peers[life.name])
        self.own.resend(step, self.group, peer.life, peer.received.get(self.me, 0))
        self._count_unstable_again()
        for stream in self.streams.values():
            stream.trim(self.somebody_away)
        self._trim_own()
        if self.forming and not self.somebody_away:
            self.forming = 0
            self._formed(step)
        else:
            self._install_change(step)

    def _set_aside(self, step: Step, peer: Peer) -> None:
        self._let_go(peer)
        peer.away = True
        step.note("suspect", group=self.group, peer=peer.name)
        self._install_change(step)

    def _let_go(self, peer: Peer) -> None:
        """Nobody is waited for, and nothing is sent, at a life that is away or dead."""
        assert peer.life is not None
        peer.present = False
        self._who_is_present()
        for stream in self.streams.values():
            stream.acknowledged.unfollow(peer.life)
            stream.lags.pop(peer.life, None)
            stream.trim(self.somebody_away)
        self._trim_own()

    def _is_present(self, life: NodeId) -> bool:
        peer = self.peers.get(life.name)
        return peer is not None and peer.present and peer.life == life

    def _who_is_present(self) -> None:
        peers = self.peers.values()
        self.present = tuple(peer.life for peer in peers if peer.present and peer.life)
        self.somebody_away = any(not peer.present and not peer.left for peer in peers)

    def _install_change(self, step: Step) -> None:
        if not self.forming:  # a group that forms comes as one view, not as one a member
            self._install(step)

    def _install(self, step: Step) -> None:
        self.views_installed += 1
        members = tuple(sorted((self.me, *self.present)))
        identity = view_identity(self.group, self.me, self.views_installed)
        step.install(View(self.group, identity, members))

    # --- streams -----------------------------------------------------------------------------

    def _follow(self, origin: NodeId, after: int) -> Stream:
        stream = self.streams[origin] = Stream(origin, after, self.limit)
        for life in self.present:
            self._wait_for(stream, self.peers[life.name])
        return stream

    def _wait_for(self, stream: Stream, peer: Peer) -> None:
        """Holds the stream's events until this peer has them, if they are owed to it."""
        origin = stream.origin
        assert peer.life is not None
        if origin.name == peer.name:
            return  # nobody is owed its own events, nor those of its earlier lives
        if origin in peer.received:
            stream.acknowledged.follow(peer.life, peer.received[origin])
        elif not peer.restarted or origin == self.me or self._is_present(origin):
            stream.acknowledged.follow(peer.life, 0)
        # else: the origin was gone before this life of the peer began

    def _relay(self, step: Step) -> None:
        for stream in self.streams.values():
            if stream is self.own or not stream.held.count:
                continue
            gone = not self._is_present(stream.origin)
            for peer in self.peers.values():
                if peer.present and peer.life is not None and not peer.full:
                    cannot = gone or stream.origin not in peer.hears
                    ticks = self.options.silence_ticks
                    stream.relay(step, self.group, peer.life, cannot, ticks)

    def _report(self, step: Step) -> None:
        """Our heartbeat: what we have of every stream, and whom we hear."""
        self.unreported = self.unreported_size = 0
        ticks = self.options.silence_ticks
        self.own.reported_up_to = self.own.received_up_to
        received = [(stream.origin, stream.reported_up_to) for stream in self.streams.values()]
        # A life that we know but have nothing of yet is named too: others wait for that.
        for peer in self.peers.values():
            if peer.life is not None and peer.life not in self.streams:
                received.append((peer.life, 0))
        hears = [peer.life for peer in self.peers.values() if peer.life and peer.is_heard(ticks)]
        for start in range(0, len(received), STREAMS_IN_A_REPORT):
            part = received[start : start + STREAMS_IN_A_REPORT]
            step.send(self.others, Alive(self.group, part, hears, self.throttled), DATAGRAM)

    def _trim_own(self) -> None:
        stable = self.own.trim(self.somebody_away)
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


build = machine_per_group(Member)
