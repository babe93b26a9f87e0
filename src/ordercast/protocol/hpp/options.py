"""The options of feeds. Every default works."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from ordercast.kernel.family import LoggedLevel
from ordercast.units import MILLISECOND, Duration, Size, take_units

LARGEST_GROUP = 2_000_000
"""Nodes of a feed. Each knows few of them."""
MOST_CHILDREN = 1000
MOST_LEAVES = 1 << 20
"""Of a tree of hashes: 8 bytes each."""
HOUR = 3600 * 1000 * MILLISECOND


class FeedOptions(LoggedLevel, frozen=True, kw_only=True):
    parent: Annotated[str, Meta(max_length=100)] = ""  # whom to ask first, when it starts
    # The nodes that should be the root, the best one first, and by which parts of a feed find each
    # other. None: the first one by name is the root, and any node that is known is asked.
    anchors: Annotated[tuple[str, ...], Meta(max_length=100)] = ()
    fan_out: Annotated[int, Meta(ge=1, le=MOST_CHILDREN // 2)] = 16  # children; paper: n
    # Children that are taken in when their parent is gone. 0: twice the fan-out.
    room: Annotated[int, Meta(ge=0, le=MOST_CHILDREN)] = 0
    beat: Duration = Duration(1000 * MILLISECOND)  # between two heartbeats of an edge
    # Beats of silence after which an edge ends.
    silent_beats: Annotated[int, Meta(ge=2, le=1000)] = 5
    window: Annotated[int, Meta(ge=2, le=1_000_000)] = 1024  # positions that are not acknowledged
    chunk: Size = Size(256 << 10)  # bytes that are read or sent at once; one event in any case
    cached: Annotated[int, Meta(ge=1, le=1_000_000)] = 4096  # the last entries, held in memory
    cached_size: Size = Size(16 << 20)  # and their bytes
    largest_event: Size = Size(4 << 20)  # bytes submitted at once
    patience: Duration = Duration(10 * 60 * 1000 * MILLISECOND)  # before a gap is accepted
    hold_for: Duration = Duration(HOUR)  # how long entries are held for a child that is away
    keep_for: Duration = Duration(24 * HOUR)  # entries that all have acknowledged; paper: T
    keep_bytes: Size = Size(0)  # the most that the log has, whatever is missing then; 0: no limit
    # Moves to a parent that is nearer to the root, by measured delay, or none: where the average
    # delay below the root is above `slow_delay` for `slow_for`.
    moves: Literal["delay", "none"] = "delay"
    slow_delay: Duration = Duration(200 * MILLISECOND)
    slow_for: Duration = Duration(10_000 * MILLISECOND)
    settle: Duration = Duration(60_000 * MILLISECOND)  # between two such moves, half of it at least
    deepest: Annotated[int, Meta(ge=1, le=1000)] = 8  # such a move never makes it deeper than this
    # Up to so many streams are compared one by one, when a session begins, and more by a tree of
    # hashes, with so many branches and levels.
    digest_whole: Annotated[int, Meta(ge=0, le=10_000)] = 4096
    digest_fan_out: Annotated[int, Meta(ge=2, le=64)] = 64
    digest_levels: Annotated[int, Meta(ge=1, le=4)] = 3

    def __post_init__(self) -> None:
        take_units(self)
        positive = "beat chunk largest_event patience hold_for slow_for settle"
        for name in positive.split():
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be more than nothing")
        if 0 < self.room < self.fan_out:
            raise ValueError("room must be at least fan_out")
        if self.leaves > MOST_LEAVES:
            raise ValueError(
                f"digest_fan_out to the power of digest_levels is {MOST_LEAVES} at most"
            )
        if len(set(self.anchors)) < len(self.anchors):
            raise ValueError("anchors lists a node twice")

    @property
    def most_children(self) -> int:
        return self.room or 2 * self.fan_out

    @property
    def silence(self) -> int:
        """Nanoseconds of silence after which an edge ends."""
        return self.silent_beats * self.beat

    @property
    def leaves(self) -> int:
        """Of the tree of hashes."""
        return int(self.digest_fan_out**self.digest_levels)


class Feed(FeedOptions, frozen=True):
    """A durable feed over a tree: nothing accepted is lost; see docs/feed.md."""


PERSONAL = frozenset(
    """parent window chunk cached cached_size keep_for keep_bytes hold_for patience fan_out room
    moves slow_delay slow_for settle deepest digest_whole""".split()
)
"""Options that need not be the same at all nodes."""
