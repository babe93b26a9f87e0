"""Sizes of the stamps that events carry."""

from __future__ import annotations

from ordercast.check.metric import MeasuredRun, Metric, mean


def _stamps(run: MeasuredRun) -> list[tuple[int, ...]]:
    return [row.stamp for row in run.rows if row.kind == "submit" and row.stamp]


def _packed(stamp: tuple[int, ...]) -> int:
    """Bytes of its entries in MessagePack: what a stamp costs that travels alone."""
    return sum(
        1 + (entry >= 1 << 7) + (entry >= 1 << 8) + 2 * (entry >= 1 << 16) + 4 * (entry >= 1 << 32)
        for entry in stamp
    )


def _entries(run: MeasuredRun) -> float | None:
    stamps = run.once(_stamps)
    return mean([len(stamp) for stamp in stamps]) if stamps else None


def _bytes(run: MeasuredRun) -> float | None:
    stamps = run.once(_stamps)
    return mean([_packed(stamp) for stamp in stamps]) if stamps else None


METRICS = (
    Metric("stamp_entries", "entries", "Entries of a submitted event's stamp: the mean", _entries),
    Metric("stamp_bytes", "B", "Size of a submitted event's stamp that travels alone", _bytes),
)
