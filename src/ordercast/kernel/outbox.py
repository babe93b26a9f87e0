"""The outbox: how the messages of one application in one group become batches.

It decides three things. Credit: how much may wait before a sender has to. Turns: whether a batch
leaves when a turn of the event loop ends, or gathers messages for a few turns more. Cutting: which
messages travel in one batch.

Rules.
 1. Messages leave in the order in which they were added. Messages that are offered together
    travel in one batch; the caller refuses what is too large for any batch.
 2. Credit counts all that waits, in bytes and in messages. An empty outbox takes anything.
 3. Messages join the open batch, unless it would grow beyond the limits of a batch, or carries
    another attribute: then the open batch is closed, and they begin the next one.
 4. An open batch of `full_bytes` leaves at once. A smaller one leaves when the turn ends. If
    another batch left less than `gather_time` ago it gathers for up to `gather_turns` turns more,
    because small batches cost as much as large ones. A lone message, and one that a sender waits
    for, gathers nothing.

Pure: the time and the ends of turns come in as calls, and the caller asks the machine for room. A
message costs no object and no copy: the caller appends it to the batch that `offer` returned.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from enum import Enum
from typing import Generic, TypeVar

import msgspec

from ordercast.types import Payloads

R = TypeVar("R")
LONG_AGO = -(1 << 62)


class Limits(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Of one outbox. Time is in nanoseconds."""

    full_bytes: int = 64 << 10  # an open batch of this size leaves at once
    batch_bytes: int = 512 << 10  # of one batch that was offered in parts
    batch_count: int = 16_384  # the same, in messages
    credit_bytes: int = 512 << 10  # of all that waits
    credit_count: int = 16_384
    gather_time: int = 300_000
    gather_turns: int = 8


class When(Enum):
    """When the open batch leaves, now that it has grown."""

    NOW = "now"
    TURN_ENDS = "turn ends"  # the caller calls `turn_ended` then
    AS_PLANNED = "as planned"  # a call of `turn_ended` is on its way


NOW, TURN_ENDS, AS_PLANNED = When


class Batch(Generic[R]):
    """Messages that travel together. The caller that adds one adds to the size too."""

    __slots__ = ("attribute", "payloads", "receipt", "size")

    def __init__(self, receipt: R) -> None:
        self.payloads: Payloads = []
        self.size = 0  # bytes of the payloads
        self.attribute: Hashable = None  # equal for all of them
        self.receipt = receipt  # what the caller knows the batch by


class Outbox(Generic[R]):
    __slots__ = (
        "_closed",
        "_closed_bytes",
        "_closed_count",
        "_gathered",
        "_hurried",
        "_left_at",
        "_new_receipt",
        "is_planned",
        "limits",
        "open",
    )

    def __init__(self, limits: Limits, new_receipt: Callable[[], R]) -> None:
        self.limits = limits
        self.open = Batch(new_receipt())  # the batch that messages join
        self.is_planned = False  # a call of `turn_ended` is on its way
        self._new_receipt = new_receipt
        self._closed: deque[Batch[R]] = deque()  # before the open one; none of them is empty
        self._closed_bytes = 0  # the sum over `_closed`
        self._closed_count = 0  # messages of `_closed`
        self._hurried = False  # a sender waits for what is in here
        self._gathered = 0  # turns that the open batch has been held back
        self._left_at = LONG_AGO  # when the last batch left

    def __len__(self) -> int:
        """Messages that wait."""
        return self._closed_count + len(self.open.payloads)

    # --- in ------------------------------------------------------------------------------------

    def offer(self, size: int, count: int = 1, attribute: Hashable = None) -> Batch[R] | None:
        """The batch that so many messages join, to be appended at once; None: there is no credit.

        After they are appended `added` says when they leave.
        """
        batch, limits = self.open, self.limits
        held = len(batch.payloads)
        if (held or self._closed) and (
            self._closed_bytes + batch.size + size > limits.credit_bytes
            or self._closed_count + held + count > limits.credit_count
        ):
            return None
        if held and (
            attribute != batch.attribute
            or batch.size + size > limits.batch_bytes
            or held + count > limits.batch_count
        ):
            self._closed.append(batch)
            self._closed_bytes += batch.size
            self._closed_count += held
            batch = self.open = Batch(self._new_receipt())
        batch.attribute = attribute
        return batch

    def added(self) -> When:
        if self.open.size >= self.limits.full_bytes:
            return NOW
        if self.is_planned:
            return AS_PLANNED
        self.is_planned = True
        return TURN_ENDS

    def hurry(self) -> None:
        """A sender waits for what is in here: it leaves when this turn ends."""
        self._hurried = True

    # --- out -----------------------------------------------------------------------------------

    def turn_ended(self, now: int) -> bool:
        """Whether all that waits leaves now. If not, the caller asks again after the next turn."""
        limits = self.limits
        if (
            self._gathered < limits.gather_turns
            and not self._hurried
            and now - self._left_at < limits.gather_time
        ):
            self._gathered += 1
            return False
        self.is_planned = False
        return True

    def take(self, now: int) -> Batch[R] | None:
        """The next batch, which leaves now; None: nothing waits."""
        if self._closed:
            batch = self._closed.popleft()
            self._closed_bytes -= batch.size
            self._closed_count -= len(batch.payloads)
        elif self.open.payloads:
            batch, self.open = self.open, Batch(self._new_receipt())
        else:
            return None
        self._hurried, self._gathered, self._left_at = False, 0, now
        return batch

    def give_up(self) -> list[Batch[R]]:
        """All that waits, which will not be sent."""
        given_up = [*self._closed, self.open]
        self._closed.clear()
        self._closed_bytes = self._closed_count = 0
        self.open = Batch(self._new_receipt())
        return given_up
