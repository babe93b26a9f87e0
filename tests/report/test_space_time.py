"""A space-time diagram has a line a process, a dot a row, and an arrow a message."""

from __future__ import annotations

import re

import msgspec
from tests.report.pages import history

from ordercast.report.space_time import MOST_ROWS, draw
from ordercast.trace.text import parse_history


def test_processes_are_lines_events_dots_and_messages_arrows() -> None:
    rows = [row for row in history("broken-fifo", "x").rows if row.kind in ("submit", "deliver")]
    svg = draw(rows)
    assert svg.count('class="lane"') == len({row.process for row in rows})
    assert svg.count("<circle") == len(rows)
    away = [row for row in rows if row.kind == "deliver" and row.process != row.origin]
    assert svg.count('class="arrow"') == len(away) > 0


def test_time_goes_to_the_right() -> None:
    trace = parse_history("run x\nn1 join\nn2 join\nn1 submit n1:1\nn2 deliver n1:1\nn1 crash\n")
    svg = draw([row for row in trace.rows if row.kind != "join"])
    places = [int(x) for x in re.findall(r'<circle class="dot(?: bad)?" cx="(\d+)"', svg)]
    assert places == sorted(set(places))
    assert len(places) == 3
    assert svg.count('class="dot bad"') == 1, "a crash looks like one"


def test_a_process_without_events_has_a_line_if_requested() -> None:
    rows = [row for row in history("broken-fifo", "x").rows if row.kind == "submit"]
    assert draw(rows, ("n1", "n7")).count('class="lane"') == draw(rows).count('class="lane"') + 1


def test_names_are_escaped_and_rows_beyond_the_limit_are_not_drawn() -> None:
    row = next(row for row in history("broken-fifo", "x").rows if row.kind == "submit")
    assert "a&lt;b" in draw([msgspec.structs.replace(row, process="a<b")])
    many = [msgspec.structs.replace(row, step=step) for step in range(MOST_ROWS + 1)]
    assert draw(many) == "" == draw([])
