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
