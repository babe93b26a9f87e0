"""Who is in an open group, which anybody may join: what is different from a closed one.

Rules, beside those of member.py.
 1. Members learn of each other: by their hosts, by the first packet of a node that they do not
    know, and by rosters. Every member sends its roster to its peers, a few times in a suspicion
    limit and when it meets one.
 2. A member that joins receives what is sent from then on. An origin that has a view says `Begin`
    to a peer that it meets for the first time: what it sent before is not owed, and not lost. What
    others may still have to relay begins with what not all present members have.
 3. A member that joins owes its own events, from the first, to all members that it was told of when
    it installed its first view: those that the members that welcomed it have in their views, and
    those whose return they await. If it has not met one of them by then, it retains them for it.
 4. A member that has a view, and hears of a stream for the first time, was owed all of it, and
    reports as lost what it cannot have: unless its origin is one of those of rule 3, which were
    there before. Of these it reports only what may still have been relayed to others.
 5. A peer that is gone is dropped after ten suspicion limits, with its streams: nothing grows with
    the names that ever were in the group. Two members that dropped each other meet like newcomers.
    Each remembers its place in the other's stream: nothing is delivered twice, and what it missed
    is reported as lost.
 6. With the option `state` a member that joins is given the state of the application before its
    first view (`handover.py`).

What it does not do: agree on who is in the group, or bring the past to a newcomer, but as a state.
"""

from __future__ import annotations

from ordercast.errors import PeerError
from ordercast.kernel import inputs
from ordercast.kernel.family import Plan
from ordercast.kernel.inputs import Input
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import DATAGRAM, Step
from ordercast.protocol.fifo.candidates import Candidates
from ordercast.protocol.fifo.entering import FirstView
from ordercast.protocol.fifo.handover import StateHandover
from ordercast.protocol.fifo.member import MOST_UNREPORTED, FifoMember
from ordercast.protocol.fifo.membership import FifoMembership
from ordercast.protocol.fifo.options import LARGEST_GROUP, FifoOptions
from ordercast.protocol.fifo.packets import Begin, Coming, Leave, Need, Roster, Start, State
from ordercast.protocol.fifo.peers import PRESENT, Peer, Standing
from ordercast.protocol.fifo.streams import PLACES_REMEMBERED
from ordercast.types import NodeId

ROSTERS_A_LIMIT = 4
"""Rosters that a member sends in a suspicion limit."""


class OpenMembers(FifoMembership):
    takes = (inputs.Acquainted, inputs.StateProvided)

    def __init__(self, me: NodeId, plan: Plan) -> None:
        assert isinstance(plan.options, FifoOptions)
        assert plan.entry is not None and plan.members == (me.name,)
        self.entering = FirstView(me, plan.group, plan.entry, plan.options.silence_ticks)
        self.candidates = Candidates(me.name, plan.options.silence_ticks)
        self.until_roster = 0  # ticks
        self.handover = StateHandover(plan.options.state)

    @property
    def awaits_state(self) -> bool:
        return self.handover.taking is not None

    # --- inputs ------------------------------------------------------------------------------

    def start(self, member: FifoMember, step: Step) -> None:
        self.entering.since = step.now
        self.enter(member, step)

    def tick(self, member: FifoMember, step: Step) -> None:
        self._drop_absent(member)
        self._contact(member, step)
        if self.until_roster:
            self.until_roster -= 1
        else:
            self.until_roster = member.options.silence_ticks // ROSTERS_A_LIMIT
            self.send_roster(member, step, member.others)
        if member.forming:
            known, giver = self.candidates.names, self.handover.giver
            news = self.entering.news(member.peers, known, member.options.silence_ticks, giver)
            if news is not None:
                step.notify(news)
        self.handover.serve(member, step)

    def take(self, member: FifoMember, step: Step, given: Input) -> None:
        if isinstance(given, inputs.Acquainted):
            self.candidates.give(given.names, member.peers.by_name)
            self._contact(member, step)
        else:
            assert isinstance(given, inputs.StateProvided)
            self.handover.provide(member, step, given)

    # --- who is known ------------------------------------------------------------------------

    def admit(self, member: FifoMember, sender: NodeId, packet: Packet) -> Peer | None:
        if sender.name == member.me.name:
            raise PeerError(f"{sender} is not a member of {member.group}")
        member.refuse_invalid(sender, packet)
        if isinstance(packet, Leave):
            return None
        if len(member.peers.by_name) >= LARGEST_GROUP - 1:
            gone = [peer for peer in member.peers if peer.absent]
            if not gone:
                raise PeerError(
                    f"{sender} is one too many: {member.group} has {LARGEST_GROUP} members"
                )
            self.drop(member, max(gone, key=lambda peer: peer.absent).name)
        self.candidates.heard(sender.name)
        peer = Peer(sender.name)
        member.peers.replace(peer)
        self._address_peers(member)
        return peer

    def _drop_absent(self, member: FifoMember) -> None:
        ticks = member.options.silence_ticks
        for peer in list(member.peers):
            if peer.is_forgotten(ticks, member.streams.is_awaited(peer.name)):
                self.drop(member, peer.name)
        for name in self.candidates.tick():
            self._forget(member, name)
        self._address_peers(member)

    def drop(self, member: FifoMember, name: str) -> None:
        """It is no peer any more."""
        has_left = member.peers.by_name[name].standing is Standing.LEFT
        member.peers.drop(name)
        self._forget(member, name)
        self.candidates.was_dropped(name, has_left)
        for other in [*member.newest_delivered][:-PLACES_REMEMBERED]:
            if not self.may_follow(member, other):
                del member.newest_delivered[other]
        member.trim_all()

    def _forget(self, member: FifoMember, name: str) -> None:
        """It is neither a peer nor a candidate: only its places in streams are remembered."""
        member.streams.drop(name)
        member.peers.forget_reports(name)

    def _address_peers(self, member: FifoMember) -> None:
        """Those to whom our heartbeats go."""
        there = (peer for peer in member.peers if peer.standing is not Standing.LEFT)
        member.others = tuple(peer.name for peer in there)

    def _contact(self, member: FifoMember, step: Step) -> None:
        """Candidates hear of us: those who are members answer."""
        due = self.candidates.due()
        if due:
            member.send_heartbeat(step, due)

    def _introduce(self, member: FifoMember, step: Step, teller: Peer, names: list[str]) -> None:
        """A peer names members of the group."""
        unknown = [name for name in names if name not in member.peers.by_name]
        if unknown:
            self.candidates.tell(teller.name, unknown)
            self._contact(member, step)

    def send_roster(self, member: FifoMember, step: Step, to: tuple[NodeId | str, ...]) -> None:
        if to:
            members, away = [member.me, *member.peers.present], member.peers.away
            step.send(to, Roster(member.group, members, not member.forming, away), DATAGRAM)

    # --- receiving ---------------------------------------------------------------------------

    def refuse_invalid(self, member: FifoMember, sender: NodeId, packet: Packet) -> None:
        if isinstance(packet, Roster):
            count = len(packet.members) + len(packet.away)
            if count > LARGEST_GROUP:
                raise PeerError(
                    f"{sender} names {count} members of {member.group}, "
                    f"of which there are {LARGEST_GROUP} at most"
                )
        elif isinstance(packet, Begin):
            if packet.origin != sender:
                raise PeerError(f"{sender} says where the events of {packet.origin} begin")
            if len(member.losses) >= MOST_UNREPORTED:
                raise PeerError(f"{sender} skips more events than {member.me} can report as lost")
        elif isinstance(packet, Need | Coming | State) and member.options.state:
            self.handover.refuse_invalid(member, sender, packet)
        else:
            super().refuse_invalid(member, sender, packet)

    def may_follow(self, member: FifoMember, name: str) -> bool:
        return name in member.peers.by_name or name in self.candidates

    def missed(self, member: FifoMember, origin: NodeId, after: int, is_owed: bool) -> int:
        if member.forming:
            return 0
        peer = member.peers.by_name.get(origin.name)
        was_there = peer is not None and peer.named == origin  # before us
        # Other members may get by relaying what we do not, but no more of it than can be held.
        return after if is_owed or not was_there else min(after, member.options.retain)

    def receive_start(self, member: FifoMember, step: Step, peer: Peer, start: Start) -> None:
        if peer.standing is PRESENT:
            self._introduce(member, step, peer, [start.origin.name])
        member.receive_start(step, peer, start)
        self.handover.note_beginning(member, start.origin, start.after)
        if start.origin == peer.node:
            self._note_begun(member, step, peer)

    def receive(self, member: FifoMember, step: Step, peer: Peer, packet: Packet) -> None:
        if isinstance(packet, Begin):
            self._receive_begin(member, step, peer, packet)
        elif isinstance(packet, Roster):
            peer.members, peer.has_view = tuple(packet.members), packet.formed
            peer.members_away = packet.away
            self._introduce(member, step, peer, [node.name for node in packet.members])
            self.enter(member, step)
        elif isinstance(packet, State):
            if self.handover.take(member, step, peer, packet):
                self._install_first(member, step)
        else:
            self.handover.receive(member, step, peer, packet)

    def _receive_begin(self, member: FifoMember, step: Step, peer: Peer, begin: Begin) -> None:
        peer.proves_contact()
        stream = member.streams.by_origin.get(begin.origin)
        if stream is None:
            stream = member.begin_stream(begin.origin, begin.after, is_owed=False)
        # We may have a place in the stream, by relaying or from an earlier time.
        member.losses.add(begin.origin, stream.skip_to(begin.after))
        member.report_losses(step)
        self.handover.note_beginning(member, begin.origin, begin.after)
        self._note_begun(member, step, peer)

    def _note_begun(self, member: FifoMember, step: Step, peer: Peer) -> None:
        peer.has_begun = True
        self.enter(member, step)

    # --- who is present ----------------------------------------------------------------------

    def enter(self, member: FifoMember, step: Step) -> None:
        if member.forming and self.entering.is_in(member.peers):
            self._admitted(member, step)

    def _admitted(self, member: FifoMember, step: Step) -> None:
        """Everybody is there for whom the first view waits, but perhaps for the state."""
        if self.handover.taking is None or not self.handover.givers(member):
            self.handover.taking = None  # we found the group
            self._install_first(member, step)
        elif self.handover.giver is None:
            member.forming = member.options.silence_ticks
            self.handover.ask(member, step)

    def form(self, member: FifoMember, step: Step) -> None:
        if self.handover.giver is not None:
            self.handover.wait(member, step)
            return
        if self.entering.awaited(member.peers) is None:
            member.forming = member.options.silence_ticks
            if self.entering.ticks_to_ask:
                self.entering.ticks_to_ask -= 1
                self.enter(member, step)
            return
        member.forming -= 1
        if member.forming == 0:
            self._admitted(member, step)

    def expect(self, member: FifoMember, step: Step, node: NodeId) -> None:
        """A member that was there before us is owed what we send, also if we have not met it."""
        peer = member.peers.by_name.get(node.name)
        if peer is None:
            if len(member.peers.by_name) >= LARGEST_GROUP - 1:
                return
            peer = Peer(node.name)
            self.candidates.heard(node.name)
            member.peers.replace(peer)
        peer.named = node
        if peer.standing is Standing.EXPECTED and peer.node in (None, node):
            member.peers.set_standing(peer, Standing.AWAY)
            step.note("suspect", group=member.group, peer=node.name)

    def _install_first(self, member: FifoMember, step: Step) -> None:
        for node in self.entering.named(member.peers).values():
            self.expect(member, step, node)
        member.peers.formed()
        member.install_first(step)
        self.send_roster(member, step, member.peers.present)

    def met(self, member: FifoMember, earlier: Peer, peer: Peer) -> None:
        assert peer.node is not None
        peer.named = earlier.named
        # Named when we installed our first view, and not met before: it is owed what we have sent.
        if earlier.node is None and earlier.named == peer.node:
            member.peers.set_standing(peer, Standing.AWAY)
        if peer.node in member.streams.places:
            member.streams.follow(peer.node, 0)

    def connected(self, member: FifoMember, step: Step, peer: Peer) -> None:
        assert peer.node is not None
        self.send_roster(member, step, (peer.node,))
