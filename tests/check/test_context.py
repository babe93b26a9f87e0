"""A picture of what is missing shows the whole life of the event; other breaks show themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from ordercast.check.context import MOST_PROCESSES, MOST_ROWS, rows_around, who_was_there
from ordercast.check.laws import check
from ordercast.check.verdict import Answer, Verdict
from ordercast.trace.schema import Trace
from ordercast.trace.text import parse_history

HISTORIES = Path(__file__).resolve().parents[1] / "histories"


def judged(name: str, law: str) -> tuple[Trace, Verdict]:
    trace = parse_history((HISTORIES / f"{name}.history").read_text(encoding="utf-8"))
    verdict = check(trace, [law])[0]
    assert verdict.answer is Answer.BROKEN
    return trace, verdict


def test_a_missing_delivery_is_shown_with_the_submission_and_the_crash_behind_it() -> None:
    trace, verdict = judged("broken-agreement", "agreement")
    assert [row.kind for row in verdict.witness] == ["deliver"]
    assert {(row.process, row.kind) for row in rows_around(trace, verdict)} == {
        ("n1", "submit"),
        ("n1", "crash"),
        ("n2", "deliver"),
    }
    assert who_was_there(trace, verdict) == ("n1", "n2", "n3"), "also the one who lacks it"


def test_a_witness_that_needs_no_context_gets_none() -> None:
    for law in ("fifo", "total", "no-duplication"):
        trace, verdict = judged(f"broken-{law}", law)
        assert rows_around(trace, verdict) == verdict.witness
        assert who_was_there(trace, verdict) == ()


@pytest.mark.parametrize("others", [MOST_ROWS - 2, MOST_ROWS - 1])
def test_context_beyond_the_limit_is_left_out(others: int) -> None:
    names = [f"p{number}" for number in range(others)]
    lines = ["run crowd ending=finished", "n1 join", "n3 join", *(f"{name} join" for name in names)]
    lines += ["n1 submit n1:1", "n1 crash", *(f"{name} deliver n1:1" for name in names)]
    trace = parse_history("\n".join(lines) + "\n")
    verdict = check(trace, ["agreement"])[0]
    assert verdict.answer is Answer.BROKEN
    shown = rows_around(trace, verdict)
    assert len(shown) <= MOST_ROWS
    assert (shown == verdict.witness) == (others > MOST_ROWS - 2)
    assert who_was_there(trace, verdict) == (), f"more than {MOST_PROCESSES}"
