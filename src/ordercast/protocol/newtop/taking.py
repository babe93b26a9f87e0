"""Whether a member has the state with which an epoch begins, and what it does without it.

Rules.
 1. A member that has delivered the same as the initiator, where both come from, has that state.
 2. If the state was left out for a member that needs it, it asks the initiator.
 3. A member that needs a state which the initiator could not give does not begin. If it comes from
    another formation it stays there. Else its application is given the reason, or it asks again if
    another member may give the state (`giving.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ordercast.kernel.step import Step
from ordercast.protocol.newtop.packets import Need, State
from ordercast.protocol.newtop.phase import Phase
from ordercast.types import Refused

if TYPE_CHECKING:
    from ordercast.protocol.newtop.epoch import GroupEpoch


def has_same(epoch: GroupEpoch, message: State) -> bool:
    """Whether we have delivered, where we come from, what the initiator has."""
    previous = epoch.previous
    return message.history is not None and (
        previous is not None and previous.delivered.history == message.history
    )


def has_state(epoch: GroupEpoch, step: Step, message: State) -> bool:
    """Whether we have what we begin with. If not, asks the initiator for it."""
    if epoch.phase is not Phase.STATE_QUEUED or epoch.initiator == epoch.me:
        return True
    if not message.is_left_out or epoch.copy is not None or has_same(epoch, message):
        return True
    assert epoch.initiator is not None
    if epoch.initiator not in epoch.live:
        epoch.phase = Phase.FAILED
        return True
    if not epoch.awaits_copy:
        epoch.awaits_copy = True
        step.send(epoch.initiator, Need(epoch.name, epoch.formation))
    return False


def do_without(epoch: GroupEpoch, step: Step, failure: str, retry: bool) -> None:
    """The initiator could not give the state that we need: we stay where we come from."""
    epoch.phase = Phase.FAILED
    why = f"{epoch.initiator} could not give its state: {failure}"
    if epoch.previous is not None:
        step.notify(Refused(epoch.name, why))
    elif retry:
        epoch.setback = failure
    else:
        step.give_state(epoch.name, None, why)
