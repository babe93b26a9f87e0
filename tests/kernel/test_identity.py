"""Which number a process takes whose folder is empty, and whom it believes to be newest."""

from __future__ import annotations

from random import Random

from ordercast.kernel.identity import (
    COUNTED,
    DRAWN_BITS,
    SURE_BITS,
    UNSURE_BITS,
    Acquaintances,
    first_incarnation,
)
from ordercast.types import NodeId


def test_a_number_above_all_that_are_reported_and_all_that_a_folder_may_have_counted() -> None:
    reported = [NodeId("a", 3), None, NodeId("a", 7)]
    taken = {
        first_incarnation("a", reported, True, Random(seed)).incarnation for seed in range(100)
    }
    assert taken == set(range(7 + COUNTED, 7 + COUNTED + (1 << SURE_BITS)))


def test_more_numbers_are_skipped_where_somebody_did_not_answer() -> None:
    taken = {
        first_incarnation("a", [NodeId("a", 7)], False, Random(seed)).incarnation
        for seed in range(100)
    }
    assert min(taken) >= 7 + COUNTED
    assert max(taken) < 7 + COUNTED + (1 << UNSURE_BITS)
    assert len(taken) > 80


def test_a_number_that_was_taken_is_reported_and_outdates_nobody() -> None:
    known = Acquaintances()
    assert known.report("a") is None
    known.note([NodeId("a", 4)])
    assert known.report("a") == NodeId("a", 4)
    known.taken["a"] = NodeId("a", 15)
    assert known.report("a") == NodeId("a", 15)
    assert known.newer_than(NodeId("a", 4)) is None
    known.note([NodeId("a", 30)])
    assert known.report("a") == NodeId("a", 30)


def test_a_number_is_drawn_where_nobody_knows_the_name() -> None:
    taken = {first_incarnation("a", [None], True, Random(seed)).incarnation for seed in range(100)}
    assert min(taken) >= 1
    assert max(taken) <= 1 << DRAWN_BITS
    assert len(taken) == 100


def test_the_newest_incarnation_that_was_heard_of_counts() -> None:
    known = Acquaintances()
    known.note([NodeId("a", 4), NodeId("a", 2), NodeId("b", 0)])
    assert known.newer_than(NodeId("a", 3)) == NodeId("a", 4)
    assert known.newer_than(NodeId("a", 4)) is None
    assert known.newer_than(NodeId("c", 0)) is None
