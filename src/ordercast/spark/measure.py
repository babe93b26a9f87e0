"""What a run came to, in numbers: latency, throughput, loss, recovery, sizes.

Plain functions of one run's trace, called inside Spark's tasks, so that a sweep need not keep its
traces. Loss is counted as the cluster papers do: an event is lost at a process that was there all
the time and never delivered it, because it did not come or could not be delivered any more.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from ordercast.trace.schema import Row, Trace
from ordercast.units import SECOND

FIGURES = (
    "submitted",
    "delivered",
    "lost_share",
    "latency_mean",
    "latency_p50",
    "latency_p99",
    "rounds_mean",
    "rounds_p99",
    "hops_mean",
    "throughput",
    "recover_asked",
    "recover_success",
    "given_up",
    "blocked",
    "packets",
    "packet_bytes",
)
"""The names of the figures, in the order in which they are shown."""


def measure(
    trace: Trace, packets: int, packet_bytes: int, round_ns: int | None
) -> dict[str, float]:
    """The figures of one run. What it does not have is not there."""
    rows = trace.rows
    made = {(row.group, row.origin, row.number): row.at for row in rows if row.kind == "submit"}
    kinds = Counter((row.kind, row.cause) for row in rows)
    deliveries = [row for row in rows if row.kind == "deliver"]
    figures: dict[str, float] = {
        "submitted": len(made),
        "delivered": len(deliveries),
        "given_up": sum(count for (kind, _), count in kinds.items() if kind == "lose"),
        "blocked": sum(count for (kind, _), count in kinds.items() if kind == "blocked"),
        "packets": packets,
    }
    if packet_bytes and packets:
        figures["packet_bytes"] = packet_bytes / packets
    figures |= _latency(deliveries, made, round_ns)
    figures |= _loss(rows, deliveries, made)
    asked, answered = kinds["recover", "asked"], kinds["recover", "answered"]
    figures["recover_asked"] = asked
    if asked:
        figures["recover_success"] = min(1.0, answered / asked)
    return figures


def _latency(deliveries: list[Row], made: dict[Any, int], round_ns: int | None) -> dict[str, float]:
    """From submission to delivery at another process. A maker delivers its own at once."""
    waits = np.array(
        [
            row.at - made[row.group, row.origin, row.number]
            for row in deliveries
            if row.origin != row.process and (row.group, row.origin, row.number) in made
        ],
        dtype=np.float64,
    )
    if not len(waits):
        return {}
    p50, p99 = np.percentile(waits, [50, 99])
    figures = {
        "latency_mean": float(waits.mean() / SECOND),
        "latency_p50": float(p50 / SECOND),
        "latency_p99": float(p99 / SECOND),
    }
    if round_ns:
        figures["rounds_mean"] = float(waits.mean() / round_ns)
        figures["rounds_p99"] = float(p99 / round_ns)
    hops = [row.hops for row in deliveries if row.hops]
    if hops:
        figures["hops_mean"] = float(np.mean(hops))
    return figures


def _loss(rows: list[Row], deliveries: list[Row], made: dict[Any, int]) -> dict[str, float]:
    """Of who was there in one life from the beginning to the end."""
    down = {row.process for row in rows if row.kind in ("crash", "leave") or row.incarnation}
    members: dict[str | None, list[str]] = {}
    for row in rows:
        if row.kind == "join" and row.process not in down:
            members.setdefault(row.group, []).append(row.process)
    expected = sum(len(members.get(group, ())) for group, _, _ in made)
    got = sum(1 for row in deliveries if row.process not in down)
    ends = [row.at for row in rows if row.kind == "submit"]
    figures = {}
    if expected:
        figures["lost_share"] = max(0.0, 1.0 - got / expected)
    if len(ends) > 1 and max(ends) > min(ends):
        processes = len({row.process for row in deliveries}) or 1
        figures["throughput"] = len(deliveries) / processes / ((max(ends) - min(ends)) / SECOND)
    return figures
