"""Which event came before which, taken from the rows and never from the protocol's stamps.

An event's past is all that its origin had submitted or delivered in that group before it
submitted the event, closed transitively. What an origin did in an earlier incarnation counts only
if the family is durable and it had the same data folder then: a process that forgot what it had
delivered cannot have meant it.

Theory of operation. The events that one process history submitted in one group are a stream: each
has all earlier ones in its past, so `place` in the stream stands for them. For each event it is
enough to remember, beside its stream, the latest events of other streams that its origin delivered
since its previous submission and that no other of them covers: `before`. The whole past is what
can be reached from there, and memory stays below one number a delivery.

To find `before`, the logs are followed side by side, each as far as it can go: a delivery waits
until the submission of its event was reached in the log of its origin. If all that are left wait
for each other, then some event was delivered before it was submitted: `cycle` holds the rows
of one such cycle. The time column plays no part, so clocks may be skewed.

The logs of one process are followed one after the other, in the order of their incarnations. But a
process that lost its folder may have drawn a number below that of an earlier incarnation. So where
the process's own clock says that two incarnations were the other way round, or overlap, neither is
taken to come first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from ordercast.trace.schema import Row

if TYPE_CHECKING:
    from ordercast.check.history import History
    from ordercast.check.log import Log


class Past:
    """The causal order of the events of one run.

    stream    by event: the number of its stream, or -1 if nobody is known to have submitted it
    place     by event: its place in its stream, from 1
    streams   by stream: its events in order
    before    by event: its latest predecessors in other streams; None if it was never reached
    cycle     rows that show an event delivered before it was submitted; empty if there are none
    """

    def __init__(self, history: History) -> None:
        self._history = history
        events = len(history.events)
        self.stream = [-1] * events
        self.place = [0] * events
        self.streams: list[list[int]] = []
        self.before: list[tuple[int, ...] | None] = [None] * events
        self._own: dict[tuple[int, str], int] = {}
        self._name_streams()
        self._waiting: dict[int, list[Iterator[int]]] = {}
        self._ready: list[Iterator[int]] = []
        self._line: dict[tuple[str, int], int] = {}  # incarnation: with which logs it goes
        self._waits: dict[int, Row] = {}  # by these: the delivery that they wait at
        self._follow_all()
        self.cycle = self._find_cycle()

    def _name_streams(self) -> None:
        for log in self._history.logs:
            own = self._history.history_of(log)
            for _, event in log.submitted:
                key = own, self._history.group_of[event]
                number = self._own.setdefault(key, len(self.streams))
                if number == len(self.streams):
                    self.streams.append([])
                self.streams[number].append(event)
                self.stream[event] = number
                self.place[event] = len(self.streams[number])

    def _follow_all(self) -> None:
        lines: list[list[Log]] = []
        for log in self._history.logs:
            if not lines or not self._comes_after(lines[-1][-1], log):
                lines.append([])
            lines[-1].append(log)
            self._line[log.process, log.incarnation] = len(lines) - 1
        self._ready = [self._follow(number, logs) for number, logs in enumerate(lines)]
        while self._ready:
            followed = self._ready.pop()
            awaited = next(followed, None)
            if awaited is not None:
                self._waiting.setdefault(awaited, []).append(followed)

    def _comes_after(self, log: Log, other: Log) -> bool:
        """Whether the other log is of the same process, and later."""
        if log.process != other.process:
            return False
        if self._history.history_of(log) == self._history.history_of(other):
            return True
        return log.rows[-1].at <= other.rows[0].at

    def _follow(self, line: int, logs: list[Log]) -> Iterator[int]:
        """Goes through one process's log; yields an event whose submission must come first."""
        stream, place, before = self.stream, self.place, self.before
        group_of, history_of = self._history.group_of, self._history.history_of
        fronts: defaultdict[str, dict[int, int]] = defaultdict(dict)  # group: stream: latest event
        for before_it, log in zip([None, *logs], logs, strict=False):
            if before_it is not None and history_of(before_it) != history_of(log):
                fronts.clear()
            done = 0
            # Nothing depends on what was delivered after the process's last submission.
            rest = [] if log is logs[-1] else [(len(log.delivered), -1)]
            for until, submitted in log.submitted + rest:
                for at, event in enumerate(log.delivered[done:until], done):
                    source = stream[event]
                    if source < 0:
                        continue
                    earlier = before[event]
                    if earlier is None:
                        self._waits[line] = log.deliveries[at]
                        yield event
                        earlier = before[event] or ()
                    front = fronts[group_of[event]]
                    for covered in earlier:
                        latest = front.get(stream[covered])
                        if latest is not None and place[latest] <= place[covered]:
                            del front[stream[covered]]
                    latest = front.get(source)
                    if latest is None or place[latest] < place[event]:
                        front[source] = event
                done = until
                if submitted < 0:
                    break
                front = fronts[group_of[submitted]]
                front.pop(stream[submitted], None)  # its own stream is covered by its place
                before[submitted] = tuple(front.values())
                front.clear()
                self._ready += self._waiting.pop(submitted, ())

    def _find_cycle(self) -> tuple[Row, ...]:
        """Walks from a waiting log to the one that it waits for until one comes again."""
        if not self._waiting:
            return ()
        history = self._history
        event = min(self._waiting)
        path: list[int] = []
        asked: dict[int, Row] = {}  # by the logs followed: the submission that is waited for
        while True:
            row = history.submits[event]
            line = self._line[row.process, row.incarnation]
            if line in asked:
                break
            asked[line] = row
            path.append(line)
            event = history.id_of(self._waits[line])
        cycle = path[path.index(line) :]
        asked[line] = row
        return tuple(part for line in cycle for part in (self._waits[line], asked[line]))

    def reach_of(self, event: int) -> dict[int, int]:
        """By stream: up to which place its events precede this one."""
        reach: dict[int, int] = {}
        todo = [event]
        for one in todo:
            own = self.streams[self.stream[one]]
            nearest = [*(self.before[one] or ()), *own[: self.place[one] - 1][-1:]]
            for earlier in nearest:
                source, place = self.stream[earlier], self.place[earlier]
                reached = reach.get(source, 0)
                if reached < place:
                    todo += self.streams[source][reached:place]
                    reach[source] = place
        return reach

    # --- showing it ---

    @cached_property
    def _first_deliveries(self) -> list[dict[int, int]]:
        """By process history: where each event was delivered first, if it submits at all."""
        return [
            {event: at for at, event in reversed(list(enumerate(log.delivered)))}
            if log.submitted
            else {}
            for log in self._history.histories
        ]

    def chain(self, first: int, targets: set[int]) -> tuple[list[Row], int]:
        """The shortest way to show that `first` came before one of the targets, and which.

        The rows are the submission of `first`, then for each link the delivery of the event
        before it (unless the same process history submitted that) and the submission that
        followed. Since the process history of `first` comes first, no other way takes fewer rows.
        """
        history = self._history
        group = history.group_of[first]
        came: dict[int, tuple[int, Row | None]] = {first: (first, None)}
        scanned = [len(log.submitted) for log in history.histories]  # done from there on
        queue = [first]
        for event in queue:
            for number, start, via in self._passed_on(event, own=event == first):
                for _, later in history.histories[number].submitted[start : scanned[number]]:
                    if history.group_of[later] == group and later not in came:
                        came[later] = (event, via)
                        queue.append(later)
                        if later in targets:
                            return self._unroll(came, first, later), later
                scanned[number] = min(scanned[number], start)
        raise AssertionError("the past was computed from the same rows")

    def _passed_on(self, event: int, *, own: bool) -> Iterator[tuple[int, int, Row | None]]:
        """The process histories that knew the event: from which submission on, and by which row."""
        histories = self._history.histories
        if own:
            for number, log in enumerate(histories):
                if self._is_own(log, event):
                    yield number, [one for _, one in log.submitted].index(event) + 1, None
        for number, log in enumerate(histories):
            at = self._first_deliveries[number].get(event)
            if at is not None and not (own and self._is_own(log, event)):
                start = bisect_right(log.submitted, (at, len(self.stream)))
                yield number, start, log.deliveries[at]

    def _is_own(self, log: Log, event: int) -> bool:
        submitter = self._history.submitters[event]
        return self._history.history_of(log) == self._history.history_of(submitter)

    def _unroll(self, came: dict[int, tuple[int, Row | None]], first: int, last: int) -> list[Row]:
        rows: list[Row] = []
        event = last
        while event != first:
            rows.append(self._history.submits[event])
            event, via = came[event]
            if via is not None:
                rows.append(via)
        rows.append(self._history.submits[first])
        return rows[::-1]
