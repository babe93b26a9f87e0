"""Which number a process takes whose folder is empty, and whom it believes to be newest."""

from __future__ import annotations

from random import Random

from ordercast.kernel.identity import (
    COUNTED,
    DRAWN_BITS,
    LAST,
    SURE_BITS,
    UNSURE_BITS,
    Acquaintances,
    believed,
    first_incarnation,
    most_believed,
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


# --- false reports -------------------------------------------------------------------------------

ORDINARY = 1 << DRAWN_BITS


def test_one_report_is_believed_as_far_as_numbers_are_drawn_and_a_part_of_the_rest() -> None:
    most = ORDINARY + (LAST - ORDINARY) // 16
    for number in (0, 7, ORDINARY, most):
        assert believed([number]) == number
    for number in (most + 1, (1 << 21) - 1, LAST):
        assert believed([number]) == most
        assert believed([number, 5]) == most, "others know less"
        assert believed([number], known=LAST // 2) == min(number, LAST // 2 + (LAST // 2 + 1) // 16)


def test_two_reports_are_believed() -> None:
    assert believed([LAST - 9, LAST - 9]) == LAST - 9
    assert believed([3, LAST, LAST // 2]) == most_believed(LAST // 2)


def test_liars_do_not_use_up_the_numbers_of_a_name_within_a_hundred_reports() -> None:
    """A true report is followed within a few."""
    node, steps = NodeId("a", 0), 0
    while node.incarnation < LAST:
        steps += 1
        lie = [NodeId("a", LAST)]
        node = first_incarnation("a", lie, False, Random(steps), node.incarnation)
        if steps == 1:
            assert node.incarnation < LAST // 3
        if steps == 8:
            assert node.incarnation > 1 << 21
    assert steps > 100


def test_fewer_numbers_are_skipped_where_fewer_are_left() -> None:
    """The last of them serve for more folders than the first ones would suggest."""
    lost, node = 0, NodeId("a", LAST // 2)
    while node.incarnation < LAST:
        node = first_incarnation("a", [node, node], False, Random(lost))
        lost += 1
    assert lost > 15_000
    assert LAST // 2 // (COUNTED + (1 << UNSURE_BITS) // 2) < 5000, "the rate of the first ones"
