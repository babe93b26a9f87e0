"""Who begins an open cluster, where several may found it together."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from ordercast.kernel.family import FoundingRule
from ordercast.protocol.cluster.beginning import BINDING, MOST_NEWCOMERS, Votes
from ordercast.protocol.cluster.choosing import Election
from ordercast.types import NodeId

PATIENCE = 4
EARLY = PATIENCE - 1
"""Rounds after which nobody has accepted anybody yet."""


def votes(name: str, expect: int = 3, incarnation: int = 0) -> Votes:
    me = NodeId(name, incarnation)
    return Votes(me, FoundingRule(expect=expect), PATIENCE, Election(me, expect))


def tell(source: Votes, target: Votes) -> None:
    target.heard(source._me, source.question("g", False))


def meet(*all_of_them: Votes, rounds: int = 2 * PATIENCE) -> None:
    for _ in range(rounds):
        for one in all_of_them:
            one.round()
            for other in all_of_them:
                if other is not one:
                    tell(one, other)


def favours(*all_of_them: Votes) -> list[str]:
    return [one.favours.name for one in all_of_them if one.favours is not None]


def founders(*all_of_them: Votes) -> list[str]:
    return [one._me.name for one in all_of_them if one.may_begin()]


def test_the_first_by_name_of_so_many_begins() -> None:
    n1, n2, n3 = votes("n1"), votes("n2"), votes("n3")
    meet(n2, n3)
    assert founders(n1, n2, n3) == []
    meet(n3, n2, n1)
    assert founders(n1, n2, n3) == ["n1"]


@pytest.mark.parametrize(
    ("lost", "first"), [("n1", "n2"), ("n3", "n1"), ("n1 n2", "n3"), ("n1 n2 n3", "n1")]
)
def test_nodes_that_lost_their_folders_begin_with_all_that_expect_the_number(
    lost: str, first: str
) -> None:
    rules = {
        name: FoundingRule(expect=3, of=3, lost=name in lost.split()) for name in ("n1", "n2", "n3")
    }
    n1, n2, n3 = (
        Votes(NodeId(name), rule, PATIENCE, Election(NodeId(name), 3))
        for name, rule in rules.items()
    )
    meet(n2, n3)
    assert founders(n1, n2, n3) == []
    meet(n3, n2, n1)
    assert founders(n1, n2, n3) == [first], "of those that remember, if there are any"


def test_one_that_lost_its_folder_does_not_count_where_others_may_have_the_cluster() -> None:
    lost = Votes(NodeId("n1"), FoundingRule(expect=3, lost=True), PATIENCE, Election(NodeId("n1")))
    n2, n3, n4 = votes("n2"), votes("n3"), votes("n4")
    meet(lost, n2, n3)
    assert founders(lost, n2, n3) == []
    assert "n1 lost the data folder" in n2.waits_for()[1]
    meet(lost, n2, n3, n4)
    assert len(founders(lost, n2, n3, n4)) == 1


def test_who_favours_one_favours_no_other_until_that_one_does() -> None:
    n1, n2, n3, n4 = votes("n1"), votes("n2"), votes("n3"), votes("n4")
    meet(n2, n3, n4, rounds=EARLY)
    assert favours(n2, n3, n4) == ["n2", "n2", "n2"]
    for _ in range(BINDING * PATIENCE - 1):
        tell(n1, n3)
        tell(n1, n4)
        tell(n3, n1)
        tell(n4, n1)
        tell(n2, n3)
        tell(n2, n4)
        for one in (n1, n3, n4):
            one.round()
    assert favours(n3, n4) == ["n2", "n2"]
    assert founders(n1, n3, n4) == []
    tell(n1, n2)
    assert favours(n2) == ["n1"]
    meet(n1, n2, n3, n4)
    assert founders(n1, n2, n3, n4) == ["n1"]


def test_a_vote_is_free_when_its_favourite_is_silent_for_long_or_restarts() -> None:
    n1, n2, n3, n4 = votes("n1"), votes("n2"), votes("n3"), votes("n4")
    meet(n1, n2, n3, n4, rounds=EARLY)
    meet(n2, n3, n4, rounds=2 * PATIENCE)
    assert favours(n2, n3, n4) == ["n1", "n1", "n1"]
    assert founders(n2, n3, n4) == []
    meet(n2, n3, n4, rounds=BINDING * PATIENCE)
    assert founders(n2, n3, n4) == ["n2"]
    tell(votes("n2", incarnation=1), n3)
    assert n3.favours == NodeId("n2", 1)


def test_one_that_may_have_begun_keeps_the_votes_that_chose_it() -> None:
    """n1 is cut off. With these votes it begins, now or before: nobody else knows."""
    n1, n2, n3, n4 = votes("n1"), votes("n2"), votes("n3"), votes("n4")
    meet(n1, n2, n3, n4)
    assert founders(n1) == ["n1"]
    meet(n2, n3, n4, rounds=10 * BINDING * PATIENCE)
    assert founders(n2, n3, n4) == []
    assert "n1" in n2.favourite()
    assert n2.waits_for() == (("n1",), "n1 was chosen to begin the group, and does not answer")
    again = votes("n1", incarnation=1)
    meet(again, n2, n3, n4)
    assert founders(again, n2, n3, n4) == ["n1"]


def test_votes_without_promises_do_not_suffice() -> None:
    """n1 hears that the others favour it, and they do not hear that it counts on them."""
    n1, n2, n3 = votes("n1"), votes("n2"), votes("n3")
    for _ in range(PATIENCE + 1):
        n1.round()
        for other in (n2, n3):
            other.heard(n1._me, replace(n1.question("g", False), promise=None))
            tell(other, n1)
    assert founders(n1) == []
    for other in (n2, n3):
        tell(n1, other)
        tell(other, n1)
    n1.round()
    assert n1.question("g", False).promise is not None
    assert founders(n1) == [], "they have promised, and not accepted yet"
    tell(n1, n2)
    tell(n2, n1)
    assert founders(n1) == [], "three are expected"
    tell(n1, n3)
    tell(n3, n1)
    assert founders(n1) == ["n1"]


def test_votes_that_are_old_do_not_count() -> None:
    n1, n2, n3 = votes("n1"), votes("n2"), votes("n3")
    meet(n1, n2, n3, rounds=EARLY)
    assert n1._supporters() == ["n2", "n3"]
    for _ in range(PATIENCE):
        n1.round()
    assert n1._supporters() == []
    meet(n1, n2, n3, rounds=EARLY)
    n1.stalled()
    assert n1._supporters() == []
    assert founders(n1) == []


def test_only_those_that_expect_the_same_count() -> None:
    n1, n2, n3 = votes("n1"), votes("n2"), votes("n3", expect=2)
    meet(n1, n2, n3)
    assert founders(n1, n2, n3) == []


def test_one_whose_name_was_known_neither_begins_nor_votes() -> None:
    n1, n2, reborn = votes("n1"), votes("n2"), votes("n3", expect=0)
    meet(n1, n2, reborn, rounds=50)
    assert founders(n1, n2, reborn) == []
    assert reborn.question("g", True).favours is None


@pytest.mark.parametrize("seed", range(200))
def test_two_never_begin_with_more_than_half_of_all(seed: int) -> None:
    """Datagrams are lost, late and double; who began answers, and is heard sooner or later."""
    chance = Random(seed)
    count = chance.randint(3, 6)
    nodes = [votes(f"n{number}", count // 2 + 1) for number in range(1, count + 1)]
    started = {one: chance.randint(0, 15) for one in nodes}
    loss = chance.random() * 0.6
    began: list[Votes] = []
    underway: list[tuple[int, Votes, Votes, object]] = []
    for now in range(200):
        joining = [one for one in nodes if started[one] <= now and one not in began]
        for one in joining:
            one.round()
            others = [other for other in nodes if other is not one]
            asked = {chance.choice(others)._me.name, *one.favourite()}
            for other in others:
                for _ in range((other._me.name in asked) + (chance.random() < 0.1)):
                    if chance.random() > loss:
                        late = now + chance.randint(0, 2)
                        underway.append((late, one, other, one.question("g", False)))
        for at, one, other, ask in list(underway):
            if at <= now:
                underway.remove((at, one, other, ask))
                if other in began and chance.random() > loss and one in nodes:
                    nodes = [each for each in nodes if each is not one or each in began]
                elif other in joining:
                    other.heard(one._me, ask)  # type: ignore[arg-type]
        began += [one for one in joining if one.may_begin()]
    assert len(began) == 1


def test_invented_newcomers_are_not_remembered_without_end() -> None:
    n1 = votes("n1", expect=MOST_NEWCOMERS + 100)
    for number in range(MOST_NEWCOMERS + 200):
        tell(votes(f"ghost{number}", expect=MOST_NEWCOMERS + 100), n1)
    assert len(n1._newcomers) == MOST_NEWCOMERS
    on, why = n1.waits_for()
    assert not on
    assert f" and {MOST_NEWCOMERS + 1 - 8} more): start 99 more, or " in why


def test_why_a_member_waits_says_for_whom() -> None:
    two, three = votes("n2"), votes("n3")
    meet(two, three)
    on, why = two.waits_for()
    assert not on, "nobody knows who is missing"
    assert why.startswith("2 of 3 expected nodes are here (n2 n3): start 1 more, or ")
    n2 = NodeId("n2")
    waits = Votes(n2, FoundingRule(founder="n1"), PATIENCE, Election(n2)).waits_for()
    assert waits == (("n1",), "n1 founds the group, and does not answer")
    why = Votes(n2, FoundingRule(), PATIENCE, Election(n2)).waits_for()[1]
    assert "no member of the group is known" in why
