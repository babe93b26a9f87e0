"""The log of a group as a stream and as a table: offsets, and what tasks read between them.

An offset is the identity of the log and a position in it, below which everything is committed. So
a micro-batch is the same entries however often it is repeated. Options, of which any other is
refused:

  path                  the folder of the log: what `load` is given
  startingPosition      `earliest` (of what is there), `latest`, or the text of a mark: where a
                        query without a checkpoint begins
  maxPositionsPerBatch  the most entries of one micro-batch (100,000)
  partitions            the most tasks that read at once (8); none reads less than 10,000 entries
  onGap                 where entries are gone that were not read: `fail`, or `report` them as rows
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ordercast.errors import DiskError, UsageError, unknown_word
from ordercast.spark.log_rows import LogPiece, gone
from ordercast.spark.source_options import (
    PARTITIONS,
    count_of,
    folder_of,
    given_options,
    shares,
    word_of,
)
from ordercast.store.group_log.following import LogFollower
from ordercast.store.group_log.form import is_group_log

BATCH_POSITIONS = 100_000
ENDS = ("earliest", "latest")
NAMES = ("startingPosition", "maxPositionsPerBatch", "partitions", "onGap")
_MARK = re.compile(r"([0-9a-f]{1,16}):([0-9]{1,19}):([0-9]{1,10})")


class LogOptions(NamedTuple):
    folder: Path
    start: str = "earliest"
    max_rows: int = BATCH_POSITIONS  # positions
    partitions: int = PARTITIONS
    reports_gaps: bool = False


class LogOffset(NamedTuple):
    """All before it is read: positions below, and so many messages of the entry that is there."""

    log: int
    position: int
    skips: int = 0

    def as_json(self) -> dict[str, Any]:
        skips = {"index": self.skips} if self.skips else {}
        return {"log": f"{self.log:016x}", "position": self.position, **skips}

    @classmethod
    def of_json(cls, offset: Mapping[str, Any]) -> LogOffset:
        try:
            return cls(int(offset["log"], 16), int(offset["position"]), offset.get("index", 0))
        except (KeyError, TypeError, ValueError):
            raise UsageError(
                f"the checkpoint has the offset {dict(offset)}, which is none of a group's log: "
                "give the query another checkpoint"
            ) from None


def holds_log(folder: Path) -> bool:
    """Whether it is the folder of a group's log."""
    try:
        return is_group_log(folder)
    except OSError:
        return False


def read_log_options(given: Mapping[str, str]) -> LogOptions:
    """Checks all of them."""
    found = given_options(given, NAMES)
    start = found.get("startingPosition", ENDS[0])
    if start not in ENDS and not _MARK.fullmatch(start):
        raise UsageError(
            unknown_word("startingPosition", start, ENDS) + "; it may also be the text of a mark"
        )
    return LogOptions(
        folder_of(given),
        start,
        count_of(found, "maxPositionsPerBatch", BATCH_POSITIONS),
        count_of(found, "partitions", PARTITIONS),
        word_of(found, "onGap", ("fail", "report")) == "report",
    )


class LogStream:
    """What the stream's reader does. Nothing is read before the first question."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._follower: LogFollower | None = None
        self._last: LogOffset | None = None  # where a query ends that takes only what is there

    def initial(self) -> dict[str, Any]:
        return self._initial().as_json()

    def latest(self, start: dict[str, Any], most: int | None) -> dict[str, Any]:
        before = LogOffset.of_json(start)
        end = self._tail()
        begin = self._go_on(before)
        if self._last is not None:
            end = self._last if self._last.log == end.log else begin
        position = end.position if most is None else min(end.position, begin.position + most)
        return (begin if position <= begin.position else end._replace(position=position)).as_json()

    def end_here(self) -> None:
        self._last = self._tail()

    def report(self) -> dict[str, Any]:
        return self._tail().as_json()

    def pieces(self, start: dict[str, Any], end: dict[str, Any]) -> list[LogPiece]:
        return self._pieces(LogOffset.of_json(start), LogOffset.of_json(end))

    def table(self) -> list[LogPiece]:
        """All that is there now, from where it is to begin."""
        if self._options.start == "latest":
            raise UsageError(
                "a table that begins at the latest position has no rows: read a stream"
            )
        return self._pieces(self._initial(), self._tail())

    # --- offsets -----------------------------------------------------------------------------

    def _tail(self) -> LogOffset:
        if self._follower is None:
            self._follower = LogFollower(self._options.folder)
        else:
            self._follower.look()
        return LogOffset(self._follower.identity, self._follower.tail)

    def _looked(self) -> LogFollower:
        self._tail()
        assert self._follower is not None
        return self._follower

    def _initial(self) -> LogOffset:
        follower = self._looked()
        mark = _MARK.fullmatch(self._options.start)
        if mark is None:
            is_latest = self._options.start == "latest"
            return LogOffset(follower.identity, follower.tail if is_latest else follower.floor)
        log, position, index = int(mark[1], 16), int(mark[2]), int(mark[3])
        if log != follower.identity:
            raise UsageError(
                f"startingPosition is a mark of the log {log:016x}, and {follower.folder} has the "
                f"log {follower.identity:016x}: a mark is for the log that gave it"
            )
        _check_end(follower, position, "the mark is of")
        return LogOffset(log, position, index)

    def _go_on(self, before: LogOffset) -> LogOffset:
        """Where a query goes on that was there. DiskError: it cannot, and gaps are not reported."""
        follower = self._follower
        assert follower is not None
        first = LogOffset(follower.identity, follower.floor)
        if before.log != follower.identity:
            self._check_reported(_replaced(follower), before.position)
            return first
        if before.position < follower.floor:
            self._check_reported(_trimmed(follower), before.position, follower.floor)
            return first
        _check_end(follower, before.position, "the query had read up to")
        return before

    def _check_reported(self, why: str, begin: int, end: int | None = None) -> None:
        if not self._options.reports_gaps:
            raise gone(why, begin, end)

    # --- what tasks read ---------------------------------------------------------------------

    def _pieces(self, start: LogOffset, end: LogOffset) -> list[LogPiece]:
        follower = self._looked()
        self._go_on(start)
        whole = LogPiece(
            str(follower.folder),
            follower.group,
            end.log,
            0,
            end.position,
            reports_gaps=self._options.reports_gaps,
        )
        pieces = []
        begin, skips = start.position, start.skips
        if start.log != end.log:
            pieces.append(whole._replace(log=start.log, begin=begin, end=None))
            begin = skips = 0
        if end.log != follower.identity:
            self._check_reported(_replaced(follower), begin, end.position)
            return [*pieces, whole._replace(begin=begin, skips=skips)]
        _check_end(follower, end.position, "the query had read up to")
        floor = min(max(begin, follower.floor), end.position)
        if begin < floor:
            pieces.append(whole._replace(begin=begin, end=floor))
            skips = 0
        for first, last in shares(floor, end.position, self._options.partitions):
            place = follower.place_of(first)
            pieces.append(whole._replace(begin=first, end=last, skips=skips, place=place))
            skips = 0
        return pieces


def _replaced(follower: LogFollower) -> str:
    return f"{follower.folder} has another log now, {follower.identity:016x}"


def _trimmed(follower: LogFollower) -> str:
    return f"{follower.folder} was trimmed up to position {follower.floor}"


def _check_end(follower: LogFollower, position: int, known: str) -> None:
    """What is written and not committed any more will be, when its node starts again."""
    if position > max(follower.tail, follower.written):
        raise DiskError(
            f"{follower.folder} ends at position {follower.tail}, and {known} position {position}: "
            "it is an older copy of the log. Put the whole log back, or start the query with "
            "another checkpoint"
        )
