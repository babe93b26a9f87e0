"""Flow control: how many events of our own may be in flight in a group.

Rules.
 1. An event is in the window from its submission until it is stable: until all members report that
    they have delivered it. So a member that cannot deliver, in any of its groups, slows down
    its senders.
 2. Windows are per group, and only submissions wait for them: null messages, relayed packets and
    the agreement on views never do. So groups cannot deadlock each other.
 3. Other members retain events that are not stable. A stream with more than eight windows of events
    breaks the rules: stability lags behind by two, and each exclusion that the sender has noticed
    and the receiver has not lets it send one more.
"""

from __future__ import annotations

from ordercast.kernel.buffers import Limit, Retained
from ordercast.protocol.newtop.options import NewtopOptions

WINDOWS_RETAINED = 8


class SendWindow:
    def __init__(self, options: NewtopOptions) -> None:
        self.limit = Limit(options.window, options.window_size)
        self._unstable: Retained[int] = Retained(self.limit)  # event numbers, by order
        self.counter = 0  # events submitted so far
        self.stable_counter = 0  # of them, how many are stable

    def append(self, order: int, size: int) -> None:
        self.counter += 1
        self._unstable.append(order, self.counter, size)

    def discard_up_to(self, stable: int) -> None:
        if self._unstable.discard_up_to(stable):
            left = self._unstable.after(0)
            self.stable_counter = left[0] - 1 if left else self.counter

    @property
    def is_full(self) -> bool:
        return self._unstable.full

    @property
    def oldest(self) -> int | None:
        """The order of our oldest event that is not stable; None: all are."""
        return self._unstable.oldest

    @property
    def count(self) -> int:
        return self._unstable.count


def retained_limit(options: NewtopOptions) -> Limit:
    """What one stream may make its receivers retain."""
    return Limit(WINDOWS_RETAINED * options.window, WINDOWS_RETAINED * 2 * options.window_size)
