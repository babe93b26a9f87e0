"""A trace as a narrative: what a person wants to know of it, in order of time."""

from __future__ import annotations

from typing import NamedTuple

from ordercast.trace.schema import Row, Trace
from ordercast.units import MILLISECOND, SECOND

TOGETHER = 250 * MILLISECOND
"""Things of one kind that several members see within this time are told as one."""


class Line(NamedTuple):
    at: int  # nanoseconds
    text: str
    tone: str  # bad, good, view, load or nothing


def tell(trace: Trace) -> list[Line]:
    """Crashes, returns, suspicions, views and tickets, and how much was delivered in between."""
    rows = sorted(trace.rows, key=lambda row: row.at)
    lines = _lives(rows) + _opinions(rows) + _views(rows) + _tickets(rows) + _load(rows)
    return sorted(lines, key=lambda line: line.at)


def _lives(rows: list[Row]) -> list[Line]:
    lines = []
    for row in rows:
        if row.kind == "crash":
            lines.append(Line(row.at, f"{row.process} crashes", "bad"))
        elif row.kind == "start" and row.incarnation:
            lines.append(
                Line(
                    row.at, f"{row.process} starts again, as incarnation {row.incarnation}", "good"
                )
            )
    return lines


def _opinions(rows: list[Row]) -> list[Line]:
    """Who gave up whom, and who took whom back, a line a wave."""
    verbs = {
        "suspect": ("no longer hears from", "bad"),
        "refute": ("hears again from", "good"),
        "confirm": ("meets the new life of", "good"),
    }
    lines = []
    for kind, (verb, tone) in verbs.items():
        for wave in _waves([row for row in rows if row.kind == kind]):
            whom: dict[str, list[str]] = {}
            for row in wave:
                whom.setdefault(row.process, []).append(row.peer or "?")
            told: dict[str, list[str]] = {}  # by whom they mean, who says so
            for process, peers in whom.items():
                told.setdefault(_listed(peers), []).append(process)
            for peers_text, processes in told.items():
                plural = verb.replace("hears", "hear").replace("meets", "meet")
                said = verb if len(processes) == 1 else plural
                text = f"{_listed(processes)} {said} {peers_text}"
                lines.append(Line(wave[0].at, text, tone))
    return lines


def _views(rows: list[Row]) -> list[Line]:
    """Where the members' views have come to after each wave of changes."""
    lines = []
    current: dict[str, tuple[str, ...]] = {}
    for wave in _waves([row for row in rows if row.kind in ("view", "crash")]):
        for row in wave:
            if row.kind == "crash":
                current.pop(row.process, None)
            elif row.members is not None:
                current[row.process] = row.members
        if not any(row.kind == "view" for row in wave):
            continue
        sets: dict[tuple[str, ...], list[str]] = {}
        for process, members in sorted(current.items()):
            sets.setdefault(members, []).append(process)
        told = ", ".join(
            f"{{{' '.join(members)}}}"
            + ("" if list(members) == sorted(holders) else f" at {_listed(holders)}")
            for members, holders in sets.items()
        )
        lines.append(Line(wave[-1].at, f"view{'s' if len(sets) > 1 else ''}: {told}", "view"))
    return lines


def _tickets(rows: list[Row]) -> list[Line]:
    """Who may update, where that changes: who wants to, who got whose ticket, who has none more."""
    lines: list[Line] = []
    held: dict[tuple[str | None, int | None], str] = {}  # by group and ticket: its last owner
    gone: dict[tuple[str | None, int | None], int] = {}  # and since when that one is no more
    if not any(row.kind == "ticket" and row.cause == "wanted" for row in rows):
        return lines  # fixed owners: nothing happens
    for row in rows:
        if row.kind == "crash":
            for ticket in [ticket for ticket, owner in held.items() if owner == row.process]:
                gone.setdefault(ticket, row.at)
        if row.kind != "ticket":
            continue
        who, ticket = row.process, (row.group, row.index)
        if row.cause == "wanted":
            lines.append(Line(row.at, f"{who} wants to update", ""))
        elif row.cause == "acquired" and (held.get(ticket) != who or ticket in gone):
            since = gone.pop(ticket, None)
            text = f"{who} may update: it has ticket {row.index}"
            if since is not None:
                after = (row.at - since) / SECOND
                text += f", which {held[ticket]} left {after:.1f} s ago when it died"
            held[ticket] = who
            lines.append(Line(row.at, text, "good"))
        elif row.cause in ("released", "disconnected"):
            held.pop(ticket, None)
            verb = "gives back" if row.cause == "released" else "has lost"
            lines.append(Line(row.at, f"{who} {verb} ticket {row.index}", ""))
    return lines


def _load(rows: list[Row]) -> list[Line]:
    """How much was submitted and delivered, a line every two seconds in which there was any."""
    counts: dict[int, list[int]] = {}
    lost: dict[int, int] = {}
    span = 2 * SECOND
    for row in rows:
        if row.kind in ("submit", "deliver"):
            counts.setdefault(row.at // span, [0, 0])[row.kind == "deliver"] += 1
        elif row.kind == "lose":
            lost[row.at // span] = lost.get(row.at // span, 0) + 1
    lines = []
    for place, (submitted, delivered) in counts.items():
        text = f"… {submitted} events submitted and {delivered} delivered in two seconds"
        if place in lost:
            text += f", {lost[place]} given up"
        lines.append(Line((place + 1) * span - 1, text, "load"))
    return lines


def _waves(rows: list[Row]) -> list[list[Row]]:
    """Rows that lie close together in time."""
    waves: list[list[Row]] = []
    for row in rows:
        if waves and row.at - waves[-1][-1].at <= TOGETHER:
            waves[-1].append(row)
        else:
            waves.append([row])
    return waves


def _listed(names: list[str]) -> str:
    unique = sorted(set(names))
    return unique[0] if len(unique) == 1 else f"{', '.join(unique[:-1])} and {unique[-1]}"
