"""Metrics of groups that form a tree, from rows that a person can follow."""

from __future__ import annotations

import pytest

from ordercast.check.metric import MeasuredRun
from ordercast.check.metrics import measure, tree
from ordercast.trace.text import parse_history

STARTS = "run r\n" + "".join(f"{name} parent at=0s\n" for name in ("n1", "n2", "n3", "n4"))
TREE = (
    STARTS
    + """
n2 parent peer=n1#0 at=1s
n3 parent peer=n2#0 at=1s
n4 parent peer=n3#0 at=1s
"""
)


def load(took: dict[str, list[int]], seconds: int = 10) -> str:
    """An event of n1 every second, which each of these receives after so many ms: one number for
    each second, the last one for all that follow."""
    rows = []
    for second in range(seconds + 1):
        at = (second + 2) * 1000
        rows.append(f"n1 submit n1:{second + 1} at={at}ms")
        for name, several in took.items():
            late = several[min(second, len(several) - 1)]
            rows.append(f"{name} deliver n1:{second + 1} at={at + late}ms")
    return "\n".join(rows) + "\n"


def metrics_of(text: str) -> dict[str, float]:
    return measure(MeasuredRun(parse_history(text, "here").rows), tree.METRICS)


def test_the_shape_is_that_of_the_first_and_the_last_submission() -> None:
    text = TREE + "n3 parent peer=n1#0 at=3s\nn4 parent peer=n1#0 at=4s\n"
    found = metrics_of(text + load({"n2": [10]}))
    assert (found["tree_depth_first"], found["tree_depth_last"]) == (3, 1)
    assert (found["tree_children_first"], found["tree_children_last"]) == (1, 3)
    assert found["tree_moves"] == 2


def test_moves_before_and_after_the_load_do_not_count() -> None:
    text = TREE + "n3 parent peer=n1#0 at=1500ms\nn3 parent peer=n2#0 at=20s\n"
    assert metrics_of(text + load({"n2": [10]}))["tree_moves"] == 0


def test_latency_is_that_of_the_first_and_of_the_last_tenth() -> None:
    found = metrics_of(TREE + load({"n2": [100, 200, 900], "n3": [500]}, seconds=20))
    assert found["tree_first_p50"] == pytest.approx(0.5)
    assert found["tree_first_p95"] == pytest.approx(0.8)
    assert found["tree_last_p50"] == pytest.approx(0.7)
    assert found["tree_last_p95"] == pytest.approx(0.9)


MOVE = TREE + "n3 parent peer=n1#0 at=7s\n"


def test_a_move_that_delays_others_is_told_from_one_that_delays_only_what_moves() -> None:
    """n3 moves at 7 s with n4; n2 stays. What is late arrives around 7 s."""
    calm = [100] * 4
    late = [*calm, 200, 200, 100]
    still = metrics_of(MOVE + load({"n2": [100], "n3": late, "n4": late}))
    assert still["tree_others_mean"] == still["tree_others_max"] == pytest.approx(1)
    assert still["tree_below_mean"] == pytest.approx(2)
    disturbed = metrics_of(MOVE + load({"n2": late, "n3": [100], "n4": [100]}))
    assert disturbed["tree_others_mean"] == disturbed["tree_others_max"] == pytest.approx(2)
    assert disturbed["tree_below_mean"] == pytest.approx(1)


def test_a_path_that_is_longer_from_then_on_is_no_disturbance() -> None:
    longer = [100] * 5 + [300]
    found = metrics_of(MOVE + load({"n2": longer, "n3": [100]}))
    assert found["tree_others_mean"] == pytest.approx(1)


def test_nodes_that_move_too_are_not_among_the_others() -> None:
    also = MOVE + "n2 parent at=8500ms\n"
    found = metrics_of(also + load({"n2": [100], "n3": [100]}))
    assert "tree_others_mean" not in found
    assert found["tree_below_mean"] == pytest.approx(1)


def test_moves_in_the_same_seconds_are_not_alone() -> None:
    """n5 moves one second later than n3, and n2 keeps its parent."""
    text = MOVE + "n5 parent at=0s\nn5 parent peer=n1#0 at=1s\n"
    arrivals = load({"n2": [100], "n3": [100]})
    assert metrics_of(text + arrivals)["tree_others_alone"] == pytest.approx(1)
    found = metrics_of(text + "n5 parent peer=n2#0 at=8s\n" + arrivals)
    assert found["tree_others_max"] == pytest.approx(1)
    assert "tree_others_alone" not in found


def test_a_move_at_the_edge_of_the_load_is_not_compared() -> None:
    found = metrics_of(TREE + "n3 parent peer=n1#0 at=4s\n" + load({"n2": [100], "n3": [100]}))
    assert found["tree_moves"] == 1
    assert "tree_others_mean" not in found


def test_a_run_without_a_tree_or_without_load_has_none_of_it() -> None:
    assert metrics_of("run r\n" + load({"n2": [10]})) == {}
    assert metrics_of(TREE) == {}
