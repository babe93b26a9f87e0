"""The options of fifo groups. Every default works."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ordercast.kernel.family import Level
from ordercast.units import MILLISECOND, Duration, Size, take_units

LARGEST_GROUP = 100
"""Members of a group."""


class FifoOptions(Level, frozen=True, kw_only=True):
    window: Annotated[int, Meta(ge=1, le=1_000_000)] = 256  # own events that not all have yet
    window_size: Size = Size(4 << 20)  # and their bytes
    retain: Annotated[int, Meta(ge=1, le=1_000_000)] = (
        2048  # events of a stream held for members that are away
    )
    retain_size: Size = Size(16 << 20)
    heartbeat: Duration = Duration(50 * MILLISECOND)
    suspicion_limit: Duration = Duration(
        1000 * MILLISECOND
    )  # silence after which a member is set aside
    state: bool = False  # newcomers of an open group are given the application's state

    def __post_init__(self) -> None:
        take_units(self)
        if self.heartbeat <= 0:
            raise ValueError("heartbeat must be longer than nothing")
        if self.suspicion_limit < 2 * self.heartbeat:
            raise ValueError("suspicion_limit must be at least two heartbeats")
        # The last batch may fill the window to twice its size, and all of it must be held.
        if self.retain < self.window or self.retain_size < 2 * self.window_size:
            raise ValueError("retain must be at least window, retain_size twice window_size")

    @property
    def silence_ticks(self) -> int:
        """Silence is counted in heartbeats of one's own, so a stalled member suspects nobody."""
        return -(-self.suspicion_limit // self.heartbeat)


class Fifo(FifoOptions, frozen=True):
    """Each sender's messages in the order in which they were sent; see docs/fifo.md."""
