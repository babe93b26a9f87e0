"""Stamps on the wire: short where they are alike, whole again, and never believed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.errors import PeerError
from ordercast.protocol.cluster import CAUSAL, GOSSIP
from ordercast.protocol.cluster.packets import (
    Recovered,
    Thin,
    ThinRecovered,
    ThinUpdates,
    Update,
    Updates,
    thinned,
    whole,
)
from ordercast.protocol.tickets.entries import MOST_TICKETS
from ordercast.types import NodeId
from ordercast.wire.codec import Codec

CODEC = Codec([CAUSAL, GOSSIP])
LARGEST = (1 << 54) - 1


def update(index: int, stamp: tuple[int, ...], payload: bytes = b"x", base: int = 0) -> Update:
    return Update(index, stamp, NodeId(f"n{index}"), 1, [payload], len(payload), base)


def thin(index: int, *changes: int, **others: Any) -> Thin:
    fields = {"number": 1, "payloads": [b"x"], "size": 1, "base": 0, "age": 1, **others}
    return Thin(index=index, changes=list(changes), origin=NodeId("n0"), **fields)


# --- there and back ---------------------------------------------------------------------------

entries = st.one_of(st.integers(0, 5), st.integers(0, LARGEST), st.just(LARGEST))


@st.composite
def messages(draw: st.DrawFn) -> list[tuple[Update, int]]:
    length = draw(st.integers(1, 12))
    common = draw(st.tuples(*[entries] * length))
    found = []
    for _ in range(draw(st.integers(0, 6))):
        stamp = list(common)
        for place in draw(st.lists(st.integers(0, length - 1), max_size=4)):
            stamp[place] = draw(entries)
        node = NodeId(draw(st.sampled_from(["a", "b"])), draw(st.integers(0, 3)))
        payloads = draw(st.lists(st.binary(max_size=4), max_size=3))
        size = sum(map(len, payloads))
        index, number, base = (
            draw(st.integers(0, length - 1)),
            draw(st.integers(1, 99)),
            draw(entries),
        )
        one = Update(index, tuple(stamp), node, number, payloads, size, base)
        found.append((one, draw(st.integers(0, 1000))))
    return found


@settings(derandomize=True, max_examples=300)
@given(messages())
def test_stamps_survive_being_stored_as_differences(updates: list[tuple[Update, int]]) -> None:
    assert whole(*thinned(updates)) == updates


@settings(derandomize=True, max_examples=300)
@given(messages())
def test_packets_round_trip_through_their_bytes(updates: list[tuple[Update, int]]) -> None:
    for packet in (Updates("g", updates), Recovered("g", updates)):
        assert CODEC.decode(CODEC.encode(packet)) == packet


def test_the_stamp_of_a_single_event_has_no_differences() -> None:
    common, [one] = thinned([(update(1, (4, 5, 6)), 2)])
    assert (common, one.changes) == ((4, 5, 6), [])


def test_the_common_part_of_stamps_is_sent_once_and_then_only_differences() -> None:
    common, [one, two] = thinned([(update(0, (9, 5, 6)), 1), (update(1, (8, 7, 6)), 1)])
    assert common == (8, 5, 6)
    assert (one.changes, two.changes) == ([0, 1], [1, 2])


def test_without_events_no_stamp_is_sent() -> None:
    assert thinned([]) == ((), [])
    assert whole((), []) == []


def test_an_event_that_has_seen_nothing_and_one_that_has_seen_all_travel_together() -> None:
    updates = [(update(0, (0, 0)), 1), (update(0, (LARGEST, LARGEST)), 1)]
    assert whole(*thinned(updates)) == updates
    assert CODEC.decode(CODEC.encode(Updates("g", updates))) == Updates("g", updates)


# --- size -------------------------------------------------------------------------------------


def test_a_stamp_of_125_entries_among_20_similar_ones_costs_a_few_bytes() -> None:
    clock = tuple((1 << 32) + 7 * place for place in range(125))
    updates = []
    for place in range(21):
        clock = (*clock[:place], clock[place] + 1, *clock[place + 1 :])
        updates.append((update(place, clock), 1))
    sizes = [len(CODEC.encode(Updates("g", updates[:count]))) for count in (1, 20, 21)]
    without = len(CODEC.encode(Updates("g", [(update(0, (1,)), 1)])))
    assert sizes[0] > without + 125 * 8  # one alone carries its whole stamp
    event = len(msgspec.msgpack.encode(thin(20)))
    assert sizes[2] - sizes[1] < event + 2 * 21 + 5  # two bytes for each entry that is ahead
    assert sizes[2] < sizes[0] + 20 * (event + 2 * 21 + 5)


def test_an_event_that_differs_in_its_own_entry_costs_two_bytes_for_its_stamp() -> None:
    clock = (1 << 32,) * 125
    first = update(3, (*clock[:3], clock[3] + 1, *clock[4:]))
    second = update(3, (*clock[:3], clock[3] + 2, *clock[4:]))
    _, [_, one] = thinned([(first, 1), (second, 1)])
    assert one.changes == [3, 1]
    assert len(msgspec.msgpack.encode(one.changes)) == 3


# --- what is never made by us -----------------------------------------------------------------

HOSTILE = {
    "differences that are not pairs": ((1, 1), thin(0, 1)),
    "more differences than entries": ((1, 1), thin(0, 0, 1, 1, 1, 0, 1)),
    "a difference where there is no entry": ((1, 1), thin(0, 2, 1)),
    "a difference far away": ((1, 1), thin(0, LARGEST, 1)),
    "a ticket that the stamp does not have": ((1, 1), thin(2)),
    "a ticket of no stamp": ((), thin(0)),
    "an endless stamp": ((1,) * (MOST_TICKETS + 1), thin(0)),
    "an entry beyond all entries": ((1, LARGEST), thin(0, 1, 1)),
    "an entry that is the sum of two": ((0, LARGEST), thin(0, 1, LARGEST)),
    "two differences at one place": ((1, 1), thin(0, 1, 1, 1, 1)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_impossible_differences_are_the_peers_fault(name: str) -> None:
    common, one = HOSTILE[name]
    with pytest.raises(PeerError):
        whole(common, [one])
    for packet in (ThinUpdates("g", common, [one]), ThinRecovered("g", common, [one])):
        data = msgspec.msgpack.encode(packet)
        with pytest.raises(PeerError):
            CODEC.decode(data)


@settings(derandomize=True, max_examples=400)
@given(
    st.lists(entries, min_size=1, max_size=5),
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.lists(st.tuples(st.integers(0, 3), entries), max_size=4).map(
                lambda pairs: [number for pair in pairs for number in pair]
            ),
        ),
        max_size=3,
    ),
)
def test_any_received_packet_is_rejected_or_can_be_sent_again(
    common: list[int], said: list[tuple[int, list[int]]]
) -> None:
    """A member relays what it receives: what it cannot send on, others would blame it for."""
    packet = ThinUpdates("g", tuple(common), [thin(index, *changes) for index, changes in said])
    try:
        taken = CODEC.decode(msgspec.msgpack.encode(packet))
    except PeerError:
        return
    assert CODEC.decode(CODEC.encode(taken)) == taken


@settings(derandomize=True, max_examples=200)
@given(messages(), st.data())
def test_a_message_that_was_cut_off_or_changed_is_a_message_or_the_peers_fault(
    updates: list[tuple[Update, int]], data: st.DataObject
) -> None:
    sent = CODEC.encode(Updates("g", updates))
    place = data.draw(st.integers(0, len(sent) - 1))
    with pytest.raises(PeerError):
        CODEC.decode(sent[:place])
    changed = bytearray(sent)
    changed[place] = data.draw(st.integers(0, 255))
    try:
        CODEC.decode(bytes(changed))
    except PeerError:
        return


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("common", (LARGEST + 1,)), ("common", (-1,)), ("common", (1.5,)),
        ("index", MOST_TICKETS), ("index", -1), ("age", 1001), ("age", -1), ("number", 1 << 40),
        ("base", LARGEST + 1), ("changes", [0, -1]), ("changes", [0, LARGEST + 1]),
    ],
)  # fmt: skip
def test_a_value_outside_its_range_is_not_a_packet(field: str, value: object) -> None:
    fields = {"index": 0, "changes": [], "origin": ["n0", 0], "number": 1, "payloads": [b"x"],
              "size": 1, "base": 0, "age": 1}  # fmt: skip
    good = ["causal.updates", "g", [1], [list(fields.values())], None]
    assert CODEC.decode(msgspec.msgpack.encode(good)) == Updates("g", [(update(0, (1,)), 1)])
    bad = list(good)
    if field == "common":
        bad[2] = value
    else:
        bad[3] = [list({**fields, field: value}.values())]
    with pytest.raises(PeerError):
        CODEC.decode(msgspec.msgpack.encode(bad))
