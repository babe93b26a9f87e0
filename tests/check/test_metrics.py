"""Metrics of one run: what they mean."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from tests.check.measured_runs import ROUND, SCENARIOS, simulated

from ordercast.check.metric import MeasuredRun, Metric, mean, percentile
from ordercast.check.metrics import NAMES, measure, recovery
from ordercast.trace.text import parse_history
from ordercast.types import GroupTimes


def metrics_of(text: str, round_ns: int | None = None) -> dict[str, float]:
    return measure(MeasuredRun(parse_history(text, "here").rows, GroupTimes(round_ns)))


def test_an_event_delivered_after_one_that_depends_on_it_counts_as_lost() -> None:
    """The papers' loss: not received, or not deliverable without breaking optimistic order."""
    text = """run r family=gossip ending=finished
        n1 join
        n2 join
        n3 join
        n1 submit n1:1
        n1 deliver n1:1
        n2 deliver n1:1
        n2 submit n2:1
        n2 deliver n2:1
        n3 deliver n2:1
        n3 deliver n1:1
    """
    found = metrics_of(text)
    # Six pairs: n1 never got n2:1, and n3 got n1:1 after its answer.
    assert found["missing_share"] == pytest.approx(1 / 6)
    assert found["disordered_share"] == pytest.approx(1 / 6)
    assert found["lost_share"] == pytest.approx(2 / 6)


def test_an_event_that_comes_late_does_not_make_others_late() -> None:
    """n3 got n1:2 first; n1:1 is too late, n1:3 is not."""
    text = """run r
        n1 join
        n3 join
        n1 submit n1:1
        n1 submit n1:2
        n1 submit n1:3
        n3 deliver n1:2
        n3 deliver n1:1
        n3 deliver n1:3
    """
    assert metrics_of(text)["disordered_share"] == pytest.approx(1 / 6)


def test_nothing_is_expected_of_a_process_that_crashed_or_came_later() -> None:
    text = """run r
        n1 join
        n2 join
        n1 submit n1:1
        n1 deliver n1:1
        n3 join
        n2 crash
    """
    assert metrics_of(text)["lost_share"] == 0


def test_latency_is_counted_at_others_in_seconds_and_rounds() -> None:
    text = """run r
        n1 submit n1:1 at=1s
        n1 deliver n1:1 at=1s
        n2 deliver n1:1 at=1100ms hops=1
        n3 deliver n1:1 at=1300ms hops=3
    """
    found = metrics_of(text, ROUND)
    assert found["latency_mean"] == pytest.approx(0.2)
    assert found["latency_p50"] == pytest.approx(0.2)
    assert found["latency_p99"] == pytest.approx(0.298)
    assert found["rounds_mean"] == pytest.approx(4)
    assert found["rounds_p99"] == pytest.approx(5.96)
    assert found["hops_mean"] == 2
    assert found["round"] == pytest.approx(0.05)


def test_a_wait_lasts_until_the_next_submission() -> None:
    text = """run r
        n1 submit n1:1 at=1s
        n1 blocked group=g cause=window at=2s
        n1 submit n1:2 at=2500ms
        n1 blocked group=g cause=window at=3s
    """
    found = metrics_of(text)
    assert found["blocked"] == 2
    assert found["blocked_time"] == pytest.approx(0.5)
    formed = text.replace("n1:2 at", "n1:2 group=g+n1.0.1 at")
    assert metrics_of(formed)["blocked_time"] == pytest.approx(0.5), "in whichever formation"


def test_a_view_changes_from_its_first_sign() -> None:
    text = """run r
        n1 view 1 n1,n2,n3 at=1s
        n1 suspect peer=n2 group=g at=2s
        n1 confirm peer=n2 group=g at=2100ms
        n1 view 2 n1,n3 at=2300ms
        n3 view 2 n1,n3 at=2400ms
    """
    found = metrics_of(text)
    assert found["view_changes"] == 1
    assert found["view_change_mean"] == pytest.approx(0.3)


def test_the_load_of_a_process_that_does_nothing_counts() -> None:
    text = """run r
        n1 send peer=n2 size=300
        n2 receive peer=n1 size=300
        n3 start
    """
    found = metrics_of(text)
    assert found["load_max_mean"] == pytest.approx(1.5)
    assert found["load_cv"] == pytest.approx(0.5**0.5)


def test_every_metric_comes_up_in_a_run_of_one_of_the_families() -> None:
    times = GroupTimes(ROUND, 8 * ROUND)
    counted = {"packets": 10, "bytes": 100, "failed_share": 0.1}
    found: set[str] = set()
    for name in SCENARIOS:
        found |= set(measure(MeasuredRun(simulated(name).rows, times, counted)))
    assert found == set(NAMES)
    assert len(NAMES) == len(set(NAMES))


def test_a_metric_is_a_value_that_anybody_can_add() -> None:
    rows = parse_history("run r\n n1 start\n n2 start\n", "here").rows
    starts = Metric("starts", "rows", "Starts", lambda run: float(len(run.rows)))
    assert measure(MeasuredRun(rows), [starts]) == {"starts": 2}


@pytest.mark.parametrize("count", [1, 2, 3, 10, 101])
def test_percentiles_and_means_are_those_of_numpy(count: int) -> None:
    chance = Random(count)
    values = sorted(chance.randrange(10**10) for _ in range(count))
    for share in (0.0, 0.5, 0.99, 1.0):
        assert percentile(values, share) == np.percentile(values, 100 * share)
    assert mean(values) == np.mean(values)


def test_every_requested_event_has_one_outcome() -> None:
    text = """run r
        n1 recover n2:1 cause=asked
        n1 recover n2:1 cause=answered
        n1 deliver n2:1
        n1 recover n2:2 cause=asked
        n1 recover n2:2 cause=failed
        n1 deliver n2:2
        n1 recover n2:3 cause=asked
        n1 lose n2:3 cause=unrecovered
        n1 recover n2:4 cause=asked
        n1 recover n2:5 cause=asked
        n1 lose n2:5 cause=unrecovered
        n1 recover n2:5 cause=answered
    """
    rows = parse_history(text, "here").rows
    found = {one.outcome: one.events for one in recovery.OUTCOMES.of(MeasuredRun(rows))}
    assert found == {"answered": 1, "late": 2, "given up": 1, "open": 1}


def test_a_range_that_was_given_up_counts_what_was_submitted_in_it() -> None:
    text = "run r\nn1 submit n1:1\nn1 submit n1:2\nn1 submit n1:9\n"
    text += "n2 lose n1:5 after=0\nn2 lose n1:9\nn2 lose n3:7 after=2\n"
    assert metrics_of(text)["given_up"] == 2 + 1 + 1
