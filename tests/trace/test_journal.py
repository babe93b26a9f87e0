"""What both worlds write into a trace."""

from __future__ import annotations

import pytest

from ordercast.trace.journal import TraceJournal
from ordercast.trace.schema import NOTED_TIMES, Row
from ordercast.types import EVENT_COLUMNS, Event, NodeId


def test_every_time_that_a_machine_notes_is_put_on_the_scale_of_the_trace() -> None:
    rows: list[Row] = []
    journal = TraceJournal(NodeId("n1", 2), rows.append)
    noted = {name: number for number, name in enumerate(NOTED_TIMES)}
    journal.note(7, "ticket", {"index": 3, **noted}, lambda local: local + 1000)
    journal.note(8, "ticket", {"until": None}, lambda local: local + 1000)
    assert "until" in NOTED_TIMES
    assert "at" not in NOTED_TIMES
    scaled = {name: number + 1000 for name, number in noted.items()}
    assert rows == [Row("n1", 2, 1, 7, "ticket", index=3, **scaled), Row("n1", 2, 2, 8, "ticket")]


def test_a_reply_names_the_event_that_it_answers_where_it_is_submitted_and_delivered() -> None:
    rows: list[Row] = []
    journal = TraceJournal(NodeId("n1"), rows.append)
    answer = Event("g", NodeId("n1"), 1, [b"yes"], reply=("n2", 5))
    journal.submit(1, answer)
    journal.deliver(2, answer)
    journal.deliver(3, Event("g", NodeId("n2"), 6, [b""]))
    told = [(row.reply_origin, row.reply_number) for row in rows]
    assert told == [("n2", 5), ("n2", 5), (None, None)]


@pytest.mark.parametrize("column", EVENT_COLUMNS)
def test_what_a_family_fills_of_an_event_reaches_the_trace(column: str) -> None:
    """A field more of an event is a column more of a row, and `_event` writes it."""
    rows: list[Row] = []
    journal = TraceJournal(NodeId("n1"), rows.append)
    value = (4, 5) if column == "stamp" else 4
    event = Event("g", NodeId("n2"), 1, [b"x"], **{column: value})
    journal.submit(7, event)
    journal.deliver(8, event)
    submitted, delivered = (getattr(row, column) for row in rows)
    assert submitted == value
    assert delivered == (None if column == "stamp" else value)  # a stamp is on record once
