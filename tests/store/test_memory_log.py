"""The simulated log of a group: positions, what was read, what is gone, what rotted."""

from __future__ import annotations

import pytest

from ordercast.errors import DiskError
from ordercast.kernel.log import (
    Appended,
    At,
    Bad,
    Entry,
    Knowledge,
    Opened,
    Recall,
    Recalled,
    Reference,
    Repaired,
    Trimmed,
    key_of,
)
from ordercast.protocol.hpp.packets import LastParent
from ordercast.store.memory import RESERVE, SimulatedDisk, Trouble
from ordercast.store.memory_log import MemoryLog


def entry(name: str, number: int, size: int = 10) -> Entry:
    return Entry(name, 7, number, number - 1, payloads=[b"x" * size], size=size)


def a_log(*entries: Entry) -> MemoryLog:
    log = MemoryLog("g", 5)
    for each in entries:
        log.take(Appended("g", each))
    return log


def read(log: MemoryLog, place: At | Knowledge | Reference, limit: int = 10_000) -> Recalled:
    return log.answer(Recall("g", "token", place, limit))


A = [entry("a", 1), entry("b", 1), entry("a", 2), entry("a", 3)]


def test_entries_are_read_from_a_position_up_to_a_limit() -> None:
    log = a_log(*A)
    found = read(log, At(1))
    assert (found.first, list(found.entries)) == (1, A[1:])
    assert list(read(log, At(1), limit=1).entries) == [A[1]]
    assert read(log, At(4)) == Recalled("g", "token", At(4), 4, ())


def test_reading_by_knowledge_begins_at_the_first_entry_that_lacks() -> None:
    log = a_log(*A)
    known = {key_of(("a", 7)): 2, key_of(("b", 7)): 1}
    assert read(log, Knowledge(known)).first == 3
    assert read(log, Knowledge({**known, key_of(("a", 7)): 3})).first == log.tail


def test_what_was_trimmed_is_a_gap_for_those_who_lack_it() -> None:
    log = a_log(*A)
    log.take(Trimmed("g", 3))
    assert (log.floor, log.tail, log.size) == (3, 4, 10)
    found = read(log, Knowledge({key_of(("a", 7)): 1}))
    assert [(gap.origin, gap.number, gap.is_gap) for gap in found.gaps] == [
        ("a", 2, True),
        ("b", 1, True),
    ]
    assert list(found.entries) == [A[3]]
    assert read(log, At(0)).first == 3
    assert read(log, Reference("a", 7, 1)).entries == ()
    assert read(log, Reference("a", 7, 3)).entries == (A[3],)
    opened = log.records()[0]
    assert isinstance(opened, Opened)
    assert opened.received == {("a", 7): 3, ("b", 7): 1}


def test_a_rotten_entry_keeps_its_place_and_can_be_put_back() -> None:
    log = a_log(*A)
    log.spoil(0.5)
    assert read(log, At(2)).entries[0] == Bad(("a", 7), 2, 1)
    log.take(Repaired("g", 2, A[2]))
    assert read(log, At(2)).entries[0] == A[2]
    log.take(Repaired("g", 0, A[2]))  # not rotten: nothing to repair
    assert read(log, At(0)).entries[0] == A[0]


def test_the_records_of_a_group_with_a_log_are_in_it() -> None:
    disk = SimulatedDisk()
    log = disk.open_log("g", lambda: 9)
    disk.append([Appended("g", A[0]), LastParent("g", 1), LastParent("g", 2)])
    assert log.tail == 0  # not synced
    disk.crash()
    disk.sync()
    assert log.tail == 0
    disk.append([Appended("g", A[0]), LastParent("g", 1), LastParent("g", 2)])
    disk.sync()
    assert disk.records()[1:] == [LastParent("g", 2)]
    assert disk.open_log("g", lambda: 10).identity == 9
    disk.erase()
    assert disk.open_log("g", lambda: 10).identity == 10


def test_a_full_disk_has_a_reserve_where_there_are_logs() -> None:
    disk = SimulatedDisk()
    disk.open_log("g", lambda: 9)
    disk.trouble = Trouble.FULL
    assert disk.is_strained
    disk.append([Appended("g", A[0])] * RESERVE)
    with pytest.raises(DiskError):
        disk.append([Appended("g", A[0])])
    disk.trouble = None
    assert not disk.is_strained
