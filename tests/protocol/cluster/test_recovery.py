"""What is kept for others, and what was asked for, against plain lists."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.kernel.buffers import Limit
from ordercast.protocol.cluster.causality import EntryRange
from ordercast.protocol.cluster.packets import MOST_RANGES, Update
from ordercast.protocol.cluster.recovery import OLDEST_AGE, RecoveryBuffer, Requests
from ordercast.protocol.tickets.entries import SEQUENCE_BITS
from ordercast.types import NodeId

TICKETS = 3
ROOMY = Limit(1000, 1 << 30)
LAST = (1 << 54) - 1
"""The greatest entry that a packet can hold."""


def update(ticket: int, entry: int, size: int = 1) -> Update:
    stamp = tuple(entry if index == ticket else 0 for index in range(TICKETS))
    node = NodeId(f"n{ticket}", entry >> SEQUENCE_BITS)
    return Update(ticket, stamp, node, entry & (1 << SEQUENCE_BITS) - 1, [b"x" * size], size)


def ids(updates: list[Update]) -> list[tuple[int, int]]:
    return [(one.index, one.entry) for one in updates]


def buffer(count: int = 1000, size: int = 1 << 30, *, by_age: bool = False) -> RecoveryBuffer:
    return RecoveryBuffer(TICKETS, Limit(count, size), by_age)


def filled(kept: RecoveryBuffer, *entries: tuple[int, int, int]) -> RecoveryBuffer:
    """Events come: ticket, entry, age."""
    for ticket, entry, age in entries:
        kept.add(update(ticket, entry), age)
    return kept


# --- rule 1: what goes first ------------------------------------------------------------------


def test_first_in_is_dropped_first() -> None:
    kept = filled(buffer(2), (0, 1, 1), (1, 1, 9), (0, 2, 1))
    assert ids(kept.all()) == [(1, 1), (0, 2)]


def test_by_age_the_event_with_most_hops_is_dropped_first() -> None:
    kept = filled(buffer(2, by_age=True), (0, 1, 1), (1, 1, 9), (0, 2, 1))
    assert ids(kept.all()) == [(0, 1), (0, 2)]


def test_of_equally_old_events_first_in_is_dropped_first() -> None:
    kept = filled(buffer(2, by_age=True), (0, 1, 5), (0, 2, 5), (1, 1, 1))
    assert sorted(ids(kept.all())) == [(0, 2), (1, 1)]


def test_by_age_a_new_event_with_most_hops_is_dropped_at_once() -> None:
    kept = filled(buffer(1, by_age=True), (0, 1, 1), (1, 1, 9))
    assert ids(kept.all()) == [(0, 1)]
    assert kept.floor == [0, 1, 0]


def test_ages_beyond_the_limit_count_as_the_limit() -> None:
    kept = filled(buffer(2, by_age=True), (0, 1, OLDEST_AGE), (0, 2, OLDEST_AGE + 900), (1, 1, 1))
    assert sorted(ids(kept.all())) == [(0, 2), (1, 1)]


def test_the_bytes_of_a_buffer_have_a_limit() -> None:
    kept = buffer(10, size=10)
    for entry, size in ((1, 4), (2, 4), (3, 4)):
        kept.add(update(0, entry, size), 1)
    assert ids(kept.all()) == [(0, 2), (0, 3)]
    assert kept.size == 8


def test_an_event_larger_than_the_buffer_empties_it_and_is_reported() -> None:
    kept = buffer(10, size=10)
    kept.add(update(0, 1, 4), 1)
    kept.add(update(1, 1, 11), 1)
    assert (len(kept), kept.size) == (0, 0)
    assert kept.floor == [1, 1, 0]


def test_a_duplicate_event_is_buffered_once_and_keeps_its_place() -> None:
    kept = filled(buffer(2), (0, 1, 1), (0, 2, 1), (0, 1, 1), (0, 3, 1))
    assert ids(kept.all()) == [(0, 2), (0, 3)]
    assert kept.size == 2


# --- asking it --------------------------------------------------------------------------------


def test_a_request_finds_the_buffered_events_in_order() -> None:
    kept = filled(buffer(), (0, 3, 1), (0, 1, 1), (1, 2, 1), (0, 4, 1), (0, 5, 1))
    assert ids(kept.find([EntryRange(0, 1, 4)], 10)) == [(0, 1), (0, 3), (0, 4)]
    assert ids(kept.find([EntryRange(1, 1, 9), EntryRange(0, 5, 5)], 10)) == [(0, 5), (1, 2)]
    assert kept.find([EntryRange(2, 1, 9)], 10) == []


def test_a_request_finds_a_limited_number_of_events() -> None:
    kept = filled(buffer(), *((ticket, entry, 1) for ticket in (0, 1) for entry in range(1, 6)))
    found = kept.find([EntryRange(0, 1, 5), EntryRange(1, 1, 5)], 7)
    assert ids(found) == [*((0, entry) for entry in range(1, 6)), (1, 1), (1, 2)]
    assert len(kept.find([EntryRange(0, 0, LAST), EntryRange(1, 0, LAST)], 7)) == 7


@pytest.mark.parametrize("by_age", [False, True])
def test_a_request_for_everything_costs_no_more_than_the_buffer_holds(by_age: bool) -> None:
    """If it took a step for each entry that was asked for, this would take years."""
    kept = filled(buffer(by_age=by_age), (0, 7, 2), (1, 1, 1), (0, LAST - 1, 1), (0, 3, 1))
    assert ids(kept.find([EntryRange(0, 0, LAST)] * 3, 4)) == [(0, 3), (0, 7), (0, LAST - 1)]
    assert kept.find([EntryRange(2, 0, LAST)] * MOST_RANGES, 4) == []


# --- rule 3: beyond its floor it has everything -----------------------------------------------


def test_the_floor_is_the_last_dropped_event_of_each_ticket() -> None:
    kept = filled(buffer(1), (0, 2, 1), (0, 1, 1), (1, 5, 1), (2, 1, 1))
    assert kept.floor == [2, 5, 0]


def test_events_from_before_the_start_are_below_the_floor_which_never_sinks() -> None:
    kept = buffer()
    kept.begin([3, 0, 1])
    kept.begin([1, 2, 0])
    assert kept.floor == [3, 2, 1]


class Plain:
    """The same over one list of (update, age), oldest first."""

    def __init__(self, limit: Limit, by_age: bool) -> None:
        self.limit, self.by_age = limit, by_age
        self.kept: list[tuple[Update, int]] = []
        self.ever: list[Update] = []

    def add(self, one: Update, age: int) -> None:
        if any(one == kept for kept, _ in self.kept):
            return
        self.ever.append(one)
        self.kept.append((one, age))
        while len(self.kept) > self.limit.count or self.size > self.limit.size:
            oldest = max(age for _, age in self.kept) if self.by_age else None
            self.kept.remove(next(one for one in self.kept if oldest in (None, one[1])))

    @property
    def size(self) -> int:
        return sum(one.size for one, _ in self.kept)

    def find(self, ticket: int, first: int, last: int) -> list[tuple[int, int]]:
        every = ids([one for one, _ in self.kept])
        return sorted(key for key in every if key[0] == ticket and first <= key[1] <= last)


tickets = st.integers(0, TICKETS - 1)
entries = st.integers(1, 20)
arrivals = st.lists(st.tuples(tickets, entries, st.integers(0, 5), st.integers(0, 9)), max_size=60)


@settings(derandomize=True, max_examples=300)
@given(arrivals, st.integers(1, 12), st.integers(1, 40), st.booleans(), tickets, entries, entries)
def test_a_buffer_agrees_with_a_plain_list_with_limits(
    came: list[tuple[int, int, int, int]],
    count: int,
    size: int,
    by_age: bool,
    ticket: int,
    first: int,
    last: int,
) -> None:
    kept, plain = buffer(count, size, by_age=by_age), Plain(Limit(count, size), by_age)
    sizes: dict[tuple[int, int], int] = {}
    for index, entry, age, weight in came:
        one = update(index, entry, sizes.setdefault((index, entry), weight))
        kept.add(one, age)
        plain.add(one, age)
        assert (len(kept), kept.size) == (len(plain.kept), plain.size)
    assert sorted(ids(kept.all())) == sorted(ids([one for one, _ in plain.kept]))
    if not by_age:
        assert kept.all() == [one for one, _ in plain.kept]
    assert ids(kept.find([EntryRange(ticket, first, last)], 99)) == plain.find(ticket, first, last)


@settings(derandomize=True, max_examples=300)
@given(arrivals, st.integers(1, 12), st.booleans())
def test_above_its_floor_a_buffer_has_every_event_that_arrived(
    came: list[tuple[int, int, int, int]], count: int, by_age: bool
) -> None:
    kept, ever = buffer(count, by_age=by_age), []
    for ticket, entry, age, _ in came:
        kept.add(update(ticket, entry), age)
        ever.append((ticket, entry))
    beyond = {key for key in ever if key[1] > kept.floor[key[0]]}
    assert beyond <= set(ids(kept.all()))


# --- rule 2: an event is asked for once -------------------------------------------------------


def nothing(key: int) -> bool:
    return False


def here(*events: tuple[int, int]) -> object:
    return frozenset(update(*event).key for event in events).__contains__


def test_an_event_is_asked_for_once() -> None:
    requests = Requests(100)
    assert requests.new([EntryRange(0, 1, 3)], nothing, 1) == [EntryRange(0, 1, 3)]
    assert requests.new([EntryRange(0, 1, 3)], nothing, 2) == []
    assert requests.new([EntryRange(0, 2, 5)], nothing, 3) == [EntryRange(0, 4, 5)]
    assert len(requests) == 5


def test_events_that_are_present_are_not_requested() -> None:
    requests = Requests(100)
    is_here = here((0, 2), (0, 4))
    assert requests.new([EntryRange(0, 1, 5)], is_here, 1) == [
        EntryRange(0, 1, 1),
        EntryRange(0, 3, 3),
        EntryRange(0, 5, 5),
    ]


def test_ranges_that_touch_are_one_request_but_not_those_of_two_tickets() -> None:
    requests = Requests(100)
    asked = requests.new(
        [EntryRange(0, 1, 2), EntryRange(0, 3, 4), EntryRange(1, 5, 6)], nothing, 1
    )
    assert asked == [EntryRange(0, 1, 4), EntryRange(1, 5, 6)]


def test_whether_an_arrived_event_was_requested_is_reported_once() -> None:
    requests = Requests(100)
    requests.new([EntryRange(0, 1, 2)], nothing, 1)
    assert requests.came(update(0, 1).key)
    assert not requests.came(update(0, 1).key)
    assert not requests.came(update(1, 1).key)
    assert len(requests) == 1


def test_old_requests_are_given_up_and_may_be_repeated() -> None:
    requests = Requests(100)
    requests.new([EntryRange(0, 1, 2)], nothing, 1)
    requests.new([EntryRange(1, 1, 1)], nothing, 2)
    assert requests.give_up(1) == []
    assert requests.give_up(2) == [update(0, 1).key, update(0, 2).key]
    assert requests.new([EntryRange(0, 1, 1), EntryRange(1, 1, 1)], nothing, 3) == [
        EntryRange(0, 1, 1)
    ]


def test_beyond_the_limit_the_latest_events_are_requested() -> None:
    requests = Requests(3)
    assert requests.new([EntryRange(0, 1, 10)], nothing, 1) == [EntryRange(0, 8, 10)]
    assert requests.new([EntryRange(1, 1, 10)], nothing, 1) == []
    assert len(requests) == 3


def test_an_event_without_room_in_the_requests_is_requested_later() -> None:
    requests = Requests(3)
    assert requests.new([EntryRange(0, 1, 2)], nothing, 1) == [EntryRange(0, 1, 2)]
    assert requests.new([EntryRange(1, 1, 3)], nothing, 1) == [EntryRange(1, 3, 3)]
    for event in ((0, 1), (0, 2), (1, 3)):
        assert requests.came(update(*event).key)
    assert requests.new([EntryRange(1, 1, 3)], here((1, 3)), 2) == [EntryRange(1, 1, 2)]


@pytest.mark.parametrize("limit", [1, 4096])
def test_an_absurd_span_costs_no_more_than_the_limit(limit: int) -> None:
    requests = Requests(limit)
    assert requests.new([EntryRange(0, 0, LAST)], nothing, 1) == [
        EntryRange(0, LAST - limit + 1, LAST)
    ]
    assert requests.new([EntryRange(index, 0, LAST) for index in range(1, 9)], nothing, 1) == []
    assert len(requests) == limit


def test_a_span_of_nothing_is_nothing() -> None:
    requests = Requests(10)
    assert requests.new([EntryRange(0, 5, 4)], nothing, 1) == []
    assert len(requests) == 0


def test_events_that_did_not_fit_into_a_request_do_not_count_as_requested() -> None:
    """A packet holds so many ranges. What is left over may be asked for the next time."""
    requests = Requests(10_000)
    odd = EntryRange(0, 1, 4 * MOST_RANGES)

    def is_even(key: int) -> bool:
        return update(0, 2).key & key != 0  # the last bit of the entry but one

    asked = requests.new([odd], is_even, 1)
    assert len(asked) == MOST_RANGES
    assert len(requests) == sum(span.last - span.first + 1 for span in asked)
    again = requests.new([odd], is_even, 2)
    assert again
    assert not set(again) & set(asked)


turns = st.tuples(
    st.lists(st.tuples(tickets, entries), max_size=4),  # what stamps name
    st.lists(st.tuples(tickets, entries), max_size=6),  # what comes
    st.tuples(tickets, entries),  # how far the clock goes on
)


@settings(derandomize=True, max_examples=300)
@given(st.lists(turns, max_size=10))
def test_requests_agree_with_a_plain_set(
    played: list[tuple[list[tuple[int, int]], list[tuple[int, int]], tuple[int, int]]],
) -> None:
    """Whoever asks looks at all between his clock and what a stamp names, and at nothing else."""
    requests, clock = Requests(1000), [0] * TICKETS
    underway: dict[int, int] = {}
    is_here: set[int] = set()
    for now, (named, came, (ticket, entry)) in enumerate(played):
        wanted = [EntryRange(index, clock[index] + 1, last) for index, last in named]
        asked = requests.new(wanted, is_here.__contains__, now)
        told = [key for span in asked for key in span.events()]
        every = dict.fromkeys(key for span in wanted for key in span.events())
        assert sorted(told) == sorted(k for k in every if k not in underway and k not in is_here)
        assert all(
            one.ticket != two.ticket or one.last + 1 != two.first for one, two in pairwise(asked)
        )
        underway.update(dict.fromkeys(told, now))
        for event in came:
            key = update(*event).key
            is_here.add(key)
            assert requests.came(key) == (underway.pop(key, None) is not None)
        given_up = [key for key, since in underway.items() if since < now - 1]
        assert requests.give_up(now - 1) == given_up
        for key in given_up:
            del underway[key]
        assert len(requests) == len(underway)
        clock[ticket] = max(clock[ticket], entry)
