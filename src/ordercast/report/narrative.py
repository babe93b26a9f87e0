"""A trace as a narrative: what a person wants to know of it, in order of time."""

from __future__ import annotations

from typing import NamedTuple

from ordercast.check.metric import MeasuredRun
from ordercast.check.metrics import events, measure, tickets
from ordercast.trace.schema import Row, Trace
from ordercast.types import name_of
from ordercast.units import MILLISECOND, SECOND

TOGETHER = 250 * MILLISECOND
"""Things of one kind that several members see within this time are told as one."""


class Line(NamedTuple):
    at: int  # nanoseconds
    text: str
    tone: str  # bad, good, view, load or nothing


def tell(trace: Trace) -> list[Line]:
    """Crashes, returns, who leaves and joins, suspicions, views and tickets, and how much was
    delivered in between; counted from the beginning of the run."""
    rows = sorted(trace.rows, key=lambda row: row.at)
    start = trace.header.start or (rows[0].at if rows else 0)
    lines = _lives(rows) + _memberships(rows, start) + _opinions(rows) + _views(rows)
    lines += _tickets(rows) + _load(rows)
    told = [line._replace(at=max(0, line.at - start)) for line in lines]
    return sorted(told, key=lambda line: line.at)


def _lives(rows: list[Row]) -> list[Line]:
    lines = []
    started: set[str] = set()
    for row in rows:
        if row.kind == "crash":
            what = "abandons an outdated incarnation" if row.cause == "abandoned" else "crashes"
            lines.append(Line(row.at, f"{row.process} {what}", "bad"))
        elif row.kind == "start":
            if row.process in started:
                what = f"{row.process} starts again, as incarnation {row.incarnation}"
                lines.append(Line(row.at, what, "good"))
            started.add(row.process)
    return lines


def _memberships(rows: list[Row], start: int) -> list[Line]:
    """Who leaves a group, and who joins later than the run and its process started. Moves from one
    formation of a group to the next are not told: the views are."""
    started = {
        (row.process, row.incarnation): max(row.at, start) for row in rows if row.kind == "start"
    }
    lines = []
    for row in rows:
        group = row.group or ""
        if row.kind == "leave" and group == name_of(group):
            lines.append(Line(row.at, f"{row.process} leaves {group}", ""))
        elif row.kind == "join":
            begun = started.get((row.process, row.incarnation), row.at)
            if row.at - begun > TOGETHER:
                lines.append(Line(row.at, f"{row.process} joins {group}", ""))
    return lines


def _opinions(rows: list[Row]) -> list[Line]:
    """Who gave up whom, and who took whom back, a line a wave."""
    verbs = {
        "suspect": ("no longer hears from", "bad"),
        "refute": ("hears again from", "good"),
        "confirm": ("gives up", "bad"),
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
                plural = verb.replace("hears", "hear").replace("gives", "give")
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
    """Which members request, get, give back and lose the right to update."""
    changes = [row for row in rows if row.kind == "ticket"]
    if not any(row.cause == "wanted" for row in changes):
        return []  # fixed owners: nothing happens
    lines = []
    verbs = {"released": "gives back", "disconnected": "has lost"}
    for row in changes:
        if row.cause == "wanted":
            lines.append(Line(row.at, f"{row.process} wants to update", ""))
        elif row.cause in verbs:
            lines.append(Line(row.at, f"{row.process} {verbs[row.cause]} ticket {row.index}", ""))
    for grant in tickets.grants(MeasuredRun(rows)):
        text = f"{grant.process} may update: it has ticket {grant.ticket}"
        if grant.reclaim is not None:
            ago = f"{grant.reclaim:.1f} s ago"
            how = f"left {ago} when it died" if grant.left == "died" else f"lost {ago}"
            text += f", which {grant.left_by} {how}"
        lines.append(Line(grant.at, text, "good"))
    return lines


def _load(rows: list[Row]) -> list[Line]:
    """How much was submitted and delivered, a line every two seconds in which there was any."""
    span = 2 * SECOND
    windows: dict[int, list[Row]] = {}
    for row in rows:
        windows.setdefault(row.at // span, []).append(row)
    lines = []
    for place, window in windows.items():
        counts = measure(MeasuredRun(window), events.COUNTS)
        submitted, delivered, given_up = counts.values()
        if submitted or delivered:
            text = f"… {submitted} events submitted and {delivered} delivered in two seconds"
            text += f", {given_up} given up" if given_up else ""
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
