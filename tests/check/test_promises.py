"""Which laws are asked of a run, and what is said of the others."""

from __future__ import annotations

import msgspec
import pytest
from tests.check.test_laws import CALM

from ordercast.check.history import PROMISES
from ordercast.check.laws import check, judge_run
from ordercast.check.promise import NotAsked
from ordercast.check.verdict import Answer
from ordercast.kernel.family import Promises
from ordercast.trace.schema import Trace
from ordercast.trace.text import parse_history


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ("n2 leave\nn1 suspect peer=n2", "n2 left g"),
        ("n1 suspect peer=n2\nn2 crash", "n1 suspected n2"),
        ("n2 crash\nn2#1 join", "n2 crashed"),
        ("n2#1 join", "n2 restarted"),
        ("n2 lose n1:1", "an event was lost"),
    ],
)
def test_laws_of_a_calm_run_are_not_asked_of_another_and_it_is_told_why(
    rows: str, why: str
) -> None:
    judged = judge_run(parse_history(CALM.format(family="causal") + rows))
    assert judged.not_asked == [NotAsked("causal", ("completeness", "causal"), why)]
    assert not {"completeness", "causal"} & {one.law for one in judged.verdicts}
    assert str(judged.not_asked[0]) == (
        "The laws completeness and causal were not asked: the family causal promises them only "
        f"while nothing fails, and here {why}."
    )


def test_nothing_is_left_out_where_nothing_failed_or_laws_are_named() -> None:
    calm = CALM.format(family="causal")
    assert judge_run(parse_history(calm)).not_asked == []
    assert judge_run(parse_history(calm + "n2 crash"), ["causal"]).not_asked == []
    for family in ("fifo", "my-own"):  # promises them all, or is not known
        crashed = parse_history(CALM.format(family=family) + "n2 crash")
        assert judge_run(crashed).not_asked == []


def test_of_several_families_each_tells_its_own() -> None:
    both = parse_history(CALM.format(family="fifo") + "n2 crash")
    groups = [{"name": "g", "family": "causal"}, {"name": "h", "family": "fifo"}]
    header = msgspec.structs.replace(both.header, parameters={"group": groups})
    judged = judge_run(Trace(header, both.rows))
    assert [one.family for one in judged.not_asked] == ["causal"]
    assert "completeness" in {one.law for one in judged.verdicts}  # which fifo promises


def test_a_law_that_nobody_has_is_unknown_beside_another_family_too() -> None:
    both = parse_history(CALM.format(family="fifo"))
    groups = [{"name": "g", "family": "mine"}, {"name": "h", "family": "fifo"}]
    header = msgspec.structs.replace(both.header, parameters={"group": groups})
    verdicts = check(Trace(header, both.rows), promises={**PROMISES, "mine": Promises(("odd",))})
    assert verdicts[-1].law == "odd"
    assert verdicts[-1].answer is Answer.UNKNOWN
