"""How gossip groups and causal clusters read in interaction files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ordercast.kernel.family import Words
from ordercast.kernel.wording import value_text
from ordercast.protocol.cluster.joining import Joining
from ordercast.protocol.cluster.packets import (
    Ask,
    Digest,
    Gossip,
    Promise,
    PromiseRecord,
    Recover,
    Recovered,
    Update,
    Updates,
    Welcome,
)
from ordercast.protocol.tickets.entries import epoch_of, sequence_of
from ordercast.protocol.tickets.words import TICKET_WORDS


def _clock(clock: Sequence[int]) -> str:
    """`<3 0 1.2>`: three of the first ticket, and two of the second epoch of the third."""
    return f"<{' '.join(map(_entry, clock))}>"


def _entry(entry: int) -> str:
    epoch, sequence = epoch_of(entry), sequence_of(entry)
    return f"{epoch}.{sequence}" if epoch else str(sequence)


def _update(update: Update) -> str:
    return f"{update.origin}:{update.number}{_clock(update.stamp)}"


def _updates(packet: Updates | Recovered) -> str:
    return " ".join(f"{_update(update)} at {age}" for update, age in packet.updates) or "none"


def _promise(promise: Promise) -> str:
    ballot, accepted = promise.ballot, promise.accepted
    text = f"promised ballot {ballot.count} of {ballot.by}"
    if accepted is None:
        return text
    return f"{text}, accepted {promise.first} in ballot {accepted.count} of {accepted.by}"


def _state(member: Any) -> list[str]:
    waiting = [_update(held) for held in member.order.waiting()]
    return [
        f"{member.me} is at {_clock(member.order.clock)}"
        + (", and asks where it is" if isinstance(member.phase, Joining) else "")
        + (f", waits with {value_text(waiting)}" if waiting else "")
        + (
            f", has asked for {len(member.recovery.requests)}"
            if len(member.recovery.requests)
            else ""
        )
    ]


GOSSIP_WORDS = Words(
    {
        Gossip: lambda packet: (
            " ".join(f"{one.origin}:{one.number} at {age}" for one, age in packet.rumours) or "none"
        ),
    }
)
CAUSAL_WORDS = Words(
    {
        Updates: _updates,
        Recovered: _updates,
        Recover: lambda packet: " ".join(
            f"{index}:{_entry(first)}" + (f"-{_entry(last)}" if last > first else "")
            for index, first, last in packet.ranges
        ),
        Digest: lambda packet: _clock(packet.clock),
        Ask: lambda packet: (
            ("for the state too" if packet.state else "where are we?")
            + (f", and so do {' '.join(packet.joining)}" if packet.joining else "")
            + (f", {_promise(packet.promise)}" if packet.promise is not None else "")
        ),
        PromiseRecord: lambda record: _promise(record.promise),
        Welcome: lambda packet: (
            f"begin at {_clock(packet.clock)}, now {_clock(packet.target)}"
            + (f", state {value_text(packet.state)}" if packet.state is not None else "")
        ),
        **TICKET_WORDS,
    },
    _state,
)
