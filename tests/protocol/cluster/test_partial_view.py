"""What is asked of every sampler with a partial view, and what only lpbcast and everybody do.

The claims are in our words, with numbers: the towns are seeded, so a bound either holds or not.
"""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings
from tests.protocol.cluster.rounds import Make, Town

from ordercast.errors import PeerError
from ordercast.protocol.cluster.cyclon import Cyclon
from ordercast.protocol.cluster.lpbcast import Lpbcast
from ordercast.protocol.cluster.sampler import (
    MOST_NAMED,
    OLDEST,
    Everybody,
    Roster,
    RosterKind,
    Sampler,
)
from ordercast.types import NodeId

ME = NodeId("me", 3)
EVERY = pytest.mark.parametrize("make", [Lpbcast, Cyclon])
ROUGH = {"loss": 0.2, "late": 0.3}
FORGOTTEN = {Lpbcast: 21, Cyclon: 61}  # rounds: the expiry of each, and the one it is noticed in


def roster(kind: RosterKind, here: str = "", gone: str = "", age: int = 0) -> Roster:
    """Names with "#incarnation" or without, all of one age."""
    lists = [
        [
            (NodeId(name, int(number or 0)), age)
            for name, _, number in (w.partition("#") for w in words)
        ]
        for words in (here.split(), gone.split())
    ]
    return Roster(kind, *lists)


def state(part: object) -> object:
    """All that a sampler knows, as plain values: to compare, and to measure."""
    if isinstance(part, Random):
        return part.getstate()
    if isinstance(part, dict):
        return [(key, state(value)) for key, value in part.items()]
    if isinstance(part, list | tuple):
        return [state(value) for value in part]
    if isinstance(part, NodeId) or not hasattr(part, "__slots__"):
        return part
    names = [name for kind in type(part).__mro__ for name in getattr(kind, "__slots__", ())]
    return [(name, state(getattr(part, name))) for name in names]


def longest(plain: object) -> int:
    """The length of the longest list in a state, but for the inside of a Random."""
    if not isinstance(plain, list):
        return 0
    inner = [longest(value) for value in plain if not isinstance(value, tuple)]
    inner += [longest(value[1]) for value in plain if isinstance(value, tuple) and len(value) == 2]
    return max([len(plain), *inner])


# --- the view graph --------------------------------------------------------------------------


@EVERY
@pytest.mark.parametrize("seed", range(3))
def test_views_stay_connected_under_loss(make: Make, seed: int) -> None:
    town = Town(make, seed, **ROUGH).found(50).run(20)
    for _ in range(4):
        assert town.run(5).connected()


@EVERY
def test_views_are_full_and_in_degrees_are_even(make: Make) -> None:
    town = Town(make).found(150).run(40)
    degrees = town.in_degrees()
    average = sum(degrees) / len(degrees)
    assert average > 19.5
    assert max(degrees) < 2.2 * average
    assert min(degrees) > 0.2 * average
    deviation = (sum((degree - average) ** 2 for degree in degrees) / len(degrees)) ** 0.5
    assert deviation < 0.3 * average  # chance alone would give 0.22


@EVERY
def test_contacts_are_known_by_as_many_as_others(make: Make) -> None:
    town = Town(make).found(80, contacts=1).run(30)
    average = sum(town.run(3).knowers("n0") for _ in range(10)) / 10
    assert 12 < average < 28


@EVERY
def test_samples_are_uniform(make: Make) -> None:
    """Chi-square over what all sample, and one observer meets everybody."""
    town = Town(lambda me, contacts, chance: make(me, contacts, chance, 10)).found(40).run(30)
    drawn: Counter[str] = Counter()
    met: Counter[str] = Counter()
    for _ in range(100):
        town.run(1)
        for name, sampler in town.members.items():
            sample = sampler.sample(3)
            assert len({*sample}) == 3
            assert name not in sample
            drawn.update(sample)
            if name == "n7":
                met.update(sample)
    expected = 100 * 3
    chi_square = sum((count - expected) ** 2 / expected for count in drawn.values())
    # 39 degrees of freedom: independent draws stay below 72 in 999 of 1000 runs. Views outlast a
    # round, so draws are not independent; but uneven knowledge would give thousands.
    assert chi_square < 4 * 72
    assert max(drawn.values()) < 1.3 * expected
    assert min(drawn.values()) > 0.7 * expected
    assert len(met) == 39


@EVERY
@pytest.mark.parametrize("count", [2, 5, 15])
def test_a_small_group_knows_itself(make: Make, count: int) -> None:
    town = Town(make, loss=0.1).found(count, contacts=1).run(30)
    assert town.run_until(lambda: {*town.in_degrees()} == {count - 1}, 30) < 30


@EVERY
def test_nobody_is_alone_with_dead_contacts_for_ever(make: Make) -> None:
    town = Town(make)
    town.join("a", ["b", "c"])
    town.run(20)
    assert town.members["a"].known() == ()
    assert {*town.members["a"].sample(4)} == {"b", "c"}
    town.join("c", ["a"])
    town.run(10)
    assert town.members["a"].known() == ("c",)
    assert town.members["c"].known() == ("a",)


# --- coming and going ------------------------------------------------------------------------


@EVERY
def test_a_joiner_becomes_known_and_knows(make: Make) -> None:
    town = Town(make, **ROUGH).found(70).run(30)
    town.join("new", ["n0", "n1"])
    assert town.run_until(lambda: town.knowers("new") >= 10, 15) < 15
    assert town.run_until(lambda: len(town.members["new"].known()) >= 15, 15) < 15


@EVERY
def test_a_leaver_is_forgotten_and_stays_forgotten(make: Make) -> None:
    town = Town(make, late=0.2).found(70).run(30)
    town.leave("n9")
    took = town.run_until(lambda: not town.any_known(["n9"]), 40)
    assert took < 20
    for _ in range(30):
        town.run(1)
        assert town.knowers("n9") <= 1  # an old word may find somebody who did not hear of it


@EVERY
@pytest.mark.parametrize("rough", [{}, ROUGH], ids=["smooth", "rough"])
@pytest.mark.parametrize("count", [10, 70])
def test_crashed_members_are_forgotten_in_time(make: Make, rough: dict, count: int) -> None:
    """Whatever is lost, and though names are always underway."""
    town = Town(make, **rough).found(count).run(30)
    crashed = [f"n{number}" for number in range(max(3, count // 10))]  # with all the contacts
    for name in crashed:
        town.crash(name)
    assert town.run_until(lambda: not town.any_known(crashed), 100) <= FORGOTTEN[make]
    assert town.connected()


@EVERY
def test_a_member_that_comes_back_stays_known(make: Make) -> None:
    town = Town(make, **ROUGH).found(60).run(30)
    town.leave("n9")
    town.run(1)
    town.join("n9", ["n0", "n1"], incarnation=1)
    town.run(20)
    for _ in range(20):
        town.run(1)
        assert town.knowers("n9") > 5


@EVERY
def test_a_farewell_removes_its_own_incarnation_and_no_later_one(make: Make) -> None:
    sampler = make(ME, (), Random(1))
    a0, a1 = NodeId("a", 0), NodeId("a", 1)
    sampler.receive(a0, roster(RosterKind.SUBSCRIBE, "a"))
    sampler.receive(a0, roster(RosterKind.FAREWELL, gone="a"))
    assert sampler.known() == ()
    sampler.receive(a0, roster(RosterKind.SUBSCRIBE, "a"))  # it was late
    assert sampler.known() == ()
    sampler.receive(a1, roster(RosterKind.SUBSCRIBE, "a#1"))
    assert sampler.known() == ("a",)
    sampler.receive(NodeId("b"), roster(RosterKind.WELCOME, gone="a", age=2))
    assert sampler.known() == ("a",)


@EVERY
def test_two_halves_that_forgot_each_other_unite_again(make: Make) -> None:
    town = Town(make).found(40, contacts=40).run(20)
    left, right = ([f"n{number}" for number in range(at, 40, 2)] for at in (0, 1))
    town.cut(left, right)
    town.run(80)
    for name in left:
        assert not {*town.members[name].known()} & {*right}
    town.heal()
    assert town.run_until(town.connected, 40) < 40
    town.run(20)
    across = sum(name in right for each in left for name in town.members[each].known())
    known = sum(len(town.members[each].known()) for each in left)
    assert 0.35 < across / known < 0.65  # not a thin bridge: mixed


@EVERY
def test_three_failed_sends_take_a_member_out_until_it_speaks_again(make: Make) -> None:
    sampler = make(ME, ("a",), Random(1))
    a = NodeId("a")
    sampler.receive(a, roster(RosterKind.SUBSCRIBE, "a"))
    for _ in range(2):
        sampler.failed("a")
    sampler.heard(a)
    for _ in range(2):
        sampler.failed("a")
    assert sampler.known() == ("a",)
    sampler.failed("a")
    sampler.failed("a")  # not known any more
    assert sampler.known() == ()
    sampler.receive(NodeId("b"), roster(RosterKind.WELCOME, "a", age=1))
    assert "a" not in sampler.known()
    sampler.receive(a, roster(RosterKind.SUBSCRIBE, "a"))
    assert "a" in sampler.known()


@EVERY
def test_a_member_that_hears_nothing_subscribes_again(make: Make) -> None:
    sampler = make(ME, ("a", "b"), Random(1))
    assert [letter.kind for _, letter in sampler.start()] == [RosterKind.SUBSCRIBE]
    kinds = [[letter.kind for _, letter in sampler.round()] for _ in range(20)]
    asked = [number for number, each in enumerate(kinds, 1) if RosterKind.SUBSCRIBE in each]
    assert {*range(2, 21, 2)} <= {*asked}  # it never heard anybody
    heard: list[int] = []
    for _ in range(20):
        heard += [
            letter.kind for _, letter in sampler.round() if letter.kind == RosterKind.SUBSCRIBE
        ]
        sampler.heard(NodeId("a"))
    assert len(heard) <= 2  # a greeting


# --- whatever peers send ---------------------------------------------------------------------

nodes = st.builds(
    NodeId, st.sampled_from([*"abcdefghijklmnopq", "me", "ü" * 100]), st.integers(0, 4)
)
ages = st.integers(-1, 30) | st.sampled_from([OLDEST, OLDEST + 1])
entries = st.lists(st.tuples(nodes, ages), max_size=MOST_NAMED + 1)
rosters = st.builds(Roster, st.integers(-1, 8), entries, entries)
proper = st.builds(
    lambda kind, node, more: (node, Roster(kind, [(node, 0), *more], [])),
    st.sampled_from([RosterKind.GOSSIP, RosterKind.SHUFFLE, RosterKind.ANSWER, RosterKind.WELCOME]),
    nodes,
    st.lists(st.tuples(nodes, st.integers(0, 9)), max_size=MOST_NAMED - 1),
)
alone = st.builds(
    lambda kind, node, age: (node, Roster(kind, [(node, age)], [])),
    st.sampled_from([RosterKind.SUBSCRIBE, RosterKind.WALK]),
    nodes,
    st.integers(0, 9),
)
farewells = nodes.map(lambda node: (node, Roster(RosterKind.FAREWELL, [], [(node, 0)])))
hostile = st.tuples(nodes, rosters) | proper | alone | farewells
happenings = st.lists(hostile | st.sampled_from(["round", "failed", "sample"]), max_size=40)


@EVERY
@given(happenings)
@settings(deadline=None, max_examples=50)
def test_nothing_that_peers_send_breaks_a_bound(make: Make, happened: list) -> None:
    sampler = make(ME, ("a", "b"), Random(1), 4)
    for happening in happened:
        letters = []
        if happening == "round":
            letters = sampler.round()
        elif happening == "failed":
            for name in "aabcd":
                sampler.failed(name)
        elif happening == "sample":
            sample = sampler.sample(3)
            assert len({*sample}) == len(sample) <= 3
            assert "me" not in sample
        else:
            before = state(sampler)
            try:
                letters = sampler.receive(*happening)
            except PeerError:
                assert state(sampler) == before
        said = [letter for _, letter in letters]
        piggyback = sampler.piggyback()
        said += [piggyback] if piggyback else []
        for one in said:  # what we say passes the limits that others hold us to
            assert msgspec.convert(msgspec.to_builtins(one), Roster) == one
        assert len(letters) <= 5
        assert "me" not in [to for to, _ in letters]
        assert len(sampler.known()) <= 4
        assert "me" not in sampler.known()
        assert longest(state(sampler)) <= MOST_NAMED


@EVERY
@pytest.mark.parametrize(
    "nonsense",
    [
        Roster(9, [], []),
        roster(RosterKind.SUBSCRIBE, "b"),
        roster(RosterKind.SUBSCRIBE, "a b"),
        roster(RosterKind.FAREWELL, gone="b"),
        roster(RosterKind.FAREWELL, "c", gone="a"),
        roster(RosterKind.WELCOME, "b", age=-1),
        roster(RosterKind.WELCOME, "b", age=OLDEST + 1),
        roster(RosterKind.WELCOME, "b " * (MOST_NAMED + 1)),
        roster(RosterKind.WELCOME, gone="b " * (MOST_NAMED + 1)),
    ],
)
def test_nonsense_is_a_peer_error(make: Make, nonsense: Roster) -> None:
    with pytest.raises(PeerError):
        make(ME, (), Random(1)).receive(NodeId("a"), nonsense)


@pytest.mark.parametrize(("letter", "most"), [("x", 10_000), ("\U0001f600", 40_000)])
def test_a_roster_fits_into_a_datagram_with_room_to_spare(letter: str, most: int) -> None:
    entry = (NodeId(letter * 100, (1 << 22) - 1), OLDEST)
    whole = Roster(RosterKind.FAREWELL, [entry] * MOST_NAMED, [entry] * MOST_NAMED)
    data = msgspec.msgpack.encode(whole)
    assert len(data) < most
    assert msgspec.msgpack.decode(data, type=Roster) == whole


# --- one seed is one run ---------------------------------------------------------------------

RUN = """
from tests.protocol.cluster.rounds import Town
from ordercast.protocol.cluster.cyclon import Cyclon
from ordercast.protocol.cluster.lpbcast import Lpbcast
for make in (Lpbcast, Cyclon):
    town = Town(make, 5, loss=0.1, late=0.2).found(40).run(20)
    town.leave("n3")
    town.crash("n4")
    town.run(10)
    for name, sampler in town.members.items():
        print(name, sampler.known(), sampler.sample(4))
"""


def test_runs_do_not_depend_on_the_hash_seed() -> None:
    root = Path(__file__).resolve().parents[3]
    outputs = [
        subprocess.run(
            [sys.executable, "-c", RUN],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"{root}:{root}/src"},
            cwd=root,
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) > 2000


@EVERY
def test_a_deep_copy_is_a_snapshot(make: Make) -> None:
    town = Town(make, late=0.2).found(30).run(15)
    snapshot = copy.deepcopy(town)
    frozen = [state(sampler) for sampler in snapshot.members.values()]
    ahead = [state(sampler) for sampler in town.run(10).members.values()]
    assert [state(sampler) for sampler in snapshot.members.values()] == frozen != ahead
    assert [state(sampler) for sampler in snapshot.run(10).members.values()] == ahead


# --- lpbcast alone ---------------------------------------------------------------------------


def test_an_older_age_never_replaces_a_younger_one() -> None:
    sampler = Lpbcast(ME, (), Random(1), expiry=10)
    sampler.receive(NodeId("b"), roster(RosterKind.GOSSIP, "a", age=4))
    sampler.receive(NodeId("b"), roster(RosterKind.GOSSIP, "a", age=9))
    lasted = 0
    while "a" in sampler.known():
        sampler.round()
        lasted += 1
    assert lasted == 10 - 4  # one of the ten was the way here


def test_gossip_names_its_sender_and_the_members_that_the_view_lost() -> None:
    sampler = Lpbcast(ME, (), Random(1), 2, named=6)
    sampler.receive(NodeId("b"), roster(RosterKind.GOSSIP, "a b c d"))
    said = sampler.piggyback()
    assert said is not None
    assert said.here[0] == (ME, 0)
    assert sorted(node.name for node, _ in said.here[1:]) == [*"abcd"]
    assert len(sampler.known()) == 2


def test_of_too_many_names_the_youngest_are_sent() -> None:
    sampler = Lpbcast(ME, (), Random(1), 2, named=2)
    for age, name in enumerate("abcd"):
        sampler.receive(NodeId("x"), roster(RosterKind.GOSSIP, name, age=age))
    said = sampler.piggyback()
    assert said is not None
    assert sorted(node.name for node, _ in said.here[1:]) == ["a", "b"]


def test_ages_travel_and_grow() -> None:
    sampler = Lpbcast(ME, (), Random(1))
    sampler.receive(NodeId("b"), roster(RosterKind.GOSSIP, "a", age=2))
    ages_said = []
    for _ in range(4):
        sampler.round()
        said = sampler.piggyback()
        assert said is not None
        ages_said += [age for node, age in said.here if node.name == "a"]
    assert ages_said == [4, 5, 6, 7]


# --- everybody -------------------------------------------------------------------------------


def test_a_full_view_has_all_other_members_and_sends_nothing() -> None:
    sampler: Sampler = Everybody(ME, ["b", "me", "a", "b"], Random(1))
    assert sampler.known() == ("a", "b")
    assert [sampler.start(), sampler.round(), sampler.leave(), sampler.piggyback()] == [
        *([], [], []),
        None,
    ]
    assert sorted(sampler.sample(9)) == ["a", "b"]
    sampler.heard(NodeId("c"))
    sampler.failed("a")
    assert sampler.known() == ("a", "b")
    with pytest.raises(PeerError):
        sampler.receive(NodeId("a"), roster(RosterKind.GOSSIP, "a"))


def test_a_full_view_samples_evenly_from_ten_thousand() -> None:
    sampler = Everybody(ME, (f"n{number}" for number in range(10_000)), Random(1))
    drawn = [sampler.sample(4) for _ in range(10_000)]
    assert all(len({*sample}) == 4 for sample in drawn)
    assert len({name for sample in drawn for name in sample}) > 9_700  # 1 - e^-4 of them
    assert all(one != other for one, other in pairwise(drawn))
