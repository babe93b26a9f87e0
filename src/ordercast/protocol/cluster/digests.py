"""Digests: members compare their clocks, so that the last event of a ticket is not missed.

Nothing follows the last event, so no stamp names it. Rules.
 1. Every few rounds a member sends its clock to one other. A member that is ahead of a clock that
    it receives answers with its own.
 2. A clock that is ahead of ours is kept until gossip must be over. What we still lack of it then
    is asked for, from the member that sent the clock. Nothing is skipped for it.
"""

from __future__ import annotations

from operator import gt
from typing import NamedTuple

from ordercast.kernel.step import DATAGRAM, Step
from ordercast.protocol.cluster.causality import CausalOrder
from ordercast.protocol.cluster.ownership import TicketOwnership
from ordercast.protocol.cluster.packets import Digest
from ordercast.protocol.cluster.sampler import Sampler

DIGEST_ROUNDS = 4
"""How often a member sends its clock to one other."""


class Ahead(NamedTuple):
    """A clock that is ahead of ours, who sent it, and in which of our rounds."""

    clock: tuple[int, ...]
    name: str
    since: int


class Digests:
    def __init__(
        self,
        group: str,
        patience: int,
        sampler: Sampler,
        ownership: TicketOwnership,
        order: CausalOrder,
    ) -> None:
        self._group = group
        self._patience = patience  # rounds in which gossip must be over
        self._sampler = sampler
        self._ownership = ownership
        self._order = order
        self._ahead: Ahead | None = None

    def round(self, step: Step, now: int) -> None:
        if now % DIGEST_ROUNDS == 0:
            step.send(self._sampler.sample(1), self._digest(is_answer=False), DATAGRAM)

    def _digest(self, *, is_answer: bool) -> Digest:
        clock, cluster = self._order.stamp, self._ownership.cluster
        return Digest(self._group, clock, is_answer, cluster=cluster)

    def due(self, now: int) -> Ahead | None:
        """A clock that has been ahead of ours for long enough; returned once."""
        ahead = self._ahead
        if ahead is None or now - ahead.since < self._patience:
            return None
        self._ahead = None
        return ahead

    def receive(self, step: Step, name: str, digest: Digest, now: int) -> None:
        order = self._order
        if self._ahead is None and order.behind(digest.clock):
            self._ahead = Ahead(digest.clock, name, now)
        if not digest.is_answer and any(map(gt, order.clock, digest.clock)):
            step.send(name, self._digest(is_answer=True), DATAGRAM)
