"""Implications between laws are true of the laws as they are judged.

Each is tried on sound runs, on sound runs that were spoilt, and on histories that nobody made
sound; each must have been tested by runs on which all its premises hold, and its premises must be
needed: a law that follows anyway would say nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from tests.check.small_groups import SmallGroups
from tests.check.spoilt_runs import scrambled_views, sound, spoilt
from tests.check.test_oracles import random_tickets, random_trace

from ordercast.check.implications import implications, with_implied
from ordercast.check.laws import LAWS, check
from ordercast.check.verdict import Answer
from ordercast.trace.schema import Trace
from ordercast.trace.text import parse_history

RULES = implications(LAWS.values())


def histories() -> Iterator[Trace]:
    for seed in range(400):
        yield from (random_trace(seed), SmallGroups(seed).trace(), random_tickets(seed))
        yield from (scrambled_views(seed), spoilt(seed))
    yield from map(sound, range(60))


def test_an_implied_law_is_never_broken_where_its_premises_hold() -> None:
    tried: Counter[str] = Counter()
    needed: Counter[str] = Counter()
    for trace in histories():
        answers = {one.law: one.answer for one in check(trace, LAWS)}
        for law, rule in RULES:
            name = f"{law.name}: {rule.law}"
            if all(answers[one] is Answer.HOLDS for one in (law.name, *rule.given)):
                assert answers[rule.law] is not Answer.BROKEN, (name, trace.header)
                tried[name] += answers[rule.law] is Answer.HOLDS
            elif answers[rule.law] is Answer.BROKEN:
                needed[name] += 1
    for law, rule in RULES:
        name = f"{law.name}: {rule.law}"
        assert tried[name] > 50, (name, tried)
        assert needed[name] > 20, (name, needed)


def test_total_alone_does_not_imply_total_in_view() -> None:
    """A durable process delivers both events again in its next incarnation, the other way round."""
    text = "run again family=feed ending=finished\nn1 submit n1:1\nn1 submit n1:2\n"
    text += "n1 view 1 n1,n2\nn1 deliver n1:1\nn1 deliver n1:2\n"
    text += "n2 deliver n1:1\nn2 deliver n1:2\nn2#1 view 1 n1,n2\n"
    text += "n2#1 deliver n1:2\nn2#1 deliver n1:1\n"
    laws = ["total", "total-in-view", "no-duplication"]
    answers = [one.answer for one in check(parse_history(text), laws)]
    assert answers == [Answer.HOLDS, Answer.BROKEN, Answer.BROKEN]


@pytest.mark.parametrize(
    "rows",
    [
        "n1 submit n1:2\nn1 submit n1:1\nn2 deliver n1:2\nn2 deliver n1:1\n",
        "n1 submit n1:1\nn1#1 submit n1#1:1\nn2 deliver n1#1:1\nn2 deliver n1:1\n",
    ],
    ids=["numbers against the order of submission", "incarnations of the origin"],
)
def test_causal_order_does_not_imply_fifo(rows: str) -> None:
    trace = parse_history(f"run r ending=finished\n{rows}")
    answers = [one.answer for one in check(trace, ["causal", "fifo"])]
    assert answers == [Answer.HOLDS, Answer.BROKEN]


def test_implications_are_followed_to_the_end() -> None:
    assert with_implied(["causal"], LAWS.values()) == {
        "causal",
        "optimistic-causal",
        "no-creation",
    }
    assert with_implied(["total"], LAWS.values()) == {"total"}
    assert with_implied(["total", "no-duplication"], LAWS.values()) == {
        "total",
        "no-duplication",
        "total-in-view",
    }


def test_an_implication_names_laws_that_exist() -> None:
    for law, rule in RULES:
        assert {rule.law, *rule.given} <= LAWS.keys(), law.name
        assert rule.because, law.name
        assert rule.source, law.name
