"""Who may be in a group: the strategies of a member.

`ListedMembers` is here: a closed group, which has the members that its plan lists. In
`open_members.py` are groups that anybody may join.

Each member has a strategy object of its own, which holds what only this kind of group needs. The
member is given to every call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from ordercast.errors import PeerError
from ordercast.kernel.inputs import Input
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step
from ordercast.protocol.fifo.packets import Start
from ordercast.protocol.fifo.peers import PRESENT, Peer, Standing
from ordercast.types import NodeId

if TYPE_CHECKING:
    from ordercast.protocol.fifo.member import FifoMember


class FifoMembership(ABC):
    takes: ClassVar[tuple[type[Input], ...]] = ()  # inputs of this kind of group alone

    @property
    def awaits_state(self) -> bool:
        """Whether we wait for a state of the application: what is lost to us may be in it."""
        return False

    # --- inputs ------------------------------------------------------------------------------

    @abstractmethod
    def start(self, member: FifoMember, step: Step) -> None:
        """The member starts."""

    def tick(self, member: FifoMember, step: Step) -> None:
        """One more of our own heartbeats has passed, and was sent."""
        return

    def take(self, member: FifoMember, step: Step, given: Input) -> None:
        """One of the inputs of this kind of group came."""
        raise AssertionError(f"{given} is not taken")

    # --- packets -----------------------------------------------------------------------------

    @abstractmethod
    def admit(self, member: FifoMember, sender: NodeId, packet: Packet) -> Peer | None:
        """A node that is no peer sent this. Returns the peer that it is now; None: it is not one,
        and the packet does not count."""

    def refuse_invalid(self, member: FifoMember, sender: NodeId, packet: Packet) -> None:
        """What no member would send, of the packets that not every kind of group has."""
        raise PeerError(f"{sender} sent {type(packet).__name__}, which fifo does not know")

    def receive(self, member: FifoMember, step: Step, peer: Peer, packet: Packet) -> None:
        """One of the packets of this kind of group came."""
        raise AssertionError(f"{packet} was refused")

    def receive_start(self, member: FifoMember, step: Step, peer: Peer, start: Start) -> None:
        member.receive_start(step, peer, start)

    # --- streams -----------------------------------------------------------------------------

    @abstractmethod
    def may_follow(self, member: FifoMember, name: str) -> bool:
        """Whether events of this name are taken from whoever relays them."""

    @abstractmethod
    def missed(self, member: FifoMember, origin: NodeId, after: int, is_owed: bool) -> int:
        """How many events are lost to us of those before the beginning of a stream.

        `is_owed`: the origin says so.
        """

    # --- who is present ----------------------------------------------------------------------

    @abstractmethod
    def form(self, member: FifoMember, step: Step) -> None:
        """One more of our own heartbeats has passed without a view."""

    @abstractmethod
    def enter(self, member: FifoMember, step: Step) -> None:
        """We have no view. Installs the first one if everybody is there for whom it waits."""

    def met(self, member: FifoMember, earlier: Peer, peer: Peer) -> None:
        """This peer takes the place of an earlier incarnation, or of a name that was not heard."""
        return

    def connected(self, member: FifoMember, step: Step, peer: Peer) -> None:
        """This peer has become present."""
        return


class ListedMembers(FifoMembership):
    """The first view waits for all members, or for the suspicion limit. Everybody is owed every
    event, and nobody is ever dropped."""

    def start(self, member: FifoMember, step: Step) -> None:
        if member.others:
            member.report(step)
        else:
            member.install_first(step)

    def admit(self, member: FifoMember, sender: NodeId, packet: Packet) -> Peer | None:
        raise PeerError(f"{sender} is not a member of {member.group}")

    def may_follow(self, member: FifoMember, name: str) -> bool:
        return name in member.peers.by_name

    def missed(self, member: FifoMember, origin: NodeId, after: int, is_owed: bool) -> int:
        # All of them, if ours is a first incarnation, or if the origin's is younger.
        owner = member.peers.by_name[origin.name]
        is_first = not member.me.incarnation
        return after if is_first or (owner.was_restarted and owner.node == origin) else 0

    def form(self, member: FifoMember, step: Step) -> None:
        member.forming -= 1
        if member.forming == 0:
            for peer in member.peers:
                if peer.standing is not PRESENT:
                    if peer.standing is Standing.EXPECTED:
                        member.peers.set_standing(peer, Standing.AWAY)
                    step.note("suspect", group=member.group, peer=peer.name)
            member.install_first(step)

    def enter(self, member: FifoMember, step: Step) -> None:
        if not member.peers.is_any_away:
            member.install_first(step)
