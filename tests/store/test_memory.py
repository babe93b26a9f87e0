"""The simulated disk: what it keeps, what it forgets, and what it refuses."""

from __future__ import annotations

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


def test_a_sync_of_some_records_takes_the_oldest() -> None:
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
    disk.incarnation = 3
    disk.erase()
    disk.sync()
    assert disk.records() == []
    assert disk.incarnation is None


def test_reading_the_records_cannot_change_them() -> None:
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
def test_a_failing_disk_rejects_the_next_record_and_has_the_earlier_ones(
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


def test_a_crash_frees_the_room_of_lost_records() -> None:
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
