"""How a member moves from one formation of a group to the next.

Rules.
 1. When a formation is agreed on, each member starts its stream there, and submits nothing more in
    its current formation. It stays in that one, and delivers, until the new epoch has begun.
 2. The initiator waits until all have started, and until it has delivered everything that members
    which move with it have sent in their common formation. Then it leaves that one, asks its
    application for the state if it is needed (`giving.py`), and casts it as the first packet of the
    new epoch. It is left out for members of the formation that it left. One that has delivered
    other events there asks for it.
 3. The state takes its place in the order. With it come the first view and the permission to
    submit, and the members leave their old formations. So the state contains everything that the
    initiator's side has sent, and nothing is delivered without it.
 4. If the initiator is excluded before its state is there, the formation fails. The members
    continue in their old formations.

What it does not do: agree on a formation (`formation.py`), or merge the states of the sides of a
partition.
"""

from __future__ import annotations

from ordercast.errors import PeerError
from ordercast.kernel.step import Step
from ordercast.protocol.newtop import giving
from ordercast.protocol.newtop.attempt import Agreed, Entering
from ordercast.protocol.newtop.epoch import GroupEpoch
from ordercast.protocol.newtop.formation import NamedGroup
from ordercast.protocol.newtop.ordering import Ordering
from ordercast.protocol.newtop.phase import Phase
from ordercast.protocol.newtop.refusals import refuse_invalid
from ordercast.types import NodeId


class Transitions:
    """The moves of one member, over all its groups."""

    def __init__(
        self,
        me: NodeId,
        joined: dict[str, GroupEpoch],  # the member's own, like the next two
        order: Ordering,
        named: dict[str, NamedGroup],
    ) -> None:
        self._me = me
        self._joined = joined
        self._order = order
        self._named = named
        self.awaits = 0  # the number that we must have passed before we give a state; 0: none

    def start(self, step: Step, named: NamedGroup, agreed: Agreed) -> None:
        """All have voted yes: the epoch starts (rule 1)."""
        formation, initiator, members, founds, early, founding = agreed
        current = named.current
        placement = named.placement(self._me, members)
        epoch = GroupEpoch(
            self._me,
            named.plan,
            members,
            self._order,
            placement,
            formation,
            initiator,
            founding,
            named.voter,
        )
        epoch.is_full = current is not None and current.is_full
        epoch.is_founding, epoch.previous = founds, current
        epoch.start(step, named.events)
        self._joined[epoch.label] = epoch
        named.enter(step, epoch)
        if current is not None:
            current.moving_to = formation, initiator
            if initiator != self._me:
                current.move(step, formation)
        for sender, message in early:
            try:
                refuse_invalid(epoch, sender, message)
            except PeerError:  # this input is not of that sender, so it is excluded later
                epoch.exclude_soon(sender, "nonsense")
            else:
                epoch.receive(step, sender, message)

    def advance(self, step: Step) -> bool:
        """What is due of groups whose next epoch has started and not begun."""
        moved, self.awaits = False, 0
        for named in self._named.values():
            entering = named.attempt
            if not isinstance(entering, Entering):
                continue
            epoch = entering.epoch
            if epoch.phase is Phase.BEGUN:
                if named.current is not None:
                    self.depart(step, named.current)
                named.has_begun(step, epoch)
                moved = True
            elif epoch.phase is Phase.FAILED:
                self.depart(step, epoch)
                named.has_failed(step, epoch)
                moved = True
            elif entering.awaits_application:
                moved |= giving.begin_without(named, step, entering)
            elif epoch.initiator == self._me:
                moved |= self._ask_state(step, named, entering)
            else:
                giving.tell_wait(named, step, entering)
        return moved

    def _ask_state(self, step: Step, named: NamedGroup, entering: Entering) -> bool:
        """The initiator asks for the state when it has delivered all that belongs into it."""
        epoch, current = entering.epoch, named.current
        if epoch.phase is not Phase.AWAITING_STATE:
            return False
        if named.plan.entry is not None and _leaves_behind(epoch, current):
            epoch.phase = Phase.FAILED
            return True
        if any(peer not in epoch.starts for peer in epoch.live):
            return False
        if current is not None:
            if not self._has_all_of(current, epoch):
                moves = [order for peer, (_, order) in current.moves.items() if peer in epoch.live]
                self.awaits = max(self.awaits, *moves, 0)
                return False
            entering.history, entering.along = current.delivered.history, current.live
            self.depart(step, current)
            named.current = epoch.previous = None
        giving.ask_state(named, step, entering)
        return True

    def _has_all_of(self, current: GroupEpoch, following: GroupEpoch) -> bool:
        """Whether everything is delivered that we, and members that move with us, have sent."""
        to, bound = following.formation, self._order.deliverable_up_to()
        for peer in following.live:
            if peer in current.live:
                moved_to, order = current.moves.get(peer, ("", 0))
                if moved_to != to or order > bound:
                    return False
        if current.views.pending:
            return False
        return not current.placement.has_undelivered(current, (self._me, *following.live))

    def depart(self, step: Step, epoch: GroupEpoch) -> None:
        """We leave an epoch: the group, or for the next formation of it."""
        epoch.leave(step)
        if epoch.voter is not None:
            epoch.voter.depart(epoch.formation)
        del self._joined[epoch.label]
        self._order.queue.forget(epoch.label)
        step.set_timer(epoch.label, None)
        if epoch.formation or epoch.name in self._named:
            step.note("leave", group=epoch.label)


def _leaves_behind(epoch: GroupEpoch, current: GroupEpoch | None) -> bool:
    """Whether an epoch of an open group lacks members without which it must not begin.

    Founders that have never started in it: they may found the group with others. Else members that
    are with us in the current formation: a joiner that not all can reach must not part us.
    """
    if epoch.is_founding:
        return len(epoch.live) + 1 < len(epoch.members)
    return current is not None and any(
        one in epoch.members and one not in epoch.live for one in current.live
    )
