"""Datagrams: how long they take, and what gets lost, doubled and out of order on the way."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import mean, median

import pytest
from tests.sim.probes import (
    DATAGRAM,
    LINK,
    MILLISECOND,
    SECOND,
    Echo,
    Stage,
    fault,
    first,
    say,
    say_many,
)

from ordercast.kernel.step import LARGEST_DATAGRAM
from ordercast.scenario.schema import NetworkSettings
from ordercast.trace.schema import TraceLevel
from ordercast.types import NodeId
from ordercast.units import Duration, Rate

COUNT = 4000
MEDIAN = 2 * MILLISECOND


def delays_of(network: NetworkSettings, count: int = COUNT, seed: int = 1) -> list[float]:
    """The delays of many datagrams that leave at once, in units of the median."""
    stage = Stage(2, network=network, seed=seed)
    stage.at(SECOND, "n1", *say_many("n2", count, DATAGRAM)).run()
    return [(heard.at - SECOND) / MEDIAN for heard in stage.heard]


# --- delays ----------------------------------------------------------------------------------


def test_a_delay_without_jitter_is_the_median() -> None:
    assert set(delays_of(NetworkSettings(jitter=0.0), 50)) == {1.0}


@pytest.mark.parametrize("jitter", [0.1, 0.5, 1.0])
def test_lognormal_delays_have_the_median_and_the_sigma_asked_for(jitter: float) -> None:
    logarithms = [math.log(delay) for delay in delays_of(NetworkSettings(jitter=jitter))]
    assert abs(mean(logarithms)) < jitter / 10
    deviation = math.sqrt(mean(value**2 for value in logarithms))
    assert deviation == pytest.approx(jitter, rel=0.1)


def test_uniform_delays_fill_their_range_evenly() -> None:
    delays = delays_of(NetworkSettings(jitter=0.5, shape="uniform"))
    assert 0.5 <= min(delays) < 0.51
    assert 1.49 < max(delays) <= 1.5
    assert median(delays) == pytest.approx(1, rel=0.05)
    assert sum(delay < 0.75 for delay in delays) / COUNT == pytest.approx(0.25, abs=0.03)


def test_exponential_delays_have_a_floor_and_a_long_tail() -> None:
    delays = delays_of(NetworkSettings(jitter=0.5, shape="exponential"))
    assert 0.5 <= min(delays) < 0.51
    assert median(delays) == pytest.approx(1, rel=0.05)
    # Beyond the floor each further median halves what is left.
    assert sum(delay > 2 for delay in delays) / COUNT == pytest.approx(1 / 8, abs=0.03)


def test_another_seed_is_another_run() -> None:
    settings = NetworkSettings(jitter=0.5)
    assert delays_of(settings, 20, seed=1) == delays_of(settings, 20, seed=1)
    assert delays_of(settings, 20, seed=1) != delays_of(settings, 20, seed=2)


def distances(seed: int, at: int) -> dict[tuple[str, str], int]:
    """How long one datagram takes between every pair, without jitter."""
    names = [f"n{number}" for number in range(1, 6)]
    stage = Stage(5, network=NetworkSettings(jitter=0.0, spread=0.6), seed=seed)
    for name in names:
        others = tuple(other for other in names if other != name)
        stage.at(at, name, say(others, "how far?", DATAGRAM))
    stage.run()
    return {(heard.sender.name, heard.by.name): heard.at - at for heard in stage.heard}


def test_spread_gives_each_pair_a_distance_of_its_own_for_the_whole_run() -> None:
    early, late = distances(3, SECOND), distances(3, 7 * SECOND)
    assert len(early) == 20
    assert early == late
    assert all(early[one, two] == early[two, one] for one, two in early)
    assert len(set(early.values())) == 10, "every pair lies differently far apart"
    assert distances(4, SECOND) != early


# --- what gets lost, doubled and out of order -----------------------------------------------


def spread_out(network: NetworkSettings, count: int = COUNT) -> Stage:
    """Datagrams one by one, a whole median apart."""
    stage = Stage(2, network=network, duration=60 * SECOND)
    for number in range(count):
        stage.at(SECOND + number * MEDIAN, "n1", say("n2", str(number), DATAGRAM))
    stage.run()
    return stage


@pytest.mark.parametrize("loss", [0.05, 0.5])
def test_the_configured_share_of_datagrams_is_lost(loss: float) -> None:
    stage = spread_out(NetworkSettings(jitter=0.0, loss=loss))
    assert 1 - len(stage.heard) / COUNT == pytest.approx(loss, abs=0.03)
    numbers = [int(heard.text) for heard in stage.heard]
    assert numbers == sorted(set(numbers)), "the others come once, in order"


@pytest.mark.parametrize("duplicate", [0.05, 0.5])
def test_the_configured_share_of_datagrams_is_duplicated(duplicate: float) -> None:
    stage = spread_out(NetworkSettings(jitter=0.0, duplicate=duplicate))
    texts = stage.texts("n2")
    assert len(set(texts)) == COUNT, "none is lost"
    assert max(texts.count(text) for text in texts[:50]) <= 2
    assert len(texts) / COUNT - 1 == pytest.approx(duplicate, abs=0.03)
    late = {heard.at - SECOND - int(heard.text) * MEDIAN for heard in stage.heard}
    assert late == {MEDIAN, 2 * MEDIAN}, "a copy comes later than what it is a copy of"


@pytest.mark.parametrize("reorder", [0.05, 0.3])
def test_the_configured_share_of_datagrams_is_reordered(reorder: float) -> None:
    stage = spread_out(NetworkSettings(jitter=0.0, reorder=reorder))
    late = [heard for heard in stage.heard if heard.at - SECOND > (int(heard.text) + 1) * MEDIAN]
    assert len(stage.heard) == COUNT
    assert len(late) / COUNT == pytest.approx(reorder, abs=0.03)
    numbers = [int(text) for text in stage.texts("n2")]
    assert any(later < earlier for earlier, later in pairwise(numbers))


def test_a_loss_fault_affects_packets_from_and_to_its_nodes_while_it_lasts() -> None:
    lossy = fault("loss", 2 * SECOND, "n2", 2 * SECOND, rate=1.0)
    stage = Stage(3, faults=[lossy])
    for second in (1, 3, 5):
        at = second * SECOND
        for one, two in (("n1", "n2"), ("n2", "n3"), ("n1", "n3")):
            stage.at(at, one, say(two, f"{one}{two} at {second}", DATAGRAM))
    stage.run()
    through = {heard.text for heard in stage.heard}
    every = {f"{pair} at {second}" for pair in ("n1n2", "n2n3", "n1n3") for second in (1, 3, 5)}
    assert through == every - {"n1n2 at 3", "n2n3 at 3"}


def test_a_loss_fault_without_nodes_affects_all() -> None:
    stage = Stage(2, faults=[fault("loss", SECOND, rate=1.0)])
    stage.at(2 * SECOND, "n1", say("n2", "lost", DATAGRAM)).run()
    assert stage.heard == []


# --- slow paths and bandwidth ---------------------------------------------------------------


def test_slow_multiplies_delays_from_and_to_its_nodes() -> None:
    stage = Stage(3, faults=[fault("slow", SECOND, "n2", 2 * SECOND, factor=10.0)])
    for at in (2 * SECOND, 4 * SECOND):
        for one, two in (("n1", "n2"), ("n2", "n1"), ("n1", "n3")):
            stage.at(at, one, say(two, f"{one}{two}", DATAGRAM))
    stage.run()
    took = {(heard.text, heard.at // SECOND): heard.at % SECOND for heard in stage.heard}
    assert took["n1n2", 2] == took["n2n1", 2] == 10 * MEDIAN
    assert took["n1n3", 2] == took["n1n2", 4] == took["n2n1", 4] == MEDIAN


def test_bytes_cost_time_and_leave_one_sender_one_after_the_other() -> None:
    network = NetworkSettings(jitter=0.0, bandwidth=Rate(1_000_000))
    stage = Stage(3, network=network, level=TraceLevel.WIRE)
    stage.at(SECOND, "n1", *[say(("n2", "n3"), "big", DATAGRAM, padding=10_000)] * 2)
    stage.at(SECOND, "n2", say("n3", "big too", DATAGRAM, padding=10_000))
    stage.run()
    (size, *_) = [row.size for row in stage.rows_of("send", "n1")]
    assert size is not None
    assert size > 10_000
    a_packet = size * 1000  # nanoseconds on a line of 1 MB/s
    arrivals = [heard.at - SECOND - MEDIAN for heard in stage.heard if heard.sender.name == "n1"]
    assert arrivals == [a_packet, 2 * a_packet, 3 * a_packet, 4 * a_packet]
    (other,) = [heard for heard in stage.heard if heard.text == "big too"]
    assert other.at - SECOND - MEDIAN < 1.01 * a_packet, "each sender has a line of its own"


def test_an_idle_sender_has_its_full_bandwidth() -> None:
    network = NetworkSettings(jitter=0.0, bandwidth=Rate(1_000_000))
    stage = Stage(2, network=network)
    for second in (1, 2):
        stage.at(second * SECOND, "n1", say("n2", "big", DATAGRAM, padding=10_000))
    stage.run()
    one, two = (heard.at for heard in stage.heard)
    assert two - one == SECOND


# --- addresses and limits -------------------------------------------------------------------


def test_a_datagram_that_is_too_large_is_a_bug_of_the_sender() -> None:
    stage = Stage(2, round_trip=True)
    stage.at(SECOND, "n1", say("n2", "small enough", DATAGRAM, padding=LARGEST_DATAGRAM - 100))
    stage.at(2 * SECOND, "n1", say("n2", "too large", DATAGRAM, padding=LARGEST_DATAGRAM))
    outcome = stage.world.run()
    assert stage.texts("n2") == ["small enough"]
    assert outcome.error is not None
    assert "a datagram of" in outcome.error


def test_a_bare_name_means_the_current_incarnation() -> None:
    stage = Stage(2, faults=[fault("restart", SECOND, "n2", SECOND)])
    for second in (0.5, 3):
        at = int(second * SECOND)
        stage.at(at, "n1", say("n2", f"whoever at {second}", DATAGRAM))
        stage.at(at, "n1", say(first("n2"), f"first incarnation at {second}", DATAGRAM))
        stage.at(at, "n1", say(NodeId("n2", 1), f"second incarnation at {second}", DATAGRAM))
    stage.run()
    assert [(heard.by.incarnation, heard.text) for heard in stage.heard] == [
        (0, "whoever at 0.5"),
        (0, "first incarnation at 0.5"),
        (1, "whoever at 3"),
        (1, "second incarnation at 3"),
    ]


def test_a_datagram_underway_when_its_sender_dies_still_arrives_from_that_incarnation() -> None:
    stage = Stage(2, faults=[fault("restart", SECOND, "n1", MILLISECOND // 2)])
    stage.at(SECOND - MILLISECOND, "n1", say("n2", "last words", DATAGRAM)).run()
    assert [(heard.sender, heard.text) for heard in stage.heard] == [(first("n1"), "last words")]


def test_a_process_can_write_to_itself() -> None:
    stage = Stage(1)
    stage.at(SECOND, "n1", say("n1", "memo", DATAGRAM), say(first("n1"), "note", LINK)).run()
    assert sorted(stage.texts("n1")) == ["memo", "note"]


def test_an_echo_comes_back_by_the_channel_that_it_went_by() -> None:
    stage = Stage(2, probe=Echo, level=TraceLevel.WIRE)
    stage.at(SECOND, "n1", say("n2", "d", DATAGRAM), say(first("n2"), "l", LINK)).run()
    assert sorted(stage.texts("n1")) == ["re d", "re l"]
    assert len(stage.rows_of("send")) == len(stage.rows_of("receive")) == 4


@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_the_quick_path_draws_what_the_full_one_does(loss: float) -> None:
    """A wire trace takes the full path for every datagram; the run must be the same."""

    def arrivals(level: TraceLevel) -> list[tuple[int, str]]:
        network = NetworkSettings(jitter=0.5, loss=loss, delay=Duration(MEDIAN))
        stage = Stage(4, network=network, level=level, probe=Echo)
        for at in range(100):
            to = ("n2", first("n3"), "n4")
            stage.at(at * MILLISECOND, "n1", say(to, str(at), DATAGRAM))
        stage.run()
        return [(heard.at, heard.text) for heard in stage.heard]

    assert arrivals(TraceLevel.APP) == arrivals(TraceLevel.WIRE)
