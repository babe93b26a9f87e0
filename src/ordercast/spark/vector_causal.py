"""Where causal order is broken: row selections for `optimistic-causal` and `causal`.

Words, as in check/past.py. The events that one process history submitted in one group are a stream,
and an event has a place in it, from 1. An event's past is a number a stream: how far it reaches
there.

Theory of operation, group by group.

  1. What a process history has delivered of each stream before it submits an event is the event's
     past, as far as it can be seen directly.
  2. Walk along each process history's deliveries: the running maximum of their pasts is how far
     the past of what was delivered reaches. At a submission it must not exceed the event's own
     past. Where it does, because something was never delivered, the past is raised and all is
     walked again, until nothing changes. Then pasts are exact, gaps or not.
  3. An event that the running maximum has gone beyond before it is delivered came too late.
  4. For `causal` the running maximum may never go beyond what was delivered, or is exempt, or was
     given up by then. What is given up mostly goes on where deliveries ended; where it leaves
     something out, it is not known whether that is missing.

That takes a look a delivery and stream, at the speed of numpy. If it does not end after ROUNDS
walks, or if the pasts are too many to keep, the plain judge is asked for the whole run.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ordercast.spark.columns import ENTRIES_LIMIT, Vector
from ordercast.spark.vector_delivery import never_submitted
from ordercast.spark.vector_events import Events
from ordercast.spark.vector_logs import Losses

ROUNDS = 24


class Suspicion(NamedTuple):
    """The delivery at which a process first goes wrong, in which group, by row; and who is sure."""

    row: int
    group: int
    exact: bool = True


class CausalGroup:
    """The streams of one group, and its deliveries of events that were submitted."""

    def __init__(self, events: Events, code: int) -> None:
        run = events.run
        self.code = code
        self.submissions = events.submissions
        rows, ids = events.delivered, events.delivered_ids
        if len(run.groups) > 1:
            self.submissions = self.submissions[run.group[self.submissions] == code]
            inside = run.group[rows] == code
            rows, ids = rows[inside], ids[inside]
        event_of = np.full(events.size, -1, np.int32)
        self.ids = events.ids[np.searchsorted(events.rows, self.submissions)]
        event_of[self.ids] = np.arange(len(self.submissions), dtype=np.int32)
        delivered = event_of[ids]
        known = delivered >= 0
        if not known.all():
            rows, delivered = rows[known], delivered[known]
        self.rows, self.delivered = rows, delivered
        self.starts = events.history_starts(rows)
        begins = events.history_starts(self.submissions)
        counts = np.diff(begins)
        self.submitters = np.flatnonzero(counts)  # by stream: its process history
        self.first = begins[:-1][self.submitters]  # by stream: its first event
        self.last = begins[1:][self.submitters]
        streams = len(self.submitters)
        self.stream = np.repeat(np.arange(streams, dtype=np.int32), counts[self.submitters])
        self.at_place = np.arange(1, len(self.stream) + 1, dtype=np.int32)
        self.at_place -= self.first.astype(np.int32)[self.stream]
        self.histories = np.flatnonzero(np.diff(self.starts)).tolist()
        self.sorted: dict[int, tuple[Vector, Vector, Vector]] = {}
        for history in self.histories:
            events_there = self.delivered[self.starts[history] : self.starts[history + 1]]
            streams_there = self.stream[events_there]
            order = np.argsort(_narrow(streams_there, streams), kind="stable")
            bounds = np.searchsorted(streams_there[order], np.arange(streams + 1))
            self.sorted[history] = order, self.at_place[events_there[order]], bounds

    def direct_pasts(self) -> list[Vector]:
        """By stream and event: how far the event's process had delivered the stream."""
        pasts = [np.zeros(len(self.stream), np.int32) for _ in self.submitters]
        for own, history in enumerate(self.submitters.tolist()):
            begin, end = self.first[own], self.last[own]
            pasts[own][begin:end] = np.arange(end - begin)
            if history not in self.sorted:
                continue
            before = self.deliveries_before(history, begin, end)
            order, places, bounds = self.sorted[history]
            for stream in range(len(pasts)):
                if stream == own or bounds[stream] == bounds[stream + 1]:
                    continue
                inside = slice(bounds[stream], bounds[stream + 1])
                reached = np.zeros(bounds[stream + 1] - bounds[stream] + 1, np.int32)
                np.maximum.accumulate(places[inside], out=reached[1:])
                pasts[stream][begin:end] = reached[np.searchsorted(order[inside], before)]
        return pasts

    def deliveries_before(self, history: int, begin: int, end: int) -> Vector:
        """How many deliveries of its process history came before each of these submissions."""
        rows = self.rows[self.starts[history] : self.starts[history + 1]]
        found: Vector = np.searchsorted(rows, self.submissions[begin:end])
        return found


def _narrow(codes: Vector, count: int) -> Vector:
    return codes.astype(np.uint16) if count <= 1 << 16 else codes


def causal_breaks(
    events: Events,
    clock: Vector | None,
    began: dict[tuple[int, int], int],
    given_up: Losses,
) -> tuple[Vector | None, Vector | None]:
    """The selections of `optimistic-causal` and of `causal`.

    `began` is the time of the first join or view row by process history and group. What is in
    `given_up` need not be delivered after that.
    """
    if clock is None:
        return None, None
    late: list[Suspicion] = []
    missing: list[Suspicion] = []
    for code in range(len(events.run.groups)):
        group = CausalGroup(events, code)
        if not len(group.rows):
            continue
        times = {history: began.get((history, code)) for history in group.histories}
        exempt = {history: _exempt(events, group, time) for history, time in times.items()}
        found = _walk_all(group, exempt, given_up)
        if found is None:
            return None, None
        late += found[0]
        missing += found[1]
    return _select(events, clock, late), _select(events, clock, late + missing)


def _walk_all(
    group: CausalGroup, exempt: dict[int, list[tuple[int, bool]]], given_up: Losses
) -> tuple[list[Suspicion], list[Suspicion]] | None:
    """Where processes first deliver something too late, and with something missing."""
    if len(group.submitters) * len(group.stream) > ENTRIES_LIMIT:
        return None
    pasts = group.direct_pasts()
    own = {history: stream for stream, history in enumerate(group.submitters.tolist())}
    for _ in range(ROUNDS):
        late: list[Suspicion] = []
        missing: list[Suspicion] = []
        raised = False
        for history in group.histories:
            walk = CausalWalk(group, history, own.get(history), given_up.get(history, []))
            for stream, past in enumerate(pasts):
                if walk.follow(stream, past):
                    raised = True
                elif not raised:
                    walk.judge(stream, *exempt[history][stream], late, missing)
        if not raised:
            return late, missing
    return None


def _exempt(events: Events, group: CausalGroup, began: int | None) -> list[tuple[int, bool]]:
    """By stream: up to which place all is exempt, and whether nothing after it is."""
    if began is None:
        return [(0, True)] * len(group.submitters)
    early = events.run.at[group.submissions] < began
    found = []
    for begin, end in zip(group.first.tolist(), group.last.tolist(), strict=True):
        part = early[begin:end]
        count = int(np.count_nonzero(part))
        prefix = count if count == len(part) else int(part.argmin())
        found.append((prefix, prefix == count))
    return found


class CausalWalk:
    """One process history's way along its deliveries, stream by stream."""

    def __init__(
        self,
        group: CausalGroup,
        history: int,
        own: int | None,
        given_up: list[tuple[int, int, int]],
    ) -> None:
        inside = slice(group.starts[history], group.starts[history + 1])
        self.group = group
        self.rows, self.delivered = group.rows[inside], group.delivered[inside]
        self.order, self.places, self.bounds = group.sorted[history]
        self.reach = np.zeros(len(self.rows) + 1, np.int32)  # before each delivery, and at the end
        self.lost = np.array(given_up, np.int64).reshape(-1, 3)
        self.submitted: slice | None = None
        if own is not None:
            begin, end = group.first[own], group.last[own]
            self.submitted = slice(begin, end)
            self.before = group.deliveries_before(history, begin, end)

    def follow(self, stream: int, past: Vector) -> bool:
        """Whether a past of the process's own events had to be raised."""
        np.maximum.accumulate(past[self.delivered], out=self.reach[1:])
        if self.submitted is None:
            return False
        wanted = self.reach[self.before]
        if not np.any(wanted > past[self.submitted]):
            return False
        np.maximum(past[self.submitted], wanted, out=past[self.submitted])
        return True

    def judge(
        self,
        stream: int,
        prefix: int,
        exact: bool,
        late: list[Suspicion],
        missing: list[Suspicion],
    ) -> None:
        """Adds where the process first goes wrong. All up to the place `prefix` is exempt."""
        inside = slice(self.bounds[stream], self.bounds[stream + 1])
        spots, own = self.order[inside], self.places[inside]
        bad = np.flatnonzero(self.reach[spots] >= own)
        code = self.group.code
        if len(bad):
            late.append(Suspicion(int(self.rows[spots[bad[0]]]), code))
        # What counts as delivered changes only at the stream's own events and where some are given
        # up, and the reach never falls: it is enough to look there, and at the end.
        changes, seen = own, self.reach[spots + 1]
        losses = self._losses(stream)
        if losses is None:
            missing.append(Suspicion(-1, code, exact=False))
            return
        before, first, last = losses.T
        if len(losses):
            order = np.argsort(np.concatenate([2 * spots + 1, 2 * before]), kind="stable")
            changes = np.concatenate([own, last])[order].astype(np.int32)
            seen = np.concatenate([seen, self.reach[before]])[order]
        known = np.full(len(changes) + 1, prefix, np.int32)
        np.maximum.accumulate(changes, out=known[1:])
        np.maximum(known, prefix, out=known)
        if len(losses):
            begins = np.concatenate([np.zeros(len(own), np.int64), first])[order]
            if np.any(begins > known[:-1] + 1):
                missing.append(Suspicion(-1, code, exact=False))  # something was left out
        if np.any(seen > known[:-1]) or self.reach[-1] > known[-1]:
            missing.append(Suspicion(self._first_missing(stream, prefix, losses), code, exact))

    def _losses(self, stream: int) -> Vector | None:
        """What it gave up of a stream: the deliveries before, and the first and last place. None:
        these are no places, as numbers do not have the order of submission."""
        if not len(self.lost):
            return self.lost
        group = self.group
        ids = group.ids[group.first[stream] : group.last[stream]]
        row, first, last = self.lost.T
        in_order = bool(np.all(np.diff(ids) > 0))
        first, last = np.searchsorted(ids if in_order else np.sort(ids), [first, last + 1])
        touched = first < last
        if not in_order and touched.any():
            return None
        found = np.stack([np.searchsorted(self.rows, row), first + 1, last], axis=1)
        spans: Vector = found[touched]
        return spans

    def _first_missing(self, stream: int, prefix: int, losses: Vector) -> int:
        """The row at which the past first goes beyond what was delivered before."""
        group, delivered = self.group, self.delivered
        own = np.where(group.stream[delivered] == stream, group.at_place[delivered], 0)
        had = np.zeros(len(own) + 1, np.int32)
        np.maximum.accumulate(own, out=had[1:])
        if len(losses):
            lost = np.zeros(len(own) + 1, np.int32)
            np.maximum.at(lost, losses[:, 0], losses[:, 2].astype(np.int32))
            had = np.maximum(had, np.maximum.accumulate(lost))
        return int(self.rows[(self.reach[1:] > np.maximum(had[:-1], prefix)).argmax()])


def _select(events: Events, clock: Vector, found: list[Suspicion]) -> Vector | None:
    """Nothing if nothing is wrong but for events never submitted, of which the first is told.

    Otherwise of the break's group all that happened up to it, and when members came: the first
    break of all processes has the whole past of its events there, and so has the shortest way to
    show it. Rows of other groups are no part of any past in this one.
    """
    if not found:
        return never_submitted(events)[:1]
    if not all(one.exact for one in found):
        return None
    run = events.run
    first = min(found)
    kept = (run.group == first.group) & (clock <= clock[first.row])
    for kind in ("join", "view"):
        if run.code_of(kind) >= 0:
            kept |= (run.kind == run.code_of(kind)) & (run.group == first.group)
    return np.flatnonzero(kept)
