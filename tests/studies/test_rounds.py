"""Gossip as rounds: what the simulator does, in distribution."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest

from ordercast.errors import UsageError
from ordercast.kernel.family import Plan
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.protocol.cluster import GOSSIP
from ordercast.protocol.cluster.member import GossipMember, build
from ordercast.scenario.faults.processes import Crash
from ordercast.scenario.schema import NetworkSettings, Scenario, WorkloadSettings
from ordercast.sim.world import Simulation
from ordercast.studies.rounds import NEVER, Draw, Journey, Population, reach
from ordercast.studies.spread import Relay, spread_in_step, spread_phased
from ordercast.types import Event, NodeId
from ordercast.units import MILLISECOND, SECOND, Duration

ROUND = 64 * MILLISECOND
Curves = list[list[int]]

# --- against the simulator -------------------------------------------------------------------


def in_step(
    me: NodeId, plans: tuple[Plan, ...], chance: Random, records: Sequence[Packet]
) -> list[Machine]:
    """The family's own members, but all rounds begin together."""
    machines = build(me, plans, chance, records)
    for machine in machines:
        assert isinstance(machine, GossipMember)
        machine.first_round = ROUND
    return machines


def simulated(journey: Journey, seed: int, warm_up: int = 2) -> list[int]:
    """One event in the middle of a round, and who has delivered it when, in the real simulator."""
    together = journey.slots == 1
    at = warm_up * ROUND + ROUND // 2
    options: dict[str, Any] = {"fan_out": journey.fan_out, "hops": journey.hops}
    if journey.view_size is not None:
        options |= {"members": "partial", "view_size": journey.view_size}
    names = [f"n{number}" for number in range(1, journey.processes + 1)]
    crashed = Crash(at=Duration(0), nodes=names[journey.live :])
    scenario = Scenario(
        name="one event",
        family="gossip",
        processes=journey.processes,
        duration=Duration(at + ROUND),
        quiet=Duration((journey.hops + 3) * ROUND),
        options={"round": f"{ROUND // MILLISECOND}ms", **options},
        workload=WorkloadSettings(senders=1, rate=SECOND / at, pattern="steady"),
        network=NetworkSettings(
            delay=Duration(ROUND // (8 if together else 2 * journey.slots)),
            jitter=0.0,
            loss=journey.loss,
        ),
        fault=[crashed] if crashed.nodes else [],
    )
    times: list[int] = []

    def application(_: NodeId, item: object) -> None:
        if isinstance(item, Event):
            times.append(world.queue.now)

    gossip = GOSSIP._replace(build=in_step) if together else GOSSIP
    families = {"gossip": gossip}
    world = Simulation(scenario, seed, application=application, families=families)
    outcome = world.run()
    assert (outcome.error, outcome.submitted) == (None, 1)
    # In step the first round begins half a round after the event: look right before each.
    early = ROUND // 2 if together else 0
    looks = [times[0] + count * ROUND - early for count in range(1, journey.hops + 3)]
    times.sort()
    return [1, *(bisect_right(times, look) for look in looks)]


def counted(journey: Journey, seeds: int) -> Curves:
    curves = [reach(msgspec.structs.replace(journey, seed=seed)) for seed in range(seeds)]
    rounds = journey.hops + 3
    return [(curve + curve[-1:] * rounds)[:rounds] for curve in curves]


def differences(these: Curves, those: Curves) -> list[str]:
    """Where two samples of curves are not from one distribution, by two tests a round.

    Means: more than 3.5 standard errors apart. Distributions, by Kolmogorov and Smirnov: further
    apart than chance allows in one of a thousand. Of all that is fixed here, seeds included.
    """
    found = []
    for round_, (a, b) in enumerate(
        zip(zip(*these, strict=True), zip(*those, strict=True), strict=True)
    ):
        x, y = np.sort(a), np.sort(b)
        error = float(np.sqrt(x.var() / x.size + y.var() / y.size))
        apart = abs(float(x.mean() - y.mean()))
        if apart > 3.5 * error + 1e-9:
            found.append(f"round {round_}: means {x.mean():.2f} and {y.mean():.2f}")
        values = np.union1d(x, y)
        shares = [np.searchsorted(each, values, "right") / each.size for each in (x, y)]
        furthest = float(np.abs(shares[0] - shares[1]).max())
        if furthest > 1.95 * np.sqrt(1 / x.size + 1 / y.size):
            found.append(f"round {round_}: distributions {furthest:.2f} apart")
    return found


SAME = [
    # the group, runs of the simulator
    (Journey(processes=60, fan_out=4, hops=3), 150),
    (Journey(processes=60, fan_out=3, hops=3, loss=0.1, crash=10 / 59), 150),
]
SAME_BUT_SLOW = [
    (Journey(processes=60, fan_out=4, hops=3, slots=16), 200),
    (Journey(processes=250, fan_out=4, hops=4, loss=0.05), 60),
    (Journey(processes=250, fan_out=4, hops=4, loss=0.1, crash=25 / 249, slots=16), 60),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("journey", "runs"),
    [*SAME, *(pytest.param(*each, marks=pytest.mark.long) for each in SAME_BUT_SLOW)],
    ids=str,
)
def test_rounds_reach_as_many_as_the_simulator_in_each_round(journey: Journey, runs: int) -> None:
    """In step, and out of step as members are: one slot and sixteen."""
    seen = [simulated(journey, seed) for seed in range(1, runs + 1)]
    assert not differences(seen, counted(journey, 1000 if journey.slots == 1 else 300))


@pytest.mark.long
def test_views_that_cyclon_shuffles_are_like_views_that_last_two_rounds() -> None:
    journey = Journey(processes=60, fan_out=4, hops=3, view_size=12, view_lasts=2, slots=16)
    seen = [simulated(journey, seed, warm_up=15) for seed in range(1, 31)]
    assert not differences(seen, counted(journey, 300))


def test_the_comparison_finds_small_errors() -> None:
    """What `differences` must see, or the tests above say nothing: runs of the model itself."""
    right = Journey(processes=60, fan_out=4, hops=3, loss=0.1, crash=10 / 59)
    seen = counted(right, 450)[300:]
    assert not differences(seen, counted(right, 300))
    for wrong in (
        {"fan_out": 3}, {"fan_out": 5}, {"loss": 0.0}, {"crash": 0.0}, {"slots": 2},
        {"view_size": 4},
    ):  # fmt: skip
        assert differences(seen, counted(msgspec.structs.replace(right, **wrong), 300)), wrong
    for hops in (2, 4):
        other = counted(msgspec.structs.replace(right, hops=hops), 300)
        padded = [(curve + curve[-1:])[:6] for curve in other]
        assert differences(seen, padded), hops


def curve(processes: int, fan_out: int, hops: int, **others: Any) -> list[int]:
    return reach(Journey(processes=processes, fan_out=fan_out, hops=hops, **others))


# --- against plain Python and the planner ----------------------------------------------------


def plain(journey: Journey, seed: int) -> list[int]:
    """In step with fixed views that are really drawn and stored: slow and obvious."""
    chance = Random(seed)
    everybody = range(journey.processes)
    views = [
        chance.sample([other for other in everybody if other != me], journey.view_size or 0)
        for me in everybody
    ]
    having = {0}
    curve = [1]
    for _ in range(journey.hops + 1):
        hit = {to for me in sorted(having) for to in chance.sample(views[me], journey.fan_out)}
        having |= hit
        curve.append(len(having))
    return [*curve, curve[-1]]


@pytest.mark.parametrize("size", [4, 8, 20])
def test_views_that_are_hashed_are_like_views_that_are_drawn(size: int) -> None:
    journey = Journey(processes=60, fan_out=4, hops=4, view_size=size)
    seen = [plain(journey, seed) for seed in range(400)]
    assert not differences(seen, counted(journey, 1000))


def test_a_view_drawn_anew_each_round_reaches_as_many_as_knowing_all() -> None:
    everybody = Journey(processes=60, fan_out=4, hops=3)
    anew = msgspec.structs.replace(everybody, view_size=5, view_lasts=1)
    assert not differences(counted(anew, 500), counted(everybody, 1000)[500:])
    fixed = msgspec.structs.replace(everybody, view_size=5)
    assert differences(counted(fixed, 500), counted(everybody, 1000)[500:])


def test_with_synchronised_rounds_the_planner_predicts_the_curve() -> None:
    relay = Relay(processes=20_001, live=18_001.0, fan_out=4, hops=7, loss=0.05)
    shares = [share for _, _, share in spread_in_step(relay).arrivals]
    predicted = 1 + np.cumsum([0, *shares]) * (relay.live - 1)
    curves = [curve(20_001, 4, 7, loss=0.05, crash=0.1, seed=seed) for seed in range(100)]
    means = np.mean(curves, axis=0)
    assert means == pytest.approx(predicted, rel=0.08)  # who starts badly is behind for long
    assert means[-1] == pytest.approx(predicted[-1], rel=1e-3)


def test_without_synchronised_rounds_the_planner_predicts_the_final_reach() -> None:
    relay = Relay(processes=100_000, live=100_000.0, fan_out=4, hops=8, loss=0.05, keep="youngest")
    predicted = relay.live - spread_phased(relay).missed
    ends = [curve(100_000, 4, 8, loss=0.05, slots=16, seed=seed)[-1] for seed in range(3)]
    assert np.mean(ends) == pytest.approx(predicted, rel=0.02)


# --- chance ----------------------------------------------------------------------------------


@pytest.mark.parametrize("view", [None, 5])
def test_targets_are_distinct_even_and_never_oneself(view: int | None) -> None:
    journey = Journey(processes=12, fan_out=3, hops=3, view_size=view, seed=5)
    draw, counts = Draw(journey), Counter[int]()
    for tick in range(1000):
        for me in (0, 7, 11):
            hit = [int(to) for to in draw.targets(tick, np.array([me]))]
            assert len(set(hit)) == 3
            assert set(hit) <= set(range(12)) - {me}
            if me == 7:
                counts.update(hit)
    if view is None:
        assert len(counts) == 11
        assert all(abs(count - 3000 / 11) < 4.5 * (3000 / 11) ** 0.5 for count in counts.values())
    else:
        assert len(counts) == view  # the same few for ever


def test_the_configured_share_of_messages_is_lost() -> None:
    journey = Journey(processes=100_000, fan_out=4, hops=1, loss=0.25, crash=0.2)
    hit = Draw(journey).targets(1, np.arange(50_000))
    assert hit.size / 200_000 == pytest.approx(0.75 * 0.8, abs=0.005)
    assert hit.max() < journey.live


def test_a_seed_gives_the_same_curve_for_ever() -> None:
    assert curve(250, 4, 5) == [1, 5, 25, 107, 227, 250, 250]
    assert curve(250, 4, 5, seed=2) != curve(250, 4, 5)


# --- rules -----------------------------------------------------------------------------------


def test_an_event_is_relayed_at_ages_zero_to_hops() -> None:
    assert curve(50, 49, 0) == [1, 50]
    assert curve(50, 4, 0) == [1, 5]
    assert curve(2, 1, 3) == [1, 2, 2, 2, 2]
    assert curve(50, 4, 2, crash=0.999) == [1, 1, 1, 1]


def test_a_terminated_event_does_not_start_again() -> None:
    """Nor does what came too old to be relayed; a younger copy makes an active one younger."""
    journey = Journey(processes=5, fan_out=1, hops=3)
    population = Population(journey)
    population.codes[:] = [0, 4, 2, NEVER, NEVER]
    population.receive(np.array([2, 2, 4, 5, NEVER], np.uint8))
    assert population.codes.tolist() == [0, 2, 2, 0, NEVER]
    assert (population.reached(), population.active()) == (4, 2)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"processes": 1}, "processes must be 2 to"),
        ({"processes": 10**10}, "processes must be 2 to"),
        ({"fan_out": 0}, "fan-out must be 1 to 9, not 0"),
        ({"fan_out": 10}, "fan-out must be 1 to 9, not 10"),
        ({"hops": -1}, "hops must be 0 to 100"),
        ({"loss": 1.0}, "loss must be a share"),
        ({"crash": float("nan")}, "crash must be a share"),
        ({"view_size": 10}, "view size must be 1 to 9, not 10"),
        ({"view_lasts": -1}, "view lasts must be"),
        ({"slots": 0}, "slots must be"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_impossible_settings_are_rejected(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        reach(Journey(**({"processes": 10, "fan_out": 4, "hops": 2} | wrong)))
