"""Who has whom as its parent, where the members of a group form a tree, and when that changes.

A `parent` row says whom an incarnation has as its parent from then on: the incarnation `peer`, or
nobody. That ends with its next `parent` row in the group, its `leave` or its end. A `peer` without
an incarnation (`n1`, not `n1#0`) means the one that runs at that time.

A move is a change from one parent to another. A node that was without a parent in between has not
moved: it found one.

Nothing here judges: the law is laws/one_tree.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from ordercast.trace.schema import Row

Life: TypeAlias = tuple[str, int]
"""One incarnation."""

SKELETON = frozenset({"start", "join", "parent", "leave", "crash", "stop"})
"""The kinds of rows that say who has whom as its parent, and until when."""


class ParentLink(NamedTuple):
    """That an incarnation has a parent, or is a root, for a time."""

    row: Row
    parent: Life | None
    is_guess: bool  # the row does not say which incarnation, and there are several
    until: int | None  # None: nothing in its log ends it

    @property
    def life(self) -> Life:
        return self.row.process, self.row.incarnation

    def stands_at(self, at: int) -> bool:
        return self.row.at <= at and (self.until is None or at < self.until)


class ParentChange(NamedTuple):
    """A node leaves one parent for another."""

    at: int
    life: Life
    former: Life
    parent: Life


class Parents:
    """Of all incarnations, from their logs in local order."""

    def __init__(self, logs: Mapping[Life, Sequence[Row]]) -> None:
        self._lives: dict[str, list[tuple[int, int]]] = {}  # by process: began at, incarnation
        for (process, incarnation), rows in sorted(logs.items()):
            self._lives.setdefault(process, []).append((rows[0].at, incarnation))
        self.ends = dict(self._find_ends(logs))
        self.links: dict[str, list[ParentLink]] = {}  # by group
        for life, rows in sorted(logs.items()):
            for link in self._read(life, rows):
                self.links.setdefault(link.row.group or "", []).append(link)

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Parents:
        """From rows of all incarnations, those of one in local order."""
        logs: dict[Life, list[Row]] = {}
        for row in rows:
            if row.kind in SKELETON:
                logs.setdefault((row.process, row.incarnation), []).append(row)
        return cls(logs)

    def _find_ends(self, logs: Mapping[Life, Sequence[Row]]) -> Iterator[tuple[Life, int | None]]:
        """When each incarnation ended: at the latest when the next one began."""
        for process, lives in self._lives.items():
            for (began, incarnation), later in zip(lives, [*lives[1:], None], strict=True):
                ended: dict[str, int] = {}
                for row in logs[process, incarnation]:
                    if row.kind in ("crash", "stop"):
                        ended.setdefault(row.kind, row.at)
                ends = [*ended.values()]
                if later is not None and later[0] >= began:
                    ends.append(later[0])
                yield (process, incarnation), min(ends, default=None)

    def _read(self, life: Life, rows: Sequence[Row]) -> Iterator[ParentLink]:
        latest: dict[str, Row] = {}
        for row in rows:
            if row.kind in ("parent", "leave"):
                before = latest.pop(row.group or "", None)
                if before is not None:
                    yield self._link(before, row.at)
                if row.kind == "parent":
                    latest[row.group or ""] = row
        for row in latest.values():
            yield self._link(row, self.ends[life])

    def _link(self, row: Row, until: int | None) -> ParentLink:
        parent, is_guess = self.parent(row)
        return ParentLink(row, parent, is_guess, until)

    def parent(self, row: Row) -> tuple[Life | None, bool]:
        """The incarnation that a row names, and whether that is a guess."""
        if row.peer is None:
            return None, False
        name, sharp, incarnation = row.peer.rpartition("#")
        if sharp and incarnation.isdigit():
            return (name, int(incarnation)), False
        lives = self._lives.get(row.peer, [])
        running = [life for life in lives if life[0] <= row.at] or lives[:1]
        latest = max(running, default=(0, 0))
        return (row.peer, latest[1]), len(lives) > 1


def parents_at(links: Iterable[ParentLink], at: int) -> dict[Life, Life | None]:
    """Of every node that is in the tree at that time; None: it is a root, or has no parent yet."""
    return {link.life: link.parent for link in links if link.stands_at(at)}


def moves_in(links: Sequence[ParentLink]) -> list[ParentChange]:
    """All moves, in the order of time."""
    return sorted(
        ParentChange(later.row.at, later.life, link.parent, later.parent)
        for link, later in _in_a_row(links)
        if link.parent is not None and later.parent is not None
        if link.parent != later.parent
    )


def adoptions_in(links: Sequence[ParentLink]) -> list[ParentLink]:
    """Of nodes that had lost their parent, and found one; not of those that begin without."""
    begun = {link.life for link in links}
    found = []
    for link, later in _in_a_row(links):
        if link.life in begun:
            begun.discard(link.life)
        elif link.parent is None and later.parent is not None:
            found.append(later)
    return found


def _in_a_row(links: Sequence[ParentLink]) -> Iterator[tuple[ParentLink, ParentLink]]:
    """Each with the one that follows it at once, in one incarnation."""
    for link, later in pairwise(links):  # those of one incarnation are side by side
        if link.life == later.life and link.until == later.row.at:
            yield link, later


def path_of(life: Life, parents: Mapping[Life, Life | None]) -> list[Life]:
    """Those above it, the nearest first. Parents that form a circle end it."""
    path: list[Life] = []
    one = parents.get(life)
    while one is not None and one in parents and one != life and one not in path:
        path.append(one)
        one = parents[one]
    return path


def children_in(parents: Mapping[Life, Life | None]) -> dict[Life | None, list[Life]]:
    """By parent, each in order."""
    found: dict[Life | None, list[Life]] = {}
    for life in sorted(parents):
        found.setdefault(parents[life], []).append(life)
    return found
