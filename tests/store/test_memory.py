"""The simulated disk: what it keeps, what it forgets, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.store.stored import Latest

from ordercast.errors import DiskError
from ordercast.kernel.packet import Packet
from ordercast.store.memory import SimulatedDisk, Trouble


class Record(Packet, frozen=True, tag="test.record"):
    number: int


def records(*numbers: int) -> list[Packet]:
    return [Record("g", number) for number in numbers]


def test_a_new_disk_is_empty() -> None:
    assert SimulatedDisk(10).records() == []


def test_a_record_is_durable_after_a_sync_and_not_before() -> None:
    disk = SimulatedDisk(10)
    disk.append(records(1, 2))
    assert disk.records() == []
    disk.sync()
    assert disk.records() == records(1, 2)


def test_a_sync_of_so_many_takes_the_oldest() -> None:
    disk = SimulatedDisk(10)
    disk.append(records(1, 2))
    disk.append(records(3))
    disk.sync(1)
    assert disk.records() == records(1)
    disk.sync(0)
    assert disk.records() == records(1)
    disk.sync()
    assert disk.records() == records(1, 2, 3)


def test_a_crash_loses_what_was_not_synced_and_nothing_else() -> None:
    disk = SimulatedDisk(10)
    disk.append(records(1))
    disk.sync()
    disk.append(records(2))
    disk.crash()
    disk.sync()
    assert disk.records() == records(1)


def test_a_disk_that_is_lost_has_nothing() -> None:
    disk = SimulatedDisk(10)
    disk.append(records(1))
    disk.sync()
    disk.append(records(2))
    disk.erase()
    disk.sync()
    assert disk.records() == []


def test_whoever_reads_the_records_cannot_change_them() -> None:
    disk = SimulatedDisk(10)
    disk.append(records(1))
    disk.sync()
    disk.records().clear()
    assert disk.records() == records(1)


def test_the_callers_list_stays_its_own() -> None:
    disk = SimulatedDisk(10)
    mine = records(1)
    disk.append(mine)
    mine.append(Record("g", 2))
    disk.sync()
    assert disk.records() == records(1)


@pytest.mark.parametrize("trouble", [Trouble.FAIL, Trouble.FULL])
def test_a_disk_in_trouble_refuses_the_next_record_and_keeps_the_earlier(
    trouble: Trouble,
) -> None:
    disk = SimulatedDisk(10)
    disk.append(records(1))
    disk.sync()
    disk.trouble = trouble
    with pytest.raises(DiskError, match=trouble.value):
        disk.append(records(2))
    disk.append([])  # who keeps nothing asks nothing of it
    disk.trouble = None
    disk.append(records(3))
    disk.sync()
    assert disk.records() == records(1, 3)


def test_a_slow_disk_takes_every_record() -> None:
    disk = SimulatedDisk(10)
    disk.trouble = Trouble.SLOW
    disk.append(records(1))
    disk.sync()
    assert disk.records() == records(1)


def test_a_disk_takes_as_many_records_as_fit_and_never_half_a_step() -> None:
    disk = SimulatedDisk(3)
    disk.append(records(1))
    disk.sync()
    disk.append(records(2))
    with pytest.raises(DiskError, match="full: 2 of 3 records"):
        disk.append(records(3, 4))
    disk.append(records(5))
    disk.sync()
    assert disk.records() == records(1, 2, 5)


def test_a_crash_gives_back_the_room_of_what_it_lost() -> None:
    disk = SimulatedDisk(2)
    disk.append(records(1, 2))
    disk.crash()
    disk.append(records(3, 4))
    disk.sync()
    assert disk.records() == records(3, 4)


def test_the_newest_durable_record_of_a_slot_stands_for_all_of_it() -> None:
    """So the room that it takes does not grow; what is only cached replaces nothing yet."""
    disk = SimulatedDisk(3)
    for number in range(100):
        disk.append([Latest("g", "a", number)])
        disk.sync()
    disk.append([Latest("g", "b", 1), Latest("g", "a", 100)])
    assert disk.records() == [Latest("g", "a", 99)]
    disk.sync(1)
    assert disk.records() == [Latest("g", "a", 99), Latest("g", "b", 1)]
    disk.sync()
    assert disk.records() == [Latest("g", "b", 1), Latest("g", "a", 100)]


# --- commits -------------------------------------------------------------------------------------


class Time:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self._now = 0
        self._acts: list[tuple[int, Callable[[], None]]] = []

    def now(self) -> int:
        return self._now

    def at(self, time: int, act: Callable[[], None]) -> None:
        self._acts.append((time, act))

    def pass_until(self, time: int) -> None:
        self._now = time
        due = [act for when, act in self._acts if when <= time]
        self._acts = [(when, act) for when, act in self._acts if when > time]
        for act in due:
            act()


def test_a_commit_that_takes_no_time_ends_at_once() -> None:
    disk, ended = SimulatedDisk(10), list[int]()
    disk.commit(records(1), lambda: ended.append(len(disk.records())))
    assert ended == [1]


def test_a_commit_ends_after_the_time_of_a_sync_and_in_order() -> None:
    """The second takes no time of its own, and still ends after the first."""
    time, ended = Time(), list[str]()
    disk = SimulatedDisk(10, time)
    disk.sync_time = 20
    disk.commit(records(1), lambda: ended.append("first"))
    time.pass_until(10)
    disk.sync_time = 0
    disk.commit(records(2), lambda: ended.append("second"))
    time.pass_until(19)
    assert (ended, disk.records()) == ([], [])
    time.pass_until(20)
    assert (ended, disk.records()) == (["first", "second"], records(1, 2))


def test_a_commit_that_a_crash_ended_is_never_acknowledged() -> None:
    time, ended = Time(), list[str]()
    disk = SimulatedDisk(10, time)
    disk.sync_time = 20
    disk.commit(records(1), lambda: ended.append("lost"))
    disk.crash()
    disk.commit(records(2), lambda: ended.append("found"))
    time.pass_until(20)
    assert (ended, disk.records()) == (["found"], records(2))


def test_a_commit_that_is_refused_is_never_acknowledged() -> None:
    disk, ended = SimulatedDisk(1), list[str]()
    with pytest.raises(DiskError, match="full: 0 of 1 records"):
        disk.commit(records(1, 2), lambda: ended.append("refused"))
    disk.commit(records(3), lambda: ended.append("taken"))
    assert (ended, disk.records()) == (["taken"], records(3))
