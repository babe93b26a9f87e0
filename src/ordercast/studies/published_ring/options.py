"""What can be set for the ring of tickets as it was published, beside what all tickets have.

`lease` is its round (T_R) and `guards` is 2k + 1. The last three lay a run out: who looks for which
ticket, when, and whom it asks first. Without them chance decides.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ordercast.protocol.cluster.options import CausalOptions
from ordercast.protocol.tickets.entries import Ticket
from ordercast.units import Duration, take_units


class PublishedOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    # Algorithms 2 to 4, or Algorithm 1, which knows of no failures.
    algorithm: Literal["fault-tolerant", "failure-free"] = "fault-tolerant"
    delay: Duration | None = None  # δ, within which a status comes; None: a quarter of the round
    p_exclude: Annotated[float, Meta(ge=0, le=1)] = 1.0  # P_exclude
    grace: Annotated[int, Meta(ge=0, le=100)] = 2  # rounds in which a newcomer need not hear ALIVE
    # Rounds that a temporary coordinator waits beyond dist - 1: the proofs count one more than the
    # pseudocode.
    more_rounds: Annotated[int, Meta(ge=0, le=100)] = 0
    seeks: dict[str, Duration] = {}  # when a process begins to look for a ticket; else at once
    preferred: dict[str, Ticket] = {}  # which one, if it is free
    contacts: dict[str, str] = {}  # whom it asks each time; else anybody

    def __post_init__(self) -> None:
        take_units(self)
        if self.delay is not None and self.delay <= 0:
            raise ValueError("delay must be longer than nothing")

    def delay_in(self, round_: int) -> int:
        """δ, where a round takes so long."""
        return round_ // 4 if self.delay is None else int(self.delay)

    def refuse(self, round_: Duration, tickets: int) -> None:
        """ValueError: these do not fit what the cluster has."""
        if 4 * self.delay_in(round_) > round_:
            raise ValueError(
                f"published.delay may be a quarter of lease ({round_}) at most: an exclusion must "
                "fit into a round"
            )
        for name, ticket in self.preferred.items():
            if ticket >= tickets:
                raise ValueError(
                    f"published.preferred: {name} wants {ticket}, tickets is {tickets}"
                )


class RingOptions(CausalOptions, frozen=True):
    """A causal cluster whose tickets go by the ring: `lease` is its round."""

    published: PublishedOptions = PublishedOptions()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ownership == "fixed":
            raise ValueError("tickets of the ring change hands: leave updaters and ownership out")
        self.published.refuse(self.lease, self.tickets)
