"""A small version of experiments/feed-moves.toml: moves by measured delay pay, and disturb nobody.

The figures of the whole experiment are in docs/feed.md.
"""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from ordercast.check.metric import MeasuredRun
from ordercast.check.metrics import measure, tree
from ordercast.scenario.file import parse_scenario
from ordercast.sim.world import Simulation
from ordercast.spark.experiment import load_experiment
from ordercast.trace.sinks import MemorySink

EXPERIMENT = Path(__file__).resolve().parents[3] / "experiments" / "feed-moves.toml"
SEEDS = range(1, 6)
NODES = 15
MOVES = "above 50 ms"
FORMED, SLOW, ONE_SENDER = "as it formed", "slow lines", "slow lines, one sender"
BAD_HINT = "bad hint"
BEGINNINGS = [
    SLOW,
    BAD_HINT,
    *(pytest.param(each, marks=pytest.mark.long) for each in (FORMED, ONE_SENDER)),
]


@cache
def documents() -> dict[tuple[str, str], dict[str, Any]]:
    """The scenarios of the experiment."""
    _, trials = load_experiment(EXPERIMENT)
    return {
        (trial.settings["variant"], trial.settings["label.moves"]): trial.document
        for trial in trials
    }


@cache
def measured(variant: str, moves: str, seed: int) -> dict[str, float]:
    """Half of the nodes, for half of the time."""
    document = copy.deepcopy(documents()[variant, moves])
    load = document["workload"]
    begins = {name: at for name, at in load["begins"].items() if int(name[1:]) <= NODES}
    document |= {"processes": NODES, "duration": "30s"}
    document["workload"] = {**load, "senders": list(begins), "begins": begins}
    sink = MemorySink()
    outcome = Simulation(parse_scenario(document), seed, sink=sink).run()
    assert outcome.error is None
    return measure(MeasuredRun(sink.rows), tree.METRICS)


def over_seeds(variant: str, moves: str, metric: str) -> float:
    return mean(measured(variant, moves, seed)[metric] for seed in SEEDS)


# By how much at least, in the mean of the seeds.
BOUNDS = [
    (FORMED, "tree_last_p50", 0.95),
    (FORMED, "tree_last_p95", 0.95),
    (FORMED, "tree_depth_last", 0.8),
    (FORMED, "tree_children_last", 1.0),
    (SLOW, "tree_last_p50", 0.4),
    (SLOW, "tree_last_p95", 0.5),
    (ONE_SENDER, "tree_last_p50", 0.4),
    (ONE_SENDER, "tree_last_p95", 0.5),
    (BAD_HINT, "tree_last_p50", 0.6),
    (BAD_HINT, "tree_children_last", 0.7),
]


# One test a beginning: its runs are made once, in one process.
@pytest.mark.slow(10)
@pytest.mark.parametrize("variant", BEGINNINGS)
def test_moves_pay_and_others_are_not_delayed_meanwhile(variant: str) -> None:
    for seed in SEEDS:
        stays = measured(variant, "none", seed)
        assert stays["tree_moves"] == 0
        assert stays["tree_depth_last"] == stays["tree_depth_first"]
        assert stays["tree_children_last"] == stays["tree_children_first"]
        assert stays["tree_last_p50"] == pytest.approx(stays["tree_first_p50"], rel=0.2)

    for at, metric, most in BOUNDS:
        if at == variant:
            without, with_moves = (over_seeds(at, moves, metric) for moves in ("none", MOVES))
            assert with_moves <= most * without, metric

    for seed in SEEDS:
        found = measured(variant, MOVES, seed)
        assert found["tree_moves"] >= 3
        assert found["tree_others_mean"] == pytest.approx(1, abs=0.05)
        assert found["tree_below_mean"] == pytest.approx(1, abs=0.2)
