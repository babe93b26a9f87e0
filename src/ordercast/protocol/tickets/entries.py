"""Entries of a stamp: which event of a ticket, as one number.

An entry is `epoch << 32 | sequence`. The epochs of a ticket only grow, so a ticket that changes
hands never uses an entry twice, and comparing entries compares epochs first.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ordercast.types import INCARNATION_BITS

MOST_TICKETS = 1024
"""Entries of a stamp. Each event carries one, so a cluster with more is another kind of system."""
SEQUENCE_BITS = 32
EPOCH_BITS = INCARNATION_BITS
"""The epochs of a ticket that never changes hands are the incarnations of its owner."""
ENTRIES = 1 << EPOCH_BITS + SEQUENCE_BITS
"""All entries are below this."""
_SEQUENCES = 1 << SEQUENCE_BITS

Ticket = Annotated[int, Meta(ge=0, lt=MOST_TICKETS)]
Epoch = Annotated[int, Meta(ge=0, lt=1 << EPOCH_BITS)]
Sequence = Annotated[int, Meta(ge=0, lt=_SEQUENCES)]
Entry = Annotated[int, Meta(ge=0, lt=ENTRIES)]


def entry_of(epoch: int, sequence: int) -> int:
    return epoch << SEQUENCE_BITS | sequence


def epoch_of(entry: int) -> int:
    return entry >> SEQUENCE_BITS


def sequence_of(entry: int) -> int:
    return entry & _SEQUENCES - 1
