"""Verdicts in words and pictures."""

from __future__ import annotations

import pytest

from ordercast.check.diagram import WIDTH, draw, in_order
from ordercast.check.explain import explain
from ordercast.check.laws import check
from ordercast.check.verdict import holds, unknown
from ordercast.trace.schema import Row
from ordercast.trace.text import parse_history


def rows_of(*lines: str) -> list[Row]:
    return parse_history("\n".join(["run r", *lines])).rows


def test_a_broken_law_is_explained_in_words_and_in_a_diagram() -> None:
    text = """
    run answer-first
    n1 submit n1:1
    n2 deliver n1:1
    n2 submit n2:1
    n3 deliver n2:1
    n3 deliver n1:1
    """
    verdict = check(parse_history(text), ["optimistic-causal"])[0]
    assert explain(verdict) == (
        "optimistic-causal is broken: n3 delivered n1:1 after n2:1, but n1:1 causally precedes "
        "n2:1.\n"
        "The law says: no process delivers an event after delivering one that it causally "
        "precedes.\n"
        "\n"
        "        n1           n2            n3\n"
        "+0.0 ms submit n1:1  │             │\n"
        "+1.0 ms │            deliver n1:1  │\n"
        "+2.0 ms │            submit n2:1   │\n"
        "+3.0 ms │            │             deliver n2:1\n"
        "+4.0 ms │            │             deliver n1:1"
    )


def test_verdicts_that_are_not_broken_are_explained_too() -> None:
    assert explain(holds("fifo")) == "fifo holds."
    assert explain(unknown("fifo", "no rows")) == (
        "fifo cannot be decided: no rows.\n"
        "The law says: a process delivers one origin's events of a group in increasing number."
    )


def test_only_incarnations_that_wrote_a_row_are_drawn_each_on_its_own() -> None:
    picture = draw(rows_of("n1#1 submit n1#1:3", "n10 deliver n1#1:3", "n9 crash"))
    assert picture.splitlines() == [
        "        n1#1           n9     n10",
        "+0.0 ms submit n1#1:3  │      │",
        "+1.0 ms │              │      deliver n1#1:3",
        "+2.0 ms │              crash  │",
    ]


def test_rows_of_several_groups_say_which() -> None:
    picture = draw(rows_of("n1 submit n1:1 group=a", "n1 submit n1:1 group=b"))
    assert "submit n1:1@a" in picture
    assert "submit n1:1@b" in picture


def test_a_delivery_stands_below_its_submission_whatever_the_clocks_say() -> None:
    rows = rows_of("n2 deliver n1:1 at=1ms", "n1 submit n1:1 at=9ms")
    assert [row.kind for row in in_order(rows)] == ["submit", "deliver"]


def test_local_order_goes_before_time() -> None:
    rows = rows_of("n1 start at=9ms", "n1 stop at=1ms", "n2 start at=5ms")
    assert [(row.process, row.kind) for row in in_order(rows)] == [
        ("n2", "start"),
        ("n1", "start"),
        ("n1", "stop"),
    ]


def test_a_cycle_is_drawn_too() -> None:
    rows = rows_of("n1 deliver n2:1", "n1 submit n1:1", "n2 deliver n1:1", "n2 submit n2:1")
    assert set(in_order(rows)) == set(rows)


@pytest.mark.parametrize("processes", [1, 5, 6, 8, 9, 12, 15, 40])
@pytest.mark.parametrize("prefix", ["n", "a-rather-long-name-", "x" * 120])
def test_no_picture_is_wider_than_the_page(processes: int, prefix: str) -> None:
    names = [f"{prefix}{n}" for n in range(processes)]
    rows = rows_of(
        *(f"{name} deliver {name}:7" for name in names),
        *(f"{name} view 1 {','.join(names)}" for name in names[:1]),
    )
    lines = draw(rows).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert len(lines) >= len(rows)


def test_words_that_are_too_wide_are_replaced_by_signs() -> None:
    picture = draw(rows_of(*(f"n{n} deliver n1:{n}" for n in range(1, 10))))
    assert "▼n1:9" in picture
    assert picture.endswith("● submit  ▼ deliver  × lose  ◇ view  ■ ticket  ╳ crash")


def test_an_empty_witness_gives_an_empty_diagram() -> None:
    assert draw([]) == ""


def test_a_range_that_was_given_up_is_named_by_its_ends() -> None:
    (row,) = parse_history("run r\nn2 lose n1:5 after=2").rows
    assert "lose n1:3 to n1:5" in draw([row])
