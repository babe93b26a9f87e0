"""One order for all: `total`, and `total-in-view` for those who are in one view.

total          Two processes deliver any two events that both deliver in the same order, across all
               their common groups. We ask a little more than pair by pair: that one order exists
               with which every process agrees. With n1: a b, n2: b c and n3: c a every pair agrees,
               and yet nobody can say which came first; overlapping groups are where this happens.
               Gaps are allowed. Only the first delivery of an event counts, repetitions are
               no-duplication's business. Each line is a sequence of its own.
total-in-view  The same for every view of every group alone: among what lives delivered of the group
               from their installing the view (the same identity) to their next view of the group,
               or to their end. What was delivered before a first view is not judged. Unknown where
               a trace has traffic but no view at all. Each such stretch is a sequence of its own.

Theory of operation. Merge the sequences: an event that stands at the head of every sequence that
holds it leaves them all. If the sequences run empty, the order in which events left is the one
order. If not, the heads wait for each other in a circle. This is exact, takes one look at each
delivery, and needs neither order numbers nor clocks.

Witness: two deliveries of each process on the circle, and the views that they were in. Where two
processes contradict each other directly, such a pair is shown; otherwise the shortest circle among
the heads. The law is still broken on these rows alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple, TypeAlias

from ordercast.check.history import History, Log
from ordercast.check.verdict import Verdict, broken, holds, row_event, row_writer, unknown
from ordercast.check.views import NO_VIEWS, nothing_to_judge
from ordercast.trace.schema import Row

TOTAL = "total"
TOTAL_IN_VIEW = "total-in-view"
PAIR_SEARCH_LIMIT = 20_000_000
"""Looks at deliveries that the search for two contradicting processes may take."""


class Stretch(NamedTuple):
    """What is compared: events that one log delivered, each once, in a view or altogether."""

    log: Log
    events: list[int]
    view: Row | None = None


_Circle: TypeAlias = list[tuple[Stretch, int, int]]
"""Who delivered which event before which."""


def total(history: History) -> Verdict:
    lines = [line for line in history.lines if line.delivered]
    circle = _circle([Stretch(line, list(dict.fromkeys(line.delivered))) for line in lines])
    return broken(TOTAL, _rows(circle), _words(circle)) if circle else holds(TOTAL)


def total_in_view(history: History) -> Verdict:
    if nothing_to_judge(history):
        return unknown(TOTAL_IN_VIEW, NO_VIEWS)
    in_view: dict[tuple[str | None, int | None], list[Stretch]] = {}
    for life in history.lives:
        for stretch in _stretches(history, life):
            assert stretch.view is not None
            in_view.setdefault((stretch.view.group, stretch.view.view), []).append(stretch)
    for (group, view), alike in in_view.items():
        circle = _circle(alike) if len(alike) > 1 else []
        if circle:
            why = f"{_words(circle)}, in view {view} of {group}"
            return broken(TOTAL_IN_VIEW, _rows(circle), why)
    return holds(TOTAL_IN_VIEW)


def _stretches(history: History, life: Log) -> list[Stretch]:
    """What a life delivered from each view of a group up to its next one, in the order of views."""
    found: list[Stretch] = []
    latest: dict[str, list[int]] = {}
    group_of, alone = history.group_of, len(history.groups) == 1
    had: set[int] | None = None  # needed only where something is delivered again
    if len(set(life.delivered)) < len(life.delivered):
        had = set()
    done = 0
    for place, row in [*life.views, (len(life.delivered), None)]:
        chunk = life.delivered[done:place]
        done = place
        if had is not None:
            chunk = [event for event in dict.fromkeys(chunk) if event not in had]
            had.update(chunk)
        if alone:
            for events in latest.values():
                events += chunk
        else:
            for event in chunk:
                if group_of[event] in latest:
                    latest[group_of[event]].append(event)
        if row is not None:
            found.append(Stretch(life, [], row))
            latest[row.group or ""] = found[-1].events
    return found


def _circle(stretches: list[Stretch]) -> _Circle:
    """Stretches that cannot all agree with one order, if there are any."""
    left = merge([stretch.events for stretch in stretches])
    stuck = [(stretch, rest) for stretch, rest in zip(stretches, left, strict=True) if rest]
    return (_contradicting_pair(stuck) or _shortest_circle(stuck)) if stuck else []


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


def _contradicting_pair(stuck: list[tuple[Stretch, list[int]]]) -> _Circle:
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


def _shortest_circle(stuck: list[tuple[Stretch, list[int]]]) -> _Circle:
    """A stretch waits for all that deliver its head later than their own head."""
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


def _rows(circle: _Circle) -> Iterator[Row]:
    for (log, _, view), first, then in circle:
        if view is not None:
            yield view
        yield _delivery(log, first)
        yield _delivery(log, then)


def _delivery(log: Log, event: int) -> Row:
    return log.deliveries[log.delivered.index(event)]


def _words(circle: _Circle) -> str:
    said = []
    for (log, _, _), first, then in circle:
        one, other = _delivery(log, first), _delivery(log, then)
        said.append(f"{row_writer(one)} delivered {row_event(one)} before {row_event(other)}")
    return ", ".join(said[:-1]) + f" and {said[-1]}"
