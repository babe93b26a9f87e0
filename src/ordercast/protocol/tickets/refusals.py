"""What no member that follows the rules would send about tickets: refused, and its sender named.

These checks need the packet alone, or the replica sets that are known. What depends on the state of
a lease replica, a reconfiguration leader or an owner is refused there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ordercast.errors import PeerError, UsageError
from ordercast.kernel.packet import Packet
from ordercast.protocol.tickets import packets
from ordercast.types import NodeId

Answers = packets.Pong | packets.Ready | packets.Sealed | packets.Voted | packets.Installed


def refuse_nonsense(
    now: int,
    sender: NodeId,
    packet: packets.About,
    tickets: int,
    sets: Mapping[int, packets.Configuration],
) -> None:
    """Raises PeerError. `sets`: the replica sets that are known, by number."""
    if isinstance(packet, (packets.Grant, packets.Release)) and len(packet.clock) not in (
        0,
        tickets,
    ):
        raise PeerError(f"{sender} sent a clock of {len(packet.clock)} entries, not {tickets}")
    if isinstance(packet, (packets.Claim, packets.Release)):
        if packet.owner != sender:
            raise PeerError(f"{sender} claims a ticket for {packet.owner}")
        if packet.ticket >= tickets or not packet.epoch:
            raise PeerError(f"{sender} claims ticket {packet.ticket}, epoch {packet.epoch}")
    elif isinstance(packet, (packets.Offer, packets.Seal, packets.Propose)):
        if packet.ballot.by != sender:
            raise PeerError(f"{sender} uses a ballot of {packet.ballot.by}")
    elif isinstance(packet, packets.Listed):
        if any(ticket >= tickets for ticket, _ in packet.tickets):
            raise PeerError(f"{sender} lists a ticket that does not exist")
    elif isinstance(packet, Answers) and packet.replica.name != sender.name:
        raise PeerError(f"{sender} answers for {packet.replica}")
    if isinstance(packet, packets.Pong) and packet.sent > now:
        raise PeerError(f"{sender} answers a ping from the future")
    if isinstance(packet, packets.Sealed) and len(packet.table) != tickets:
        raise PeerError(f"{sender} has a table of {len(packet.table)} tickets, not {tickets}")
    if isinstance(packet, (packets.Propose, packets.Install)) and len(packet.next.table) != tickets:
        raise PeerError(f"{sender} has a table of {len(packet.next.table)} tickets")
    _refuse_contradictions(sender, packet, sets)


def _refuse_contradictions(
    sender: NodeId, packet: packets.About, sets: Mapping[int, packets.Configuration]
) -> None:
    """Each number has one replica set, and only its members speak for it."""
    named: packets.Configuration | None = None
    may_speak: tuple[packets.Configuration | None, ...] = ()
    if isinstance(packet, (packets.Pong, packets.Current)):
        named = packet.hint if isinstance(packet, packets.Pong) else packet.configuration
    elif isinstance(packet, (packets.Offer, packets.Listed, packets.Outbid)):
        may_speak = (sets.get(packet.number),)
    elif isinstance(packet, packets.Install):
        named = packet.next.configuration
        may_speak = (named, sets.get(named.number - 1))
    if named is not None:
        names = {one.name for one in named.replicas}
        if not named.number or not len(names) % 2 or len(names) < len(named.replicas):
            raise PeerError(f"{sender} names a replica set that cannot be")
        if sets.get(named.number, named) != named:
            raise PeerError(f"{sender} names another replica set {named.number} than there is")
    known = [one for one in may_speak if one is not None]
    # A member that does not know the set before cannot say who was in it.
    if known and len(known) == len(may_speak):
        speakers = {one.name for each in known for one in each.replicas}
        if sender.name not in speakers:
            raise PeerError(f"{sender} speaks for a replica set that it is not in")


def refuse_other_tickets(group: str, tickets: int, persisted: Sequence[Packet]) -> None:
    """The tables of a cluster have an entry a ticket: a replica with another number would lie."""
    ours = [
        one for one in persisted if isinstance(one, packets.ReplicaRecord) and one.group == group
    ]
    for record in ours:
        if len(record.initial) != tickets:
            raise UsageError(
                f"group {group!r} began with {len(record.initial)} tickets, as the records in "
                f"this node's data folder say, but its options say {tickets}: give every "
                "member the number that it began with, or begin a group of another name"
            )
