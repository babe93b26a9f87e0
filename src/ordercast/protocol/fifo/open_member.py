"""A member of an open group, which anybody may join: what is different from a closed one.

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

from random import Random
from typing import cast

from ordercast.errors import PeerError
from ordercast.kernel import inputs
from ordercast.kernel.family import Plan, machine_per_group
from ordercast.kernel.inputs import Input
from ordercast.kernel.losses import Losses
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import DATAGRAM, Step, Timer
from ordercast.protocol.fifo.candidates import Candidates
from ordercast.protocol.fifo.entering import FirstView
from ordercast.protocol.fifo.handover import Giving, Taking
from ordercast.protocol.fifo.member import MOST_UNREPORTED, TICK, FifoMember
from ordercast.protocol.fifo.options import LARGEST_GROUP
from ordercast.protocol.fifo.packets import (
    Alive,
    Begin,
    Coming,
    Leave,
    Need,
    Roster,
    Start,
    State,
)
from ordercast.protocol.fifo.peers import PRESENT, Peer, Standing
from ordercast.protocol.fifo.streams import PLACES_REMEMBERED
from ordercast.types import NodeId

ROSTERS_A_LIMIT = 4
"""Rosters that a member sends in a suspicion limit."""


class OpenMember(FifoMember):
    takes = (*FifoMember.takes, inputs.Acquainted, inputs.StateProvided)

    def __init__(self, me: NodeId, plan: Plan, chance: Random) -> None:
        super().__init__(me, plan, chance)
        assert plan.entry is not None and not self.others
        self.entering = FirstView(me, plan.group, plan.entry, self.options.silence_ticks)
        self.candidates = Candidates(me.name)
        # Ticks left to meet everybody, once a member has welcomed us.
        self.forming = self.options.silence_ticks
        self.until_roster = 0  # ticks
        # None: we need no state, or have it.
        self.taking: Taking | None = Taking() if self.options.state else None
        self.giving = Giving()

    # --- inputs ------------------------------------------------------------------------------

    def start(self, step: Step) -> None:
        step.set_timer(TICK, self.first_tick)
        self.entering.since = step.now
        self._enter(step)

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        if sender.name not in self.peers.by_name and sender.name != self.me.name:
            self._refuse_invalid(sender, packet)
            if isinstance(packet, Leave):
                return
            self._admit(sender)
        super().receive(step, sender, packet)

    def expire(self, step: Step, timer: Timer) -> None:
        super().expire(step, timer)
        self._drop_absent()
        self._contact(step)
        if self.until_roster:
            self.until_roster -= 1
        else:
            self.until_roster = self.options.silence_ticks // ROSTERS_A_LIMIT
            self._send_roster(step, self.others)
        if self.forming:
            known = self.candidates.names
            giver = self.taking.giver if self.taking is not None else None
            news = self.entering.news(self.peers, known, self.options.silence_ticks, giver)
            if news is not None:
                step.notify(news)
        if self.giving.asked:
            self._serve(step)

    def on(self, step: Step, given: Input) -> None:
        if isinstance(given, inputs.Acquainted):
            self.candidates.give(given.names, self.peers.by_name)
            self._contact(step)
        elif isinstance(given, inputs.StateProvided):
            node, cut = cast(tuple[NodeId, tuple[tuple[NodeId, int], ...]], given.token)
            self.giving.serving.pop(node, None)
            if node in self.peers.present:
                step.send(node, State(self.group, [*cut], given.state, given.failure))
        else:
            super().on(step, given)

    # --- who is known ------------------------------------------------------------------------

    def _admit(self, sender: NodeId) -> None:
        """A node that we did not know is one of the group."""
        if len(self.peers.by_name) >= LARGEST_GROUP - 1:
            gone = [peer for peer in self.peers if peer.absent]
            if not gone:
                raise PeerError(
                    f"{sender} is one too many: {self.group} has {LARGEST_GROUP} members"
                )
            self._drop(max(gone, key=lambda peer: peer.absent).name)
        self.candidates.heard(sender.name)
        self.peers.replace(Peer(sender.name))
        self._address_peers()

    def _drop_absent(self) -> None:
        ticks = self.options.silence_ticks
        for peer in list(self.peers):
            if peer.is_forgotten(ticks, self.streams.is_awaited(peer.name)):
                self._drop(peer.name)
        for name in self.candidates.tick():
            self.streams.drop(name)
            self.peers.forget_reports(name)
        self._address_peers()

    def _drop(self, name: str) -> None:
        has_left = self.peers.by_name[name].standing is Standing.LEFT
        self.peers.drop(name)
        self.peers.forget_reports(name)
        self.streams.drop(name)
        self.candidates.was_dropped(name, has_left, self.options.silence_ticks)
        for other in [*self.newest_delivered][:-PLACES_REMEMBERED]:
            if not self._may_follow(other):
                del self.newest_delivered[other]
        self._trim_all()

    def _address_peers(self) -> None:
        """Those to whom our heartbeats go."""
        self.others = tuple(peer.name for peer in self.peers if peer.standing is not Standing.LEFT)

    def _contact(self, step: Step) -> None:
        """Candidates hear of us: those who are members answer."""
        due = self.candidates.due(self.options.silence_ticks)
        if due:
            self._send_heartbeat(step, due)

    def _introduce(self, step: Step, teller: Peer, names: list[str]) -> None:
        """A peer names members of the group."""
        unknown = [name for name in names if name not in self.peers.by_name]
        if unknown:
            self.candidates.tell(teller.name, unknown)
            self._contact(step)

    def _send_roster(self, step: Step, to: tuple[NodeId | str, ...]) -> None:
        if to:
            members = [self.me, *self.peers.present]
            roster = Roster(self.group, members, not self.forming, self.peers.away)
            step.send(to, roster, DATAGRAM)

    # --- receiving ---------------------------------------------------------------------------

    def _refuse_invalid(self, sender: NodeId, packet: Packet) -> None:
        if isinstance(packet, Roster):
            count = len(packet.members) + len(packet.away)
            if count > LARGEST_GROUP:
                raise PeerError(
                    f"{sender} names {count} members of {self.group}, "
                    f"of which there are {LARGEST_GROUP} at most"
                )
        elif isinstance(packet, Begin):
            if packet.origin != sender:
                raise PeerError(f"{sender} says where the events of {packet.origin} begin")
            if len(self.losses) >= MOST_UNREPORTED:
                raise PeerError(f"{sender} skips more events than {self.me} can report as lost")
        elif isinstance(packet, Need | Coming | State) and self.options.state:
            cut = []
            if isinstance(packet, Need | State):
                cut = packet.after if isinstance(packet, Need) else packet.cut
            for origin, up_to in cut:
                if origin == self.me and up_to > self.own.received_up_to:
                    raise PeerError(f"{sender} has a state with what {self.me} never sent")
        else:
            super()._refuse_invalid(sender, packet)

    def _may_report(self, name: str) -> bool:
        return True  # it may know members that we do not

    def _may_follow(self, name: str) -> bool:
        return name in self.peers.by_name or name in self.candidates

    def _missed(self, origin: NodeId, after: int, is_owed: bool) -> int:
        if self.forming:
            return 0
        peer = self.peers.by_name.get(origin.name)
        was_there = peer is not None and peer.named == origin  # before us
        # Other members may get by relaying what we do not, but no more of it than can be held.
        return after if is_owed or not was_there else min(after, self.options.retain)

    def _receive_alive(self, step: Step, peer: Peer, alive: Alive) -> None:
        me = self.me.name
        known = [
            one for one in alive.received if one[0].name == me or self._may_follow(one[0].name)
        ]
        super()._receive_alive(step, peer, Alive(self.group, known, alive.hears, alive.full))

    def _receive_start(self, step: Step, peer: Peer, start: Start) -> None:
        if peer.standing is PRESENT:
            self._introduce(step, peer, [start.origin.name])
        super()._receive_start(step, peer, start)
        self._note_beginning(start.origin, start.after)
        if start.origin == peer.node:
            peer.has_begun = True
            self._enter(step)

    def _receive_other(self, step: Step, peer: Peer, packet: Packet) -> None:
        if isinstance(packet, Begin):
            self._receive_begin(step, peer, packet)
        elif isinstance(packet, Roster):
            self._receive_roster(step, peer, packet)
        elif isinstance(packet, Need):
            self._receive_need(step, peer, packet)
        elif isinstance(packet, State):
            self._receive_state(step, peer, packet)
        else:
            assert isinstance(packet, Coming)
            if self.taking is not None and peer.node == self.taking.giver:
                self.taking.is_coming = True

    def _receive_begin(self, step: Step, peer: Peer, begin: Begin) -> None:
        peer.proves_contact()
        stream = self.streams.by_origin.get(begin.origin)
        if stream is None:
            missed = self._missed(begin.origin, begin.after, is_owed=False)
            stream = self.streams.follow(begin.origin, begin.after - missed)
            self.streams.forget_old()
        # We may have a place in the stream, by relaying or from an earlier time.
        self.losses.add(begin.origin, stream.skip_to(begin.after))
        self._report_losses(step)
        self._note_beginning(begin.origin, begin.after)
        peer.has_begun = True
        self._enter(step)

    def _receive_roster(self, step: Step, peer: Peer, roster: Roster) -> None:
        peer.members, peer.has_view = tuple(roster.members), roster.formed
        peer.members_away = roster.away
        self._introduce(step, peer, [node.name for node in roster.members])
        self._enter(step)

    # --- who is present ----------------------------------------------------------------------

    def _enter(self, step: Step) -> None:
        if self.forming and self._is_complete():
            self._admitted(step)

    def _admitted(self, step: Step) -> None:
        if self.taking is None or not self._givers():
            self.taking = None  # we found the group
            super()._admitted(step)
        elif self.taking.giver is None:
            self.forming = self.options.silence_ticks
            self._ask(step, self.taking)

    def _is_complete(self) -> bool:
        return self.entering.is_in(self.peers)

    def _form(self, step: Step) -> None:
        if self.taking is not None and self.taking.giver is not None:
            self._await_state(step, self.taking)
            return
        if self.entering.awaited(self.peers) is None:
            self.forming = self.options.silence_ticks
            if self.entering.ticks_to_ask:
                self.entering.ticks_to_ask -= 1
                self._enter(step)
            return
        self.forming -= 1
        if self.forming == 0:
            self._admitted(step)

    def _expect(self, step: Step, node: NodeId) -> None:
        """A member that was there before us is owed what we send, also if we have not met it."""
        peer = self.peers.by_name.get(node.name)
        if peer is None:
            if len(self.peers.by_name) >= LARGEST_GROUP - 1:
                return
            peer = Peer(node.name)
            self.candidates.heard(node.name)
            self.peers.replace(peer)
        peer.named = node
        if peer.standing is Standing.EXPECTED and peer.node in (None, node):
            self.peers.set_standing(peer, Standing.AWAY)
            step.note("suspect", group=self.group, peer=node.name)

    def _install_first(self, step: Step) -> None:
        for node in self.entering.named(self.peers).values():
            self._expect(step, node)
        self.peers.formed()
        super()._install_first(step)
        self._send_roster(step, self.peers.present)

    def _meet(self, step: Step, peer: Peer, sender: NodeId) -> Peer:
        # Named when we installed our first view, and not met before: it is owed what we have sent.
        is_owed = peer.node is None and peer.named == sender
        met = super()._meet(step, peer, sender)
        met.named = peer.named
        if is_owed:
            self.peers.set_standing(met, Standing.AWAY)
        if sender in self.streams.places:
            self.streams.follow(sender, 0)
        return met

    def _connect(self, step: Step, peer: Peer) -> None:
        super()._connect(step, peer)
        assert peer.node is not None
        self._send_roster(step, (peer.node,))

    # --- the application's state ---------------------------------------------------------------

    def _givers(self) -> list[NodeId]:
        """Members that are in the group."""
        there = [peer for peer in self.peers if peer.standing is PRESENT and peer.has_view]
        return [peer.node for peer in there if peer.node is not None]

    def _ask(self, step: Step, taking: Taking) -> None:
        needed = taking.needed(self.peers.present)
        step.send(taking.ask(self._givers()), Need(self.group, needed))

    def _await_state(self, step: Step, taking: Taking) -> None:
        """One more heartbeat without the state."""
        givers = self._givers()
        if not givers:
            taking.giver = None
        elif taking.is_over(givers, self.options.silence_ticks):
            for stream in self.streams.by_origin.values():
                if stream.reported_up_to < stream.received_up_to:
                    stream.reported_up_to = stream.received_up_to
                    taking.began[stream.origin] = stream.received_up_to
            self.early.clear()
            self._ask(step, taking)

    def _note_beginning(self, origin: NodeId, after: int) -> None:
        """The stream begins here, or goes on here after what cannot be had any more."""
        stream = self.streams.by_origin.get(origin)
        if self.taking is None or stream is None:
            return
        if origin not in self.taking.began or stream.received_up_to == after:
            self.taking.began[origin] = stream.received_up_to

    def _receive_need(self, step: Step, peer: Peer, need: Need) -> None:
        if peer.node is not None and peer.standing is PRESENT and not self.forming:
            self.giving.asked[peer.node] = need.after
            if peer.node in self.giving.serving:  # it comes, and then perhaps a later one
                step.send(peer.node, Coming(self.group))
            self._serve(step)

    def _serve(self, step: Step) -> None:
        """Our application is asked for its state, for those whom it helps."""
        # What our own state contained when we came is in it too, though we may not hold it yet.
        received = dict(self.streams.places)
        for origin, stream in self.streams.by_origin.items():
            received[origin] = max(stream.received_up_to, stream.covered_up_to)
        for node in self.giving.due(self.peers.present, received):
            self.streams.bring_to(node)
            step.send(node, Coming(self.group))
            step.ask_state(self.group, (node, tuple(received.items())))

    def _receive_state(self, step: Step, peer: Peer, packet: State) -> None:
        taking, cut = self.taking, dict(packet.cut)
        if taking is None or peer.node != taking.giver:
            return
        if packet.failure:
            step.give_state(
                self.group, None, f"{peer.node} could not give its state: {packet.failure}"
            )
            return
        if not taking.fits(cut, self.peers.present):
            self._ask(step, taking)  # another stream has begun meanwhile
            return
        self.taking, self.losses = None, Losses()
        for origin, up_to in cut.items():
            if up_to and origin.name != self.me.name:
                self._cover(origin, up_to, taking.began.get(origin, 0))
        step.note("join", group=self.group, cause="state")
        if packet.state is not None:
            step.give_state(self.group, packet.state)
        super()._admitted(step)

    def _cover(self, origin: NodeId, up_to: int, began: int) -> None:
        """The state contains so much of a stream, which begins here elsewhere."""
        newest = self.newest_delivered.get(origin.name, 0)
        self.newest_delivered[origin.name] = max(newest, origin.incarnation)
        stream = self.streams.by_origin.get(origin)
        if stream is None and self._may_follow(origin.name):
            stream = self.streams.follow(origin, up_to)
        if stream is not None:
            stream.covered_up_to = up_to
            self.losses.add(origin, range(up_to + 1, began + 1))
        else:
            self.streams.remember(origin, up_to)

    def _report_losses(self, step: Step) -> None:
        if self.taking is None:  # or the state may have it
            super()._report_losses(step)

    def _lose(self, step: Step, origin: NodeId, number: int, cause: str) -> None:
        stream = self.streams.by_origin.get(origin)
        if stream is None or number > stream.covered_up_to:
            super()._lose(step, origin, number, cause)


def _member(me: NodeId, plan: Plan, chance: Random) -> FifoMember:
    return (FifoMember if plan.entry is None else OpenMember)(me, plan, chance)


build = machine_per_group(_member)
