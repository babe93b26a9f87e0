"""Flow control: how many own events may be in flight, and which of them wait for the next view.

Rules.
 1. An event is in the window from its cast until all members have it and it was delivered here: so
    a member that does not deliver does not send without end.
 2. While a change is being decided, events wait, at most one window of them. They are cast in the
    next configuration.
 3. Events are numbered when they are submitted, whichever configuration they are cast in.
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
