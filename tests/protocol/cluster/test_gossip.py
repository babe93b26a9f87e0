"""Spreading, rule by rule and against a slow obvious version; and who has seen what."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.protocol.cluster.gossip import MOST_MAKERS, REMEMBERED, SeenRumours, Spreading
from ordercast.types import NodeId

PLENTY = 1000


class Word(str):
    """An event that is its own id."""

    @property
    def key(self) -> str:
        return str(self)


class Forged(Word):
    """Says of itself that it is another one."""

    @property
    def key(self) -> str:
        return "a"


def spreading(
    hops: int, most: int = PLENTY, history: int = PLENTY, *, oldest: bool = False, seed: int = 1
) -> Spreading[Word]:
    return Spreading(hops, most, history, Random(seed), keep_oldest=oldest)


def make(member: Spreading[Word], name: str, *, sent: bool = False) -> None:
    member.start(Word(name), sent=sent)


def came(member: Spreading[Word], *entries: tuple[str, int]) -> list[tuple[Word, int]]:
    """A message comes: events with their ages. Returns those that are new."""
    told = [(name if isinstance(name, Word) else Word(name), age) for name, age in entries]
    news = member.news(told)
    member.add(news)
    return news.unknown


# --- rule 1: an event is relayed at ages 0 to hops, and then terminates -----------------------


def test_an_originator_sends_its_event_in_hops_plus_one_rounds_each_time_a_hop_older() -> None:
    member = spreading(hops=2)
    make(member, "a")
    assert [member.round() for _ in range(4)] == [[("a", 1)], [("a", 2)], [("a", 3)], []]
    assert member.active == 0


def test_an_event_that_has_left_at_once_is_relayed_once_less() -> None:
    member = spreading(hops=2)
    make(member, "a", sent=True)
    assert [member.round() for _ in range(3)] == [[("a", 2)], [("a", 3)], []]


def test_with_no_hops_only_its_maker_sends_an_event_and_once() -> None:
    eager, patient, receiver = spreading(0), spreading(0), spreading(0)
    make(eager, "a", sent=True)
    make(patient, "a")
    assert came(receiver, ("a", 1)) == [("a", 1)]
    assert [eager.round(), patient.round(), receiver.round()] == [[], [("a", 1)], []]
    assert patient.round() == []


@pytest.mark.parametrize("age", range(1, 6))
def test_the_receiver_of_an_event_relays_it_for_the_rest_of_its_hops(age: int) -> None:
    member = spreading(hops=4)
    assert came(member, ("a", age)) == [("a", age)]
    relayed = [one for _ in range(9) for one in member.round()]
    assert relayed == [("a", later) for later in range(age + 1, 6)]


# --- rule 2: of an event that comes again the smaller age counts ------------------------------


@pytest.mark.parametrize(
    ("keep_oldest", "ages", "next_age"),
    [(False, (3, 1), 2), (False, (1, 3), 2), (True, (3, 1), 4), (True, (1, 3), 4)],
)
def test_of_two_copies_the_younger_counts_or_the_older_if_that_is_set(
    keep_oldest: bool, ages: tuple[int, int], next_age: int
) -> None:
    member = spreading(hops=4, oldest=keep_oldest)
    assert [came(member, ("a", age)) for age in ages] == [[("a", ages[0])], []]
    assert member.round() == [("a", next_age)]
    assert member.again == 1


def test_a_copy_that_is_over_ends_an_event_only_where_the_oldest_counts() -> None:
    youngest, oldest = spreading(hops=2), spreading(hops=2, oldest=True)
    for member in (youngest, oldest):
        came(member, ("a", 1))
        came(member, ("a", 3))
    assert youngest.round() == [("a", 2)]
    assert oldest.round() == []


def test_a_terminated_event_is_not_relayed_again_for_a_younger_copy() -> None:
    member = spreading(hops=1)
    came(member, ("a", 1))
    assert member.round() == [("a", 2)]
    assert came(member, ("a", 1)) == []
    assert member.round() == []
    assert member.again == 1


def test_looking_at_a_message_changes_nothing_as_it_may_still_be_refused() -> None:
    member = spreading(hops=4)
    came(member, ("a", 3))
    news = member.news([(Word("a"), 1), (Word("b"), 1), (Word("a"), 4)])
    assert (news.unknown, news.changed, news.again) == ([("b", 1)], [("a", 1)], 2)
    assert member.round() == [("a", 4)]
    assert came(member, ("b", 2)) == [("b", 2)]


def test_a_younger_copy_changes_the_age_of_an_event_and_not_the_event() -> None:
    """Only what is new is looked at closely, so what a copy says is not to be believed."""
    member = spreading(hops=4)
    came(member, ("a", 3))
    came(member, (Forged("forged"), 1))
    assert member.round() == [("a", 2)]


@pytest.mark.parametrize("ages", [(1, 2), (2, 1)])
def test_of_two_copies_in_one_message_the_younger_counts_too(ages: tuple[int, int]) -> None:
    known, unknown = spreading(hops=4), spreading(hops=4)
    came(known, ("a", 3))
    for member in (known, unknown):
        came(member, *(("a", age) for age in ages))
        assert member.round() == [("a", 2)]


def test_an_event_that_is_twice_in_one_message_is_new_once() -> None:
    member = spreading(hops=4)
    assert came(member, ("a", 1), ("a", 1)) == [("a", 1)]
    assert member.again == 1


@settings(derandomize=True, max_examples=60)
@given(st.integers(0, 5), st.integers(2, 6), st.integers(0, 2**32))
def test_an_event_dies_everywhere_whoever_meets_whom(hops: int, members: int, seed: int) -> None:
    """The smallest age of all grows by one a round, so after hops and two rounds it is over."""
    chance = Random(seed)
    group = [spreading(hops, seed=number) for number in range(members)]
    make(group[0], "a")
    for _ in range(hops + 1):
        for member in chance.sample(group, members):
            said = member.round()
            for other in chance.sample(group, chance.randrange(1, members)):
                if other is not member:
                    came(other, *said)
    for member in group:  # who had its round before it heard of the last has one more
        member.round()
    assert [member.active for member in group] == [0] * members


# --- rule 3: the youngest first ---------------------------------------------------------------


def test_a_message_holds_the_youngest_and_counts_what_had_no_room() -> None:
    member = spreading(hops=9, most=2)
    came(member, ("old", 5), ("young", 1), ("older", 6), ("younger", 1))
    assert sorted(member.round()) == [("young", 2), ("younger", 2)]
    assert member.not_relayed == 2


def test_events_that_do_not_fit_into_a_message_age_and_terminate_all_the_same() -> None:
    member = spreading(hops=3, most=1)
    came(member, ("young", 1), ("old", 3))
    assert [member.round() for _ in range(4)] == [
        [("young", 2)],
        [("young", 3)],
        [("young", 4)],
        [],
    ]


def test_among_equally_old_ones_chance_decides() -> None:
    chosen = set()
    for seed in range(20):
        member = spreading(hops=3, most=1, seed=seed)
        came(member, ("a", 1), ("b", 1), ("c", 1))
        chosen.update(name for name, _ in member.round())
    assert chosen == {"a", "b", "c"}


def test_an_own_event_does_not_age_before_it_has_left_once() -> None:
    member = spreading(hops=2, most=1)
    for name in ("a", "b", "c"):
        make(member, name)
    assert member.unsent == 3
    first, second, third = (member.round() for _ in range(3))
    assert sorted(first + second + third) == [("a", 1), ("b", 1), ("c", 1)]
    assert member.unsent == 0


def test_even_with_no_hops_an_own_event_waits_for_room() -> None:
    member = spreading(hops=0, most=1)
    make(member, "a")
    make(member, "b")
    assert sorted(member.round() + member.round()) == [("a", 1), ("b", 1)]
    assert member.round() == []


# --- rule 4: the last ids are remembered, and no more -----------------------------------------


def test_an_event_is_new_again_when_its_id_is_forgotten() -> None:
    member = spreading(hops=0, history=2)
    assert came(member, ("a", 1), ("b", 1)) == [("a", 1), ("b", 1)]
    assert came(member, ("a", 1), ("c", 1)) == [("c", 1)]
    assert came(member, ("a", 1)) == [("a", 1)]


def test_an_event_that_is_still_relayed_is_known_even_if_its_id_is_forgotten() -> None:
    member = spreading(hops=3, history=1)
    came(member, ("a", 1), ("b", 1))
    assert came(member, ("a", 1)) == []


def test_an_event_received_in_another_way_is_not_new_and_not_relayed() -> None:
    member = spreading(hops=3)
    member.remember("a")
    assert came(member, ("a", 1)) == []
    assert member.round() == []


def test_an_own_event_that_comes_back_is_not_new() -> None:
    member = spreading(hops=0)
    make(member, "a", sent=True)
    assert came(member, ("a", 1)) == []
    assert member.again == 1


# --- the slow obvious version -----------------------------------------------------------------


class Plain:
    """The same rules over lists. Which of equally old ones have room is left to the real one."""

    def __init__(self, hops: int, most: int, history: int, keep_oldest: bool) -> None:
        self.hops, self.most, self.history = hops, most, history
        self.pick = max if keep_oldest else min
        self.spread: list[list[object]] = []  # name, age, whether it has left
        self.ids: list[str] = []

    def start(self, name: str, sent: bool) -> None:
        self._remember(name)
        self.spread.append([name, 1 if sent else 0, sent])
        self._bury()

    def enqueue(self, name: str, age: int) -> bool:
        for one in self.spread:
            if one[0] == name:
                one[1] = self.pick(one[1], age)
                self._bury()
                return False
        if name in self.ids:
            return False
        self._remember(name)
        self.spread.append([name, age, True])
        self._bury()
        return True

    def round(self, said: list[tuple[str, int]]) -> None:
        """Checks a message, and goes on from what it held."""
        ages = {one[0]: one[1] for one in self.spread}
        assert all(age == ages[name] + 1 for name, age in said)
        assert len(said) == min(self.most, len(ages))
        assert len(dict(said)) == len(said)
        left_out = [age for name, age in ages.items() if name not in dict(said)]
        assert not said or all(age >= max(at for _, at in said) - 1 for age in left_out)
        for one in self.spread:
            one[2] = one[2] or one[0] in dict(said)
            one[1] += bool(one[2])
        self._bury()

    def _remember(self, name: str) -> None:
        if name not in self.ids:
            self.ids = [*self.ids, name][-self.history :]

    def _bury(self) -> None:
        self.spread = [one for one in self.spread if one[1] <= self.hops or not one[2]]


names = st.integers(0, 9).map("e{}".format)
moves = st.one_of(
    st.tuples(st.just("come"), names, st.integers(1, 5)),
    st.tuples(st.just("make"), st.booleans(), st.just(0)),
    st.tuples(st.just("round"), st.just(0), st.just(0)),
)


@settings(derandomize=True, max_examples=300)
@given(
    st.integers(0, 4), st.integers(1, 4), st.integers(1, 12), st.booleans(),
    st.lists(moves, max_size=60),
)  # fmt: skip
def test_spreading_is_what_the_rules_say(
    hops: int, most: int, history: int, keep_oldest: bool, played: list[tuple[str, object, int]]
) -> None:
    member = spreading(hops, most, history, oldest=keep_oldest)
    plain = Plain(hops, most, history, keep_oldest)
    for count, (move, what, age) in enumerate(played):
        if move == "come" and age <= hops + 1:
            new = came(member, (str(what), age))
            assert new == [(what, age)] * plain.enqueue(str(what), age)
        elif move == "make":
            make(member, f"own{count}", sent=bool(what))
            plain.start(f"own{count}", bool(what))
        elif move == "round":
            plain.round(member.round())
        assert member.active == len(plain.spread)
        assert member.unsent == sum(not one[2] for one in plain.spread)


# --- who has seen what ------------------------------------------------------------------------


def test_no_event_counts_as_new_twice() -> None:
    seen = SeenRumours()
    assert [seen.first_time(NodeId("n1"), number) for number in (1, 3, 3, 2, 1, 2)] == [
        True, True, False, True, False, False,
    ]  # fmt: skip


def test_originators_are_remembered_separately() -> None:
    seen = SeenRumours()
    assert seen.first_time(NodeId("n1"), 7)
    assert seen.first_time(NodeId("n2"), 7)


def test_invented_names_do_not_fill_the_memory() -> None:
    seen = SeenRumours()
    for number in range(MOST_MAKERS + 10):
        assert seen.first_time(NodeId(f"x{number}"), 1)
    assert len(seen) == MOST_MAKERS
    assert not seen.first_time(NodeId(f"x{MOST_MAKERS}"), 1)


def test_events_older_than_the_window_count_as_seen() -> None:
    seen = SeenRumours()
    newest = REMEMBERED + 10
    assert seen.first_time(NodeId("n1"), newest)
    assert not seen.first_time(NodeId("n1"), newest - REMEMBERED)
    assert seen.first_time(NodeId("n1"), newest - REMEMBERED + 1)
    assert not seen.first_time(NodeId("n1"), newest - REMEMBERED + 1)


@pytest.mark.parametrize("ahead", [REMEMBERED - 1, REMEMBERED, REMEMBERED + 1, 1 << 39])
def test_a_jump_forgets_only_what_the_window_cannot_hold(ahead: int) -> None:
    seen = SeenRumours()
    assert seen.first_time(NodeId("n1"), 1)
    assert seen.first_time(NodeId("n1"), 1 + ahead)
    assert not seen.first_time(NodeId("n1"), 1)
    assert not seen.first_time(NodeId("n1"), 1 + ahead)
    assert seen.first_time(NodeId("n1"), ahead)


def test_a_new_incarnation_begins_anew_and_ends_the_one_before() -> None:
    seen = SeenRumours()
    assert seen.first_time(NodeId("n1", 1), 5)
    assert seen.first_time(NodeId("n1", 2), 5)
    assert not seen.first_time(NodeId("n1", 1), 6)
    assert not seen.first_time(NodeId("n1", 2), 5)


near = st.integers(1, 40)
far = st.sampled_from([REMEMBERED - 1, REMEMBERED, REMEMBERED + 1, 2 * REMEMBERED, 1 << 39])
events = st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.one_of(near, far))


@settings(derandomize=True, max_examples=300)
@given(st.lists(events, max_size=60))
def test_seen_agrees_with_a_plain_set_and_a_window(
    arrivals: list[tuple[str, int, int]],
) -> None:
    seen, plain = SeenRumours(), set()
    for name, incarnation, number in arrivals:
        earlier = [known for maker, known, _ in plain if maker == name]
        newest = max(
            (at for maker, known, at in plain if (maker, known) == (name, incarnation)), default=0
        )
        late = incarnation < max(earlier, default=0) or newest - number >= REMEMBERED
        first = not late and (name, incarnation, number) not in plain
        assert seen.first_time(NodeId(name, incarnation), number) == first
        if first:
            plain.add((name, incarnation, number))
