"""Where a newcomer begins: welcomed, first or late."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.kernel.buffers import Limit
from ordercast.protocol.cluster.causality import CausalOrder
from ordercast.protocol.cluster.joining import MOST_EARLY, Joining
from ordercast.protocol.cluster.packets import Update
from ordercast.protocol.tickets.entries import SEQUENCE_BITS
from ordercast.types import NodeId


def update(index: int, *stamp: int, base: int = 0) -> Update:
    sequence = stamp[index] & (1 << SEQUENCE_BITS) - 1
    node = NodeId(f"n{index}", stamp[index] >> SEQUENCE_BITS)
    return Update(index, stamp, node, sequence, [b"x"], 1, base)


def waited(joining: Joining, tickets: int = 2) -> tuple[int, list[int]]:
    """How many rounds went by before it began, and where."""
    for rounds in range(1, 100):
        clock = joining.round(tickets)
        if clock is not None:
            return rounds, clock
    raise AssertionError("it never began")


# --- first ------------------------------------------------------------------------------------


@pytest.mark.parametrize("patience", [1, 2, 7])
def test_without_an_answer_and_without_events_a_member_starts_as_the_first(
    patience: int,
) -> None:
    assert waited(Joining(patience), 3) == (patience, [0, 0, 0])


# --- late -------------------------------------------------------------------------------------


def test_an_event_shows_that_another_member_exists_so_the_newcomer_asks_again() -> None:
    joining = Joining(5)
    for _ in range(4):
        assert joining.round(2) is None
    joining.early(update(0, 1, 0), 1)
    assert waited(joining)[0] == 5


def test_only_the_first_event_extends_the_wait() -> None:
    """Or a busy cluster whose members do not answer would never let anybody in."""
    joining = Joining(3)
    joining.early(update(0, 1, 0), 1)
    for number in range(2):
        assert joining.round(2) is None
        joining.early(update(0, number + 2, 0), 1)
    assert joining.round(2) is not None


def test_a_newcomer_starts_right_before_the_first_event_without_a_predecessor() -> None:
    joining = Joining(1)
    first, second, third = update(1, 7, 5), update(0, 8, 5), update(1, 8, 6)
    for one in (third, first, second):
        joining.early(one, 1)
    assert waited(joining) == (1, [7, 4])
    assert joining.updates() == [(third, 1), (first, 1), (second, 1)]


def test_the_first_event_of_an_incarnation_starts_after_its_base() -> None:
    joining = Joining(1)
    joining.early(update(0, 1 << SEQUENCE_BITS | 1, 3, base=9), 1)
    assert waited(joining) == (1, [9, 3])


def test_a_duplicate_event_is_stored_once() -> None:
    joining = Joining(1)
    joining.early(update(0, 1, 0), 1)
    joining.early(update(0, 1, 0), 4)
    assert [one for one, _ in joining.updates()] == [update(0, 1, 0)]


def test_only_a_limited_number_of_latest_events_is_stored() -> None:
    joining = Joining(1)
    for number in range(1, MOST_EARLY + 3):
        joining.early(update(0, number, 0), 1)
    kept = [one.entry for one, _ in joining.updates()]
    assert kept == list(range(3, MOST_EARLY + 3))
    assert waited(joining) == (1, [2, 0])


@settings(derandomize=True, max_examples=200)
@given(st.integers(1, 4), st.integers(1, 25), st.integers(0, 10**6))
def test_from_the_chosen_start_the_first_event_is_deliverable_and_no_later_one_obsolete(
    tickets: int, events: int, seed: int
) -> None:
    """A random run of updaters. What comes is any part of what they made, in any order."""
    chance = Random(seed)
    clocks = [[0] * tickets for _ in range(tickets)]
    made: list[Update] = []
    for _ in range(events):
        maker, teacher = chance.randrange(tickets), chance.randrange(tickets)
        clocks[maker] = list(map(max, clocks[maker], clocks[teacher]))
        clocks[maker][maker] += 1
        made.append(update(maker, *clocks[maker]))
    some = chance.sample(made, chance.randint(1, len(made)))
    joining = Joining(1)
    for one in some:
        joining.early(one, 1)
    order = CausalOrder(tickets, Limit(1000, 1 << 20))
    order.begin(waited(joining, tickets)[1])
    first = min(some, key=lambda one: sum(one.stamp))
    assert not order.is_obsolete(first)
    assert order.missing(first) == []
    followers = [one for one in some if one.stamp[first.index] >= first.entry]
    assert not any(order.is_obsolete(one) for one in followers)
