"""The sinks that need nothing but memory, and what may name a run."""

from __future__ import annotations

import pytest

from ordercast.errors import UsageError
from ordercast.trace.schema import Ending, Header, Row
from ordercast.trace.sinks import MemorySink, NoSink, Sink, check_run_id

HEADER = Header("r", ending=Ending.FINISHED)
ROW = Row("a", 0, 1, 10, "start")


def test_a_memory_sink_has_the_rows_in_order() -> None:
    sink = MemorySink()
    rows = [Row("a", 0, step, 10, "start") for step in (1, 2, 3)]
    for row in rows:
        sink.write(row)
    trace = sink.trace(HEADER)
    sink.write(ROW)
    sink.close(HEADER)
    assert trace.rows == rows, "a trace taken earlier does not grow"
    assert trace.header is sink.header is HEADER
    assert sink.trace(HEADER).rows == [*rows, ROW]


def test_an_aborted_run_leaves_no_rows() -> None:
    sink = MemorySink()
    sink.write(ROW)
    sink.abort()
    assert sink.trace(HEADER).rows == []


def test_the_sink_of_an_untraced_run_accepts_every_call() -> None:
    sink: Sink = NoSink()
    sink.write(ROW)
    sink.close(HEADER)
    sink.abort()


@pytest.mark.parametrize("run", ["a", "A-1_b.c", "-", "0", "x" * 200])
def test_run_ids_that_are_folder_names_everywhere_are_accepted(run: str) -> None:
    assert check_run_id(run) == run


@pytest.mark.parametrize(
    "run", ["", ".", "..", ".hidden", "a/b", "a\\b", "a b", "a\n", "ä", "a=b", "%41", "x" * 201]
)
def test_run_ids_that_are_no_folder_names_are_rejected(run: str) -> None:
    with pytest.raises(UsageError, match="cannot name a run"):
        check_run_id(run)
