"""How a newcomer of an open group gets the state of the application, from one member.

Rules.
 1. A newcomer first meets the members of the group, as any other does. From then on it receives
    the events of each origin from some place on, and delivers none of them. Then it asks one member
    for its state, and says where the streams begin for it.
 2. That member answers when it has delivered as much of every stream: its state, and how far that
    goes in each of them, which is the cut. What its own state contained when it came counts too.
 3. The newcomer delivers what comes after the cut. What comes before is in the state; the newcomer
    holds it for others, as anybody does. What it misses between the cut and the place where a
    stream began is lost, and reported: that can happen only where the origin is gone.
 4. A member that is gone, or does not say within a suspicion limit that the state is coming, is
    given up, and the next one is asked. So is one that said so and has not sent it after some
    limits: its application may not read. Each time the newcomer is twice as patient, for a state
    may be large and a line slow. What has come until then is acknowledged, and dropped: so no
    sender has to wait for a newcomer that nobody can help. The next state must contain it.

What it does not do: merge the states of two groups that were founded apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from ordercast.errors import PeerError
from ordercast.kernel import inputs
from ordercast.kernel.losses import Losses
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step
from ordercast.protocol.fifo.packets import Coming, Cut, Need, State
from ordercast.protocol.fifo.peers import PRESENT, Peer
from ordercast.types import NodeId

if TYPE_CHECKING:
    from ordercast.protocol.fifo.member import FifoMember

COMING_LIMITS = 4
"""So many suspicion limits a state may be coming, the first time."""


class Taking:
    """At the newcomer."""

    def __init__(self) -> None:
        self.began: dict[NodeId, int] = {}  # where each stream begins here
        self.giver: NodeId | None = None  # whom we have asked
        self.is_coming = False  # and it has said that it will answer
        self.waited = 0  # own heartbeats for which we have waited for it
        self._limits = COMING_LIMITS

    def ask(self, givers: list[NodeId]) -> NodeId:
        """The next one to ask, of these, which are in the group."""
        later = [one for one in givers if self.giver is None or one > self.giver]
        self.giver, self.is_coming, self.waited = min(later or givers), False, 0
        return self.giver

    def is_over(self, givers: list[NodeId], patience: int) -> bool:
        """Whether the member that we asked is given up. Asked once for each of our heartbeats."""
        self.waited += 1
        if self.giver not in givers:
            return True
        if not self.is_coming:
            return self.waited >= patience
        if self.waited < self._limits * patience:
            return False
        self._limits *= 2
        return True

    def needed(self, present: tuple[NodeId, ...]) -> Cut:
        """Where the streams of these begin here: the state must go as far."""
        return [(origin, up_to) for origin, up_to in self.began.items() if origin in present]

    def fits(self, cut: Mapping[NodeId, int], present: tuple[NodeId, ...]) -> bool:
        return all(cut.get(origin, 0) >= up_to for origin, up_to in self.needed(present))


class Giving:
    """At a member that has the state."""

    def __init__(self) -> None:
        self.asked: dict[NodeId, Cut] = {}  # who needs a state, and how far it must go
        self.serving: dict[NodeId, None] = {}  # for whom our application is asked

    def due(self, present: tuple[NodeId, ...], received: Mapping[NodeId, int]) -> list[NodeId]:
        """Whom we serve now, having delivered so much. Those that are gone are forgotten."""
        due = []
        for node, needed in list(self.asked.items()):
            if node not in present:
                del self.asked[node]
            elif node not in self.serving and all(
                received.get(origin, 0) >= up_to for origin, up_to in needed
            ):
                del self.asked[node]
                self.serving[node] = None
                due.append(node)
        return due


class StateHandover:
    """At every member of a group with states: it takes one first, and gives it to others later."""

    def __init__(self, is_wanted: bool) -> None:
        # None: we need no state, or have it.
        self.taking: Taking | None = Taking() if is_wanted else None
        self.giving = Giving()

    @property
    def giver(self) -> NodeId | None:
        """Whom we have asked for a state that we still need."""
        return None if self.taking is None else self.taking.giver

    def givers(self, member: FifoMember) -> list[NodeId]:
        """Members that are in the group."""
        there = [peer for peer in member.peers if peer.standing is PRESENT and peer.has_view]
        return [peer.node for peer in there if peer.node is not None]

    def refuse_invalid(self, member: FifoMember, sender: NodeId, packet: Packet) -> None:
        cut = []
        if isinstance(packet, Need | State):
            cut = packet.after if isinstance(packet, Need) else packet.cut
        for origin, up_to in cut:
            if origin == member.me and up_to > member.own.received_up_to:
                raise PeerError(f"{sender} has a state with what {member.me} never sent")

    # --- at the newcomer -----------------------------------------------------------------------

    def ask(self, member: FifoMember, step: Step) -> None:
        assert self.taking is not None
        needed = self.taking.needed(member.peers.present)
        step.send(self.taking.ask(self.givers(member)), Need(member.group, needed))

    def wait(self, member: FifoMember, step: Step) -> None:
        """One more heartbeat without the state."""
        taking, givers = self.taking, self.givers(member)
        assert taking is not None
        if not givers:
            taking.giver = None
        elif taking.is_over(givers, member.options.silence_ticks):
            for stream in member.streams.by_origin.values():
                if stream.reported_up_to < stream.received_up_to:
                    stream.reported_up_to = stream.received_up_to
                    taking.began[stream.origin] = stream.received_up_to
            member.early.clear()
            self.ask(member, step)

    def note_beginning(self, member: FifoMember, origin: NodeId, after: int) -> None:
        """The stream begins here, or goes on here after what cannot be had any more."""
        stream = member.streams.by_origin.get(origin)
        if self.taking is None or stream is None:
            return
        if origin not in self.taking.began or stream.received_up_to == after:
            self.taking.began[origin] = stream.received_up_to

    def take(self, member: FifoMember, step: Step, peer: Peer, packet: State) -> bool:
        """A state came. True: it is the one that we need, and the application has it."""
        taking, cut = self.taking, dict(packet.cut)
        if taking is None or peer.node != taking.giver:
            return False
        if packet.failure:
            why = f"{peer.node} could not give its state: {packet.failure}"
            step.give_state(member.group, None, why)
            return False
        if not taking.fits(cut, member.peers.present):
            self.ask(member, step)  # another stream has begun meanwhile
            return False
        self.taking, member.losses = None, Losses()
        for origin, up_to in cut.items():
            if up_to and origin.name != member.me.name:
                _cover(member, origin, up_to, taking.began.get(origin, 0))
        step.note("join", group=member.group, cause="state")
        if packet.state is not None:
            step.give_state(member.group, packet.state)
        return True

    # --- at a member that has it ---------------------------------------------------------------

    def receive(self, member: FifoMember, step: Step, peer: Peer, packet: Packet) -> None:
        """All but a state."""
        if isinstance(packet, Need):
            self._receive_need(member, step, peer, packet)
        else:
            assert isinstance(packet, Coming)
            if self.taking is not None and peer.node == self.taking.giver:
                self.taking.is_coming = True

    def _receive_need(self, member: FifoMember, step: Step, peer: Peer, need: Need) -> None:
        if peer.node is not None and peer.standing is PRESENT and not member.forming:
            self.giving.asked[peer.node] = need.after
            if peer.node in self.giving.serving:  # it comes, and then perhaps a later one
                step.send(peer.node, Coming(member.group))
            self.serve(member, step)

    def serve(self, member: FifoMember, step: Step) -> None:
        """Our application is asked for its state, for those whom it helps."""
        if not self.giving.asked:
            return
        # What our own state contained when we came is in it too, though we may not hold it yet.
        received = dict(member.streams.places)
        for origin, stream in member.streams.by_origin.items():
            received[origin] = max(stream.received_up_to, stream.covered_up_to)
        for node in self.giving.due(member.peers.present, received):
            member.streams.bring_to(node)
            step.send(node, Coming(member.group))
            step.ask_state(member.group, (node, tuple(received.items())))

    def provide(self, member: FifoMember, step: Step, given: inputs.StateProvided) -> None:
        node, cut = cast(tuple[NodeId, tuple[tuple[NodeId, int], ...]], given.token)
        self.giving.serving.pop(node, None)
        if node in member.peers.present:
            step.send(node, State(member.group, [*cut], given.state, given.failure))


def _cover(member: FifoMember, origin: NodeId, up_to: int, began: int) -> None:
    """The state contains so much of a stream, which begins here elsewhere."""
    newest = member.newest_delivered.get(origin.name, 0)
    member.newest_delivered[origin.name] = max(newest, origin.incarnation)
    stream = member.streams.by_origin.get(origin)
    if stream is None and member.membership.may_follow(member, origin.name):
        stream = member.streams.follow(origin, up_to)
    if stream is not None:
        stream.covered_up_to = up_to
        member.losses.add(origin, range(up_to + 1, began + 1))
    else:
        member.streams.remember(origin, up_to)
