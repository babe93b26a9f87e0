"""no-silent-gap: before a process delivers an event, it has all earlier ones of the same log.

What a process history submits in a group is in its log, in the order of the numbers. A process that
delivers an event of it has delivered all earlier ones by then, or given them up (`lose`). So nobody
goes on silently behind a gap. In durable families the log goes on over the incarnations that have
the same data folder, and ends where that is lost: nobody can tell what was in it then. Events
without a submit row are in no log.

Witness: the submission that is missing, that of the later event, and its delivery.
"""

from __future__ import annotations

from ordercast.check.facts import Rows, RunFacts
from ordercast.check.history import History
from ordercast.check.law import EVENTS, Law, Proof
from ordercast.check.log import Log
from ordercast.check.verdict import Verdict, broken, holds, row_event, row_writer

NAME = "no-silent-gap"


class LogStreams:
    """What each process history submitted in each group, by number."""

    def __init__(self, history: History) -> None:
        streams: dict[tuple[int, str], list[int]] = {}
        for event, log in history.submitters.items():
            key = history.history_of(log), history.group_of[event]
            streams.setdefault(key, []).append(event)
        self.events = list(streams.values())
        self.stream = [-1] * len(history.events)
        self.place = [0] * len(history.events)
        for number, events in enumerate(self.events):
            events.sort(key=history.number_of)
            for place, event in enumerate(events):
                self.stream[event], self.place[event] = number, place


def judge(history: History) -> Verdict:
    streams = LogStreams(history)
    for log in history.histories:
        found = _first_gap(history, log, streams)
        if found is not None:
            return _broken(history, log, *found)
    return holds(NAME)


def _first_gap(history: History, log: Log, streams: LogStreams) -> tuple[int, int] | None:
    """Where it delivers an event, and which earlier one it lacks.

    All places of a stream below `known` are delivered or given up.
    """
    stream, place = streams.stream, streams.place
    known = [0] * len(streams.events)
    for at, event in enumerate(log.delivered):
        source = stream[event]
        if source < 0 or place[event] < known[source]:
            continue
        for earlier in streams.events[source][known[source] : place[event]]:
            given_up = log.given_up.when(*history.events[earlier])
            if given_up is None or given_up > at:
                return at, earlier
        known[source] = place[event] + 1
    return None


def _broken(history: History, log: Log, at: int, missing: int) -> Verdict:
    row, event = log.deliveries[at], log.delivered[at]
    gap = history.submits[missing]
    why = (
        f"{row_writer(row)} delivered {row_event(row)}, and had neither delivered nor given up "
        f"{row_event(gap)}, which comes before it in the log of {gap.origin}"
    )
    return broken(NAME, (gap, history.submits[event], row), why)


def select(run: RunFacts) -> Rows:
    """All rows about the first event that is skipped without a word, and about the one that shows
    it. Of these two no process history before that one shows a gap, or it would be the first."""
    return run.first_silent_gap()


LAW = Law(
    name=NAME,
    says=(
        "before a process delivers an event, it has delivered all earlier ones of the log that it "
        "comes from, or given them up"
    ),
    remark="a log is what a process submits with one data folder; one incarnation, if not durable",
    reads=(*EVENTS, "lose"),
    judge=judge,
    promised_only=True,
    select=select,
    prove=Proof(lambda slices: slices.created and slices.without_gaps, needs=("pasts",)),
    place=61,
)
