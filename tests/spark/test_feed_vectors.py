"""Laws by vectors on runs of a durable feed: replies, ranges of losses, folders that are lost."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.check.feed_runs import FeedRun, spoilt_feed
from tests.spark.test_vector_laws import compare

from ordercast.check.law import LawForm
from ordercast.check.laws import LAWS
from ordercast.check.verdict import Answer
from ordercast.spark.columns import columns_of
from ordercast.spark.vector import Vectors
from ordercast.trace.schema import Trace
from ordercast.trace.text import parse_history

NEW = ("reply-order", "no-silent-gap", "durable", "one-tree")
JUDGED = (*NEW, "causal", "completeness", "agreement", "fifo", "no-duplication")


@pytest.mark.parametrize("part", range(3))
def test_vectors_judge_feeds_as_the_reference_and_by_themselves(part: int) -> None:
    """Of a correct run they hand over no deliveries, but for replies whose originals were given up,
    and what not all that lasted have."""
    seen: Counter[tuple[str, Answer]] = Counter()
    for seed in range(part, 150, 3):
        sound = FeedRun(seed, 15 + seed % 80, trims=seed % 2 > 0).trace()
        vectors = compare(sound, seed)
        for law in ("causal", "no-silent-gap", "fifo", "no-duplication"):
            assert not len(vectors.select(LAWS[law])), (seed, law)
        trace = spoilt_feed(seed)
        if seed % 5 == 0:
            trace = Trace(trace.header, trace.rows[::-1])
        spoilt = compare(trace, seed)
        for law in JUDGED:
            assert vectors.form(LAWS[law]) is LawForm.VECTOR, (seed, law)
            seen[law, spoilt.judge(LAWS[law]).answer] += 1
        for law in NEW:
            assert spoilt.form(LAWS[law]) is LawForm.VECTOR, (seed, law)
    for law in NEW:
        assert min(seen[law, Answer.BROKEN], seen[law, Answer.HOLDS]) > 1, seen


def test_a_selection_is_small_where_a_newcomer_gave_up_nearly_all() -> None:
    """Neither what is in the range, nor what it excuses, is looked at again."""
    text = "run trimmed family=feed ending=finished\n"
    for number in range(1, 201):
        reply = f" reply=n1:{number - 1}" if number > 1 else ""
        text += f"n1 submit n1:{number}{reply}\nn1 deliver n1:{number}{reply}\n"
    text += "n2 lose n1:199 after=0\nn2 deliver n1:200 reply=n1:199\n"
    vectors = compare(parse_history(text), "trimmed")
    for law in JUDGED:
        rows = vectors.select(LAWS[law])
        assert rows is not None
        assert len(rows) < 15, law
        assert vectors.judge(LAWS[law]).answer is Answer.HOLDS
    vectors = compare(parse_history(text.replace("after=0", "after=1")), "one is missing")
    assert vectors.judge(LAWS["no-silent-gap"]).answer is Answer.BROKEN
    assert len(vectors.select(LAWS["no-silent-gap"])) < 10


@pytest.mark.parametrize(
    "rows",
    [
        # Numbers against the order of submission: places are no numbers.
        "n1 submit n1:2\nn1 submit n1:1\nn1 submit n1:3\nn2 lose n1:1\nn2 deliver n1:3\n",
        # The range leaves something out that nothing else shows.
        "n1 submit n1:1\nn1 submit n1:2\nn1 submit n1:3\nn2 lose n1:2\nn3 deliver n1:3\n"
        "n3 submit n3:1\nn2 deliver n3:1\n",
        # One loss inside another, of numbers that nobody used, and of another group.
        "n1 submit n1:3\nn1 submit n1:7\nn2 lose n1:9 after=0\nn2 lose n1:5 after=2\n"
        "n2 lose n1:7 group=h\nn2 deliver n1:7\n",
        # A reply across groups, to a name that nobody has, and to itself.
        "n1 submit n1:1\nn1 submit n1:2 group=h reply=n1:1\nn2 deliver n1:1\n"
        "n2 deliver n1:2 group=h reply=n1:1\nn3 deliver n1:1 reply=n9:1\n",
        "n1 submit n1:1 reply=n1:1\nn2 deliver n1:1 reply=n1:1\n",
        "n1 submit n1:1\nn2 deliver n1:1 reply_origin=n1\nn3 deliver n1:1 reply_number=1\n",
    ],
    ids=range(6),
)
def test_odd_ranges_and_replies_are_judged_as_by_the_reference(rows: str) -> None:
    for family in ("feed", "causal"):
        compare(parse_history(f"run odd family={family} ending=finished\n{rows}"), family)


def test_a_folder_that_a_smaller_number_was_drawn_for_is_its_own() -> None:
    text = "run drawn family=feed ending=finished\nn1 submit n1:1\nn1 deliver n1:1\n"
    text += "n2#7 start\nn2#7 deliver n1:1\nn2#7 crash\n"
    text += "n2#3 start cause=empty\nn2#3 deliver n1:1\nn2#3 crash\nn2#4 start\n"
    vectors = compare(parse_history(text), "drawn")
    assert vectors.judge(LAWS["no-duplication"]).answer is Answer.HOLDS
    twice = parse_history(text + "n2#4 deliver n1:1\n")
    assert compare(twice, "twice").judge(LAWS["no-duplication"]).answer is Answer.BROKEN
    assert Vectors(columns_of(twice)).form(LAWS["no-duplication"]) is LawForm.VECTOR
