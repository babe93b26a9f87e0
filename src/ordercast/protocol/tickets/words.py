"""How packets and records about leased tickets read in interaction files.

A replica set is `2{n1 n2 n3}`, a ballot `1/n2`, an entry `epoch.sequence`. The random id of the
cluster is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ordercast.kernel.packet import Packet
from ordercast.protocol.tickets import packets
from ordercast.protocol.tickets.entries import epoch_of, sequence_of


def _set(found: packets.Configuration | None) -> str:
    return f"{found.number}{{{' '.join(map(str, found.replicas))}}}" if found else "none"


def _ballot(ballot: packets.Ballot | None) -> str:
    return f"{ballot.count}/{ballot.by}" if ballot else "none"


def _entry(entry: int) -> str:
    return f"{epoch_of(entry)}.{sequence_of(entry)}" if entry else "0"


def _clock(clock: Sequence[int]) -> str:
    return f" at <{' '.join(map(_entry, clock))}>" if clock else ""


def _table(table: Sequence[packets.TicketState]) -> str:
    words = [
        f"{held.mode} {held.epoch}" + (f" {held.owner}" if held.owner else "") for held in table
    ]
    return f"[{', '.join(words)}]"


def _next(next_: packets.Next) -> str:
    return f"{_set(next_.configuration)} {_table(next_.table)}"


def _vote(vote: packets.BallotVote | None) -> str:
    return f"voted {_ballot(vote.ballot)} {_next(vote.next)}" if vote else "no vote"


def _pong(pong: packets.Pong) -> str:
    serves = f", serves {pong.serves}" if pong.serves else ""
    state = ", sealed" * pong.sealed + ", leaving" * pong.leaving
    return f"knows {_set(pong.hint)}{serves}{state}"


def _refusal(refusal: packets.Refusal) -> str:
    if refusal.sealed:
        return "sealed"
    live = "may still have it" if refusal.live else "had it"
    return f"{refusal.owner} {live} in epoch {refusal.epoch}"


TICKET_WORDS: dict[type[Packet], Callable[[Any], str]] = {
    packets.Ping: lambda _: "alive?",
    packets.Pong: _pong,
    packets.List: lambda _: "which are free?",
    packets.Listed: lambda packet: (
        f"by set {packet.number}: "
        + (" ".join(f"{ticket} after epoch {epoch}" for ticket, epoch in packet.tickets) or "none")
    ),
    packets.Claim: lambda packet: (
        f"{packet.ticket} in epoch {packet.epoch} of set {packet.number}"
        + (f", made {packet.sequence}" if packet.sequence else "")
    ),
    packets.Grant: lambda packet: f"after {_entry(packet.base)}{_clock(packet.clock)}",
    packets.Refusal: _refusal,
    packets.Release: lambda packet: (
        f"{packet.ticket} in epoch {packet.epoch} of set {packet.number}, "
        f"last {_entry(packet.last)}{_clock(packet.clock)}"
    ),
    packets.Released: lambda packet: f"{packet.ticket} in epoch {packet.epoch}",
    packets.Offer: lambda packet: f"of set {packet.number}, ballot {_ballot(packet.ballot)}",
    packets.Ready: lambda packet: f"ballot {_ballot(packet.ballot)}: {packet.replica}",
    packets.Seal: lambda packet: f"set {packet.number}, ballot {_ballot(packet.ballot)}",
    packets.Sealed: lambda packet: (
        f"set {packet.number}, ballot {_ballot(packet.ballot)}: {_vote(packet.vote)}, "
        f"{_table(packet.table)}, live [{' '.join(map(str, packet.live))}]"
    ),
    packets.Propose: lambda packet: f"ballot {_ballot(packet.ballot)}: {_next(packet.next)}",
    packets.Voted: lambda packet: f"ballot {_ballot(packet.ballot)}: {packet.replica}",
    packets.Install: lambda packet: _next(packet.next),
    packets.Installed: lambda packet: f"set {packet.number}: {packet.replica}",
    packets.Current: lambda packet: _set(packet.configuration),
    packets.Outbid: lambda packet: f"set {packet.number}: {_ballot(packet.ballot)} was seen",
    packets.ReplicaRecord: lambda record: (
        f"{record.replica} of {_set(record.configuration)}, ballot {_ballot(record.ballot)}"
        + (f", {_vote(record.vote)}" if record.vote else "")
        + ", sealed" * record.sealed
    ),
    packets.EntryRecord: lambda record: (
        f"{record.ticket}: {record.mode} {record.epoch} {record.owner}"
    ),
}
