"""Slots: the newest record of each stands for all of it, and those without one all count."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.store.stored import Counted, Latest

from ordercast.kernel.packet import Packet
from ordercast.protocol.tickets.packets import Configuration, EntryRecord, ReplicaRecord
from ordercast.store.slots import Slots
from ordercast.types import NodeId

ME = NodeId("a", 1)


def kept(records: list[Packet], group: str | None = None) -> list[Packet]:
    slots: Slots[Packet] = Slots()
    for record in records:
        slots.put(record, record)
    return slots.values(group)


def newest(records: list[Packet]) -> list[Packet]:
    """The same, said slowly: a record counts unless a later one is of its slot."""
    return [
        record
        for place, record in enumerate(records)
        if record.slot() is None
        or not any(
            (later.group, type(later), later.slot()) == (record.group, type(record), record.slot())
            for later in records[place + 1 :]
        )
    ]


RECORDS = st.one_of(
    st.builds(Counted, st.sampled_from("gh"), st.integers(0, 5)),
    st.builds(Latest, st.sampled_from("gh"), st.sampled_from("abc"), st.integers(0, 5)),
    st.builds(
        EntryRecord,
        st.sampled_from("gh"),
        number=st.just(1),
        ticket=st.integers(0, 2),
        epoch=st.integers(0, 5),
        owner=st.just(ME),
        mode=st.just("held"),
    ),
)


@given(st.lists(RECORDS))
def test_the_newest_of_each_slot_counts_in_the_order_of_writing(records: list[Packet]) -> None:
    assert kept(records) == newest(records)
    for group in "gh":
        assert kept(records, group) == [one for one in newest(records) if one.group == group]


def test_putting_a_record_returns_what_it_replaces() -> None:
    slots: Slots[int] = Slots()
    assert slots.put(Latest("g", "a", 1), 1) is None
    assert slots.put(Latest("g", "b", 2), 2) is None
    assert slots.put(Latest("g", "a", 3), 3) == 1
    assert slots.put(Counted("g", 4), 4) is None
    assert slots.put(Counted("g", 4), 5) is None
    assert (len(slots), slots.values()) == (4, [2, 3, 4, 5])
    slots.clear()
    assert (len(slots), slots.values()) == (0, [])


def test_a_replica_is_persisted_once_a_group_and_its_entries_once_a_ticket() -> None:
    def replica(group: str, sealed: bool) -> Packet:
        return ReplicaRecord(group, 7, ME, Configuration(1, (ME,)), (), None, None, sealed)

    def entry(group: str, ticket: int, epoch: int) -> Packet:
        return EntryRecord(group, 1, ticket, epoch, ME, "held")

    records = [
        *(replica("g", False), replica("h", False), entry("g", 0, 1), entry("g", 1, 1)),
        *(entry("h", 0, 1), entry("g", 0, 2), replica("g", True)),
    ]
    assert kept(records) == [
        *(replica("h", False), entry("g", 1, 1), entry("h", 0, 1)),
        *(entry("g", 0, 2), replica("g", True)),
    ]
