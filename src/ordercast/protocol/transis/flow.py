"""Flow control: how many own events may be in flight, and which of them wait for the next view.

Rules.
 1. An event is in the window from its cast until all members have it and it was delivered here: so
    a member that does not deliver does not send without end.
 2. While a change is being decided, events wait, at most one window of them. They are cast in the
    next configuration.
 3. Events are numbered when they are submitted, whichever configuration they are cast in.
 4. Where events go by multicast, fewer bytes than a window may be in flight: as many as arrive.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ordercast.kernel.buffers import Limit, Retained
from ordercast.protocol.transis.options import Service, SynchronyOptions
from ordercast.types import Payloads


class Uncast(NamedTuple):
    """A submitted event that is not cast yet."""

    number: int  # counts own events
    payloads: Payloads
    size: int
    service: Service


START = 64 << 10
"""Bytes that a member casts by multicast ahead of acknowledgements, at first. The system retains
about 200 KB of datagrams for a receiver, and several members may cast at a time."""
FEWEST = 16 << 10
EVENT_BYTES = 1 << 10
"""That an event costs the receiver's system, beside its own bytes."""
SLOWER_AGAIN = 8
"""Times `prompt_after`: requests that come within it are for one burst."""


class OwnEvents:
    def __init__(self, options: SynchronyOptions) -> None:
        self.limit = Limit(options.window, options.window_size)
        self.counter = 0  # events submitted so far
        self.stable_counter = 0  # of them, how many all members of the view have
        self.waiting: deque[Uncast] = deque()
        self._waiting_size = 0
        self._unstable: Retained[int] = Retained(self.limit)  # numbers, by seq

    # --- submission --------------------------------------------------------------------------

    def accepts(self, is_changing: bool) -> bool:
        if is_changing:
            waits = len(self.waiting) < self.limit.count
            return waits and self._waiting_size < self.limit.size
        return not self.waiting and not self._unstable.full

    def submit(self, payloads: Payloads, size: int, service: Service) -> int:
        """Returns the number. The event waits until it is cast."""
        self.counter += 1
        self.waiting.append(Uncast(self.counter, payloads, size, service))
        self._waiting_size += size
        return self.counter

    @property
    def may_cast(self) -> bool:
        return bool(self.waiting) and not self._unstable.full

    def take(self, seq: int) -> Uncast:
        """The next one is cast, as the seq-th of this configuration."""
        uncast = self.waiting.popleft()
        self._waiting_size -= uncast.size
        self._unstable.append(seq, uncast.number, uncast.size)
        return uncast

    # --- stability ---------------------------------------------------------------------------

    def discard_up_to(self, seq: int) -> None:
        """All members have these, and they were delivered here."""
        newest = self._unstable.newest
        if self._unstable.discard_up_to(seq) and newest is not None:
            left = self._unstable.after(0)
            self.stable_counter = left[0] - 1 if left else self._last_cast

    def install(self) -> None:
        """All who came along have everything that was cast: a new configuration begins."""
        self.stable_counter = self._last_cast
        self._unstable = Retained(self.limit)

    def give_up(self) -> list[int]:
        """We leave. Returns the numbers of what was never cast."""
        self.install()
        given_up = [uncast.number for uncast in self.waiting]
        self.waiting.clear()
        self._waiting_size = 0
        return given_up

    @property
    def _last_cast(self) -> int:
        return self.waiting[0].number - 1 if self.waiting else self.counter

    @property
    def unstable(self) -> int:
        return self._unstable.count


class PacedEvents(OwnEvents):
    """The window of a member whose events may get lost: what is cast ahead of the acknowledgements
    doubles with each trip until something was lost. Then it is halved, and grows slowly."""

    def __init__(self, options: SynchronyOptions) -> None:
        super().__init__(options)
        self.allowed = START  # bytes in flight
        self._threshold = int(options.window_size)  # it grows slowly from here on
        self._slowed_at = -SLOWER_AGAIN * int(options.prompt_after)
        self._again = SLOWER_AGAIN * int(options.prompt_after)

    @property
    def may_cast(self) -> bool:
        if not super().may_cast:
            return False
        in_flight = self._in_flight()
        return not in_flight or in_flight + EVENT_BYTES + self.waiting[0].size <= self.allowed

    def _in_flight(self) -> int:
        return self._unstable.size + EVENT_BYTES * self._unstable.count

    def discard_up_to(self, seq: int) -> None:
        before = self._in_flight()
        super().discard_up_to(seq)
        arrived = before - self._in_flight()
        if self.allowed >= self._threshold:
            arrived = arrived * EVENT_BYTES // self.allowed
        self.allowed = min(self.allowed + arrived, self._most)

    @property
    def _most(self) -> int:
        return START + self.limit.size + EVENT_BYTES * self.limit.count

    def slow_down(self, time: int) -> None:
        """One of our events was asked for."""
        if time - self._slowed_at >= self._again:
            self._slowed_at = time
            self.allowed = self._threshold = max(FEWEST, self.allowed // 2)
