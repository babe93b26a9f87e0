"""Laws by service and laws about views with services: slow and obvious, as oracles.py.

And ways to give a history services: events get one, and views become transitional.
"""

from __future__ import annotations

from random import Random

import msgspec
from tests.check import oracles
from tests.check.oracles import Event, event, lives

from ordercast.trace.schema import Row, Trace
from ordercast.types import GUARANTEES

CHOICES = (None, *GUARANTEES)


def with_services(trace: Trace, *, transitional: float = 0.0, lies: float = 0.0) -> Trace:
    """Every event has a service, or none; some views are transitional, some rows lie about it."""
    chance = Random(trace.header.run)
    services: dict[Event, str | None] = {}
    rows: list[Row] = []
    for row in trace.rows:
        if row.kind in ("submit", "deliver"):
            service = services.setdefault(event(row), chance.choice(CHOICES))
            if chance.random() < lies:
                service = chance.choice(CHOICES)
            row = msgspec.structs.replace(row, cause=service)
        elif row.kind == "view" and chance.random() < transitional:
            row = msgspec.structs.replace(row, cause="transitional")
        rows.append(row)
    return Trace(trace.header, rows)


def only(rows: list[Row], *services: str | None) -> list[Row]:
    return [row for row in rows if row.kind not in ("submit", "deliver") or row.cause in services]


def fifo_broken(rows: list[Row], durable: bool) -> bool:
    apart = only(rows, None, "causal", "agreed", "safe"), only(rows, "basic")
    return any(oracles.fifo_broken(part, durable) for part in apart)


def total_broken(rows: list[Row], durable: bool) -> bool:
    return oracles.shortest_disorder(only(rows, None, "agreed", "safe"), durable) > 0


def total_in_view_broken(rows: list[Row]) -> bool:
    return oracles.total_in_view_broken(only(rows, None, "agreed", "safe"))


def basic(rows: list[Row]) -> set[Event]:
    return {event(row) for row in oracles.submissions(rows).values() if row.cause == "basic"}


def judged_past(rows: list[Row], durable: bool) -> dict[Event, set[Event]]:
    """What precedes each event that is not basic, by links of any kind: basic events left out."""
    aside = basic(rows)
    past = oracles.pasts(rows, durable)
    return {one: known - aside for one, known in past.items() if one not in aside}


def optimistic_causal_broken(rows: list[Row], durable: bool) -> bool:
    past, aside = judged_past(rows, durable), basic(rows)
    for log in oracles.lines(rows, durable):
        order = [one for one in oracles.delivered(log) if one not in aside]
        if any(then in past[first] for at, first in enumerate(order) for then in order[at + 1 :]):
            return True
    return False


def causal_broken(rows: list[Row], durable: bool) -> bool:
    past, submitted = judged_past(rows, durable), oracles.submissions(rows)
    for log in oracles.lines(rows, durable):
        had: set[Event] = set()
        for one in oracles.delivered(log):
            for earlier in past.get(one, ()):
                began = oracles.of_group(log, str(earlier[0]), "join", "view")
                exempt = began and submitted[earlier].at < began[0].at
                if earlier not in had and not exempt:
                    return True
            had.add(one)
    return optimistic_causal_broken(rows, durable)


# --- views -----------------------------------------------------------------------------------


def views_at(log: list[Row], at: int) -> tuple[Row, Row] | None:
    """The view in force at a row of a group, and the last that is not transitional before it."""
    views = [row for row in log[:at] if row.kind == "view" and row.group == log[at].group]
    if not views:
        return None
    regular = [row for row in views if row.cause != "transitional"]
    return views[-1], regular[-1] if regular else views[0]


def came_into(log: list[Row], view: Row) -> list[Row]:
    """The rows with which an incarnation came into this view."""
    found = []
    for at, row in enumerate(log):
        same = row.kind == "view" and (row.group, row.view) == (view.group, view.view)
        if same and (row.cause != "transitional" or views_at(log, at) is None):
            found.append(row)
    return found


def delivers_in(log: list[Row], wanted: Event, view: Row) -> bool:
    for at, row in enumerate(log):
        if row.kind == "deliver" and event(row) == wanted:
            there = views_at(log, at)
            if there is not None and there[1].view == view.view:
                return True
    return False


def safe_broken(rows: list[Row], *, finished: bool = True) -> str:
    """Whether it is: "broken", "open" in a run that did not finish, or neither."""
    found = ""
    for log in lives(rows):
        for at, row in enumerate(log):
            there = views_at(log, at)
            if row.kind == "deliver" and row.cause == "safe" and there is not None:
                for name in there[0].members or ():
                    found = max(found, owed(rows, row, there[1], oracles.bare(name), finished))
    return {"": "", "1": "open", "2": "broken"}[found]


def owed(rows: list[Row], row: Row, view: Row, name: str, finished: bool) -> str:
    logs = [log for log in lives(rows) if log[0].process == name]
    inside = [log for log in logs if came_into(log, view)]
    if not logs or any(delivers_in(log, event(row), view) for log in inside):
        return ""
    for log in inside or logs:
        since = min((one.step for one in came_into(log, view)), default=-1)
        left = any(
            one.kind == "leave" and one.group == view.group and one.step > since for one in log
        )
        if left or oracles.wrote(log, "crash") or not oracles.last_life(rows, log):
            return ""
        if any(one.kind == "stop" and one.at <= row.at for one in log):
            return ""
    went_on = any(
        one.kind == "view"
        and one.group == view.group
        and one.cause != "transitional"
        and one.step > min(each.step for each in came_into(log, view))
        for log in inside
        for one in log
    )
    return "2" if finished or went_on else "1"


def causal_in_view_broken(rows: list[Row], durable: bool) -> bool:
    past = judged_past(rows, durable)
    for log in lives(rows):
        for at, row in enumerate(log):
            there = views_at(log, at) if row.kind == "deliver" else None
            if there is None:
                continue
            had = set(oracles.delivered(log[:at]))
            for earlier in past.get(event(row), set()) - had:
                if any(delivers_in(other, earlier, there[1]) for other in lives(rows)):
                    return True
    return False


def self_delivery_broken(rows: list[Row]) -> bool:
    return any(
        oracles.last_life(rows, log)
        and not oracles.wrote(log, "crash")
        and not oracles.of_group(log, group, "leave")
        and not oracles.stopped_early(rows, group, log)
        and not oracles.events_of(log, group, "submit") <= oracles.events_of(log, group, "deliver")
        for group in oracles.all_groups(rows)
        for log in lives(rows)
    )


def rest_broken(rows: list[Row], begins: int) -> bool:
    stops = [row.at for row in rows if row.kind == "stop" and row.at >= begins]
    return any(
        row.kind in ("suspect", "view", "join")
        and row.at >= begins
        and all(row.at < stop for stop in stops)
        for row in rows
    )
