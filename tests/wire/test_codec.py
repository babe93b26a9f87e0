"""Packets to bytes and back, and what is not a packet: always the peer's mistake, never ours."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec
import msgspec.inspect
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.errors import PeerError, UsageError
from ordercast.kernel.family import Family, Plan
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.protocol.families import FAMILIES
from ordercast.types import NodeId
from ordercast.wire.codec import LARGEST_PACKET, Codec


class Letter(Packet, frozen=True, tag="test.letter"):
    origin: NodeId
    number: int
    payloads: list[bytes]
    seen: dict[str, int]


class Bell(Packet, frozen=True, tag="test.bell"):
    """A packet with nothing but its group."""


class Stranger(Packet, frozen=True, tag="other.stranger"):
    number: int


class NoOptions(msgspec.Struct, frozen=True):
    """Nothing can be set."""


def nobody(
    me: NodeId, plans: tuple[Plan, ...], chance: Random, records: Sequence[Packet]
) -> list[Machine]:
    return []


def codec_of(*packets: type[Packet]) -> Codec:
    return Codec([Family("test", NoOptions, packets, nobody, 5)])


CODEC = codec_of(Letter, Bell)
LETTER = Letter("g", NodeId("n1", 3), 7, [b"one", b""], {"n2": 1})

nodes = st.builds(NodeId, st.text(min_size=1, max_size=100), st.integers(0, (1 << 22) - 1))
letters = st.builds(
    Letter,
    st.text(),
    nodes,
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.lists(st.binary()),
    st.dictionaries(st.text(), st.integers(0, 1 << 40)),
)


def packed(*fields: object) -> bytes:
    """Bytes as a peer could write them, whether or not they are a packet."""
    return msgspec.msgpack.encode(fields)


# --- there and back --------------------------------------------------------------------------


@given(st.one_of(letters, st.builds(Bell, st.text())))
def test_an_encoded_packet_decodes_to_an_equal_one(packet: Packet) -> None:
    assert CODEC.decode(CODEC.encode(packet)) == packet


def test_the_tag_tells_packets_of_the_same_shape_apart() -> None:
    class Ring(Packet, frozen=True, tag="test.ring"):
        pass

    codec = codec_of(Bell, Ring)
    assert type(codec.decode(codec.encode(Ring("g")))) is Ring
    assert type(codec.decode(codec.encode(Bell("g")))) is Bell


def test_the_same_packet_is_always_the_same_bytes() -> None:
    assert CODEC.encode(LETTER) == codec_of(Letter, Bell).encode(LETTER)
    assert CODEC.encode(LETTER)[1:13] == b"\xabtest.letter"


def test_the_packets_of_all_families_can_be_told_apart_by_one_codec() -> None:
    Codec(FAMILIES.values())
    kinds = {kind for each in FAMILIES.values() for kind in each.packets}
    assert len({kind.__struct_config__.tag for kind in kinds}) == len(kinds)


def test_every_number_in_a_packet_has_bounds() -> None:
    """An incarnation or a counter beyond its bits is refused when the packet is read, and never
    reaches a member."""
    found: list[str] = []
    for family in FAMILIES.values():
        for kind in family.packets:
            found += unbounded(msgspec.inspect.type_info(kind), kind.__name__, set())
    assert not found
    assert unbounded(msgspec.inspect.type_info(Letter), "Letter", set()) == [
        "Letter.number",
        "Letter.seen",
    ]


def unbounded(kind: Any, path: str, seen: set[type]) -> list[str]:
    """Where a value of this type has an integer without a bound."""
    match kind:
        case msgspec.inspect.IntType():
            has_least = kind.ge is not None or kind.gt is not None
            has_most = kind.le is not None or kind.lt is not None
            return [] if has_least and has_most else [path]
        case msgspec.inspect.StructType():
            if kind.cls in seen:
                return []
            seen.add(kind.cls)
            inner = [(field.type, f"{path}.{field.name}") for field in kind.fields]
        case msgspec.inspect.UnionType():
            inner = [(one, path) for one in kind.types]
        case msgspec.inspect.TupleType():
            inner = [(one, path) for one in kind.item_types]
        case msgspec.inspect.ListType() | msgspec.inspect.VarTupleType():
            inner = [(kind.item_type, path)]
        case msgspec.inspect.DictType():
            inner = [(kind.key_type, path), (kind.value_type, path)]
        case _:
            return []
    return [name for one, at in inner for name in unbounded(one, at, seen)]


def test_a_codec_without_packets_is_a_mistake_of_ours() -> None:
    with pytest.raises(AssertionError, match="nothing to do"):
        Codec([])


# --- what is not a packet --------------------------------------------------------------------


class Imitation(Packet, frozen=True, tag="fifo.data"):
    """A packet of another family, with a tag that fifo has."""


def test_two_families_whose_packets_have_one_tag_are_named() -> None:
    fifo = FAMILIES["fifo"]
    other = fifo._replace(name="other", packets=(Imitation,))
    with pytest.raises(UsageError, match=r"'fifo' and 'other' both .* the tag 'fifo.data'"):
        Codec([fifo, other])


def test_a_tag_that_nobody_here_knows_is_refused() -> None:
    stranger = codec_of(Stranger).encode(Stranger("g", 1))
    with pytest.raises(PeerError, match=r"other\.stranger"):
        CODEC.decode(stranger)


def test_every_truncated_packet_is_rejected() -> None:
    data = CODEC.encode(LETTER)
    for length in range(len(data)):
        with pytest.raises(PeerError):
            CODEC.decode(data[:length])


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xc1", id="a byte that MessagePack never uses"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="another protocol"),
        pytest.param(packed(), id="an empty list"),
        pytest.param(packed("test.bell"), id="no group"),
        pytest.param(packed("test.bell", 5), id="a group that is no text"),
        pytest.param(packed("test.bell", "g", 1), id="one field too many"),
        pytest.param(packed("test.bell", "g") + b"\x00", id="one byte too many"),
        pytest.param(packed(5, "g"), id="a tag that is no text"),
        pytest.param(msgspec.msgpack.encode({"group": "g"}), id="a map"),
        pytest.param(b"\x92\xa9test.bell\xa1\xff", id="text that is not UTF-8"),
        pytest.param(b"\x91" * 100_000, id="lists in lists without end"),
        pytest.param(b"\xdd\xff\xff\xff\xff", id="a list that claims four billion fields"),
        pytest.param(b"\x92\xa9test.bell\xdb\xff\xff\xff\xff", id="text that claims 4 GiB"),
        pytest.param(packed("test.letter", "g", ["", 0], 1, [], {}), id="a node without a name"),
        pytest.param(
            packed("test.letter", "g", ["n1", -1], 1, [], {}), id="a life before the first"
        ),
        pytest.param(packed("test.letter", "g", ["n1", 0], 1.5, [], {}), id="half a number"),
        pytest.param(packed("test.letter", "g", ["n1", 0], 1, None, {}), id="no list of payloads"),
    ],
)
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(PeerError, match="not a packet that we know"):
        CODEC.decode(data)


def test_values_nested_too_deep_are_rejected() -> None:
    class Loose(Packet, frozen=True, tag="test.loose"):
        anything: object

    shallow, deep = (
        packed("test.loose", "g", None)[:-1] + b"\x91" * depth + b"\xc0" for depth in (10, 100_000)
    )
    codec = codec_of(Loose)
    assert isinstance(codec.decode(shallow), Loose)
    with pytest.raises(PeerError, match="recursion"):
        codec.decode(deep)


@given(st.binary())
def test_any_bytes_are_a_packet_or_the_peers_fault(data: bytes) -> None:
    try:
        packet = CODEC.decode(data)
    except PeerError:
        return
    assert isinstance(packet, Letter | Bell)


@given(letters, st.data())
def test_a_packet_with_one_changed_byte_is_a_packet_or_the_peers_fault(
    letter: Letter, data: st.DataObject
) -> None:
    spoilt = bytearray(CODEC.encode(letter))
    spoilt[data.draw(st.integers(0, len(spoilt) - 1))] = data.draw(st.integers(0, 255))
    try:
        packet = CODEC.decode(bytes(spoilt))
    except PeerError:
        return
    assert isinstance(packet, Letter | Bell)


# --- limits ----------------------------------------------------------------------------------


def letter_of_exactly(size: int) -> Letter:
    """A letter whose encoding has so many bytes."""
    small = Letter("g", NodeId("n1"), 1, [b"x" * 100_000], {})
    room = size - len(CODEC.encode(small))
    return Letter("g", NodeId("n1"), 1, [b"x" * (100_000 + room)], {})


def test_the_largest_packet_passes_both_ways() -> None:
    largest = letter_of_exactly(LARGEST_PACKET)
    data = CODEC.encode(largest)
    assert len(data) == LARGEST_PACKET
    assert CODEC.decode(data) == largest


def test_sending_a_packet_over_the_limit_is_an_assertion_error() -> None:
    with pytest.raises(AssertionError, match=f"a packet of {LARGEST_PACKET + 1} bytes"):
        CODEC.encode(letter_of_exactly(LARGEST_PACKET + 1))


def test_receiving_a_packet_over_the_limit_is_the_peers_fault() -> None:
    data = msgspec.msgpack.encode(letter_of_exactly(LARGEST_PACKET + 1))
    with pytest.raises(PeerError, match=f"the limit is {LARGEST_PACKET}"):
        CODEC.decode(data)
