"""One order for all: `total`.

total  Two processes deliver any two events that both deliver in the same order, across all
       their common groups. We ask a little more than pair by pair: that one order exists with
       which every process agrees. With n1: a b, n2: b c and n3: c a every pair agrees, and yet
       nobody can say which came first; overlapping groups are where this happens. Gaps are
       allowed. Only the first delivery of an event counts, repetitions are no-duplication's
       business. Each line is a sequence of its own.

Theory of operation. Merge the sequences: an event that stands at the head of every sequence that
holds it leaves them all. If the sequences run empty, the order in which events left is the one
order. If not, the heads wait for each other in a circle. This is exact, takes one look at each
delivery, and needs neither order numbers nor clocks.

Witness: two deliveries of each process on the circle. Where two processes contradict each other
directly, such a pair is shown; otherwise the shortest circle among the heads. The law is still
broken on these rows alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

from ordercast.check.history import History, Log
from ordercast.check.verdict import Verdict, broken, holds, row_event, row_writer
from ordercast.trace.schema import Row

TOTAL = "total"
PAIR_SEARCH_LIMIT = 20_000_000
"""Looks at deliveries that the search for two contradicting processes may take."""


def total(history: History) -> Verdict:
    lines = [line for line in history.lines if line.delivered]
    sequences = [list(dict.fromkeys(line.delivered)) for line in lines]
    left = merge(sequences)
    if not any(left):
        return holds(TOTAL)
    stuck = [(line, rest) for line, rest in zip(lines, left, strict=True) if rest]
    circle = _contradicting_pair(stuck) or _shortest_circle(stuck)
    rows = [row for line, first, then in circle for row in _rows(line, first, then)]
    return broken(TOTAL, rows, _words(rows))


def merge(sequences: list[list[int]]) -> list[list[int]]:
    """Takes out event by event what heads every sequence that holds it; returns what is left.

    No sequence may hold an event twice.
    """
    lacking = Counter[int]()  # of how many sequences the event is not yet the head
    for sequence in sequences:
        lacking.update(sequence)
    taken = [0] * len(sequences)
    walks = [iter(sequence) for sequence in sequences]
    waiting: dict[int, list[int]] = {}
    ready = list(range(len(sequences)))
    while ready:
        number = ready.pop()
        for passed, event in enumerate(walks[number]):
            if lacking[event] > 1:
                lacking[event] -= 1
                waiting.setdefault(event, []).append(number)
                taken[number] += passed
                break
            for other in waiting.pop(event, ()):
                taken[other] += 1
                ready.append(other)
        else:
            taken[number] = len(sequences[number])
    return [sequence[done:] for sequence, done in zip(sequences, taken, strict=True)]


def _contradicting_pair(stuck: list[tuple[Log, list[int]]]) -> list[tuple[Log, int, int]]:
    """Two lines that deliver two events in opposite order, if there are any."""
    places = [{event: at for at, event in enumerate(rest)} for _, rest in stuck]
    looks = 0
    for one, other in combinations(range(len(stuck)), 2):
        looks += len(places[one])
        if looks > PAIR_SEARCH_LIMIT:
            return []
        there = places[other]
        latest, ahead = -1, -1
        for event in stuck[one][1]:
            at = there.get(event)
            if at is None:
                continue
            if at < latest:
                return [(stuck[one][0], ahead, event), (stuck[other][0], event, ahead)]
            latest, ahead = at, event
    return []


def _shortest_circle(stuck: list[tuple[Log, list[int]]]) -> list[tuple[Log, int, int]]:
    """A line waits for all lines that deliver its head later than their own head."""
    heads = [rest[0] for _, rest in stuck]
    holding: dict[int, list[int]] = {head: [] for head in heads}
    for number, (_, rest) in enumerate(stuck):
        for event in rest[1:]:
            if event in holding:
                holding[event].append(number)
    best: list[int] = []
    for start in range(len(stuck)):
        circle = _circle_from(start, heads, holding)
        if circle and (not best or len(circle) < len(best)):
            best = circle
        if len(best) in (2, 3):
            break
    # In the line that is waited for, its own head comes before the head of the one that waits.
    return [
        (stuck[line][0], heads[line], heads[waiter])
        for waiter, line in zip(best, best[1:] + best[:1], strict=True)
    ]


def _circle_from(start: int, heads: list[int], holding: dict[int, list[int]]) -> list[int]:
    """The shortest way from a line over those that it waits for back to itself."""
    came: dict[int, int] = {}
    queue = [start]
    for line in queue:
        for awaited in holding[heads[line]]:
            if awaited == start:
                return list(_back(came, line, start))[::-1]
            if awaited not in came:
                came[awaited] = line
                queue.append(awaited)
    return []


def _back(came: dict[int, int], line: int, start: int) -> Iterator[int]:
    yield line
    while line != start:
        line = came[line]
        yield line


def _rows(line: Log, first: int, then: int) -> Iterator[Row]:
    for event in (first, then):
        yield line.deliveries[line.delivered.index(event)]


def _words(rows: list[Row]) -> str:
    said = [
        f"{row_writer(first)} delivered {row_event(first)} before {row_event(then)}"
        for first, then in zip(rows[::2], rows[1::2], strict=True)
    ]
    return ", ".join(said[:-1]) + f" and {said[-1]}"
