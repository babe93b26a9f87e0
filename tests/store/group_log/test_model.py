"""The log in files is what the log in memory is, whatever is done to both."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store.group_log.logged import everything, persist
from tests.store.stored import CODEC, Latest

from ordercast.kernel.log import (
    Appended,
    At,
    Bad,
    Entry,
    Knowledge,
    Recall,
    Reference,
    Repaired,
    Trimmed,
    bucket_of,
    key_of,
)
from ordercast.store.group_log.form import SEGMENT, file_of
from ordercast.store.group_log.log import GroupLog
from ordercast.store.group_log.writing import LogLimits
from ordercast.store.memory_log import MemoryLog

TINY = LogLimits(segment=600, reserve=1 << 10, checkpoint=2500)
NAMES = "abcdefgh"
BUCKETS = 4
MEMORY = Path("/dev/shm")

APPENDS = st.tuples(
    st.just("append"), st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 9)), max_size=12)
)
ACTIONS = st.one_of(
    APPENDS,
    APPENDS,
    st.tuples(st.just("trim"), st.integers(0, 100)),
    st.tuples(st.just("rot"), st.integers(0, 100)),
    st.tuples(st.just("repair"), st.booleans()),
    st.tuples(st.just("reopen"), st.booleans()),
    st.tuples(st.just("state"), st.integers(0, 3)),
)
PLACES = st.one_of(
    st.builds(At, st.integers(0, 120)),
    st.tuples(
        st.dictionaries(st.sampled_from(NAMES), st.integers(0, 30), max_size=8),
        st.integers(0, 100),
        st.none() | st.frozensets(st.integers(0, BUCKETS - 1)),
    ),
    st.tuples(st.sampled_from(NAMES), st.integers(1, 30)),
)


class Twice:
    """A log in files, and beside it one in memory that is told the same."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = self.opened()
        self.model = MemoryLog("g", self.file.identity)
        self.written: list[Entry] = []
        self.rotten: list[int] = []
        self.spoiled: list[int] = []  # also those that were repaired

    def opened(self) -> GroupLog:
        return GroupLog(self.folder, "g", CODEC, limits=TINY)

    def append(self, what: list[tuple[str, int]]) -> None:
        records = []
        received = dict(self.model.received)
        for name, kind in what:
            stream = (name, 5)
            before = received.get(stream, 0)
            received[stream] = before + (1 if kind else 3)  # a gap gives up three
            payloads = [b"%d" % kind * kind * kind]
            entry = Entry(name, 5, before + 1, before, payloads=payloads, size=kind * kind)
            if not kind:
                # What a gap says was before it need not be what this log has.
                entry = Entry(name, 5, before + 3, max(0, before - 2), is_gap=True)
            self.written.append(entry)
            records.append(entry)
        persist(self.file, *records)
        for entry in records:
            self.model.take(Appended("g", entry))

    def trim(self, share: int) -> None:
        below = self.file.floor + (self.file.tail - self.file.floor) * share // 100
        persist(self.file, Trimmed("g", below))
        self.model.take(Trimmed("g", self.file.floor))
        assert below - self.file.floor < 40
        assert sorted(path.stem for path in self.folder.glob(f"*{SEGMENT}"))[0] == (
            f"{self.file.floor:020}"
        )

    def rot(self, share: int) -> None:
        tail = self.file.tail
        if tail == self.file.floor:
            return
        position = self.file.floor + (tail - self.file.floor - 1) * share // 100
        entry = self.model.entries[position - self.model.floor]
        if isinstance(entry, Bad) or entry.is_gap or position in self.spoiled:
            return
        self.spoiled.append(position)
        extent = next(e for e in self.file.extents() if e.first <= position < e.end)
        path = file_of(self.folder, extent.first, SEGMENT)
        data = bytearray(path.read_bytes())
        # The name, the birth, the number and what is before it: only this frame has them so.
        place = data.index(_encoded(entry))
        data[place] ^= 4
        path.write_bytes(data)
        self.file.close()
        self.file = self.opened()
        self.model.entries[position - self.model.floor] = Bad(
            entry.stream, entry.number, entry.prev
        )
        self.rotten.append(position)

    def repair(self, right: bool) -> None:
        for position in self.rotten:
            if position >= self.file.floor:
                entry = self.written[position]
                if right:
                    persist(self.file, Repaired("g", position, entry))
                    self.model.take(Repaired("g", position, entry))
                else:
                    other = Entry(entry.origin, 6, entry.number, entry.prev, payloads=[b"other"])
                    persist(self.file, Repaired("g", position, other))
        if right:
            self.rotten.clear()

    def reopen(self, without_indexes: bool) -> None:
        self.file.close()
        if without_indexes:
            for path in self.folder.glob("*.index"):
                path.unlink()
        self.file = self.opened()

    def state(self, number: int) -> None:
        persist(self.file, Latest("g", f"s{number % 2}", number))
        self.model.take(Latest("g", f"s{number % 2}", number))

    def check(self, place: Any) -> None:
        if isinstance(place, tuple) and not isinstance(place, At):
            place = _place(place)
        limit = 1 << 20
        found = self.file.read(place, limit)
        wanted = self.model.answer(Recall("g", 0, place, limit))
        assert found.entries == wanted.entries
        if found.entries or isinstance(place, Knowledge):
            assert found.first == wanted.first
        gaps = [gap for gap in found.gaps if gap in wanted.gaps or self.is_exact(place, gap)]
        assert sorted(gaps, key=repr) == sorted(wanted.gaps, key=repr)

    def is_exact(self, place: Any, gap: Entry) -> bool:
        """Where the mark decides, the log in files knows of trimmed entries only in which segment
        they were. A gap that the other does not have is ignored there."""
        if not isinstance(place, Knowledge) or place.differing is None:
            return True
        return bucket_of(key_of(gap.stream), BUCKETS) in place.differing


def _encoded(entry: Entry) -> bytes:
    from ordercast.store.group_log.entries import pack_entry

    return pack_entry(entry)


def _place(drawn: tuple[Any, ...]) -> Knowledge | Reference:
    if len(drawn) == 2:
        return Reference(drawn[0], 5, drawn[1])
    numbers, mark, differing = drawn
    known = {key_of((name, 5)): number for name, number in numbers.items()}
    return Knowledge(known, mark if differing is not None else 0, differing, BUCKETS)


def run(actions: list[Any], places: list[Any]) -> None:
    folder = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=folder) as name:
        both = Twice(Path(name) / "log")
        for action, value in actions:
            getattr(both, action)(value)
            model, file = both.model, both.file
            assert (file.floor, file.tail) == (model.floor, model.tail)
        for place in places:
            both.check(place)
        assert both.file.records() == both.model.states.values()
        assert dict(both.file.opened().received) == both.model.received
        assert everything(both.file) == both.model.entries
        both.file.close()


@settings(max_examples=60)
@given(st.lists(ACTIONS, max_size=25), st.lists(PLACES, max_size=6))
def test_it_reads_as_a_log_in_memory_does(actions: list[Any], places: list[Any]) -> None:
    run(actions, places)


@pytest.mark.long
@settings(max_examples=2000)
@given(st.lists(ACTIONS, max_size=60), st.lists(PLACES, max_size=12))
def test_it_reads_as_a_log_in_memory_does_for_long(actions: list[Any], places: list[Any]) -> None:
    run(actions, places)


def test_buckets_are_all_drawn() -> None:
    assert {bucket_of(key_of((name, 5)), BUCKETS) for name in NAMES} == set(range(BUCKETS))


def test_searches_in_a_long_log_find_the_first_that_is_lacking(quick_folder: Path) -> None:
    """Behind the vector on the disk and before it, above the floor and below."""
    both, chance = Twice(quick_folder / "log"), Random(6)
    for number in range(60):
        # Some streams are silent for long.
        names = [chance.choice(NAMES[: 1 + number % len(NAMES)]) for _ in range(6)]
        both.append([(name, chance.randrange(10)) for name in names])
    both.trim(20)
    assert len(both.file.extents()) > 20
    assert any(quick_folder.glob("log/*.received"))
    last = {name: both.model.received[name, 5] for name in NAMES}
    for _ in range(300):
        back = chance.choice((1, 5, 200))
        numbers = {name: max(0, last[name] - chance.randrange(back)) for name in NAMES}
        mark = chance.randrange(both.file.tail)
        differing = chance.choice((None, frozenset({1, 3}), frozenset({0, 1, 2})))
        both.check((numbers, mark, differing))
    both.file.close()
