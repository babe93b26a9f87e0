"""How often random schedules break the published feed: docs/feed-published.md.

A part of the seeds is run always, and all of them with `-m long`.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
from tests.studies.published_feed.runs import ran
from tests.studies.published_feed.schedules import calm, count, crashes, move_and_crash, moves

BOTH = {"vector": "next", "recovery": "forwards"}
AT_ONCE = partial(moves, count=8, gap=10)


def test_theorem_1_causal_order_without_failures_and_moves() -> None:
    found = count(calm, range(1, 6))
    assert found["any"] == 0
    assert found["posted"] > 1000


def test_crashes_break_nearly_every_run() -> None:
    found = count(crashes, range(1, 13))
    assert found["any"] == 12
    assert found["completeness"] >= 8
    assert found["no-duplication"] >= 1
    assert found["transitions"] >= 12
    assert found["recovered"] > 100


def test_both_repairs_lose_nothing_and_keep_no_order() -> None:
    found = count(crashes, range(1, 9), **BOTH)
    assert laws(found) == {"reply-order": 8}


def test_a_message_that_waits_can_be_diffused() -> None:
    """Seed 88: the coordinator passes on what waits for the message before it."""
    assert "reply-order" in laws(count(crashes, [88], vector="next"))


def test_theorem_2_moves_break_causal_order_and_lose_nothing() -> None:
    found = count(moves, range(1, 13))
    assert found["causal"] >= 2
    assert found["moves"] >= 25
    assert not laws(found).keys() & {"completeness", "no-duplication", "one-tree", "fifo"}


def test_moves_at_the_same_time_lose_messages_and_make_circles() -> None:
    found = count(AT_ONCE, range(1, 9))
    assert found["completeness"] >= 3
    assert found["one-tree"] >= 1


def test_theorem_3_a_move_and_a_crash_lose_messages() -> None:
    found = count(move_and_crash, range(1, 9))
    assert found["completeness"] >= 4
    assert found["moves"] == 8


@pytest.mark.parametrize("name", ["random", "random-moves"])
def test_the_scenario_files_break(name: str) -> None:
    found = Counter(law for seed in range(1, 8) for law in ran(name, seed).laws)
    if name == "random":
        assert found["completeness"] >= 5
        assert found["no-duplication"] >= 3
        assert found["reply-order"] == 7
    else:
        assert found["causal"] >= 2
        assert not found["completeness"]


def laws(found: Counter[str]) -> dict[str, int]:
    counted = ("any", "posted", "resent", "transitions", "recovered", "moves", "reply elsewhere")
    return {law: runs for law, runs in found.items() if law not in counted}


LOST, TWICE, DISORDER, REPLIES = "durable", "no-duplication", "fifo", "reply-order"
LONG = {
    "as printed": (crashes, {}, 200, [158, 57, 51, 200, 63]),
    "next": (crashes, {"vector": "next"}, 200, [64, 0, 0, 200, 76]),
    "forwards": (crashes, {"recovery": "forwards"}, 200, [139, 139, 47, 200, 41]),
    "both": (crashes, BOTH, 200, [0, 0, 0, 200, 13]),
    "both, arrival": (crashes, {**BOTH, "batches": "arrival"}, 200, [0, 0, 0, 200, 25]),
    "a move and a crash": (move_and_crash, {}, 100, [74, 11, 11, 98, 41]),
    "a move and a crash, both": (move_and_crash, BOTH, 100, [0, 0, 0, 98, 14]),
}


@pytest.mark.long
@pytest.mark.parametrize("name", LONG)
def test_the_numbers_of_the_page(name: str) -> None:
    make, options, seeds, expected = LONG[name]
    found = count(make, range(1, seeds + 1), **options)
    columns = (LOST, TWICE, DISORDER, REPLIES, "reply elsewhere")
    assert [found[column] for column in columns] == expected
    assert name != "as printed" or (found["resent"], found["posted"]) == (19_942, 30_401)


LONG_MOVES = {
    "none": (calm, {}, 200, [0, 0, 0, 0]),
    "one by one": (moves, {}, 200, [0, 0, 0, 27]),
    "at once": (AT_ONCE, {}, 100, [61, 16, 34, 72]),
    "at once, waits": (AT_ONCE, {"drop": "waits"}, 100, [50, 6, 34, 66]),
}


@pytest.mark.long
@pytest.mark.parametrize("name", LONG_MOVES)
def test_the_numbers_of_the_page_without_failures(name: str) -> None:
    make, options, seeds, expected = LONG_MOVES[name]
    found = count(make, range(1, seeds + 1), **options)
    assert [found[column] for column in (LOST, TWICE, "one-tree", "causal")] == expected
