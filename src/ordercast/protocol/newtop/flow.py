"""Flow control: how many events of our own may be under way in a group.

Rules.
 1. An event is in the window from its submission until it is stable: until all members say that
    they have delivered it. A member that delivers no further, in whichever group, holds back so
    all who send to it.
 2. Windows are per group, and only submissions wait for them: null messages, relayed copies and
    the agreement on views never do. So groups that wait for each other do not wait for ever.
 3. Others keep what is not stable. A stream with more than eight windows of events breaks the
    rules: two are what stability lags behind, and each exclusion that its sender has noticed
    and the keeper has not lets it send one more.
"""

from __future__ import annotations

from ordercast.kernel.buffers import Limit, Retained
from ordercast.protocol.newtop.options import Options

WINDOWS_KEPT = 8


class Window:
    def __init__(self, options: Options) -> None:
        self.limit = Limit(options.window, options.window_size)
        self._unstable: Retained[int] = Retained(self.limit)  # event numbers, by order
        self.counter = 0  # events submitted so far
        self.stable_counter = 0  # of them, how many are stable

    def admit(self, order: int, size: int) -> None:
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
    def count(self) -> int:
        return self._unstable.count


def kept_limit(options: Options) -> Limit:
    """What one stream may make its receivers keep."""
    return Limit(WINDOWS_KEPT * options.window, WINDOWS_KEPT * 2 * options.window_size)
