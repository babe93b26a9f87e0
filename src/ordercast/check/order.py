"""Whether several sequences of deliveries agree with one order: total and total-in-view.

Theory of operation. Merge the sequences: an event that stands at the head of every sequence that
holds it leaves them all. If the sequences run empty, the order in which events left is the one
order. If not, the heads wait for each other in a cycle. This is exact, takes one look at each
delivery, and needs neither order numbers nor clocks.

Witness: two deliveries of each process on the cycle, and the views that they were in. Where two
processes contradict each other directly, such a pair is shown; otherwise the shortest cycle among
the heads. The law is still broken on these rows alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple, TypeAlias

from ordercast.check.log import Log
from ordercast.check.verdict import row_event, row_writer
from ordercast.trace.schema import Row

PAIR_SEARCH_LIMIT = 20_000_000
"""Looks at deliveries that the search for two contradicting processes may take."""


class DeliverySegment(NamedTuple):
    """What is compared: events that one log delivered, each once, in a view or altogether."""

    log: Log
    events: list[int]
    view: Row | None = None


Cycle: TypeAlias = list[tuple[DeliverySegment, int, int]]
"""Who delivered which event before which."""


def find_cycle(segments: list[DeliverySegment]) -> Cycle:
    """Segmentes that cannot all agree with one order, if there are any."""
    left = merge([segment.events for segment in segments])
    stuck = [(segment, rest) for segment, rest in zip(segments, left, strict=True) if rest]
    return (_contradicting_pair(stuck) or _shortest_cycle(stuck)) if stuck else []


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


def _contradicting_pair(stuck: list[tuple[DeliverySegment, list[int]]]) -> Cycle:
    """Two that deliver two events in opposite order, if there are any."""
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


def _shortest_cycle(stuck: list[tuple[DeliverySegment, list[int]]]) -> Cycle:
    """A segment waits for all that deliver its head later than their own head."""
    heads = [rest[0] for _, rest in stuck]
    holding: dict[int, list[int]] = {head: [] for head in heads}
    for number, (_, rest) in enumerate(stuck):
        for event in rest[1:]:
            if event in holding:
                holding[event].append(number)
    best: list[int] = []
    for start in range(len(stuck)):
        cycle = _cycle_from(start, heads, holding)
        if cycle and (not best or len(cycle) < len(best)):
            best = cycle
        if len(best) in (2, 3):
            break
    # In the segment that is waited for, its own head comes before the head of the one that waits.
    return [
        (stuck[index][0], heads[index], heads[waiter])
        for waiter, index in zip(best, best[1:] + best[:1], strict=True)
    ]


def _cycle_from(start: int, heads: list[int], holding: dict[int, list[int]]) -> list[int]:
    """The shortest way from a segment over those that it waits for back to itself."""
    came: dict[int, int] = {}
    queue = [start]
    for index in queue:
        for awaited in holding[heads[index]]:
            if awaited == start:
                return list(_back(came, index, start))[::-1]
            if awaited not in came:
                came[awaited] = index
                queue.append(awaited)
    return []


def _back(came: dict[int, int], index: int, start: int) -> Iterator[int]:
    yield index
    while index != start:
        index = came[index]
        yield index


def rows_of(cycle: Cycle) -> Iterator[Row]:
    for (log, _, view), first, then in cycle:
        if view is not None:
            yield view
        yield _delivery(log, first)
        yield _delivery(log, then)


def _delivery(log: Log, event: int) -> Row:
    return log.deliveries[log.delivered.index(event)]


def words_of(cycle: Cycle) -> str:
    said = []
    for (log, _, _), first, then in cycle:
        one, other = _delivery(log, first), _delivery(log, then)
        said.append(f"{row_writer(one)} delivered {row_event(one)} before {row_event(other)}")
    return ", ".join(said[:-1]) + f" and {said[-1]}"
