"""How an initiator comes by the state of its application, and who gets it.

Rules.
 1. The application is asked when the initiator has delivered all that belongs into the state. An
    initiator that is alone in its formation asks for nothing: nobody needs it.
 2. The formation waits for the answer only while a live member may need it: one that does not come
    from the initiator's formation, or any, if a member of that formation is missing. Otherwise the
    epoch begins without it, and a member that turns out to need it asks (`Need`), and waits alone.
 3. An application that has not answered for `GIVE_LIMITS` suspicion limits is passed over: the
    epoch begins without a state. Members that come from the initiator's formation have it, and go
    on. The others do not begin, and ask again.
 4. A member whose application was passed over passes on the requests of members that want to join,
    to the next of its view, until its application answers. The last of the view has nobody to pass
    them on to: it answers that nobody can give a state.

A formation that nobody comes to from another one has no state to go on with, and no member that
could be asked instead: it waits for its initiator.

What it does not do: decide when to ask (`transitions.py`), or cut a large state into parts
(`state_parts.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ordercast.kernel.step import Step
from ordercast.protocol.newtop.attempt import Entering
from ordercast.protocol.newtop.epoch import GroupEpoch
from ordercast.protocol.newtop.packets import Copy, Need, PartTaken, StatePart, Unable
from ordercast.protocol.newtop.phase import Phase
from ordercast.types import NodeId, Waiting
from ordercast.units import SECOND

if TYPE_CHECKING:
    from ordercast.protocol.newtop.formation import NamedGroup

GIVE_LIMITS = 3
"""So many suspicion limits an application may take to answer. Nobody sends meanwhile, so it is not
much longer than the pause after a crash: one of them, and an agreement. It is longer because an
application first reads what came before the question."""
STATE_LIMITS = 30
"""So many suspicion limits an epoch may be without its state, before its initiator is excluded. An
initiator that follows the rules takes less: this is for one that does not."""


class StateGiver:
    """The state of our application, for the epoch that we initiated last."""

    def __init__(self, me: NodeId, group: str, suspicion_limit: int) -> None:
        self.me = me
        self.group = group
        self.limit = GIVE_LIMITS * suspicion_limit
        self.asked = ""  # the formation for which our application is asked, until it answers
        self.unable = ""  # our application was passed over, and has not answered since: why
        # The answer, while somebody may need it for whom it was left out, and who that is.
        self.provided: Copy | None = None
        self._may_need: dict[NodeId, None] = {}
        self._waiting: dict[NodeId, None] = {}  # those that need it, and asked before the answer

    def is_needed(self, entering: Entering) -> bool:
        """Whether the epoch has to wait for the state."""
        live = entering.epoch.live
        return bool(live) if entering.history is None else set(live) != set(entering.along)

    def ask(self, step: Step, epoch: GroupEpoch) -> None:
        self.asked, self.provided = epoch.formation, None
        self._may_need, self._waiting = dict.fromkeys(epoch.live), {}
        step.ask_state(self.group, epoch.formation)

    def answered(
        self, step: Step, state: bytes | None, failure: str, epochs: list[GroupEpoch]
    ) -> None:
        """Our application has given the state that it is asked for, or cannot. The epochs are those
        of its formation."""
        self.provided = Copy(self.group, self.asked, state, failure)
        self.asked = ""
        to, self._waiting = tuple(self._waiting), {}
        for epoch in epochs:
            epoch.giving.send(step, to, self.provided)

    def overdue(self, step: Step, epochs: list[GroupEpoch]) -> str:
        """Our application is passed over. Returns why."""
        waited = f"{self.limit / SECOND:g} s"
        self.unable = (
            f"the application of {self.me} was asked for it, and has not read for {waited}"
        )
        self.answered(step, None, self.unable, epochs)
        return self.unable

    def need(self, step: Step, sender: NodeId, formation: str, epochs: list[GroupEpoch]) -> None:
        """The state was left out for a member that needs it. Each is answered once."""
        provided = self.provided
        if sender not in self._may_need:
            return
        if formation == self.asked:
            del self._may_need[sender]
            self._waiting[sender] = None
        elif provided is not None and provided.formation == formation:
            del self._may_need[sender]
            for epoch in epochs:
                epoch.giving.send(step, (sender,), provided)

    def is_of(self, formation: str) -> bool:
        """Whether we were asked for the state of this formation, or have it."""
        provided = self.provided.formation if self.provided is not None else ""
        return formation in (self.asked, provided)

    def forget(self) -> None:
        """Every member that needed it has it, or is gone."""
        self.asked, self.provided, self._may_need, self._waiting = "", None, {}, {}


# --- the initiator -----------------------------------------------------------------------------


def ask_state(named: NamedGroup, step: Step, entering: Entering) -> None:
    """We have delivered all that belongs into the state of the epoch that we initiated."""
    if not entering.epoch.live:
        _cast(named, step, entering, None)
        return
    entering.awaits_application = True
    named.giver.ask(step, entering.epoch)
    limit = None if entering.history is None else named.giver.limit
    named.set_timer(step, "state", limit)
    begin_without(named, step, entering)


def begin_without(named: NamedGroup, step: Step, entering: Entering) -> bool:
    """Begins without the answer of our application if nobody waits for it. Whether it is so."""
    if entering.history is None and not entering.epoch.live:
        entering.epoch.phase = Phase.FAILED  # all others are gone, and may be in it elsewhere
        return True
    if named.giver.is_needed(entering):
        return False
    _cast(named, step, entering, None)
    return True


def answer_state(
    named: NamedGroup, step: Step, formation: str, state: bytes | None, failure: str
) -> None:
    """Our application has answered."""
    giver, entering = named.giver, named.attempt
    giver.unable = ""  # it reads
    if formation != giver.asked:
        return  # we have left the group meanwhile, or begun without it
    giver.answered(step, state, failure, named.epochs_of(formation))
    if isinstance(entering, Entering) and entering.awaits_application:
        _cast(named, step, entering, state, failure)


def _cast(
    named: NamedGroup,
    step: Step,
    entering: Entering,
    state: bytes | None,
    failure: str = "",
    *,
    retry: bool = False,
) -> None:
    epoch, entering.awaits_application = entering.epoch, False
    is_alone = named.plan.entry is not None and not entering.along
    if epoch.is_founding or is_alone:  # else the folder names others
        named.started.cast(step, sorted((named.me, *epoch.live)))
    epoch.cast_state(step, state, entering.history, entering.along, failure, retry=retry)


def begun(named: NamedGroup, step: Step, epoch: GroupEpoch) -> None:
    """The epoch has begun. We keep its state for a while, if it is ours, or wait for it."""
    giver, keep = named.giver, None
    if epoch.initiator != named.me or not giver.is_of(epoch.formation):
        giver.forget()
    else:
        keep = giver.limit if giver.asked else STATE_LIMITS * named.options.suspicion_limit
    named.set_timer(step, "state", keep)


def answer_need(named: NamedGroup, step: Step, sender: NodeId, packet: Need) -> None:
    named.giver.need(step, sender, packet.formation, named.epochs_of(packet.formation))


def give_on(named: NamedGroup, step: Step, sender: NodeId, packet: PartTaken) -> None:
    """The sender has a part of a large state."""
    for epoch in named.epochs_of(packet.formation):
        epoch.giving.take(step, sender, packet)


def time_is_over(named: NamedGroup, step: Step) -> None:
    """The state was not given in time, by our application or by the initiator; or nobody needs it
    any more."""
    giver, entering = named.giver, named.attempt
    if isinstance(entering, Entering) and entering.epoch.initiator != named.me:
        _miss_state(named, step, entering)
    elif giver.asked:
        why = giver.overdue(step, named.epochs_of(giver.asked))
        if isinstance(entering, Entering) and entering.awaits_application:
            _cast(named, step, entering, None, why, retry=True)
        else:
            named.set_timer(step, "state", STATE_LIMITS * named.options.suspicion_limit)
    else:
        giver.forget()


# --- the others --------------------------------------------------------------------------------


def _miss_state(named: NamedGroup, step: Step, entering: Entering) -> None:
    epoch = entering.epoch
    assert epoch.initiator is not None
    if entering.is_long:
        epoch.exclude_soon(epoch.initiator, "stateless")
        return
    entering.is_long = True
    named.set_timer(step, "state", (STATE_LIMITS - 1) * named.options.suspicion_limit)
    tell_wait(named, step, entering)


def tell_wait(named: NamedGroup, step: Step, entering: Entering) -> None:
    """Notifies the application of what the epoch waits for, when that changes."""
    if entering.is_long and (wait := entering.wait()) != entering.told:
        entering.told = wait
        step.notify(Waiting(named.plan.group, *wait, entering.since))


def failed(named: NamedGroup, step: Step) -> None:
    """The epoch that we were entering has failed. A member that is in another one goes on there."""
    entering = named.attempt
    assert isinstance(entering, Entering)
    named.set_timer(step, "state", None)
    if entering.epoch.initiator == named.me:
        named.giver.forget()
    if entering.told is not None and named.current is not None:
        step.notify(Waiting(named.plan.group, (), "", step.now))


def take_state(named: NamedGroup, step: Step, sender: NodeId, packet: Copy | StatePart) -> None:
    epoch = named.entering
    assert epoch is not None
    if (sender, packet.formation) != (epoch.initiator, epoch.formation):
        return
    if isinstance(packet, StatePart):
        count = epoch.parts.add(sender, packet.part)
        epoch.hear(sender)  # the initiator is there, though what it sends is slow
        step.send(sender, PartTaken(packet.group, packet.formation, count))
    elif epoch.awaits_copy:
        epoch.copy = epoch.copy or epoch.parts.complete(sender, packet)


def hear_unable(named: NamedGroup, step: Step, sender: NodeId, packet: Unable) -> None:
    """No member of the group can give us its state."""
    if named.current is None:
        step.give_state(named.plan.group, None, f"no member can give its state: {packet.why}")
