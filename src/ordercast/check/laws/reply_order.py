"""reply-order: a reply is delivered after its original.

The original is the event that the reply answers: the columns `reply_origin` and `reply_number`, of
the delivery and of the submission, both of which count if they differ. A process history delivers
the original before the reply, or has given it up by then (`lose`). A reply to an event that nobody
ever submitted has no original that could come first, so it is broken too.

Unknown if a row has one of the two columns and not the other.

Witness: the delivery of the reply, and its submission if the delivery does not say what it answers.
"""

from __future__ import annotations

from typing import TypeAlias

from ordercast.check.facts import Rows, RunFacts
from ordercast.check.history import History
from ordercast.check.law import EVENTS, Law, Proof
from ordercast.check.log import Log
from ordercast.check.verdict import Verdict, broken, holds, row_event, row_writer, unknown
from ordercast.trace.schema import Row
from ordercast.trace.text import event_name

NAME = "reply-order"

Original: TypeAlias = tuple[str, int]
"""Origin and number. Its group is that of the reply."""


def judge(history: History) -> Verdict:
    half = _half_a_name(history)
    if half is not None:
        why = f"step {half.step} of {row_writer(half)} has only one of reply_origin, reply_number"
        return unknown(NAME, why)
    answered = {
        event: row for event, row in history.submits.items() if row.reply_number is not None
    }
    for log in history.histories:
        found = _first_break(history, log, answered)
        if found is not None:
            return _broken(*found)
    return holds(NAME)


def _half_a_name(history: History) -> Row | None:
    for log in history.logs:
        for row in log.rows:
            if (row.reply_origin is None) != (row.reply_number is None) and row.kind in EVENTS:
                return row
    return None


def _first_break(
    history: History, log: Log, answered: dict[int, Row]
) -> tuple[Row, Row, Original] | None:
    """The delivery, the row that says what it answers, and what that is."""
    first: dict[int, int] | None = None  # where each event is delivered first, if anybody asks
    for at, (event, row) in enumerate(zip(log.delivered, log.deliveries, strict=True)):
        if row.reply_number is None and event not in answered:
            continue
        if first is None:
            first = {one: place for place, one in reversed([*enumerate(log.delivered)])}
        for teller in (row, answered.get(event)):
            original = teller and _original(teller)
            if teller is None or original is None:
                continue
            known = history.known(row.group or "", *original)
            if known is not None and first.get(known, at) < at:
                continue
            given_up = log.given_up.when(row.group, *original)
            if given_up is None or given_up > at:
                return row, teller, original
    return None


def _original(row: Row) -> Original | None:
    if row.reply_origin is None or row.reply_number is None:
        return None
    return row.reply_origin, row.reply_number


def _broken(row: Row, teller: Row, original: Original) -> Verdict:
    witness = (row,) if teller is row else (teller, row)
    why = (
        f"{row_writer(row)} delivered {row_event(row)}, a reply to {event_name(*original)}, and "
        "had neither delivered that before nor given it up"
    )
    return broken(NAME, witness, why)


def select(run: RunFacts) -> Rows:
    """The first row with half a name; else deliveries of replies that come before their originals,
    their submissions, and what their processes gave up of the originals. Whether the original is
    delivered later does not matter, so its deliveries are left out, and it cannot seem to be a
    reply that came too early."""
    return run.early_replies()


LAW = Law(
    name=NAME,
    says="a reply is delivered after its original, or after the original was given up",
    remark="over all incarnations with the same data folder, if the family is durable",
    unknown_when="a row has only one of the two columns that name the original",
    reads=(*EVENTS, "lose"),
    judge=judge,
    select=select,
    prove=Proof(lambda slices: not slices.has_replies),
    place=60,
)
