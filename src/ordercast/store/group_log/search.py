"""Finds the first position that somebody else lacks, from what it says that it has.

Rules.
 1. Of a stream that it is to be judged by its number, it lacks the first entry with a greater one.
    A segment knows of each of its streams the number before the first entry and the last number: so
    it shows whether that entry is in it, or further back.
 2. Segments behind the newest vector on the disk are all looked at. The vector shows which other
    streams differ; older segments are looked at, the newest first, until each of them is found.
 3. What the vector of the floor has and it does not is a gap.
 4. An entry of which nothing is known is lacking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ordercast.kernel.log import Entry, Knowledge, bucket_of
from ordercast.store.group_log.form import RECORD
from ordercast.store.group_log.parts import Part
from ordercast.store.group_log.streams import StreamRow, StreamTable
from ordercast.store.group_log.vectors import rows_of

_PENDING = 100_000
"""Streams that are looked for; where there are more, all segments are looked at."""


class SearchResult(NamedTuple):
    first: int
    gaps: tuple[Entry, ...]


class Search:
    def __init__(self, knowledge: Knowledge, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._mark = knowledge.mark
        self._differing = knowledge.differing
        self._buckets = knowledge.buckets
        self._trimmed: dict[int, int] = {}  # by the key of a stream: up to where there is a gap
        self._known = knowledge.numbers  # by key: up to where it has a stream

    def run(
        self, floor: Iterable[StreamTable], begin: int, vector: Iterable[StreamTable]
    ) -> SearchResult:
        """`floor`: the vector of the floor; `vector`: that of the position `begin`."""
        trimmed = [row for row in rows_of(floor) if self._lacks_trimmed(row)]
        self._trimmed = {row.key: row.numbers[0] for row in trimmed}
        gaps = tuple(map(self._gap, trimmed))
        tail = self._parts[-1].end
        behind = [part for part in self._parts if part.first >= begin]
        before = [part for part in self._parts if part.first < begin]
        lacking = [part for part in behind if self._is_lacking(part)]
        lacking += self._older(before, vector)
        firsts = [tail]
        if lacking:
            firsts += self._first_in(min(lacking, key=lambda part: part.first), by_number=True)
        if self._differing is not None:
            firsts += self._behind_mark(min(firsts))
        return SearchResult(min(firsts), gaps)

    # --- streams -----------------------------------------------------------------------------

    def _judges(self, key: int) -> bool:
        """Whether its number says what it has, and not the mark."""
        return self._differing is None or bucket_of(key, self._buckets) in self._differing

    def _lacks_of(self, row: StreamRow) -> bool:
        return self._judges(row.key) and row.numbers[0] > self._known.get(row.key, 0)

    def _lacks_trimmed(self, row: StreamRow) -> bool:
        return self._lacks_of(row) if self._judges(row.key) else row.numbers[1] >= self._mark

    def _gap(self, row: StreamRow) -> Entry:
        (name, birth), number = row.stream, row.numbers[0]
        known = min(self._known.get(row.key, 0), number)
        return Entry(name, birth, number, known, is_gap=True)

    # --- segments ----------------------------------------------------------------------------

    def _is_lacking(self, part: Part) -> bool:
        return part.has_unknown() or part.ask(self._any_lacking)

    def _any_lacking(self, streams: StreamTable) -> bool:
        known, judges = self._known.get, self._judges
        if self._differing is None:
            return any(number > known(each, 0) for each, number in streams.last_numbers())
        return any(
            number > known(each, 0) and judges(each) for each, number in streams.last_numbers()
        )

    def _older(self, parts: Sequence[Part], vector: Iterable[StreamTable]) -> list[Part]:
        """Segments before the vector that have something lacking."""
        if not parts:
            return []
        pending: dict[int, None] = {}
        is_too_much = False
        for row in rows_of(vector):
            # If nothing of it came since the trim, no segment has any of it.
            if self._lacks_of(row) and self._trimmed.get(row.key) != row.numbers[0]:
                pending[row.key] = None
                if len(pending) > _PENDING:
                    is_too_much = True
                    break
        lacking = []
        for part in reversed(parts):
            if not pending:
                if part.has_unknown():
                    lacking.append(part)
                continue
            look = self._any_lacking if is_too_much else self._looking_for(pending)
            if part.ask(look) or part.has_unknown():
                lacking.append(part)
        return lacking

    def _looking_for(self, pending: dict[int, None]) -> Callable[[StreamTable], bool]:
        return lambda streams: self._look_for(pending, streams)

    def _look_for(self, pending: dict[int, None], streams: StreamTable) -> bool:
        """Whether anything is lacking. Takes out those whose first lacking entry is here."""
        found = False
        for key in list(pending):
            row = streams.of_key(key)
            if row is None:
                continue
            first, last = row.numbers
            known = self._known.get(key, 0)
            found |= last > known
            if first <= known:
                del pending[key]
        return found

    # --- positions ---------------------------------------------------------------------------

    def _first_in(self, part: Part, *, by_number: bool, begin: int = 0) -> list[int]:
        begin = max(begin, part.first)
        records = part.records(begin, part.end)
        known = self._known.get
        for at, values in enumerate(RECORD.iter_unpack(records), begin):
            key, number = values[0], values[1]
            if not number:
                return [at]
            if by_number == self._judges(key) and (not by_number or number > known(key, 0)):
                return [at]
        return []

    def _behind_mark(self, end: int) -> list[int]:
        """The first position from the mark on of a stream that the mark judges, if before `end`."""
        for part in self._parts:
            if self._mark < part.end and part.first < end:
                found = self._first_in(part, by_number=False, begin=self._mark)
                if found:
                    return found
        return []
