"""What a process history gave up: single numbers and ranges of them, and when.

A `lose` row is about one event, or with `after` about all numbers of an origin above `after` up to
`number`. Such a range may hold 2^40 numbers, of which nobody knows which were used. So it is kept
as it is, and asked: is this number in it?
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from ordercast.trace.schema import Row

Sender: TypeAlias = tuple[str | None, str | None]
"""A group, and an origin in it."""


class Span(NamedTuple):
    """The numbers from `first` to `last`, and what was noted of them."""

    first: int
    last: int
    value: int


def lost_numbers(row: Row) -> tuple[int, int]:
    """The first and the last number that a `lose` row is about."""
    number = row.number or 0
    return (number, number) if row.after is None else (min(row.after + 1, number), number)


class Spans:
    """Numbers with a value each, as disjoint spans. What is noted first of a number stays."""

    __slots__ = ("_firsts", "_spans")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._spans: list[Span] = []

    def add(self, first: int, last: int, value: int) -> None:
        at = bisect_right(self._firsts, first)
        if at and self._spans[at - 1].last >= first:
            first = self._spans[at - 1].last + 1
        while first <= last:
            following = self._spans[at] if at < len(self._spans) else None
            if following is None or following.first > last:
                self._insert(at, Span(first, last, value))
                return
            if first < following.first:
                self._insert(at, Span(first, following.first - 1, value))
                at += 1
            first = following.last + 1
            at += 1

    def _insert(self, at: int, span: Span) -> None:
        self._firsts.insert(at, span.first)
        self._spans.insert(at, span)

    def __iter__(self) -> Iterator[Span]:
        return iter(self._spans)

    def find(self, number: int) -> Span | None:
        at = bisect_right(self._firsts, number) - 1
        return self._spans[at] if at >= 0 and self._spans[at].last >= number else None

    def first_outside(self, first: int, last: int) -> int | None:
        """The first of these numbers that is in no span."""
        while first <= last:
            span = self.find(first)
            if span is None:
                return first
            first = span.last + 1
        return None


class GivenUp:
    """What one process history gave up, and how many deliveries it had before."""

    __slots__ = ("_by_sender",)

    def __init__(self, losses: Iterable[tuple[int, Row]]) -> None:
        self._by_sender: dict[Sender, Spans] = {}
        for before, row in losses:
            spans = self._by_sender.setdefault((row.group, row.origin), Spans())
            spans.add(*lost_numbers(row), before)

    def __bool__(self) -> bool:
        return bool(self._by_sender)

    def when(self, group: str | None, origin: str | None, number: int) -> int | None:
        """How many deliveries came before it was given up; None: it was not."""
        spans = self._by_sender.get((group, origin))
        span = spans.find(number) if spans is not None else None
        return None if span is None else span.value

    def spans(self) -> Iterator[tuple[Sender, Span]]:
        for sender, spans in self._by_sender.items():
            for span in spans:
                yield sender, span
