"""Laws on a live stream: a row for every break, within seconds of its being recorded.

    live = spark.readStream.format("ordercast").load("recording")
    breaks(live).writeStream...

Judged is what a recorder was handed, key by key: a key is a group at a process. So only laws with a
streaming form can be judged, which need what the key has seen before and nothing else. On a stream
no-duplication means: an event is in the recording twice, in whichever incarnations. Every break is
told, not only the first. A law without the form is refused when the query is made: there is no
history of all processes here that its plain judge could see.

What is remembered is bounded, a key: each law's file says how. Nothing is ever called broken
because of what was forgotten.

Beside the breaks `judged` gives one row a key and micro-batch that says how much was judged, and
how long after it was recorded.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from typing import Any, NamedTuple

import msgspec

from ordercast.check.law import Delivery, Law
from ordercast.check.laws import LAWS, named
from ordercast.errors import TraceError, UsageError
from ordercast.spark import by_value
from ordercast.trace.text import event_name, incarnation_name

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


class Break(NamedTuple):
    law: str
    delivery: Delivery
    why: str


STREAMED: tuple[Law, ...] = tuple(law for law in LAWS.values() if law.stream is not None)
"""The laws with a streaming form."""


def streamed(laws: Iterable[Law | str]) -> tuple[Law, ...]:
    """These laws. UsageError: one of them has no streaming form."""
    found = tuple(named(laws) or ())
    for law in found:
        if law.stream is None:
            forms = ", ".join(one.name for one in STREAMED)
            raise UsageError(
                f"{law.name} has no streaming form (these have one: {forms}). Judge it with "
                "`ordercast check` on what the members wrote."
            )
    return found


class KeyMemory:
    """What one key has seen: by law, as far as that law needs it for what the key will see."""

    def __init__(self, laws: Iterable[Law] = STREAMED, packed: bytes | None = None) -> None:
        self.of: dict[str, Any] = {}
        try:
            known = msgspec.msgpack.decode(packed, type=dict[str, msgspec.Raw]) if packed else {}
            for law in laws:
                assert law.stream is not None
                blank = law.stream.memory()
                part = known.get(law.name)
                if part is not None:
                    blank = msgspec.msgpack.decode(part, type=type(blank))
                self.of[law.name] = blank
        except msgspec.MsgspecError as error:
            raise TraceError(
                f"the query's checkpoint holds a state that these laws cannot read ({error}), as "
                "one of another version of ordercast does: start the query with another checkpoint."
            ) from error

    def pack(self) -> bytes:
        return msgspec.msgpack.encode(self.of)


def judge(
    memory: KeyMemory, deliveries: Sequence[Delivery], laws: Iterable[Law] = STREAMED
) -> list[Break]:
    """The breaks among further deliveries of a key, in the order of their offsets."""
    found = [
        Break(law.name, each, why)
        for law in laws
        if law.stream is not None
        for each, why in law.stream.breaks(memory.of[law.name], deliveries)
    ]
    return sorted(found, key=lambda one: one.delivery.offset)


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


def breaks(
    records: Any, laws: Iterable[Law | str] = STREAMED, services: Mapping[str, str] = {}
) -> Any:
    """A stream of records as a stream of breaks: law, group, process, event and why.

    `services`: what services of the family promise that have other names than that.
    """
    columns = ["law", "group", "process", "incarnation", "offset", "origin", "number", "at", "why"]
    return judged(records, laws, services).where(f"kind = '{BROKEN}'").select(*columns, "judged_at")


def judged(
    records: Any, laws: Iterable[Law | str] = STREAMED, services: Mapping[str, str] = {}
) -> Any:
    """The breaks, and a row a key and micro-batch that says how much was judged."""
    packed_laws = by_value.pack(streamed(laws))
    for setting, value in _STATE.items():
        records.sparkSession.conf.set(setting, value)
    wanted = records.where("kind = 'deliver'").selectExpr(
        *(f"`{name}`" for name in ("group", "process", *Delivery.__struct_fields__[:-1])),
        "size(`payloads`) AS messages",
    )
    # One row a key instead of one an event: what goes through the shuffle and into the state's
    # worker costs by the row.
    packing = partial(pack, services=dict(services))
    packed = wanted.mapInArrow(packing, "`group` string, `process` string, `packed` binary")
    return packed.groupBy("group", "process").transformWithState(
        statefulProcessor=processor()(packed_laws),
        outputStructType=OUTPUT,
        outputMode="Append",
        timeMode="None",
    )


def pack(batches: Iterable[Any], services: Mapping[str, str] = {}) -> Iterator[Any]:
    """In a task: the deliveries of a batch as one row a key."""
    pyarrow = import_module("pyarrow")
    for batch in batches:
        keyed: dict[tuple[str, str], list[Delivery]] = {}
        lists = [batch.column(name).to_pylist() for name in Delivery.__struct_fields__]
        groups, processes = (batch.column(name).to_pylist() for name in ("group", "process"))
        for group, process, each in zip(groups, processes, map(Delivery, *lists), strict=True):
            keyed.setdefault((group, process), []).append(explained(each, services))
        encode = msgspec.msgpack.Encoder().encode
        yield pyarrow.RecordBatch.from_arrays(
            [
                pyarrow.array([group for group, _ in keyed], pyarrow.string()),
                pyarrow.array([process for _, process in keyed], pyarrow.string()),
                pyarrow.array([encode(each) for each in keyed.values()], pyarrow.binary()),
            ],
            ["group", "process", "packed"],
        )


def explained(delivery: Delivery, services: Mapping[str, str]) -> Delivery:
    """The delivery with what its service promises, where that is not its name."""
    promise = services.get(delivery.cause or "")
    return delivery if promise is None else msgspec.structs.replace(delivery, cause=promise)


@cache
def processor() -> Any:
    """The laws as a class of pyspark's."""
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class OnlineLaws(StatefulProcessor):
        def __init__(self, laws: bytes) -> None:
            self._packed_laws = laws

        def init(self, handle: StatefulProcessorHandle) -> None:
            self._laws = by_value.unpack(self._packed_laws)
            self._memory = handle.getValueState("memory", "packed binary")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            deliveries = unpack(row["packed"] for row in rows)
            packed = self._memory.get()
            memory = KeyMemory(self._laws, bytes(packed[0]) if packed else None)
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
        writer = incarnation_name(process, each.incarnation)
        said = f"{writer} delivered {event_name(each.origin, each.number)} {why}"
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
