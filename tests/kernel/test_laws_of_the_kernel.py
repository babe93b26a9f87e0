"""The laws that every family keeps, whatever it does: see kernel/machine.py.

Each test runs for every family in FAMILIES. A new family is judged here by being listed there.
"""

from __future__ import annotations

import copy
import gc
import types
from collections.abc import Iterator
from typing import Any, get_type_hints

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from ordercast.errors import PeerError
from ordercast.kernel.family import Family
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step
from ordercast.protocol.families import FAMILIES
from ordercast.testing.actor import Posted
from ordercast.testing.stage import Stage
from ordercast.types import NodeId
from ordercast.wire.codec import LARGEST_PACKET, Codec

EVERY_FAMILY = pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
EVERY_PACKET = pytest.mark.parametrize(
    "kind",
    [kind for family in FAMILIES.values() for kind in family.packets],
    ids=lambda kind: str(kind.__struct_config__.tag),
)
CODEC = Codec(FAMILIES.values())


def busy(family: Family) -> Stage:
    """A stage on which a little of everything has happened."""
    stage = Stage.of(family, "n1 n2 n3")
    stage.settle(ticks=3)
    for name in stage.actors:
        if stage.accepts(name):
            stage.submit(name, [b"hello", b"world"])
    stage.settle(ticks=2)
    stage.crash("n3")
    stage.start("n3")
    stage.settle(ticks=3)
    return stage


def reached_from(root: object) -> Iterator[object]:
    """Every object that can be reached, but for code and what modules and classes hold."""
    skipped = (type, types.ModuleType, types.FunctionType, types.CodeType)
    seen: dict[int, object] = {id(root): root}
    waiting = [root]
    while waiting:
        found = waiting.pop()
        yield found
        for inner in gc.get_referents(found):
            if id(inner) not in seen and not isinstance(inner, skipped):
                seen[id(inner)] = inner
                waiting.append(inner)


# --- steps ------------------------------------------------------------------------------------


@EVERY_FAMILY
def test_no_machine_stores_a_step(family: Family) -> None:
    stage = busy(family)
    for name in stage.actors:
        reached = list(reached_from(stage.machine(name)))
        assert len(reached) > 5  # the walk does walk
        assert not [found for found in reached if isinstance(found, Step)]


@EVERY_FAMILY
def test_a_deep_copy_of_a_machine_is_independent(family: Family) -> None:
    stage = busy(family)
    machine = stage.machine("n1")
    twin = copy.deepcopy(machine)
    for timer in stage.timers("n1"):
        first, second = Step(stage.now), Step(stage.now)
        machine.expire(first, timer)
        twin.expire(second, timer)
        for part in Step.__slots__:
            assert getattr(first, part) == getattr(second, part)


@EVERY_FAMILY
def test_the_same_seed_gives_the_same_run(family: Family) -> None:
    assert busy(family).log == busy(family).log


@EVERY_FAMILY
def test_every_option_has_a_default_that_works(family: Family) -> None:
    assert family.options() is not None
    assert family.options.__struct_config__.frozen
    assert family.options.__struct_config__.forbid_unknown_fields


# --- packets ----------------------------------------------------------------------------------


@EVERY_FAMILY
def test_a_tag_is_the_family_or_a_part_of_it_and_a_name(family: Family) -> None:
    # Tickets and primary views have packages of their own; one machine has one set of packets.
    parts = {
        "causal": ("tickets", "ring"),
        "total": ("primary",),
        "synchrony": ("primary",),
        "feed": ("log",),  # what every family with a log has
        "sequenced": ("total", "primary"),
        "atomic": ("total", "primary"),
    }
    tags = [str(kind.__struct_config__.tag) for kind in family.packets]
    assert len(set(tags)) == len(tags)
    for tag in tags:
        name, _, rest = tag.partition(".")
        assert name == family.name or name in parts.get(family.name, ())
        assert rest.isidentifier()


@EVERY_PACKET
def test_packets_are_frozen_and_strict_and_begin_with_their_group(kind: type[Packet]) -> None:
    config = kind.__struct_config__
    assert config.frozen
    assert config.array_like
    assert config.forbid_unknown_fields
    assert kind.__struct_fields__[0] == "group"


@EVERY_FAMILY
def test_packets_of_simulated_members_round_trip_through_their_bytes(family: Family) -> None:
    said = [what.packet for _, what in busy(family).log if isinstance(what, Posted)]
    assert said
    for packet in said:
        assert type(packet.to_wire()) in family.packets
        assert CODEC.decode(CODEC.encode(packet)) == packet


def packets_of(kind: type[Packet]) -> st.SearchStrategy[Packet]:
    """Packets with any content that their types allow."""
    hints = get_type_hints(kind, include_extras=True)
    return st.builds(kind, **{name: values_of(hints[name]) for name in kind.__struct_fields__})


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    shape = msgspec.inspect.type_info(hint)
    match shape:
        case msgspec.inspect.IntType():
            least = shape.ge if shape.ge is not None else -(1 << 63)
            return st.integers(least, most(shape))
        case msgspec.inspect.ListType(item_type=item, min_length=least):
            return st.lists(inner_values(item), min_size=least or 0, max_size=3)
    return inner_values(shape)


def most(shape: Any) -> int:
    return int(shape.le if shape.le is not None else (shape.lt or 1 << 63) - 1)


def inner_values(shape: Any) -> st.SearchStrategy[Any]:
    match shape:
        case msgspec.inspect.StrType(min_length=least):
            return st.text(min_size=least or 0, max_size=5)
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.BytesType(min_length=least):
            return st.binary(min_size=least or 0, max_size=5)
        case msgspec.inspect.LiteralType(values=words):
            return st.sampled_from(words)
        case msgspec.inspect.IntType():
            least = shape.ge if shape.ge is not None else -(1 << 63)
            return st.integers(least, most(shape))
        case msgspec.inspect.StructType(cls=cls) if cls is NodeId:
            return st.builds(NodeId, st.text(min_size=1, max_size=5), st.integers(0, 1 << 20))
        case msgspec.inspect.ListType(item_type=item):
            return st.lists(inner_values(item), max_size=3)
        case msgspec.inspect.TupleType(item_types=items):
            return st.tuples(*map(inner_values, items))
        case msgspec.inspect.VarTupleType(item_type=item):
            return st.lists(inner_values(item), max_size=3).map(tuple)
        case msgspec.inspect.UnionType(types=types):
            return st.one_of(*map(inner_values, types))
        case msgspec.inspect.NoneType():
            return st.none()
        case msgspec.inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(inner_values(key), inner_values(value), max_size=3)
        case msgspec.inspect.StructType(cls=cls, fields=fields):
            return st.builds(cls, **{field.name: inner_values(field.type) for field in fields})
    raise AssertionError(f"teach this test about {shape}")


any_packet = st.one_of([packets_of(k) for f in FAMILIES.values() for k in f.packets])


@settings(deadline=None)
@given(any_packet)
def test_any_packet_round_trips_through_its_bytes(packet: Packet) -> None:
    data = CODEC.encode(packet)
    found = read(data)
    if packet.carries()[1] > len(data):  # it says that it carries more than it is long
        assert found is None
    elif type(packet).from_wire is Packet.from_wire:
        assert found == packet
    elif found is not None:  # it travels in another form, of which not all makes sense
        assert read(CODEC.encode(found)) == found


# --- bytes that no peer should send -----------------------------------------------------------


def read(data: bytes) -> Packet | None:
    """The packet, or None where the peer is blamed. Anything else is ours."""
    try:
        return CODEC.decode(data)
    except PeerError:
        return None


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_garbage_is_the_peers_fault(data: bytes) -> None:
    read(data)


@settings(deadline=None)
@given(any_packet, st.data())
def test_a_truncated_packet_is_the_peers_fault(packet: Packet, data: st.DataObject) -> None:
    whole = CODEC.encode(packet)
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert read(whole[:cut]) is None
    assert read(whole + b"\x00") is None


@settings(deadline=None)
@given(any_packet, st.data())
def test_a_damaged_packet_is_another_packet_or_the_peers_fault(
    packet: Packet, data: st.DataObject
) -> None:
    whole = bytearray(CODEC.encode(packet))
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    found = read(bytes(whole))
    if found is not None:
        again = CODEC.encode(found)  # shorter, where a number was written longer than it need be
        assert read(again) == found or found.to_wire().carries()[1] > len(again)


json = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
TAGS = [str(kind.__struct_config__.tag) for f in FAMILIES.values() for kind in f.packets]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from([*TAGS, "other.tag"]), st.lists(json, max_size=6))
def test_wrong_types_and_wrong_counts_are_the_peers_fault(tag: str, fields: list[Any]) -> None:
    found = read(msgspec.msgpack.encode([tag, *fields]))
    if found is not None:  # fields at the end that have defaults may be left out
        again = msgspec.msgpack.decode(CODEC.encode(found))
        assert again[: len(fields) + 1] == [tag, *fields]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xdd\xff\xff\xff\xff", id="an array of four thousand million"),
        pytest.param(b"\xdf\xff\xff\xff\xff", id="a map of as many"),
        pytest.param(b"\xc6\xff\xff\xff\xff", id="as many bytes"),
        pytest.param(b"\xdb\xff\xff\xff\xff", id="as much text"),
        pytest.param(b"\xc9\xff\xff\xff\xff\x01", id="an extension"),
        pytest.param(b"\x91" * 100_000, id="deeper than any stack"),
        pytest.param(b"\x92\xa9fifo.data\xdd\xff\xff\xff\xff", id="a tag, then too much"),
        pytest.param(b"\x92\xa2\xff\xfe\x00", id="a tag that is no text"),
        pytest.param(b"\x00" * (LARGEST_PACKET + 1), id="more than a packet may have"),
    ],
)
def test_impossible_lengths_allocate_nothing_and_are_the_peers_fault(data: bytes) -> None:
    with pytest.raises(PeerError):
        CODEC.decode(data)


@EVERY_FAMILY
@settings(deadline=None, max_examples=60, phases=[Phase.generate])
@given(data=st.data())
def test_a_machine_takes_any_packet_or_raises_a_protocol_error(
    family: Family, data: st.DataObject
) -> None:
    stage = Stage.of(family, "n1 n2 n3")
    stage.settle(ticks=3)
    packets = st.one_of([packets_of(kind) for kind in family.packets])
    for _ in range(5):
        packet = msgspec.structs.replace(data.draw(packets), group="g")
        try:
            stage.inject(NodeId(data.draw(st.sampled_from(["n2", "n3", "n9"]))), "n1", packet)
        except PeerError:
            continue
