"""How an event gets its place in the order: the strategies of a group.

`ByEveryone` is here: the number that its sender gave an event is its place (Newtop, section 4.1).
`sequencer.py` has groups in which one member assigns the places, `atomic.py` groups without order.

Each epoch has a strategy object of its own, which holds what only this kind of group needs. The
epoch is given to every call.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Protocol

from ordercast.kernel.step import Step
from ordercast.protocol.newtop.packets import Data, State, Turn
from ordercast.protocol.newtop.suspicion import Detection, Via
from ordercast.types import NodeId

if TYPE_CHECKING:
    from ordercast.protocol.newtop.epoch import GroupEpoch


class Placement(Protocol):
    kind: ClassVar[str]  # as members compare it before they form a group
    # Whether events have a place among those of other groups. If so, views are installed at
    # numbers, else when all have confirmed them (`install_due`).
    is_ordered: ClassVar[bool] = True

    def __init__(self, me: NodeId, members: tuple[NodeId, ...]) -> None:
        """For an epoch that starts with these members."""

    # --- bounds ------------------------------------------------------------------------------

    @abstractmethod
    def deliverable_up_to(self, epoch: GroupEpoch) -> int:
        """No event that is still to come gets a place up to here. paper: D_x,i"""

    def delivered_up_to(self, epoch: GroupEpoch) -> int:
        """Everything up to here is delivered, as far as it was received."""
        return epoch.order.delivered_up_to()

    # --- events ------------------------------------------------------------------------------

    @abstractmethod
    def place_own(self, epoch: GroupEpoch, step: Step, data: Data) -> int | None:
        """Takes an event that we have just cast. Returns its place, if it has one already."""

    @abstractmethod
    def enqueue(self, epoch: GroupEpoch, step: Step, sender: NodeId, message: Data | Turn) -> None:
        """Takes an event or a turn that another member has cast."""

    def may_order(self, epoch: GroupEpoch, sender: NodeId, turn: Turn) -> bool:
        """Whether this member may assign a place to this event."""
        return False

    def blocks_others(self, epoch: GroupEpoch) -> bool:
        """Whether we may send nothing in other groups until an event of ours has its place."""
        return False

    def is_ready(self, epoch: GroupEpoch, message: Data | Turn) -> bool:
        """Whether the event is here. A turn may arrive before its event."""
        return True

    def deliver(
        self, epoch: GroupEpoch, step: Step, numberer: NodeId, message: Data | Turn
    ) -> None:
        """Delivers the event whose place has come."""
        assert isinstance(message, Data)
        assert numberer in epoch.views.members, "an event is delivered in a view of its sender"
        epoch.deliver(step, message, message.order)

    def has_undelivered(self, epoch: GroupEpoch, of: tuple[NodeId, ...]) -> bool:
        """Whether anything that we have of these members is not delivered yet."""
        return epoch.order.queue.holds(epoch.label, of)

    def count_waiting(self, epoch: GroupEpoch) -> int:
        return epoch.order.queue.count_of(epoch.label)

    # --- views -------------------------------------------------------------------------------

    def begin(self, epoch: GroupEpoch, step: Step) -> None:
        """The epoch has begun."""

    def note_confirmation(self, epoch: GroupEpoch, sender: NodeId, detection: Detection) -> None:
        """Another member confirmed failures, at this place of its stream."""

    @abstractmethod
    def exclude(self, epoch: GroupEpoch, step: Step, detection: Detection, via: Via) -> None:
        """We confirmed these failures: decides where the cut is, and what is discarded."""

    def learn_cut(
        self, epoch: GroupEpoch, sender: NodeId, detection: Detection, order: int
    ) -> None:
        """Another member confirmed, under this number, what we have confirmed as well."""

    def install(self, epoch: GroupEpoch, step: Step) -> None:
        """The place of the next view has come."""
        epoch.install_next(step)

    def install_due(self, epoch: GroupEpoch, step: Step) -> bool:
        """Installs the views that do not wait for a number. True if there was one."""
        return False


class ByEveryone(Placement):
    """The sender's number is the place. A cut is the smallest last number of the excluded."""

    kind = "total"

    def deliverable_up_to(self, epoch: GroupEpoch) -> int:
        return epoch.received_by_all()

    def place_own(self, epoch: GroupEpoch, step: Step, data: Data) -> int | None:
        epoch.order.queue.push(epoch.me, data)
        return data.order

    def enqueue(self, epoch: GroupEpoch, step: Step, sender: NodeId, message: Data | Turn) -> None:
        epoch.order.queue.push(sender, message)

    def exclude(self, epoch: GroupEpoch, step: Step, detection: Detection, via: Via) -> None:
        gone = tuple(peer for peer, _ in detection)
        pending = epoch.views.exclude(gone, min(number for _, number in detection))
        assert pending.cut is not None
        for data in epoch.order.queue.drop(epoch.label, pending.gone, pending.cut):
            if not isinstance(data, State):  # without it the whole epoch fails
                epoch.lose(step, data)
