"""Packets that no member of a totally ordered group that follows the rules would send.

They are rejected before anything has changed. Packets of an excluded member are valid: it may not
know yet that it is excluded.
"""

from __future__ import annotations

from ordercast.errors import PeerError
from ordercast.kernel.family import Plan
from ordercast.protocol.newtop import packets
from ordercast.protocol.newtop.epoch import GroupEpoch
from ordercast.protocol.primary.voter import refuse_report
from ordercast.types import NodeId

LARGEST_LEAP = 1 << 40
"""Numbers grow with packets: no member reaches one so far beyond all that we have seen."""


def refuse_invalid(epoch: GroupEpoch, sender: NodeId, message: packets.Message) -> None:
    """Raises PeerError if the sender breaks the rules. Changes nothing."""
    if sender not in epoch.members:
        raise PeerError(f"{sender} is not a member of {epoch.label}")
    if sender not in epoch.live or sender in epoch.agreement.suspicions.overrun:
        return
    if message.order - epoch.order.clock.value > LARGEST_LEAP:
        raise PeerError(f"{sender} jumps to the number {message.order}, far beyond all others")
    if message.previous > epoch.known_up_to(sender):
        raise PeerError(f"{sender} leaves out what it numbered {message.previous}")
    if epoch.streams.events[sender].over_limit:
        raise PeerError(f"{sender} sends more than its window in {epoch.label}")
    _refuse_content(epoch, sender, sender, message)


def _refuse_content(
    epoch: GroupEpoch, sender: NodeId, source: NodeId, message: packets.Message
) -> None:
    """The same for one packet of a stream, sent by its source or relayed."""
    if not max(message.previous, message.delivered_up_to - 1, message.solicits) < message.order:
        raise PeerError(f"{sender} sent numbers that contradict each other")
    if epoch.formation and isinstance(message, packets.Start) != (message.previous == 0):
        raise PeerError(f"{sender} begins a stream without a start, or starts it again")
    match message:
        case packets.Data():
            if message.origin != source:
                raise PeerError(f"{sender} sent an event of {message.origin} as one of {source}")
        case packets.Turn():
            if not epoch.placement.may_order(epoch, source, message):
                raise PeerError(f"{sender} orders events of {message.origin} in {epoch.label}")
        case packets.Start() if not epoch.formation:
            raise PeerError(f"{sender} starts {epoch.label}, which existed from the beginning")
        case packets.State(parts=parts) if parts and sender != source:
            raise PeerError(f"{sender} relays a state of {source} without its parts")
        case packets.State() if source != epoch.initiator:
            raise PeerError(f"{sender} sent a state of {source}, which did not initiate the group")
        case packets.State(voter=report) if report is not None:
            refuse_report(source, report)
        case packets.Suspect() | packets.Retract() | packets.Refute() if (
            message.peer not in epoch.members
        ):
            raise PeerError(f"{sender} suspects {message.peer}, which is not in {epoch.label}")
        case packets.Confirm() if not message.detection:
            raise PeerError(f"{sender} confirms nothing in {epoch.label}")
        case packets.Confirm() if any(one not in epoch.members for one, _ in message.detection):
            raise PeerError(f"{sender} confirms failures of nodes that are not in {epoch.label}")
        case packets.Refute():
            _refuse_relayed(epoch, sender, message)


def _refuse_relayed(epoch: GroupEpoch, sender: NodeId, message: packets.Refute) -> None:
    before = None
    for relayed in message.messages:
        if relayed.label != epoch.label or before not in (None, relayed.previous):
            raise PeerError(f"{sender} relays packets that do not follow each other")
        before = relayed.order
        _refuse_content(epoch, sender, message.peer, relayed)


def refuse_invitation(plan: Plan, me: NodeId, sender: NodeId, packet: packets.Invite) -> None:
    """Raises PeerError if the sender breaks the rules of invitations. Changes nothing."""
    members, group = packet.members, plan.group
    names = [one.name for one in members]
    if names != sorted(set(names)) or sender not in members or me not in members:
        raise PeerError(f"{sender} sent an invalid list of members for {group}: {names}")
    if plan.entry is None and any(name not in plan.members for name in names):
        raise PeerError(f"{sender} invites nodes to {group} that are not in its plan")
    if packet.voter is not None:
        refuse_report(sender, packet.voter)
    maker, _, number = packet.formation.rpartition(".")
    if maker != f"{sender.name}.{sender.incarnation}" or not number.isdecimal():
        raise PeerError(
            f"{sender} invites to {group} under an id that is not its own: {packet.formation!r}"
        )
