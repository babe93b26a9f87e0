"""Gossip of one event as rounds, block by block on Spark, and the one door to both engines.

    reach(10_000_000, 4, 12, loss=0.01)                a list: how many have it, round by round
    reach(10_000_000, 4, 12, loss=0.01, spark=spark)   the same list, from Spark

Theory of operation. The processes are cut into blocks, and a block is a row: one byte a process. In
each tick a task folds the messages for its blocks into their bytes, lets the processes relay whose
turn it is, and writes for each block of the group what goes there: where few are hit their places,
else a bitmap. The messages of one task are merged before they are written, so what is shuffled is
about one bit a process and task, not four bytes a message. A local checkpoint after each tick keeps
the plan short; if an executor dies with its part of one, the run fails and must be begun again.

The model and all its chance are in `rounds_here.py`. A draw depends on the process and the tick
alone and the youngest copy wins, so neither blocks nor tasks nor engines change a single number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ordercast.errors import UsageError
from ordercast.spark.rounds_here import (
    NEVER,
    Block,
    Codes,
    Gossip,
    Reached,
    nothing,
    reach_here,
)

SCHEMA = "block int, code int, dense boolean, reached long, going long, payload binary"
STATE = -1  # the code of a row that is a block itself; of a message, that of its copies
LARGEST_BLOCK = 1 << 22
MOST_BLOCKS = 4096


def reach(
    processes: int,
    fan_out: int,
    hops: int,
    *,
    loss: float = 0.0,
    crash: float = 0.0,
    view_size: int | None = None,
    view_lasts: int = 0,
    slots: int = 1,
    seed: int = 1,
    spark: Any = None,
    blocks: int | None = None,
) -> list[int]:
    """How many processes have one event, 0, 1, ... rounds after it was made.

    Here, or with a session on Spark: the numbers are the same. UsageError says what cannot be.
    """
    gossip = Gossip(
        processes=processes,
        fan_out=fan_out,
        hops=hops,
        loss=loss,
        crash=crash,
        view_size=view_size,
        view_lasts=view_lasts,
        slots=slots,
        seed=seed,
    )
    if spark is None:
        if blocks is not None:
            raise UsageError("blocks are for Spark: give a session too")
        return reach_here(gossip)
    return reach_on(spark, gossip, blocks)


def reach_on(spark: Any, gossip: Gossip, blocks: int | None = None) -> list[int]:
    """The same on Spark. `blocks`: how many, a task each; by default as many as there are cores."""
    bounds = _bounds(gossip.live, _blocks(spark, gossip.live) if blocks is None else blocks)
    count = len(bounds) - 1
    rows = [(block, STATE, True, 0, 0, None) for block in range(count)]
    frame = spark.createDataFrame(rows, SCHEMA)
    reached = Reached(gossip)
    for tick in range(gossip.most_ticks + 1):
        parted = frame.repartitionById(count, "block")
        frame = parted.mapInArrow(_task(gossip, bounds, tick), SCHEMA).localCheckpoint(eager=False)
        told = frame.where(f"code = {STATE}").select("reached", "going").collect()
        reached.note(tick, sum(row["reached"] for row in told))
        if not any(row["going"] for row in told):
            break
    return reached.by_round


def _blocks(spark: Any, live: int) -> int:
    """So many that each core has the same number of them, and none is too large."""
    try:
        cores = int(spark.sparkContext.defaultParallelism)
    except Exception:  # over Connect there is no context to ask
        cores = 8
    return min(live, MOST_BLOCKS, cores * -(-live // (LARGEST_BLOCK * cores)))


def _bounds(live: int, blocks: int) -> list[int]:
    if not 1 <= blocks <= min(live, MOST_BLOCKS):
        raise UsageError(f"blocks must be 1 to {min(live, MOST_BLOCKS)}, not {blocks}")
    return [live * block // blocks for block in range(blocks + 1)]


# --- in a task -------------------------------------------------------------------------------


def _task(gossip: Gossip, bounds: list[int], tick: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """One tick of the blocks of one task."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        codes: dict[int, Codes | None] = {}
        coming: dict[int, Codes] = {}
        for batch in batches:
            for block, code, dense, payload in zip(
                *(batch.column(name) for name in ("block", "code", "dense", "payload")), strict=True
            ):
                place, data = block.as_py(), payload.as_buffer()
                size = bounds[place + 1] - bounds[place]
                if code.as_py() == STATE:
                    codes[place] = None if data is None else np.frombuffer(data, np.uint8).copy()
                else:
                    hits = coming.setdefault(place, nothing(size))
                    _merge(hits, code.as_py(), dense.as_py(), data)
        leaving = nothing(gossip.live) if codes else nothing(0)
        relays = 0
        for place, kept in codes.items():
            block_ = Block(gossip, bounds[place], bounds[place + 1], kept)
            if place in coming:
                block_.receive(coming.pop(place))
            reached = block_.reached()
            relayed = block_.relay(tick, leaving)
            relays += relayed
            state = block_.codes.tobytes()
            yield _row(place, STATE, True, reached, relayed + block_.active(), state)
        if relays:
            for place in range(len(bounds) - 1):
                yield from _messages(place, leaving[bounds[place] : bounds[place + 1]])

    return run


def _merge(coming: Codes, code: int, dense: bool, data: Any) -> None:
    """Of two copies the younger counts."""
    if dense:
        hit = np.unpackbits(np.frombuffer(data, np.uint8), count=coming.size)
        # 255 where nobody is hit: one less than nothing.
        np.minimum(coming, (hit * np.uint8(code)) | (hit - np.uint8(1)), out=coming)
    else:
        places = np.frombuffer(data, np.uint32)
        coming[places] = np.minimum(coming[places], np.uint8(code))


def _messages(block: int, leaving: Codes) -> Iterator[Any]:
    """What one task has for one block: a row for each age, in the shorter of two ways."""
    counts = np.bincount(leaving, minlength=NEVER + 1)
    for code in np.flatnonzero(counts[:NEVER]):
        hit = leaving == code
        dense = int(counts[code]) * 32 > leaving.size
        data = np.packbits(hit) if dense else np.flatnonzero(hit).astype(np.uint32)
        yield _row(block, int(code), dense, 0, 0, data.tobytes())


def _row(*values: object) -> Any:
    """As a batch of its own: payloads are large."""
    import pyarrow

    kinds = (
        pyarrow.int32(),
        pyarrow.int32(),
        pyarrow.bool_(),
        pyarrow.int64(),
        pyarrow.int64(),
        pyarrow.binary(),
    )
    names = [part.split()[0] for part in SCHEMA.split(", ")]
    columns = [pyarrow.array([value], kind) for value, kind in zip(values, kinds, strict=True)]
    return pyarrow.RecordBatch.from_arrays(columns, names)
