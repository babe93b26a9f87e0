"""How `optimistic-causal` and `causal` are judged. See past.py for what "before" means.

Theory of operation. For each process history keep two marks per stream: how far the stream is
known to be delivered or in the past of what is delivered (`reach`), and how far it is in the past
of a delivered event (`passed`). An event that is delivered although `passed` has gone beyond it is
a break. An event that `reach` passes without its being the one delivered is missing. Each process
history passes every event once, so the work is linear in the links of the past, and gaps hide
nothing.

An event that was submitted as basic may come before its past and after what follows from it, and
may be missing: it is not judged. But it is a link of the past like any other: what its origin knew
when it submitted it precedes whatever follows from it.

In durable families, `causal` does not ask for what the process history gave up (`lose`) before the
delivery: a log that holds no more than its newest entries says so.

Both are unknown if an event was delivered whose submission is not in the trace, for its past is
not known then, or if events precede themselves. A break that was found stays a break.

Witness: the rows that show that the one precedes the other, and the deliveries. The law is still
broken on these rows alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from ordercast.check.history import History
from ordercast.check.log import Log
from ordercast.check.verdict import Verdict, broken, holds, row_event, row_writer, unknown


def judge_causality(law: str, history: History, *, gaps_allowed: bool) -> Verdict:
    if history.past.cycle:
        return unknown(law, "an event was delivered before it was submitted; see no-creation")
    for log in history.histories:
        found = next(breaks(history, log, gaps_allowed=gaps_allowed), None)
        if found is not None:
            at, missing = found
            if missing is None:
                return _too_late(law, history, log, at)
            return _missing(law, history, log, at, missing)
    if history.never_submitted:
        name = row_event(history.never_submitted[0])
        return unknown(law, f"{name} was delivered, but its submission is not in the trace")
    return holds(law)


def breaks(
    history: History, log: Log, *, gaps_allowed: bool, newcomers: bool = True
) -> Iterator[tuple[int, int | None]]:
    """Where the process history delivers an event too late, or (and which) with one missing.

    Newcomers need nothing that was submitted before they came into the group, and a durable process
    nothing that it gave up before.

    An event that comes too late adds nothing to the marks: all of its past is passed already.
    """
    stream, place, streams = history.past.stream, history.past.place, history.past.streams
    before, basic = history.past.before, history.basic
    reach: dict[int, int] = {}
    passed: dict[int, int] = {}
    for at, event in enumerate(log.delivered):
        source = stream[event]
        if source < 0 or event in basic:
            continue
        own = place[event]
        if passed.get(source, 0) >= own:
            yield at, None
            continue
        reached = reach.get(source, 0)
        if reached >= own:
            continue  # a repetition
        reach[source] = own
        passed[source] = own - 1
        todo = [event] if reached == own - 1 else streams[source][reached:own]
        for one in todo:
            judged = not gaps_allowed and one != event and one not in basic
            if judged and not (newcomers and _exempt(history, log, one, at)):
                yield at, one
            for earlier in before[one] or ():
                source = stream[earlier]
                own = place[earlier]
                if passed.get(source, 0) < own:
                    passed[source] = own
                    reached = reach.get(source, 0)
                    if reached < own:
                        reach[source] = own
                        todo += streams[source][reached:own]


def _exempt(history: History, log: Log, event: int, at: int) -> bool:
    """Whether the event was submitted before the process history came into the group, or given up
    before this delivery."""
    group, origin, number = history.events[event]
    began = log.began.get(group)
    if began is not None and history.submits[event].at < began.at:
        return True
    when = log.given_up.when(group, origin, number) if history.durable else None
    return when is not None and when <= at


def _too_late(law: str, history: History, log: Log, at: int) -> Verdict:
    late = log.delivered[at]
    rows, target = history.past.chain(late, set(log.delivered[:at]) - history.basic)
    early_row = log.deliveries[log.delivered.index(target)]
    late_row = log.deliveries[at]
    first, then = row_event(late_row), row_event(early_row)
    why = f"{row_writer(late_row)} delivered {first} after {then}, but {first} causally precedes "
    why += then
    return broken(law, (*rows, early_row, late_row), why)


def _missing(law: str, history: History, log: Log, at: int, missing: int) -> Verdict:
    row = log.deliveries[at]
    rows, _ = history.past.chain(missing, {log.delivered[at]})
    why = (
        f"{row_writer(row)} delivered {row_event(row)} without having delivered "
        f"{row_event(rows[0])}, which causally precedes it"
    )
    return broken(law, (*rows, row), why)
