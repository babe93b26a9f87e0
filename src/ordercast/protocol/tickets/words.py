"""How packets and records about leased tickets read in interaction files.

A replica set is `2{n1 n2 n3}`, a ballot `1/n2`, an entry `epoch.sequence`. The random id of the
cluster is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ordercast.kernel.packet import Packet
from ordercast.protocol.tickets.entries import epoch_of, sequence_of
from ordercast.protocol.tickets.packets import (
    Ballot,
    BallotVote,
    Claim,
    Configuration,
    Current,
    EntryRecord,
    Grant,
    Install,
    Installed,
    List,
    Listed,
    Next,
    Offer,
    Outbid,
    Ping,
    Pong,
    Propose,
    Ready,
    Refusal,
    Release,
    Released,
    ReplicaRecord,
    Seal,
    Sealed,
    TicketState,
    Voted,
)


def _set(found: Configuration | None) -> str:
    return f"{found.number}{{{' '.join(map(str, found.replicas))}}}" if found else "none"


def _ballot(ballot: Ballot | None) -> str:
    return f"{ballot.count}/{ballot.by}" if ballot else "none"


def _entry(entry: int) -> str:
    return f"{epoch_of(entry)}.{sequence_of(entry)}" if entry else "0"


def _clock(clock: Sequence[int]) -> str:
    return f" at <{' '.join(map(_entry, clock))}>" if clock else ""


def _table(table: Sequence[TicketState]) -> str:
    words = [
        f"{held.mode} {held.epoch}" + (f" {held.owner}" if held.owner else "") for held in table
    ]
    return f"[{', '.join(words)}]"


def _next(next_: Next) -> str:
    return f"{_set(next_.configuration)} {_table(next_.table)}"


def _vote(vote: BallotVote | None) -> str:
    return f"voted {_ballot(vote.ballot)} {_next(vote.next)}" if vote else "no vote"


def _pong(pong: Pong) -> str:
    serves = f", serves {pong.serves}" if pong.serves else ""
    state = ", sealed" * pong.sealed + ", leaving" * pong.leaving
    return f"knows {_set(pong.hint)}{serves}{state}"


def _refusal(refusal: Refusal) -> str:
    if refusal.sealed:
        return "sealed"
    live = "may still have it" if refusal.live else "had it"
    return f"{refusal.owner} {live} in epoch {refusal.epoch}"


TICKET_WORDS: dict[type[Packet], Callable[[Any], str]] = {
    Ping: lambda _: "alive?",
    Pong: _pong,
    List: lambda _: "which are free?",
    Listed: lambda packet: (
        f"by set {packet.number}: "
        + (" ".join(f"{ticket} after epoch {epoch}" for ticket, epoch in packet.tickets) or "none")
    ),
    Claim: lambda packet: (
        f"{packet.ticket} in epoch {packet.epoch} of set {packet.number}"
        + (f", made {packet.sequence}" if packet.sequence else "")
    ),
    Grant: lambda packet: f"after {_entry(packet.base)}{_clock(packet.clock)}",
    Refusal: _refusal,
    Release: lambda packet: (
        f"{packet.ticket} in epoch {packet.epoch} of set {packet.number}, "
        f"last {_entry(packet.last)}{_clock(packet.clock)}"
    ),
    Released: lambda packet: f"{packet.ticket} in epoch {packet.epoch}",
    Offer: lambda packet: f"of set {packet.number}, ballot {_ballot(packet.ballot)}",
    Ready: lambda packet: f"ballot {_ballot(packet.ballot)}: {packet.replica}",
    Seal: lambda packet: f"set {packet.number}, ballot {_ballot(packet.ballot)}",
    Sealed: lambda packet: (
        f"set {packet.number}, ballot {_ballot(packet.ballot)}: {_vote(packet.vote)}, "
        f"{_table(packet.table)}, live [{' '.join(map(str, packet.live))}]"
    ),
    Propose: lambda packet: f"ballot {_ballot(packet.ballot)}: {_next(packet.next)}",
    Voted: lambda packet: f"ballot {_ballot(packet.ballot)}: {packet.replica}",
    Install: lambda packet: _next(packet.next),
    Installed: lambda packet: f"set {packet.number}: {packet.replica}",
    Current: lambda packet: _set(packet.configuration),
    Outbid: lambda packet: f"set {packet.number}: {_ballot(packet.ballot)} was seen",
    ReplicaRecord: lambda record: (
        f"{record.replica} of {_set(record.configuration)}, ballot {_ballot(record.ballot)}"
        + (f", {_vote(record.vote)}" if record.vote else "")
        + ", sealed" * record.sealed
    ),
    EntryRecord: lambda record: f"{record.ticket}: {record.mode} {record.epoch} {record.owner}",
}
