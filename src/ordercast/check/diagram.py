"""A space-time diagram in text: processes side by side, time downwards, a line a row.

            n1            n2
    +0.0 ms submit n1:1   │
    +1.0 ms submit n1:2   │
    +2.0 ms │             deliver n1:2
    +3.0 ms │             deliver n1:1

Rows stand in local order, a delivery below its submission, and otherwise by time. Only those who
wrote a row are shown. Where words would be wider than the page, signs take their place; where
even these are, the rows become a list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ordercast.check.verdict import row_event, row_writer
from ordercast.trace.schema import Row
from ordercast.trace.text import event_name

WIDTH = 100
MIN_COLUMN = 6

_SIGNS = {"submit": "●", "deliver": "▼", "lose": "×", "view": "◇", "ticket": "■", "crash": "╳"}
_LEGEND = "● submit  ▼ deliver  × lose  ◇ view  ■ ticket  ╳ crash"


def draw(rows: Iterable[Row]) -> str:
    """The rows as a diagram, at most 100 columns wide."""
    shown = in_order(rows)
    if not shown:
        return ""
    several = len({row.group for row in shown if row.group is not None}) > 1
    words = [_words(row) + _group(row, several) for row in shown]
    signs = [_sign(row) + _group(row, several) for row in shown]
    text = _table(shown, words)
    if text is None:
        text = _table(shown, signs)
        text = f"{text}\n{_LEGEND}" if text is not None else _list(shown, words)
    return text


def in_order(rows: Iterable[Row]) -> list[Row]:
    """By time, but never against local order, and no delivery above its submission."""
    logs: dict[str, list[Row]] = {}
    for row in sorted(dict.fromkeys(rows), key=lambda row: (row.incarnation, row.step)):
        logs.setdefault(row.process, []).append(row)
    awaited = {_event(row) for log in logs.values() for row in log if row.kind == "submit"}
    shown: list[Row] = []
    while logs:
        heads = [log[0] for log in logs.values()]
        free = [row for row in heads if row.kind != "deliver" or _event(row) not in awaited]
        row = min(free or heads, key=lambda row: (row.at, _natural(row.process)))
        shown.append(row)
        if row.kind == "submit":
            awaited.discard(_event(row))
        logs[row.process].pop(0)
        if not logs[row.process]:
            del logs[row.process]
    return shown


def _event(row: Row) -> tuple[str | None, str | None, int | None]:
    return row.group, row.origin, row.number


def _natural(name: str) -> list[tuple[int, str]]:
    """So that n10 comes after n9."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d+)", name)]


def _words(row: Row) -> str:
    if row.kind == "lose" and row.after is not None:
        return f"lose {event_name(row.origin or '?', row.after + 1)} to {row_event(row)}"
    if row.kind in ("submit", "deliver", "lose", "recover"):
        return f"{row.kind} {row_event(row)}"
    if row.kind == "view":
        return f"view {row.view}: {','.join(row.members or ())}"
    if row.kind == "ticket":
        return f"{row.cause} ticket {row.index}"
    return f"{row.kind} {row.peer}" if row.peer is not None else row.kind


def _sign(row: Row) -> str:
    sign = _SIGNS.get(row.kind, row.kind)
    if row.kind in ("submit", "deliver", "lose"):
        return f"{sign}{row_event(row)}"
    if row.kind == "view":
        return f"{sign}{row.view}"
    return f"{sign}{row.index}" if row.kind == "ticket" else sign


def _group(row: Row, several: bool) -> str:
    return f"@{row.group}" if several and row.group is not None else ""


def _times(rows: list[Row]) -> list[str]:
    """Since the earliest row, in milliseconds, all equally wide."""
    start = min(row.at for row in rows)
    texts = [f"+{(row.at - start) / 1e6:.1f} ms" for row in rows]
    width = max(map(len, texts))
    return [text.rjust(width) for text in texts]


def _table(rows: list[Row], labels: list[str]) -> str | None:
    """The diagram, or None if it does not fit."""
    writers = list(dict.fromkeys(map(row_writer, rows)))
    writers.sort(key=_natural)
    widths = dict.fromkeys(writers, MIN_COLUMN)
    for row, text in zip(rows, labels, strict=True):
        name = row_writer(row)
        widths[name] = max(widths[name], len(text) + 2, len(name) + 2)
    times = _times(rows)
    margin = " " * (len(times[0]) + 1)
    if len(margin) + sum(widths.values()) - 2 > WIDTH:
        return None
    lines = [margin + "".join(name.ljust(widths[name]) for name in writers)]
    for row, text, time in zip(rows, labels, times, strict=True):
        cells = [(text if name == row_writer(row) else "│").ljust(widths[name]) for name in writers]
        lines.append(f"{time} {''.join(cells)}")
    return "\n".join(line.rstrip() for line in lines)


def _list(rows: list[Row], labels: list[str]) -> str:
    lines = []
    for row, label, time in zip(rows, labels, _times(rows), strict=True):
        line = f"{time} {row_writer(row)}: {label}"
        lines.append(line if len(line) <= WIDTH else line[: WIDTH - 1] + "…")
    return "\n".join(lines)
