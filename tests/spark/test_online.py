"""Laws on a stream: each break gets its row, sound streams get none, and memory is bounded."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.check.law import ORIGINS, Delivery
from ordercast.check.laws import LAWS, check
from ordercast.check.verdict import Answer
from ordercast.errors import TraceError, UsageError
from ordercast.report.live_page import LivePage
from ordercast.spark.online import (
    BUCKETS,
    STREAMED,
    Break,
    KeyMemory,
    breaks,
    count_latencies,
    judge,
    judged,
    quantile,
)
from ordercast.spark.stream import register
from ordercast.trace.record_log import RecordLog
from ordercast.trace.recording import SPANS, Record
from ordercast.trace.schema import Header, Row, Trace


def delivery(offset: int, origin: str, number: int, **more: Any) -> Delivery:
    return Delivery(offset, 0, more.pop("incarnation", 0), origin, number, **more)


def told(found: list[Break]) -> list[tuple[str, int]]:
    return [(each.law, each.delivery.offset) for each in found]


# --- the laws themselves -----------------------------------------------------------------------


def test_fifo_reports_every_event_that_comes_too_late() -> None:
    stream = [delivery(at, "n1", number) for at, number in enumerate([1, 5, 3, 4, 6])]
    found = judge(KeyMemory(), stream)
    assert told(found) == [("fifo", 2), ("fifo", 3)]
    assert found[0].why == "after n1:5"


def test_a_repeated_event_is_a_duplicate_only_for_its_own_origin() -> None:
    stream = [delivery(0, "n1", 1), delivery(1, "n2", 1), delivery(2, "n1", 1)]
    assert told(judge(KeyMemory(), stream)) == [("no-duplication", 2)]


def test_order_starts_again_with_an_incarnation_of_the_recorder_and_duplication_does_not() -> None:
    stream = [
        delivery(0, "n1", 1),
        delivery(1, "n1", 5),
        delivery(2, "n1", 3, incarnation=1),
        delivery(3, "n1", 5, incarnation=1),
    ]
    assert told(judge(KeyMemory(), stream)) == [("no-duplication", 3)]


def test_an_event_after_one_that_depends_on_it_breaks_causality() -> None:
    cause = {"index": 0, "stamp": (1, 0)}
    effect = {"index": 1, "stamp": (1, 1)}
    sound = [delivery(0, "n1", 1, **cause), delivery(1, "n2", 1, **effect)]
    assert judge(KeyMemory(), sound) == []
    found = judge(KeyMemory(), [delivery(0, "n2", 1, **effect), delivery(1, "n1", 1, **cause)])
    assert told(found) == [("optimistic-causal", 1)]
    assert found[0].why == "after n2:1, which has it in its past"


def test_only_the_laws_that_were_asked_for_are_judged() -> None:
    stream = [delivery(0, "n1", 2), delivery(1, "n1", 1), delivery(2, "n1", 1)]
    assert told(judge(KeyMemory(), stream, [LAWS["no-duplication"]])) == [("no-duplication", 2)]
    assert told(judge(KeyMemory(), stream, [LAWS["fifo"]])) == [("fifo", 1), ("fifo", 2)]


@given(st.integers(0, 10_000))
def test_the_plain_reference_agrees_with_the_stream(seed: int) -> None:
    """A small group makes events; an observer is handed some of them, in any order and twice.

    A law is broken on the observer's rows by the reference exactly if the stream tells a break.
    """
    chance = Random(seed)
    rows, events = stamped_run(chance)
    picked = [chance.choice(events) for _ in range(chance.randrange(1, 7))]
    if chance.random() < 0.5:
        picked.sort(key=lambda event: events.index(event))
    stream = []
    for step, event in enumerate(picked):
        origin, number, index, stamp = event
        rows.append(Row("r", 0, step + 1, 10**9 + step, "deliver", "g", origin, number))
        stream.append(delivery(step, origin, number, index=index, stamp=stamp))
    found = {each.law for each in judge(KeyMemory(), stream)}
    verdicts = check(Trace(Header("x"), rows), STREAMED)
    assert found == {each.law for each in verdicts if each.answer is Answer.BROKEN}


def stamped_run(chance: Random) -> tuple[list[Row], list[tuple[str, int, int, tuple[int, ...]]]]:
    """Three processes that submit and deliver in causal order, with the stamps they would make."""
    names = ["n0", "n1", "n2"]
    clocks = [[0, 0, 0] for _ in names]
    rows: list[Row] = []
    events: list[tuple[str, int, int, tuple[int, ...]]] = []
    for at in range(chance.randrange(2, 14)):
        me = chance.randrange(3)
        clock = clocks[me]
        ready = [
            event
            for event in events
            if event[2] != me
            and event[3][event[2]] == clock[event[2]] + 1
            and all(event[3][k] <= clock[k] for k in range(3) if k != event[2])
        ]
        if ready and chance.random() < 0.6:
            origin, number, index, _ = chance.choice(ready)
            clock[index] += 1
            kind, row_origin, row_number, extra = "deliver", origin, number, None
        else:
            clock[me] += 1
            kind, row_origin, row_number, extra = "submit", names[me], clock[me], tuple(clock)
            events.append((names[me], clock[me], me, tuple(clock)))
        rows.append(Row(names[me], 0, at + 1, at, kind, "g", row_origin, row_number, stamp=extra))
    if not events:
        events.append(("n0", 1, 0, (1, 0, 0)))
        rows.append(Row("n0", 0, 99, 99, "submit", "g", "n0", 1))
    return rows, events


@given(st.lists(st.integers(1, 30), max_size=40), st.lists(st.integers(0, 40), max_size=5))
def test_batches_and_restarts_change_nothing(numbers: list[int], cuts: list[int]) -> None:
    """The memory is packed and unpacked between batches, as it is in Spark's state."""
    stream = [delivery(at, "n1", number) for at, number in enumerate(numbers)]
    memory, found = b"", []
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    for begin, end in pairwise(edges):
        unpacked = KeyMemory(packed=memory or None)
        found += judge(unpacked, stream[begin:end])
        memory = unpacked.pack()
    assert found == judge(KeyMemory(), stream)


def test_the_state_is_bounded_and_forgetting_reports_no_false_break() -> None:
    memory = KeyMemory()
    gaps = [delivery(at, "n1", 2 * at + 2) for at in range(5 * SPANS)]
    crowd = [delivery(1000 + at, f"p{at}", 1) for at in range(2 * ORIGINS)]
    assert judge(memory, [*gaps, *crowd]) == []
    assert len(memory.of["fifo"].last) == len(memory.of["no-duplication"].origins) == ORIGINS
    assert len(memory.pack()) < 100 * ORIGINS
    again = [delivery(9000, "p0", 1), delivery(9001, f"p{2 * ORIGINS - 1}", 1)]
    assert told(judge(memory, again)) == [("no-duplication", 9001)]  # p0 was forgotten
    late = KeyMemory()
    judge(late, gaps)
    assert told(judge(late, [delivery(9000, "n1", 3)], [LAWS["no-duplication"]])) == []
    assert told(judge(late, [delivery(9001, "n1", 10 * SPANS)])) == [("no-duplication", 9001)]


def test_a_law_without_a_streaming_form_is_rejected() -> None:
    with pytest.raises(UsageError, match="total has no streaming form"):
        judged(None, ["total"])
    with pytest.raises(UsageError, match="unknown law 'totl': did you mean 'total'"):
        judged(None, ["totl"])


def test_which_laws_have_a_streaming_form() -> None:
    assert [law.name for law in STREAMED] == ["no-duplication", "fifo", "optimistic-causal"]


def test_a_state_of_another_version_is_refused_with_what_to_do() -> None:
    older = msgspec.msgpack.encode([0, {"n1": [5, 0, []]}, []])
    with pytest.raises(TraceError, match="start the query with another checkpoint"):
        KeyMemory(packed=older)


# --- latency -----------------------------------------------------------------------------------


@given(st.lists(st.integers(1, BUCKETS[-1]), min_size=1))
def test_a_quantile_is_right_to_a_fifth(values: list[int]) -> None:
    counts = count_latencies(values)
    exact = sorted(values)[(len(values) - 1) // 2]
    found = quantile(counts, 0.5)
    assert found is not None
    assert exact <= found <= max(BUCKETS[0], exact * 2**0.25 + 1)


def test_an_empty_histogram_has_no_quantile() -> None:
    assert quantile(count_latencies([]), 0.5) is None


# --- on Spark ----------------------------------------------------------------------------------


@pytest.mark.slow(20)
def test_a_stream_reports_breaks_and_remembers_across_restarts(spark: Any, tmp_path: Path) -> None:
    """Two runs of one query: the second knows what the first has seen. The page counts both."""
    register(spark)
    log = RecordLog(tmp_path / "recording")
    page = LivePage(tmp_path / "live.html")

    def record(origin: str, number: int) -> Record:
        return Record(0, "deliver", 1, "r", 0, "g", origin, 0, number, size=1, payloads=[b"x"])

    def run() -> None:
        query = (
            judged(spark.readStream.format("ordercast").load(str(tmp_path / "recording")))
            .writeStream.foreachBatch(page.take)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    # More than the tasks of one micro-batch read one after the other: they are put in order again.
    log.append([record("n1", number) for number in range(1, 25_001)])
    log.append([Record(0, "view", 1, "r", 0, "g", view=1, members=("n1", "r"))])
    run()
    log.append([record("n1", 7), record("n2", 1), record("n1", 25_001)])
    run()
    page.close()
    text = (tmp_path / "live.html").read_text(encoding="utf-8")
    assert "25,003 events judged, 2 breaks" in text
    assert "r delivered n1:7 after n1:25000" in text
    table = spark.read.format("ordercast").load(str(tmp_path / "recording"))
    rows = breaks(table).orderBy("law").collect()  # the same laws on what was recorded
    assert [(row["law"], row["group"], row["process"], row["offset"]) for row in rows] == [
        ("fifo", "g", "r", 25_001),
        ("no-duplication", "g", "r", 25_001),
    ]
    log.close()
