"""A live stream through Spark: how long after it was recorded an event is committed by a sink.

A recording grows by so many events a second while a query follows it. When a micro-batch is
committed is what Spark says of it; when an event was recorded is in its record. The first seconds
are left out: workers start, and the store of the state.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from bench.table import Table
from ordercast.spark.online import judged
from ordercast.spark.session import open_session
from ordercast.spark.stream import register
from ordercast.trace.record_log import RecordLog
from ordercast.trace.recording import Record

EVENTS_A_SECOND = 5000
APPENDS_A_SECOND = 50
PAYLOAD = b"x" * 100
STAMP = 5  # entries
WARM_SECONDS = 12
SECONDS = 20
KEPT = {"spark.sql.streaming.numRecentProgressUpdates": "1000"}

Start = Callable[[Any, Path], Any]
"""From the stream and a folder of its own to the query that was started."""


def measure() -> Iterator[Table]:
    rows = []
    with open_session("local[2,4]", light=True, **KEPT) as spark:
        register(spark)
        for label, start in SINKS.items():
            with tempfile.TemporaryDirectory() as folder:
                rows.append((label, *_figures(spark, Path(folder), start)))
    columns = ("", "p50 s", "p99 s", "events", "micro-batches", "s a batch")
    note = (
        f"{EVENTS_A_SECOND:,} events of {len(PAYLOAD)} bytes a second, for {SECONDS} s after "
        f"{WARM_SECONDS} s to get warm; wall time from the record to the end of its micro-batch."
    )
    yield Table("A recording as a stream", columns, rows, note)


def _noop(live: Any, folder: Path) -> Any:
    return live.writeStream.format("noop").option("checkpointLocation", str(folder / "c")).start()


def _parquet(live: Any, folder: Path) -> Any:
    return (
        live.writeStream.format("parquet")
        .option("path", str(folder / "sink"))
        .option("checkpointLocation", str(folder / "c"))
        .start()
    )


def _laws(live: Any, folder: Path) -> Any:
    return _noop(judged(live), folder)


SINKS: dict[str, Start] = {"to nowhere": _noop, "to Parquet": _parquet, "through the laws": _laws}


def _figures(spark: Any, folder: Path, start: Start) -> tuple[str, ...]:
    with closing(RecordLog(folder / "recording")) as log:
        log.append([_record(1)])
        query = start(spark.readStream.format("ordercast").load(str(folder / "recording")), folder)
        try:
            with _growing(log) as recorded:
                query.awaitTermination(WARM_SECONDS + SECONDS)  # raises what it died of
            query.processAllAvailable()
        finally:
            query.stop()
        ends = _ends(query)
    at = np.array(recorded)
    wanted = np.flatnonzero(at > at[0] + WARM_SECONDS * 10**9)
    committed = np.array([end for end, _, _ in ends])
    batch = np.searchsorted([after for _, after, _ in ends], wanted, side="right")
    latency = (committed[batch] - at[wanted]) / 1e9
    used = np.unique(batch)
    p50, p99 = np.percentile(latency, [50, 99])
    took = float(np.median([ends[one][2] for one in used]))
    return f"{p50:.2f}", f"{p99:.2f}", f"{len(wanted):,}", f"{len(used)}", f"{took:.2f}"


def _record(number: int) -> Record:
    return Record(
        *(0, "deliver", time.time_ns(), "r", 0, "g", "n1", 0, number),
        index=0,
        stamp=(number, *[0] * (STAMP - 1)),
        size=len(PAYLOAD),
        payloads=[PAYLOAD],
    )


@contextmanager
def _growing(log: RecordLog) -> Iterator[list[int]]:
    """Appends at the rate until it is left. By offset from 1 on: when it was recorded."""
    recorded = [time.time_ns()]
    over = threading.Event()

    def append() -> None:
        each = EVENTS_A_SECOND // APPENDS_A_SECOND
        due = time.monotonic()
        while not over.is_set():
            records = [_record(len(recorded) + 1 + place) for place in range(each)]
            recorded.extend(record.at for record in records)
            log.append(records)
            due += 1 / APPENDS_A_SECOND
            over.wait(max(0.0, due - time.monotonic()))

    thread = threading.Thread(target=append)
    thread.start()
    try:
        yield recorded
    finally:
        over.set()
        thread.join()


def _ends(query: Any) -> list[tuple[int, int, float]]:
    """Of each micro-batch: when it was committed, the offset after it, and how long it took."""
    found = []
    for progress in query.recentProgress:
        after = json.loads(progress["sources"][0].get("endOffset") or "{}").get("next", 0)
        took = progress["durationMs"]["triggerExecution"]
        began = datetime.fromisoformat(progress["timestamp"]).timestamp()
        if not found or after > found[-1][1]:
            found.append((int((began + took / 1000) * 1e9), after, took / 1000))
    return found
