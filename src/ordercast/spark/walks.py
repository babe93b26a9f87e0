"""The two passes over a huge run: `look` at each slice, then `walk` along what all of them found.

`look` is a task a slice. What it finds goes to the driver (`SliceReport`), or as messages to the
tasks of the second pass, which `walk` does. These are

  0 ... walkers - 1   causal order: each looks at some streams. The past of an event is what its
                      process history had delivered before, one number per stream. Along every
                      history the running maximum of the pasts of its deliveries stays below the
                      event delivered, within what was delivered (`causal`), and within the past of
                      what the history submits, or else these are not the pasts
  walkers             `total`: the time of an event's first delivery increases along every process
                      history; and how many events of each group were delivered at all
  walkers + 1         tickets: no two submissions have one entry

A message is at most a megabyte, so that Spark moves it without effort; larger ones come in parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ordercast.spark.columns import ENTRIES_LIMIT, Doubt, Vector
from ordercast.spark.process_history import Found, ProcessHistory, judge_process
from ordercast.spark.slices import ENTRIES, ORDER, PASTS, EventStream, Slice, SlicePlan, Submissions
from ordercast.trace.parquet import load_pyarrow
from ordercast.trace.schema import Row

REPORT, FEW, HISTORY, BEFORE, PAST, FIRST, ENTRY = range(7)
"""What a message is about."""

ONCE, IN_ORDER, WITHOUT_GAPS = "submitted-once", "in-causal-order", "without-gaps"
ONE_ORDER, DISTINCT = "one-order", "distinct-entries"
"""Facts that slices, or the tasks of the second pass, have shown or not."""

DRIVER = -1
MESSAGE_BYTES = 1 << 20
ROWS_A_MESSAGE = 1024
NEVER = np.iinfo(np.int64).max


class TaskMessage(NamedTuple):
    """Something for these tasks; a, b and c say more about what it is."""

    tasks: list[int]
    kind: int
    a: int
    b: int
    c: int
    part: int
    data: bytes


MESSAGE_SCHEMA = "tasks array<int>, kind int, a int, b int, c int, part int, data binary"
"""TaskMessage, for Spark."""


class SliceReport(msgspec.Struct, kw_only=True):
    """What one slice shows; see `Found`. `streams` has (group, first event, last + 1)."""

    doubt: bool = False
    facts: dict[str, bool] = {}
    streams: list[tuple[int, int, int]] = []
    delivered: list[tuple[int, int, int, int]] = []
    spans: list[tuple[int, int, int, int, int, int]] = []
    stamped: bool = True
    walks: bool = False


class WalkReport(msgspec.Struct, kw_only=True):
    """What one task of the second pass shows; `events`: how many of each group were delivered."""

    facts: dict[str, bool] = {}
    events: dict[int, int] = {}


# --- the first pass ---


def look(plan: SlicePlan, number: int) -> Iterator[TaskMessage]:
    """All that one slice has to say."""
    try:
        rows = Slice(plan, number)
        rows.read()
        events = Submissions(plan, rows)
    except (Doubt, OSError, UnicodeDecodeError, load_pyarrow().core.ArrowException):
        yield _to_driver(REPORT, number, 0, SliceReport(doubt=True))
        return
    found = Found(events)
    walks = PASTS in plan.passes and _entries(events.streams) <= ENTRIES_LIMIT
    for process in np.flatnonzero(rows.mine).tolist():
        for history in judge_process(plan, rows, events, found, process):
            yield from _history_messages(plan, events, history, walks=walks)
    if ORDER in plan.passes:
        yield from _parts([plan.walkers], FIRST, number, 0, 0, found.first)
    if ENTRIES in plan.passes:
        yield from _parts([plan.walkers + 1], ENTRY, number, 0, 0, rows.entries())
    few = rows.few_rows()
    for part, begin in enumerate(range(0, len(few), ROWS_A_MESSAGE)):
        yield _to_driver(FEW, number, part, few[begin : begin + ROWS_A_MESSAGE])
    said = SliceReport(
        facts={**found.facts, ONCE: events.increasing},
        streams=[(one.group, one.first, one.last) for one in events.streams],
        delivered=found.delivered,
        spans=[(*views, *held) for views, held in found.spans.items()],
        stamped=rows.stamped,
        walks=walks,
    )
    yield _to_driver(REPORT, number, 0, said)


def _entries(streams: list[EventStream]) -> int:
    sizes: dict[int, tuple[int, int]] = {}
    for group, first, last in streams:
        count, events = sizes.get(group, (0, 0))
        sizes[group] = count + 1, events + last - first
    return sum(count * events for count, events in sizes.values())


def _to_driver(kind: int, number: int, part: int, told: SliceReport | list[Row]) -> TaskMessage:
    return TaskMessage([DRIVER], kind, number, 0, 0, part, msgspec.msgpack.encode(told))


def _parts(
    tasks: list[int], kind: int, a: int, b: int, c: int, data: Vector
) -> Iterator[TaskMessage]:
    told = data.tobytes()
    for part, begin in enumerate(range(0, max(1, len(told)), MESSAGE_BYTES)):
        yield TaskMessage(tasks, kind, a, b, c, part, told[begin : begin + MESSAGE_BYTES])


def _history_messages(
    plan: SlicePlan, events: Submissions, history: ProcessHistory, *, walks: bool
) -> Iterator[TaskMessage]:
    """The events that a history delivered, its submissions between them, and their pasts."""
    walkers = list(range(plan.walkers)) if walks else []
    tasks = [*walkers, plan.walkers] if ORDER in plan.passes else walkers
    if tasks:
        yield from _parts(tasks, HISTORY, history.process, history.number, 0, history.delivered)
    for own, before in history.before.items() if walks else ():
        yield from _parts(walkers, BEFORE, history.process, history.number, own, before)
        for task in walkers:
            streams = _streams_of(events.streams, plan.walkers, task, events.streams[own].group)
            if streams:
                block = np.stack([history.past(own, stream) for stream in streams])
                yield from _parts([task], PAST, own, 0, 0, block)


def _streams_of(streams: list[EventStream], walkers: int, task: int, group: int) -> list[int]:
    """The streams of a group at which one task looks."""
    return [at for at in range(task, len(streams), walkers) if streams[at].group == group]


# --- the second pass ---


class Mail:
    """All messages for one task, their parts put together."""

    def __init__(self, messages: Iterable[dict[str, Any]]) -> None:
        self._parts: dict[tuple[int, int, int, int], list[tuple[int, bytes]]] = {}
        for one in messages:
            key = one["kind"], one["a"], one["b"], one["c"]
            self._parts.setdefault(key, []).append((one["part"], one["data"]))

    def take(self, kind: int, dtype: Any) -> Iterator[tuple[tuple[int, int, int], Vector]]:
        """All of a kind, which are then forgotten."""
        for key in [one for one in self._parts if one[0] == kind]:
            data = b"".join(part for _, part in sorted(self._parts.pop(key)))
            yield key[1:], np.frombuffer(data, dtype)


def walk(
    streams: list[EventStream], walkers: int, task: int, messages: Iterable[dict[str, Any]]
) -> WalkReport:
    mail = Mail(messages)
    if task == walkers:
        return _walk_in_order(streams, mail)
    if task > walkers:
        return _compare_entries(mail)
    return _walk_pasts(streams, walkers, task, mail)


def _walk_in_order(streams: list[EventStream], mail: Mail) -> WalkReport:
    size = streams[-1].last if streams else 0
    first = np.full(size, NEVER)
    for _, times in mail.take(FIRST, np.int64):
        np.minimum(first, times, out=first)
    one_order = all(np.all(np.diff(first[ids]) > 0) for _, ids in mail.take(HISTORY, np.int32))
    events: dict[int, int] = {}
    for group, begin, end in streams:
        count = int(np.count_nonzero(first[begin:end] < NEVER))
        events[group] = events.get(group, 0) + count
    return WalkReport(facts={ONE_ORDER: one_order}, events=events)


def _compare_entries(mail: Mail) -> WalkReport:
    told = [entries.reshape(-1, 3) for _, entries in mail.take(ENTRY, np.int64)]
    entries = np.concatenate([np.zeros((0, 3), np.int64), *told])
    entries = entries[np.lexsort(entries.T)]
    alike = np.all(entries[1:] == entries[:-1], axis=1)
    return WalkReport(facts={DISTINCT: not alike.any()})


def _walk_pasts(streams: list[EventStream], walkers: int, task: int, mail: Mail) -> WalkReport:
    groups = {
        group: Walker(streams, group, _streams_of(streams, walkers, task, group))
        for group in sorted({one.group for one in streams})
    }
    for (own, _, _), block in mail.take(PAST, np.int32):
        groups[streams[own].group].learn(own, block)
    before: dict[tuple[int, int], dict[int, Vector]] = {}
    for (process, history, own), places in mail.take(BEFORE, np.int32):
        before.setdefault((process, history), {})[own] = places
    facts = {IN_ORDER: True, WITHOUT_GAPS: True}
    for (process, history, _), ids in mail.take(HISTORY, np.int32):
        for group, walker in groups.items():
            known = before.get((process, history), {})
            mine = {own: known[own] for own in known if streams[own].group == group}
            for fact, good in walker.follow(ids, mine, alone=len(groups) == 1).items():
                facts[fact] = facts[fact] and good
    return WalkReport(facts=facts)


class Walker:
    """Some streams of a group, and how far the past of each event of the group reaches there."""

    def __init__(self, streams: list[EventStream], group: int, mine: list[int]) -> None:
        self._streams, self._mine = streams, mine
        members = [one for one in streams if one.group == group]
        self._begin, self._end = members[0].first, members[-1].last
        self._pasts = [np.zeros(self._end - self._begin, np.int32) for _ in mine]

    def learn(self, own: int, block: Vector) -> None:
        """The pasts of the events of one stream."""
        first, last = self._streams[own].first - self._begin, self._streams[own].last - self._begin
        for past, known in zip(self._pasts, block.reshape(len(self._mine), -1), strict=True):
            past[first:last] = known

    def follow(self, ids: Vector, own: dict[int, Vector], *, alone: bool) -> dict[str, bool]:
        """Along the deliveries of one history, which submitted the streams `own` between them."""
        if not alone:
            inside = (ids >= self._begin) & (ids < self._end)
            rank = np.concatenate([[0], np.cumsum(inside)])
            own = {one: rank[before] for one, before in own.items()}
            ids = ids[inside]
        events = ids - np.int32(self._begin)
        reach = np.zeros(len(ids) + 1, np.int32)  # before each delivery, and at the end
        facts = {IN_ORDER: True, WITHOUT_GAPS: True}
        for past, stream in zip(self._pasts, self._mine, strict=True):
            np.maximum.accumulate(past[events], out=reach[1:])
            _, first, last = self._streams[stream]
            spots = np.flatnonzero((ids >= first) & (ids < last))
            places = ids[spots] - np.int32(first - 1)
            good = not np.any(reach[spots] >= places)
            for one, before in own.items():
                begin, end = (self._streams[one][at] - self._begin for at in (1, 2))
                good = good and not np.any(reach[before] > past[begin:end])
            # What was delivered of the stream changes only at its own events, and the reach never
            # falls: it is enough to look there, and at the end.
            known = np.zeros(len(spots) + 1, np.int32)
            np.maximum.accumulate(places, out=known[1:])
            whole = reach[-1] <= known[-1] and not np.any(reach[spots + 1] > known[:-1])
            facts[IN_ORDER] = facts[IN_ORDER] and bool(good)
            facts[WITHOUT_GAPS] = facts[WITHOUT_GAPS] and bool(good and whole)
        return facts
