"""What no member of a totally ordered group that follows the rules would send.

It is refused before anything has changed. What a member that is gone may still send, not knowing
it, is not nonsense.
"""

from __future__ import annotations

from ordercast.errors import PeerError
from ordercast.protocol.newtop.group import Group
from ordercast.protocol.newtop.packets import (
    Confirm,
    Data,
    Message,
    Refute,
    Retract,
    Start,
    State,
    Suspect,
    Turn,
)
from ordercast.types import NodeId

LARGEST_LEAP = 1 << 40
"""Numbers grow with packets: nobody comes to one so far beyond all that we have seen."""


def refuse_nonsense(group: Group, sender: NodeId, message: Message) -> None:
    """PeerError: the sender breaks the rules. Changes nothing."""
    if sender not in group.members:
        raise PeerError(f"{sender} is not a member of {group.label}")
    if sender not in group.live or sender in group.suspicions.overrun:
        return
    if message.order - group.order.clock.value > LARGEST_LEAP:
        raise PeerError(f"{sender} leaps to the number {message.order}")
    if message.previous > group.known_up_to(sender):
        raise PeerError(f"{sender} leaves out what it numbered {message.previous}")
    if group.streams.events[sender].over_limit:
        raise PeerError(f"{sender} sends more than its window in {group.label}")
    _refuse_content(group, sender, sender, message)


def _refuse_content(group: Group, sender: NodeId, source: NodeId, message: Message) -> None:
    """The same for one packet of a stream, sent by its source or relayed."""
    if not max(message.previous, message.delivered_up_to - 1, message.solicits) < message.order:
        raise PeerError(f"{sender} sent numbers that contradict each other")
    if isinstance(message, Data) and message.origin != source:
        raise PeerError(f"{sender} sent an event of {message.origin} as one of {source}")
    if isinstance(message, Turn) and not group.may_order(source, message):
        raise PeerError(f"{sender} orders events of {message.origin} in {group.label}")
    _refuse_beginnings(group, sender, source, message)
    _refuse_strangers(group, sender, message)
    if isinstance(message, Refute):
        before = None
        for relayed in message.messages:
            if relayed.label != group.label or before not in (None, relayed.previous):
                raise PeerError(f"{sender} relays what does not belong together")
            before = relayed.order
            _refuse_content(group, sender, message.peer, relayed)


def _refuse_beginnings(group: Group, sender: NodeId, source: NodeId, message: Message) -> None:
    is_start = isinstance(message, Start)
    if group.formation and is_start != (message.previous == 0):
        raise PeerError(f"{sender} begins a stream without a start, or starts it again")
    if not group.formation and (is_start or isinstance(message, State)):
        raise PeerError(f"{sender} starts {group.label}, which is there from the beginning")
    if isinstance(message, State) and source != group.initiator:
        raise PeerError(f"{sender} brings a state of {source}, which has none to give")


def _refuse_strangers(group: Group, sender: NodeId, message: Message) -> None:
    if isinstance(message, Suspect | Retract | Refute) and message.peer not in group.members:
        raise PeerError(f"{sender} tells of {message.peer}, which is not in {group.label}")
    if isinstance(message, Confirm) and not (
        message.detection and all(one in group.members for one, _ in message.detection)
    ):
        raise PeerError(f"{sender} confirms who is not in {group.label}")
