"""What can be set for gossip and causal clusters. Every default works.

Rounds are the clock of these families: what is given as a time is counted in rounds of one's own,
so a process that was stalled gives nothing up for that while.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import force_setattr

from ordercast.kernel.family import Level
from ordercast.protocol.tickets.entries import MOST_TICKETS
from ordercast.units import MILLISECOND, SECOND, Duration, Size, take_units

LEASE_ROUNDS = 4


class GossipOptions(Level, frozen=True, kw_only=True):
    round: Duration = Duration(50 * MILLISECOND)
    fan_out: Annotated[int, Meta(ge=1, le=1000)] = 4  # members that each round's message goes to
    hops: Annotated[int, Meta(ge=0, le=100)] = 5  # an event is relayed at ages 0 to this
    events_per_message: Annotated[int, Meta(ge=1, le=10_000)] = 20  # at most; the youngest first
    keep: Literal["youngest", "oldest"] = "youngest"  # which age counts when copies meet
    history: Annotated[int, Meta(ge=1, le=10_000_000)] = 1000  # ids remembered, to know doubles
    members: Literal["all", "partial"] = "all"  # whom a process knows
    sampler: Literal["cyclon", "lpbcast"] = "cyclon"  # how partial views are kept
    view_size: Annotated[int, Meta(ge=2, le=10_000)] = 20  # members that a partial view holds
    transport: Literal["datagram", "status"] = "datagram"  # what is too long goes by status
    # members that are sent to by connection, where datagrams do not do; never fewer than fan_out
    links: Annotated[int, Meta(ge=1, le=10_000)] = 20
    eager: bool = True  # an own event leaves at once for the first time, not with the round
    # Bytes of one batch, and of own events before their first relay.
    window_size: Size = Size(4 << 20)

    def __post_init__(self) -> None:
        take_units(self)
        if self.round <= 0:
            raise ValueError("round must be longer than nothing")
        if not 0 < self.window_size <= 16 << 20:
            raise ValueError("window_size must be 1B to 16MiB")


class CausalOptions(GossipOptions, frozen=True):
    tickets: Annotated[int, Meta(ge=1, le=MOST_TICKETS)] = 25  # how many may update at a time
    # Who owns a ticket: a member that leases it from lease replicas; or a list, for ever.
    # `auto`: fixed if updaters are named, otherwise leased.
    ownership: Literal["auto", "leased", "fixed"] = "auto"
    # fixed: who owns tickets 0, 1 and so on; empty: the first by name
    updaters: list[str] = msgspec.field(default_factory=list)
    lease: Duration = Duration(2 * SECOND)  # leased: how long
    guards: Annotated[int, Meta(ge=1, le=15)] = 3  # lease replicas, at the most: 2k + 1
    drift: Annotated[float, Meta(ge=0, le=0.2)] = 0.01  # how wrong the rates of clocks may be
    founder: str = ""  # the bootstrap node; empty: the first by name
    # off, from the maker of the event, or from so many random members
    recovery: Annotated[str, Meta(pattern=r"^(off|originator|any-[1-9]\d?)$")] = "any-4"
    recovery_buffer: Annotated[int, Meta(ge=1, le=1_000_000)] = 1000  # events buffered for others
    recovery_size: Size = Size(64 << 20)  # and their bytes
    replace: Literal["fifo", "age"] = "fifo"  # what goes first where the buffer is full
    waiting: Annotated[int, Meta(ge=1, le=1_000_000)] = 4096  # events held back for others
    waiting_size: Size = Size(64 << 20)  # and their bytes
    time_to_terminate: Duration | None = None  # before asking; None: as long as an event spreads
    time_to_recover: Duration | None = None  # before doing without; None: the same
    join_wait: Duration = Duration(SECOND)  # before a newcomer assumes that it is the first
    state: bool = False  # newcomers are given the application's state
    digests: bool = True  # members compare clocks, so that the last events are missed too

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ownership == "auto":
            force_setattr(self, "ownership", "fixed" if self.updaters else "leased")
        if self.updaters and self.ownership != "fixed":
            raise ValueError(
                f"updaters names who owns tickets for ever: that is ownership = 'fixed', and not "
                f"{self.ownership!r}"
            )
        if not self.guards % 2:
            raise ValueError("guards must be odd, or half of them could stop the rest: 2k + 1")
        if self.ownership != "fixed" and self.lease < LEASE_ROUNDS * self.round:
            raise ValueError(
                f"lease must be at least {LEASE_ROUNDS} rounds of gossip ({self.round}): it is "
                "renewed four times, and a late renewal must not end it"
            )
        if len(self.updaters) > self.tickets:
            raise ValueError(f"updaters names {len(self.updaters)}, tickets is {self.tickets}")
        if len(set(self.updaters)) < len(self.updaters):
            raise ValueError("updaters names a member twice")
        for wait in (self.time_to_terminate, self.time_to_recover):
            if wait is not None and wait <= 0:
                raise ValueError(
                    "time_to_terminate and time_to_recover must be longer than nothing"
                )

    @property
    def asked(self) -> int:
        """How many members are asked for a missing event; 0: its originator alone, or none."""
        return int(self.recovery.partition("-")[2] or 0)

    @property
    def rounds_to_join(self) -> int:
        return max(self.rounds_to_terminate, -(-self.join_wait // self.round))

    @property
    def rounds_to_terminate(self) -> int:
        return self._rounds(self.time_to_terminate)

    @property
    def rounds_to_recover(self) -> int:
        return self._rounds(self.time_to_recover)

    def _rounds(self, wait: Duration | None) -> int:
        return self.hops + 2 if wait is None else max(1, -(-wait // self.round))


class Gossip(GossipOptions, frozen=True):
    """To thousands, with high probability and in no order; see docs/causal.md."""


class Causal(CausalOptions, frozen=True):
    """From a few updaters to thousands, in optimistic causal order; see docs/causal.md."""
