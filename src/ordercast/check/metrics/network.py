"""What the world counted beside the trace, and the round that a family worked with."""

from __future__ import annotations

from ordercast.check.metric import MeasuredRun, Metric
from ordercast.units import SECOND


def _packet_bytes(run: MeasuredRun) -> float | None:
    packets, size = run.counted.get("packets"), run.counted.get("bytes")
    return size / packets if packets and size else None


def _round(run: MeasuredRun) -> float | None:
    length = run.times.round
    return length / SECOND if length else None


METRICS = (
    Metric("packets", "packets", "Packets sent", lambda run: run.counted.get("packets")),
    Metric("packet_bytes", "B", "Size of a packet, where they were weighed: mean", _packet_bytes),
    Metric("round", "s", "The length of a round", _round),
    Metric(
        "failed_share",
        "share",
        "Status sends that got no answer in time",
        lambda run: run.counted.get("failed_share"),
    ),
)
