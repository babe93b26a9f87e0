"""What a causal member asks of the part that decides who may update.

Leases (leased.py) are one such part; a family from elsewhere may bring another. A member calls
these methods from its own inputs, with the step that it was given, and acts on the news.

A lease is one ticket in one epoch. The epochs of a ticket only grow (entries.py).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple, Protocol

from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step
from ordercast.types import NodeId


class TicketPacket(Packet, frozen=True):
    """What the deciding parts of the members send each other."""


class TicketNews(NamedTuple):
    """What has become of our ticket in one call."""

    acquired: bool = False  # one is ours, in a new epoch: `ticket`, `epoch` and `base` say which
    lost: int | None = None  # the ticket that is no longer ours, though we did not release it
    clock: tuple[int, ...] = ()  # the clock of a member that granted or released it; (): none came


NOTHING = TicketNews()


class Tickets(Protocol):
    @property
    def ticket(self) -> int | None:
        """The ticket that is ours, suspended or not."""

    @property
    def epoch(self) -> int:
        """The epoch of our lease."""

    @property
    def base(self) -> int:
        """The newest entry of the ticket before our lease, as far as the granting members know."""

    @property
    def keeps_entries(self) -> bool:
        """Whether no two leases ever have the same ticket and epoch."""

    @property
    def period(self) -> int:
        """Nanoseconds between ticks, on our clock."""

    def start(self, step: Step) -> TicketNews:
        """Once, before all else; ticks follow."""

    def seek(self, step: Step, wanted: bool, sequence: int, clock: tuple[int, ...]) -> TicketNews:
        """The application wants to update, or no longer does: then a ticket is released.

        `sequence` of our newest event in our epoch (0: none), `clock` of our causal order.
        """

    def tick(self, step: Step, sequence: int) -> TicketNews:
        """Every `period`."""

    def receive(self, step: Step, sender: NodeId, packet: TicketPacket) -> TicketNews:
        """One of the packets of this kind of ownership."""

    def acknowledged(self, step: Step, token: Hashable, arrived: bool) -> TicketNews:
        """The result of a STATUS send of ours. Our tokens are of a type of our own."""

    def heard(self, step: Step, ticket: int, epoch: int, owner: NodeId | None) -> TicketNews:
        """Gossip has brought an event of a lease that we had not heard of.

        `owner` is None where only a stamp names its entries, and not the member that made them.
        """

    def may_create(self, now: int) -> bool:
        """Whether an event may be created right now. Asked at every create."""

    def valid_until(self) -> int | None:
        """When that ends on our clock, unless it is renewed. None: it has no end."""

    def retire(self, step: Step) -> None:
        """We are about to leave the cluster: others should not count on us."""

    def may_go(self) -> bool:
        """Whether no other member needs us any more."""

    def has_heirs(self, now: int) -> bool:
        """Whether any other member could take over what others need us for."""

    def counters(self) -> dict[str, int]:
        """What it counts, by plain names."""
