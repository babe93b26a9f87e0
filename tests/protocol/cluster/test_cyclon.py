"""What only Cyclon does: names move and are not copied. The rest is in test_partial_view.py."""

from __future__ import annotations

from random import Random

import pytest
from tests.protocol.cluster.rounds import Town

from ordercast.errors import PeerError
from ordercast.protocol.cluster.cyclon import WALK, WALKS_FOR, Cyclon
from ordercast.protocol.cluster.sampler import Letter, Roster, RosterKind
from ordercast.types import NodeId

ME = NodeId("me")


def entries(names: str, age: int = 0) -> list[tuple[NodeId, int]]:
    return [(NodeId(name), age) for name in names]


def member(names: str, view_size: int = 4, shuffle: int = 3) -> Cyclon:
    """One that knows these, the first of them the longest."""
    cyclon = Cyclon(ME, (), Random(1), view_size, shuffle)
    for place, name in enumerate(names):
        here = entries(name, len(names) - place)
        cyclon.receive(NodeId("z"), Roster(RosterKind.WELCOME, here, entries("z")))
    assert cyclon.known() == tuple(sorted(names))
    return cyclon


def only(letters: list[Letter], kind: RosterKind) -> tuple[str, list[str]]:
    """To whom the one letter goes, and whom it names."""
    ((to, roster),) = letters
    assert roster.kind == kind
    return to, [node.name for node, _ in roster.here]


def test_a_round_asks_the_oldest_and_gives_ourselves_in_its_place() -> None:
    cyclon = member("abcd")
    to, named = only(cyclon.round(), RosterKind.SHUFFLE)
    assert to == "a"
    assert named[0] == "me"
    assert len(named) == 3
    assert "a" not in named
    assert cyclon.known() == ("b", "c", "d")


def test_the_answer_comes_in_place_of_what_was_sent() -> None:
    cyclon = member("abcd")
    _, named = only(cyclon.round(), RosterKind.SHUFFLE)
    cyclon.receive(NodeId("a"), Roster(RosterKind.ANSWER, entries("xyw"), []))
    kept = [name for name in "bcd" if name not in named]
    assert cyclon.known() == tuple(sorted([*kept, *"wxy"]))


def test_the_asked_member_answers_with_as_many_and_takes_what_came() -> None:
    cyclon = member("abcd")
    sender = NodeId("q")
    to, named = only(
        cyclon.receive(sender, Roster(RosterKind.SHUFFLE, entries("qx"), [])), RosterKind.ANSWER
    )
    assert to == "q"
    assert len(named) == 2
    assert cyclon.known() == tuple(sorted([*"qx", *(name for name in "abcd" if name not in named)]))


def test_a_member_that_knows_the_names_already_keeps_its_own() -> None:
    cyclon = member("abcd")
    cyclon.receive(NodeId("a"), Roster(RosterKind.SHUFFLE, entries("ab"), []))
    assert cyclon.known() == ("a", "b", "c", "d")


def test_entries_of_an_open_shuffle_are_not_sent_to_another_member() -> None:
    cyclon = member("abcdefg", view_size=7, shuffle=4)
    _, sent = only(cyclon.round(), RosterKind.SHUFFLE)
    shuffle = Roster(RosterKind.SHUFFLE, entries("qxy"), [])
    _, answered = only(cyclon.receive(NodeId("q"), shuffle), RosterKind.ANSWER)
    assert not {*sent} & {*answered}
    cyclon.receive(NodeId("a"), Roster(RosterKind.ANSWER, entries("ijkl"), []))
    assert {*"ijkl", *"qxy"} == {*cyclon.known()}  # all found the room that was made for them


def test_a_member_that_does_not_answer_is_dropped_and_costs_no_other_a_place() -> None:
    cyclon = member("abcd")
    asked = [only(cyclon.round(), RosterKind.SHUFFLE)[0] for _ in range(3)]
    assert asked == ["a", "b", "c"]
    assert cyclon.known() == ("d",)


def test_an_answer_that_was_not_asked_for_replaces_no_member() -> None:
    cyclon = member("abcd")
    cyclon.receive(NodeId("q"), Roster(RosterKind.ANSWER, entries("xyw"), []))
    assert cyclon.known() == ("a", "b", "c", "d")


def test_a_subscription_walks_from_every_place_of_a_full_view() -> None:
    cyclon = member("abcd")
    sender = NodeId("new")
    subscribe = Roster(RosterKind.SUBSCRIBE, [(sender, 0)], [])
    letters = cyclon.receive(sender, subscribe)
    walks = [(name, RosterKind.WALK) for name in "abcd"]
    assert sorted((to, roster.kind) for to, roster in letters) == [
        *walks,
        ("new", RosterKind.WELCOME),
    ]
    counts = [len(cyclon.receive(sender, subscribe)) for _ in range(WALKS_FOR)]
    assert counts == [5] * (WALKS_FOR - 1) + [1]  # beyond that only an answer, until next round


def test_a_walk_goes_on_and_ends_in_an_exchange_of_places() -> None:
    cyclon = member("abcd")
    new = NodeId("new")
    ((to, passed),) = cyclon.receive(NodeId("q"), Roster(RosterKind.WALK, [(new, 1)], []))
    assert to in cyclon.known()
    assert passed == Roster(RosterKind.WALK, [(new, 2)], [])
    walk = Roster(RosterKind.WALK, [(new, WALK)], [])
    to, given_up = only(cyclon.receive(NodeId("q"), walk), RosterKind.WELCOME)
    assert to == "new"
    assert cyclon.known() == tuple(sorted({*"abcd", "new"} - {*given_up}))
    assert cyclon.receive(NodeId("q"), walk) == []  # it is known already


def test_a_walk_for_ourselves_or_for_a_member_that_left_changes_nothing() -> None:
    cyclon = member("abcd")
    gone = NodeId("gone")
    cyclon.receive(gone, Roster(RosterKind.FAREWELL, [], [(gone, 0)]))
    for node in (ME, gone):
        assert cyclon.receive(NodeId("q"), Roster(RosterKind.WALK, [(node, WALK)], [])) == []
    assert cyclon.known() == ("a", "b", "c", "d")


def test_shuffles_name_the_members_that_left() -> None:
    cyclon = member("abcd")
    a = NodeId("a")
    cyclon.receive(a, Roster(RosterKind.FAREWELL, [], [(a, 0)]))
    ((_, roster),) = cyclon.round()
    assert (a, 2) in roster.gone  # the way here, and a round


@pytest.mark.parametrize(
    "nonsense",
    [
        Roster(RosterKind.GOSSIP, [], []),
        Roster(RosterKind.SHUFFLE, entries("b"), []),
        Roster(RosterKind.WALK, [], []),
        Roster(RosterKind.WALK, entries("bc"), []),
    ],
)
def test_nonsense_is_a_peer_error(nonsense: Roster) -> None:
    cyclon = member("abcd")
    with pytest.raises(PeerError):
        cyclon.receive(NodeId("q"), nonsense)
    with pytest.raises(PeerError):
        cyclon.receive(NodeId("me", 1), Roster(RosterKind.WELCOME, [], []))


def test_without_loss_the_views_are_more_even_than_chance_would_make_them() -> None:
    town = Town(Cyclon, fan_out=0).found(200).run(60)
    variances = []
    for _ in range(5):
        degrees = town.run(5).in_degrees()
        average = sum(degrees) / len(degrees)
        assert 19.5 < average <= 20
        variances.append(sum((degree - average) ** 2 for degree in degrees) / len(degrees))
    assert sum(variances) / 5 < average * (1 - average / 200)  # the binomial's


def test_the_dead_are_asked_and_dropped_long_before_they_are_too_old() -> None:
    town = Town(lambda me, contacts, chance: Cyclon(me, contacts, chance, expiry=1000))
    town.found(100).run(30)
    crashed = [f"n{number}" for number in range(20, 40)]
    for name in crashed:
        town.crash(name)
    assert town.run_until(lambda: not town.any_known(crashed), 60) < 40
