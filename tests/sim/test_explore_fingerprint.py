"""What the explorer takes for the same state, and what it does not."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.kernel.family import Plan
from ordercast.kernel.step import LINK, Step
from ordercast.protocol.fifo.member import FifoMember
from ordercast.protocol.fifo.options import FifoOptions
from ordercast.protocol.fifo.packets import Alive, Start
from ordercast.protocol.fifo.peers import Peer
from ordercast.sim.explore.fingerprint import Walk, encode, fingerprint
from ordercast.types import NodeId
from ordercast.units import Duration


class Slotted:
    __slots__ = ("__hidden", "item", "unset")

    unset: object

    def __init__(self, item: object, hidden: object = None) -> None:
        self.item = item
        self.__hidden = hidden


class Open:
    def __init__(self, **attributes: object) -> None:
        self.__dict__.update(attributes)


class Pair(NamedTuple):
    one: int
    two: int


class Value(msgspec.Struct, frozen=True):
    item: object


class Changing(msgspec.Struct):
    item: object


class Tagged(int):
    tag = "class"


atoms = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=5)
keys = st.integers() | st.text() | st.tuples(st.integers(), st.text())
values = st.recursive(
    atoms | st.frozensets(keys) | st.sets(keys),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(keys, inner)
        | st.dictionaries(keys, inner).map(OrderedDict)
        | st.lists(inner).map(deque)
        | inner.map(Slotted)
        | inner.map(Changing)
        | st.builds(Open, some=inner, other=inner)
    ),
    max_leaves=12,
)


@given(values)
def test_a_deep_copy_is_the_same_state(value: object) -> None:
    assert fingerprint(copy.deepcopy(value)) == fingerprint(value)
    assert len(fingerprint(value)) == 16


@given(st.lists(atoms, max_size=6), st.lists(atoms, max_size=6))
def test_different_values_are_different_states(one: list[Any], two: list[Any]) -> None:
    same = len(one) == len(two) and all(
        type(a) is type(b) and repr(a) == repr(b) for a, b in zip(one, two, strict=True)
    )
    assert (encode(one) == encode(two)) == same


def alike(left: object, right: object) -> bool:
    return encode(left) == encode(right)


def test_types_matter() -> None:
    different = [1, True, 1.0, "1", b"1", Tagged(1), Duration(1), (1,), [1], {1}, frozenset({1})]
    different += [Pair(1, 1), (1, 1), deque([1]), deque([1], 2), {1: 1}, OrderedDict({1: 1})]
    different += [Counter({1: 1}), defaultdict(int, {1: 1}), defaultdict(bool, {1: 1})]
    different += [NodeId("1"), Value(1), Changing(1), Slotted(1), Open(item=1), LINK, int, None]
    different += [Value(Value(1)), -1, 0, "", b"", (), [], {}, set(), 0.0, -0.0, float("nan")]
    assert len({encode(each) for each in different}) == len(different)


def test_the_order_of_a_dict_matters_and_that_of_a_set_does_not() -> None:
    assert not alike({1: 1, 2: 2}, {2: 2, 1: 1})
    assert not alike(OrderedDict({1: 1, 2: 2}), OrderedDict({2: 2, 1: 1}))
    words = [f"word {number}" for number in range(50)]
    backwards = words[::-1]
    assert alike(set(words), set(backwards))
    assert alike(frozenset(words), frozenset(backwards))
    assert alike(Open(a=1, b=2), Open(b=2, a=1))  # attributes are not iterated over


def test_sharing_matters() -> None:
    shared: list[int] = []
    assert not alike([shared, shared], [[], []])
    thing = Slotted(1)
    assert not alike([thing, thing], [Slotted(1), Slotted(1)])
    chance = Random(1)
    assert not alike([chance, chance], [Random(1), Random(1)])
    # But not of what cannot change, nor inside a frozen struct, by the law of packets.
    assert alike([Value(shared), Value(shared)], [Value([]), Value([])])
    pair = (1, 2)
    assert alike([pair, pair], [(1, 2), (1, 2)])


def test_objects_that_refer_to_each_other_can_be_fingerprinted() -> None:
    one, two = Open(), Open()
    one.__dict__["to"], two.__dict__["to"] = two, one
    assert alike(one, copy.deepcopy(one))
    selfish = Open()
    selfish.__dict__["to"] = selfish
    assert not alike(one, selfish)


def test_attributes_that_slots_hide_and_subclasses_add_are_seen() -> None:
    assert not alike(Slotted(1, hidden=1), Slotted(1, hidden=2))
    one, two = Tagged(1), Tagged(1)
    two.tag = "own"
    assert not alike(one, two)
    late = Slotted(1)
    late.unset = None
    assert not alike(late, Slotted(1))


def test_the_state_of_a_random_generator_counts() -> None:
    drawn = Random(1)
    assert alike(drawn, Random(1))
    drawn.random()
    assert not alike(drawn, Random(1))


def test_functions_are_known_by_name() -> None:
    assert alike([len, Slotted, fingerprint], [len, Slotted, fingerprint])
    assert not alike(len, repr)
    bound = member()
    assert alike([bound, bound.expire], copy.deepcopy([bound, bound.expire]))
    assert not alike([bound, bound.expire], [bound, member().expire])


@pytest.mark.parametrize(
    "make",
    [
        lambda: (each for each in (1, 2)),
        lambda: iter([1]),
        lambda: count(),
        lambda: lambda: 1,
        lambda: [].append,
        lambda: memoryview(b""),
        lambda: Value(Slotted(1)),
        lambda: Value(Changing(1)),
        lambda: {Open()},
        lambda: object.__new__(object).__repr__,
    ],
)
def test_objects_whose_state_is_hidden_are_rejected(make: Callable[[], object]) -> None:
    with pytest.raises(TypeError):
        encode([make()])


# --- machines ----------------------------------------------------------------------------------


def member() -> FifoMember:
    plan = Plan("g", ("n1", "n2", "n3"), FifoOptions())
    made = FifoMember(NodeId("n1"), plan, Random(1))
    step = Step(0)
    made.start(step)
    for name in ("n2", "n3"):
        node = NodeId(name)
        made.receive(step, node, Alive("g", [(node, 0)], [NodeId("n1")]))
        made.receive(step, node, Start("g", node, 0))
    made.submit(step, "g", [b"x"], 1)
    return made


def test_a_machine_and_its_copy_are_the_same_until_one_changes() -> None:
    one = member()
    two = copy.deepcopy(one)
    assert alike(one, two)
    two.expire(Step(0), "tick")
    assert not alike(one, two)
    one.expire(Step(0), "tick")
    assert alike(one, two)


def test_every_field_of_a_machine_counts() -> None:
    base = encode(member())
    for name in vars(member()):
        changed = member()
        setattr(changed, name, "something else")
        assert encode(changed) != base, name
    for name in Peer.__slots__:
        changed = member()
        setattr(changed.peers.by_name["n2"], name, "something else")
        assert encode(changed) != base, name


def test_known_encodings_change_nothing() -> None:
    made = member()
    walk = Walk()
    whole = walk.encode(made)
    assert walk.frozen
    shared = {place: value for place, (value, _) in walk.frozen.items()}
    again = copy.deepcopy(made, shared)
    assert Walk(walk.frozen).encode(again) == whole
    again.submit(Step(0), "g", [b"x"], 1)
    assert Walk(walk.frozen).encode(again) == encode(again) != whole
    assert encode(made) == whole


def test_encodings_do_not_depend_on_the_hash_seed() -> None:
    code = (
        "from ordercast.sim.explore.fingerprint import fingerprint\n"
        "from ordercast.types import NodeId\n"
        "names = {NodeId(f'n{n}') for n in range(40)} | set('some words to hash'.split())\n"
        "print(fingerprint([names, frozenset(names), {'a': names}]).hex())\n"
    )
    path = os.pathsep.join(each for each in sys.path if each)
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "5", "6")
    }
    assert len(said) == 1
