"""What a run came to, in numbers: latency, throughput, loss, recovery, sizes, load.

Plain functions of one run's trace, called inside Spark's tasks, so that a sweep need not keep its
traces. `metrics.py` has the same figures as DataFrames over a lake; the tests compare the two.

Loss is counted as the cluster papers do: an event is lost at a process that was there all the
time if it did not come, or came when it could not be delivered any more without breaking optimistic
causal order. Families that keep that order have none of the second kind, plain gossip has; which
event precedes which is taken from the rows, never from stamps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

import numpy as np

from ordercast.check.history import History, Log
from ordercast.spark.measure_tickets import TICKET_FIGURES, measure_tickets
from ordercast.trace.schema import Header, Row, Trace
from ordercast.types import name_of
from ordercast.units import SECOND

FIGURES = (
    "submitted",
    "delivered",
    "lost_share",
    "missing_share",
    "disordered_share",
    "latency_mean",
    "latency_p50",
    "latency_p99",
    "rounds_mean",
    "rounds_p50",
    "rounds_p99",
    "hops_mean",
    "throughput",
    "recover_asked",
    "recover_failed",
    "recover_success",
    "given_up",
    "duplicates",
    "blocked",
    "blocked_time",
    "view_changes",
    "view_change_mean",
    "view_change_max",
    "stamp_entries",
    "stamp_bytes",
    "packets",
    "packet_bytes",
    "round",
    "failed_share",
    "delivery_bytes",
    "load_max_mean",
    "load_cv",
    *TICKET_FIGURES,
)
"""The names of the figures, in the order in which they are shown."""

CHANGES = ("suspect", "confirm", "exclude", "join", "leave")
"""The rows with which a change of view begins at a process."""

EventOf: TypeAlias = tuple[str | None, str | None, int | None]


class Change(NamedTuple):
    """A view that a process installed after something had happened to the group."""

    group: str | None
    view: int | None
    process: str
    took: int  # nanoseconds from the first sign of it


def measure(
    trace: Trace,
    packets: int,
    packet_bytes: int,
    round_ns: int | None,
    failed_share: float | None = None,
    lease_ns: int | None = None,
) -> dict[str, float]:
    """The figures of one run. What it does not have is not there.

    What the network counted comes beside the trace: packets, their bytes (0: not weighed), and
    the share of status sends that got no answer in time.
    """
    rows = trace.rows
    made = {_event(row): row.at for row in rows if row.kind == "submit"}
    kinds = Counter((row.kind, row.cause) for row in rows)
    deliveries = [row for row in rows if row.kind == "deliver"]
    figures: dict[str, float] = {
        "submitted": len(made),
        "delivered": len(deliveries),
        "given_up": sum(count for (kind, _), count in kinds.items() if kind == "lose"),
        "duplicates": len(deliveries) - len({_delivery(row) for row in deliveries}),
        "packets": packets,
    }
    if packet_bytes and packets:
        figures["packet_bytes"] = packet_bytes / packets
    if round_ns:
        figures["round"] = round_ns / SECOND
    if failed_share is not None:
        figures["failed_share"] = failed_share
    figures |= _latency(deliveries, made, round_ns)
    figures |= _throughput(deliveries, list(made.values()))
    figures |= _loss(rows, deliveries, made)
    figures |= _recovery(kinds)
    figures |= _blocked(rows)
    figures |= _views(rows)
    figures |= _sizes([row for row in rows if row.kind == "submit"])
    figures |= _wire(rows, deliveries)
    figures |= measure_tickets(rows, lease_ns)
    return figures


def _event(row: Row) -> EventOf:
    return row.group, row.origin, row.number


def _delivery(row: Row) -> tuple[str, int, EventOf]:
    return row.process, row.incarnation, _event(row)


# --- time ------------------------------------------------------------------------------------


def _latency(
    deliveries: list[Row], made: dict[EventOf, int], round_ns: int | None
) -> dict[str, float]:
    """From submission to delivery at another process. A maker delivers its own at once."""
    waits = np.array(
        [
            row.at - made[_event(row)]
            for row in deliveries
            if row.origin != row.process and _event(row) in made
        ],
        dtype=np.float64,
    )
    if not len(waits):
        return {}
    p50, p99 = np.percentile(waits, [50, 99])
    each = {"mean": waits.mean(), "p50": p50, "p99": p99}
    figures = {f"latency_{name}": float(value / SECOND) for name, value in each.items()}
    if round_ns:
        figures |= {f"rounds_{name}": float(value / round_ns) for name, value in each.items()}
    hops = [row.hops for row in deliveries if row.hops]
    if hops:
        figures["hops_mean"] = float(np.mean(hops))
    return figures


def _throughput(deliveries: list[Row], made_at: list[int]) -> dict[str, float]:
    """Deliveries a second and process, while there was load."""
    span = max(made_at) - min(made_at) if made_at else 0
    if span <= 0:
        return {}
    processes = len({row.process for row in deliveries}) or 1
    return {"throughput": len(deliveries) / processes / (span / SECOND)}


def _blocked(rows: list[Row]) -> dict[str, float]:
    """How often a process had to wait to submit, and how long until it could."""
    times, waits = 0, 0
    since: dict[tuple[str, int, str | None], int] = {}
    for row in rows:
        key = (row.process, row.incarnation, row.group and name_of(row.group))
        if row.kind == "blocked":
            times += 1
            since.setdefault(key, row.at)
        elif row.kind == "submit" and key in since:
            waits += row.at - since.pop(key)
    return {"blocked": times, "blocked_time": waits / SECOND}


def _views(rows: list[Row]) -> dict[str, float]:
    changes = list(view_changes(rows))
    if not changes:
        return {}
    took = [change.took / SECOND for change in changes]
    return {
        "view_changes": len({(change.group, change.view) for change in changes}),
        "view_change_mean": float(np.mean(took)),
        "view_change_max": max(took),
    }


def view_changes(rows: Iterable[Row]) -> Iterator[Change]:
    """Each installation that something at the same process led to, since the view before."""
    began: dict[tuple[str, int, str | None], int] = {}
    for row in rows:
        key = (row.process, row.incarnation, row.group)
        if row.kind in CHANGES:
            began.setdefault(key, row.at)
        elif row.kind == "view" and key in began:
            yield Change(row.group, row.view, row.process, row.at - began.pop(key))


# --- loss and recovery -----------------------------------------------------------------------


def _loss(rows: list[Row], deliveries: list[Row], made: dict[EventOf, int]) -> dict[str, float]:
    """Of who was there in one life, from its coming to the end."""
    there = _there(rows)
    comings = {group: sorted(joined.values()) for group, joined in there.items()}
    expected = sum(bisect_right(comings.get(key[0], ()), at) for key, at in made.items())
    if not expected:
        return {}
    got = {
        _delivery(row)
        for row in deliveries
        if (at := made.get(_event(row))) is not None
        and at >= there.get(row.group, {}).get(row.process, at + 1)
    }
    disordered = len(got & too_late(rows))
    missing = expected - len(got)
    return {
        "lost_share": (missing + disordered) / expected,
        "missing_share": missing / expected,
        "disordered_share": disordered / expected,
    }


def _there(rows: list[Row]) -> dict[str | None, dict[str, int]]:
    """By group: who came once and stayed, and when it came."""
    gone = {row.process for row in rows if row.kind in ("crash", "leave") or row.incarnation}
    there: dict[str | None, dict[str, int]] = defaultdict(dict)
    for row in rows:
        if row.kind == "join" and row.process not in gone:
            there[row.group].setdefault(row.process, row.at)
    return there


def too_late(rows: list[Row]) -> set[tuple[str, int, EventOf]]:
    """Deliveries of events that precede something delivered there before, in the same life."""
    history = History(Trace(Header(run="one"), rows))
    return {
        (line.deliveries[at].process, line.deliveries[at].incarnation, history.events[event])
        for line in history.lines
        for at, event in _late(history, line)
    }


def _late(history: History, line: Log) -> Iterator[tuple[int, int]]:
    """Follows one line. `passed`: up to where each stream is in the past of what was delivered.

    An event that comes too late adds nothing: all of its past is passed already.
    """
    past = history.past
    stream, place, streams, before = past.stream, past.place, past.streams, past.before
    reach: dict[int, int] = {}  # how far each stream's own pasts were followed
    passed: dict[int, int] = {}
    for at, event in enumerate(line.delivered):
        source = stream[event]
        if source < 0:
            continue
        own = place[event]
        if passed.get(source, 0) >= own:
            yield at, event
            continue
        reached = reach.get(source, 0)
        if reached >= own:
            continue  # a repetition
        reach[source] = own
        passed[source] = own - 1
        todo = streams[source][reached:own]
        for one in todo:
            for earlier in before[one] or ():
                origin, last = stream[earlier], place[earlier]
                if passed.get(origin, 0) < last:
                    passed[origin] = last
                    reached = reach.get(origin, 0)
                    if reached < last:
                        reach[origin] = last
                        todo += streams[origin][reached:last]


def _recovery(kinds: Counter[tuple[str, str | None]]) -> dict[str, float]:
    asked, answered = kinds["recover", "asked"], kinds["recover", "answered"]
    figures: dict[str, float] = {
        "recover_asked": asked,
        "recover_failed": kinds["recover", "failed"],
    }
    if asked:
        figures["recover_success"] = min(1.0, answered / asked)
    return figures


# --- sizes and load --------------------------------------------------------------------------


def _sizes(submits: list[Row]) -> dict[str, float]:
    stamps = [row.stamp for row in submits if row.stamp]
    if not stamps:
        return {}
    return {
        "stamp_entries": float(np.mean([len(stamp) for stamp in stamps])),
        "stamp_bytes": float(np.mean([_packed(stamp) for stamp in stamps])),
    }


def _packed(stamp: tuple[int, ...]) -> int:
    """Bytes of its entries in MessagePack: what a stamp costs that travels alone."""
    return sum(
        1 + (entry >= 1 << 7) + (entry >= 1 << 8) + 2 * (entry >= 1 << 16) + 4 * (entry >= 1 << 32)
        for entry in stamp
    )


def _wire(rows: list[Row], deliveries: list[Row]) -> dict[str, float]:
    """Of runs at trace level `wire`: what the load of each process was, and what it was for."""
    load: Counter[str] = Counter()
    received = 0
    for row in rows:
        if row.kind in ("send", "receive"):
            load[row.process] += row.size or 0
            received += row.size or 0 if row.kind == "receive" else 0
    if not sum(load.values()):
        return {}
    for row in rows:
        load[row.process] += 0  # who sent nothing counts too
    bytes_of = np.array(sorted(load.values()), dtype=np.float64)
    figures = {
        "load_max_mean": float(bytes_of.max() / bytes_of.mean()),
        "load_cv": float(bytes_of.std() / bytes_of.mean()),
    }
    elsewhere = sum(row.origin != row.process for row in deliveries)
    if elsewhere:
        figures["delivery_bytes"] = received / elsewhere
    return figures
