"""Laws on a live stream: a row for every break, within seconds of its being recorded.

    live = spark.readStream.format("ordercast").load("recording")
    breaks(live).writeStream...

Judged is what a recorder was handed, key by key: a key is a group at a process. Three laws can be
judged there, from what the key has seen before and nothing else:

  fifo               an origin's number is smaller than one that was delivered before, in this life
  no-duplication     an event is in the recording twice, in whichever lives
  optimistic-causal  an event that was delivered before has this one in its past, in this life

The last one takes the past from the stamps, for a recorder sees no submissions: a protocol that
stamps wrongly is caught by `ordercast check` on the members' traces, which takes it from the rows.
Events without a stamp are not judged by it. Every break is told, not only the first.

What is remembered is bounded, a key: the last number and 64 spans of numbers for each of 1,000
origins, and one mark for each of 4,096 tickets. Of an origin with more gaps than that, numbers
before the oldest gaps are not judged by no-duplication; who was silent longest of more than 1,000
origins is forgotten and begins anew. Nothing is ever called broken because of what was forgotten.

Beside the breaks `judged` gives one row a key and micro-batch that says how much was judged, and
how long after it was recorded.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import msgspec

from ordercast.errors import UsageError, unknown_word
from ordercast.trace.recording import Numbers
from ordercast.trace.text import event_name

FIFO, NO_DUPLICATION, OPTIMISTIC_CAUSAL = LAWS = ("fifo", "no-duplication", "optimistic-causal")
ORIGINS = 1000
TICKETS = 4096

BROKEN, JUDGED = "broken", "judged"
OUTPUT = (
    "`kind` string, `law` string, `group` string, `process` string, `incarnation` int, "
    "`offset` bigint, `origin` string, `number` bigint, `at` bigint, `why` string, "
    "`judged_at` bigint, `events` bigint, `messages` bigint, `bytes` bigint, "
    "`latency` array<bigint>"
)
"""What comes out. `judged` rows have the place of the last event, and the last four columns."""

BUCKETS = tuple(round(1_000_000 * 2 ** (step / 4)) for step in range(88))
"""Upper ends of the classes of latency, in nanoseconds: from 1 ms to an hour, by a fifth each."""

_STATE = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A batch writes down what it changed, not all there is: that is half of what a commit takes.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


class Delivery(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is judged and counted of one record."""

    offset: int
    at: int
    incarnation: int
    origin: str
    number: int
    index: int | None = None
    stamp: tuple[int, ...] | None = None
    size: int | None = None
    messages: int = 0


class Break(NamedTuple):
    law: str
    delivery: Delivery
    why: str


class _Origin(msgspec.Struct, array_like=True):
    last: int = -1  # the greatest number of this life
    floor: int = 0  # up to here it is not known what was delivered
    spans: list[int] = []  # see Numbers


class _Mark(msgspec.Struct, array_like=True):
    """How far a ticket is in the past of what was delivered, and of which event."""

    entry: int = -1
    by: str = ""


class Memory(msgspec.Struct, array_like=True):
    """What one key has seen, as far as it matters for what it will see."""

    incarnation: int = -1
    origins: dict[str, _Origin] = {}
    marks: list[_Mark] = []

    @classmethod
    def unpack(cls, data: bytes | None) -> Memory:
        return msgspec.msgpack.decode(data, type=cls) if data else cls()

    def pack(self) -> bytes:
        return msgspec.msgpack.encode(self)


def judge(
    memory: Memory, deliveries: Iterable[Delivery], laws: Sequence[str] = LAWS
) -> list[Break]:
    """The breaks among further deliveries of a key, in the order of their offsets."""
    found: list[Break] = []
    fifo, once, causal = (law in laws for law in LAWS)
    for each in deliveries:
        if each.incarnation != memory.incarnation:
            _begin_life(memory, each.incarnation)
        origin = memory.origins.pop(each.origin, None) or _Origin()
        memory.origins[each.origin] = origin  # the last one spoke last
        if fifo and each.number < origin.last:
            why = f"after {event_name(each.origin, origin.last)}"
            found.append(Break(FIFO, each, why))
        numbers = Numbers(origin.spans, origin.floor)
        if each.number > origin.floor:
            if once and each.number in numbers:
                found.append(Break(NO_DUPLICATION, each, "a second time"))
            numbers.add(each.number)
            origin.spans, origin.floor = numbers.spans, numbers.floor
        origin.last = max(origin.last, each.number)
        if causal and (by := _passed(memory, each)):
            why = f"after {by}, which has it in its past"
            found.append(Break(OPTIMISTIC_CAUSAL, each, why))
        if len(memory.origins) > ORIGINS:
            del memory.origins[next(iter(memory.origins))]
    return found


def _begin_life(memory: Memory, incarnation: int) -> None:
    """Order is promised within one life; that nothing is recorded twice, in all of them."""
    memory.incarnation = incarnation
    memory.marks.clear()
    for origin in memory.origins.values():
        origin.last = -1


def _passed(memory: Memory, each: Delivery) -> str | None:
    """Which event, delivered before this one, has it in its past. Then its own past is marked."""
    index, stamp, marks = each.index, each.stamp, memory.marks
    if stamp is None or index is None or not 0 <= index < len(stamp) <= TICKETS:
        return None
    while len(marks) < len(stamp):
        marks.append(_Mark())
    mark = marks[index]
    late = mark.by if mark.entry >= stamp[index] else None
    name = event_name(each.origin, each.number)
    for place, entry in enumerate(stamp):
        if place == index:
            entry -= 1  # it precedes others, but not itself
        if entry > marks[place].entry:
            marks[place] = _Mark(entry, name)
    return late


# --- latency ---------------------------------------------------------------------------------


def count_latencies(nanoseconds: Iterable[int]) -> list[int]:
    """How many fall into each class of BUCKETS; what is longer than an hour is in the last."""
    counts = [0] * len(BUCKETS)
    for each in nanoseconds:
        counts[min(bisect_left(BUCKETS, each), len(BUCKETS) - 1)] += 1
    return counts


def quantile(counts: Sequence[int], share: float) -> int | None:
    """Nanoseconds that so large a share stays below, to a fifth. None: nothing was counted."""
    wanted = share * sum(counts)
    if not wanted:
        return None
    passed = 0
    for count, end in zip(counts, BUCKETS, strict=True):
        passed += count
        if passed >= wanted:
            return end
    return BUCKETS[-1]


# --- what Spark asks for ---------------------------------------------------------------------


def breaks(records: Any, laws: Sequence[str] = LAWS) -> Any:
    """A stream of records as a stream of breaks: law, group, process, event and why."""
    columns = ["law", "group", "process", "incarnation", "offset", "origin", "number", "at", "why"]
    return judged(records, laws).where(f"kind = '{BROKEN}'").select(*columns, "judged_at")


def judged(records: Any, laws: Sequence[str] = LAWS) -> Any:
    """The breaks, and a row a key and micro-batch that says how much was judged."""
    for law in laws:
        if law not in LAWS:
            raise UsageError(unknown_word("law of a stream", law, LAWS))
    for setting, value in _STATE.items():
        records.sparkSession.conf.set(setting, value)
    wanted = records.where("kind = 'deliver'").selectExpr(
        *(f"`{name}`" for name in ("group", "process", *Delivery.__struct_fields__[:-1])),
        "size(`payloads`) AS messages",
    )
    # One row a key instead of one an event: what goes through the shuffle and into the state's
    # worker costs by the row.
    packed = wanted.mapInArrow(pack, "`group` string, `process` string, `packed` binary")
    return packed.groupBy("group", "process").transformWithState(
        statefulProcessor=processor()(tuple(laws)),
        outputStructType=OUTPUT,
        outputMode="Append",
        timeMode="None",
    )


def pack(batches: Iterable[Any]) -> Iterator[Any]:
    """In a task: the deliveries of a batch as one row a key."""
    pyarrow = import_module("pyarrow")
    for batch in batches:
        keyed: dict[tuple[str, str], list[Delivery]] = {}
        lists = [batch.column(name).to_pylist() for name in Delivery.__struct_fields__]
        groups, processes = (batch.column(name).to_pylist() for name in ("group", "process"))
        for group, process, each in zip(groups, processes, map(Delivery, *lists), strict=True):
            keyed.setdefault((group, process), []).append(each)
        encode = msgspec.msgpack.Encoder().encode
        yield pyarrow.RecordBatch.from_arrays(
            [
                pyarrow.array([group for group, _ in keyed], pyarrow.string()),
                pyarrow.array([process for _, process in keyed], pyarrow.string()),
                pyarrow.array([encode(each) for each in keyed.values()], pyarrow.binary()),
            ],
            ["group", "process", "packed"],
        )


@cache
def processor() -> Any:
    """The laws as a class of pyspark's."""
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class OnlineLaws(StatefulProcessor):
        def __init__(self, laws: tuple[str, ...]) -> None:
            self._laws = laws

        def init(self, handle: StatefulProcessorHandle) -> None:
            self._memory = handle.getValueState("memory", "packed binary")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            deliveries = unpack(row["packed"] for row in rows)
            packed = self._memory.get()
            memory = Memory.unpack(bytes(packed[0]) if packed else None)
            found = judge(memory, deliveries, self._laws)
            self._memory.update((memory.pack(),))
            for values in output_rows(key[0], key[1], deliveries, found):
                yield Row(**values)

        def close(self) -> None:
            pass

    return OnlineLaws


def unpack(packed: Iterable[bytes]) -> list[Delivery]:
    """Tasks read pieces of a recording side by side: here they are put in order again."""
    decode = msgspec.msgpack.Decoder(list[Delivery]).decode
    return sorted((each for part in packed for each in decode(part)), key=lambda one: one.offset)


def output_rows(
    group: str,
    process: str,
    deliveries: Sequence[Delivery],
    found: Sequence[Break],
) -> Iterator[dict[str, Any]]:
    """What a key tells about a micro-batch: its breaks, and then how much was judged."""
    now = time.time_ns()
    for law, each, why in found:
        life = f"{process}#{each.incarnation}" if each.incarnation else process
        said = f"{life} delivered {event_name(each.origin, each.number)} {why}"
        row = _row(BROKEN, law, group, process, each, now)
        yield row | {"origin": each.origin, "number": each.number, "why": said}
    if deliveries:
        yield _row(JUDGED, None, group, process, deliveries[-1], now) | {
            "events": len(deliveries),
            "messages": sum(each.messages for each in deliveries),
            "bytes": sum(each.size or 0 for each in deliveries),
            "latency": count_latencies(now - each.at for each in deliveries),
        }


def _row(
    kind: str, law: str | None, group: str, process: str, each: Delivery, now: int
) -> dict[str, Any]:
    return {
        "kind": kind,
        "law": law,
        "group": group,
        "process": process,
        "incarnation": each.incarnation,
        "offset": each.offset,
        "origin": None,
        "number": None,
        "at": each.at,
        "why": None,
        "judged_at": now,
        "events": None,
        "messages": None,
        "bytes": None,
        "latency": None,
    }
