"""How much each process sends and receives, and how evenly: of runs at trace level `wire`."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import NamedTuple

from ordercast.check.metric import Breakdown, MeasuredRun, Metric, mean, percentile
from ordercast.check.metrics.events import deliveries


class Load(NamedTuple):
    process: str
    submitted: int
    delivered: int
    sent: int  # packets
    received: int
    sent_bytes: int
    received_bytes: int
    load: int  # bytes sent and received


class MessageType(NamedTuple):
    message: str | None
    packets: int
    bytes: int
    bytes_mean: float
    bytes_p99: float
    bytes_max: int
    share: float | None  # of all bytes that were sent


def _loads(run: MeasuredRun) -> list[Load]:
    """One for each process: those that do nothing count too."""
    counts = Counter((row.process, row.kind) for row in run.rows)
    size: Counter[tuple[str, str]] = Counter()
    for row in run.rows:
        if row.kind in ("send", "receive"):
            size[row.process, row.kind] += row.size or 0
    found = []
    for process in sorted({process for process, _ in counts}):
        sent, received = size[process, "send"], size[process, "receive"]
        found.append(
            Load(
                process,
                submitted=counts[process, "submit"],
                delivered=counts[process, "deliver"],
                sent=counts[process, "send"],
                received=counts[process, "receive"],
                sent_bytes=sent,
                received_bytes=received,
                load=sent + received,
            )
        )
    return found


def _bytes(run: MeasuredRun) -> list[int]:
    """What each process sent and received; nothing if the trace does not tell."""
    if not any(row.size and row.kind in ("send", "receive") for row in run.rows):
        return []
    return [one.load for one in run.once(_loads)]


def _max_mean(run: MeasuredRun) -> float | None:
    found = run.once(_bytes)
    return max(found) / mean(found) if found else None


def _variation(run: MeasuredRun) -> float | None:
    found = run.once(_bytes)
    if not found:
        return None
    middle = mean(found)
    return math.sqrt(mean([(one - middle) ** 2 for one in found])) / middle


def _delivery_bytes(run: MeasuredRun) -> float | None:
    if not run.once(_bytes):
        return None
    elsewhere = sum(row.origin != row.process for row in run.once(deliveries))
    received = sum(one.received_bytes for one in run.once(_loads))
    return received / elsewhere if elsewhere else None


def _messages(run: MeasuredRun) -> list[MessageType]:
    sizes: defaultdict[str | None, list[int]] = defaultdict(list)
    for row in run.rows:
        if row.kind == "send":
            sizes[row.message].append(row.size or 0)
    total = sum(map(sum, sizes.values()))
    found = []
    for message, several in sizes.items():
        several.sort()
        count, size, p99 = len(several), sum(several), percentile(several, 0.99)
        share = size / total if total else None
        found.append(MessageType(message, count, size, size / count, p99, several[-1], share))
    return found


LOAD = Breakdown("load", "Every process: what it did, sent and received", Load, _loads)
MESSAGES = Breakdown("messages", "Every type of message that was sent", MessageType, _messages)
METRICS = (
    Metric(
        "delivery_bytes",
        "B",
        "Bytes received for each delivery at another process than the submitter",
        _delivery_bytes,
    ),
    Metric("load_max_mean", "times", "Bytes of the most loaded process by the mean", _max_mean),
    Metric(
        "load_cv",
        "share",
        "Coefficient of variation of the bytes that processes send and receive",
        _variation,
    ),
)
