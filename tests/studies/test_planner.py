"""The planner against brute force, against numbers worked out by hand, and against nonsense."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from tests.studies.crowd import Crowd, Seen

from ordercast.protocol.cluster.advice import doubts, minimum_history
from ordercast.studies.planner import (
    GossipSettings,
    GroupModel,
    bounds,
    expect,
    plan,
    settings_for,
)
from ordercast.studies.tails import (
    binomial_at_least,
    poisson_at_least,
    poisson_capped,
    smallest,
)

PLENTY = 10**6


def settings(fan_out: int, hops: int, room: int = PLENTY, **others: int) -> GossipSettings:
    given = {"history": PLENTY, "recovery_buffer": PLENTY, "asked": 1, **others}
    return GossipSettings(
        fan_out=fan_out,
        hops=hops,
        events_per_message=room,
        time_to_terminate=hops + 1,
        time_to_recover=hops + 1,
        **given,
    )


# --- against brute force ---------------------------------------------------------------------


def average(runs: list[Seen]) -> Seen:
    """Events of one run share their messages, so one run alone is a matter of luck."""
    return Seen(*(sum(values) / len(runs) for values in zip(*runs, strict=True)))


@pytest.mark.parametrize(
    ("processes", "fan_out", "hops", "loss", "dead", "rounds"),
    [(25, 4, 2, 0.002, 0, 150), (25, 3, 3, 0.05, 0, 150), (60, 4, 3, 0.02, 6, 80),
     (250, 4, 4, 0.002, 0, 30)],
)  # fmt: skip
def test_with_synchronised_rounds_the_model_is_what_is_measured(
    processes: int, fan_out: int, hops: int, loss: float, dead: int, rounds: int
) -> None:
    def crowd(seed: int) -> Crowd:
        return Crowd(processes, fan_out, hops, loss=loss, dead=dead, in_step=True, seed=seed)

    seen = average([crowd(seed).run(5, rounds) for seed in range(3)])
    failure = dead / (processes - 1)
    group = GroupModel(
        processes=processes, events_per_round=10, loss=loss, failure=failure, in_step=True,
        eager=False,
    )  # fmt: skip
    told = expect(group, settings(fan_out, hops))
    assert told.missed == pytest.approx(seen.missed, rel=0.15)
    assert told.reach_all == pytest.approx(seen.reach_all, abs=0.06)
    assert told.latency_mean == pytest.approx(seen.mean, rel=0.03)
    assert told.latency_p99 == pytest.approx(seen.p99, rel=0.05)


@pytest.mark.parametrize(
    ("processes", "hops", "keep", "rounds"),
    [(25, 4, "oldest", 150), (25, 6, "oldest", 150), (125, 5, "oldest", 50),
     (250, 8, "oldest", 30), (125, 3, "youngest", 40)],
)  # fmt: skip
def test_without_synchronised_rounds_the_model_is_close(
    processes: int, hops: int, keep: str, rounds: int
) -> None:
    def crowd(seed: int) -> Crowd:
        return Crowd(processes, 4, hops, loss=0.002, youngest=keep == "youngest", seed=seed)

    seen = average([crowd(seed).run(5, rounds) for seed in range(3)])
    group = GroupModel(processes=processes, events_per_round=10, loss=0.002, keep=keep, eager=False)
    told = expect(group, settings(4, hops))
    assert told.missed == pytest.approx(seen.missed, rel=0.3)
    assert told.reach_all == pytest.approx(seen.reach_all, abs=0.08)
    assert told.latency_mean == pytest.approx(seen.mean, rel=0.1)
    assert told.latency_p99 == pytest.approx(seen.p99, rel=0.1)


@pytest.mark.parametrize("load", [12, 20])
def test_the_model_is_right_when_messages_are_full(load: int) -> None:
    """Youngest first, the oldest suffer: the model says so, and on the safe side."""
    runs = [Crowd(60, 4, 5, loss=0.002, room=20, in_step=True, seed=s) for s in range(3)]
    seen = average([crowd.run(load, 50) for crowd in runs])
    group = GroupModel(processes=60, events_per_round=load, loss=0.002, in_step=True, eager=False)
    told = expect(group, settings(4, 5, room=20))
    assert seen.missed * 0.7 < told.missed < seen.missed * 3 + 0.02
    free = expect(group, settings(4, 5))
    assert told.missed > 5 * free.missed
    assert told.message_events <= 20 < free.message_events


def test_the_planned_history_recognises_duplicates_and_a_shorter_one_does_not() -> None:
    group = GroupModel(processes=60, events_per_round=6, loss=0.002, keep="youngest")
    enough = settings_for(group, 4, 5).history
    few = minimum_history(6, 5)
    assert (few, few < enough) == (36, True)

    def doubles(history: int) -> float:
        return Crowd(60, 4, 5, history=history, youngest=True).run(6, 60).doubles

    assert doubles(enough) == 0
    assert doubles(few - 8) > 0.005


# --- against what is known -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("relays", "low", "high"), [(5, 0.93, 1.0), (6, 0.015, 0.025), (7, 0, 0.002)]
)
def test_the_model_predicts_how_many_of_250_processes_are_missed(
    relays: int, low: float, high: float
) -> None:
    group = GroupModel(processes=250, events_per_round=6, loss=0.002, in_step=True)
    assert low <= expect(group, settings(4, relays - 1)).missed <= high


def test_without_synchronised_rounds_the_oldest_age_costs_many_hops() -> None:
    """Five hops, which are plenty in step, miss some 15 of 250 when the oldest age counts."""
    oldest = GroupModel(processes=250, events_per_round=6, loss=0.002, keep="oldest")
    youngest = GroupModel(processes=250, events_per_round=6, loss=0.002)
    assert 12 < expect(oldest, settings(4, 5)).missed < 18
    assert expect(youngest, settings(4, 5)).missed < 0.06
    assert plan(oldest).settings.hops > 2 * plan(youngest).settings.hops


def test_with_two_processes_only_the_loss_of_every_message_misses_one() -> None:
    """One message a round, each lost with the same chance."""
    group = GroupModel(processes=2, events_per_round=0.01, loss=0.1, in_step=True)
    for hops in range(4):
        told = expect(group, settings(1, hops))
        assert told.missed == pytest.approx(0.1 ** (hops + 1), rel=1e-6)
        assert told.reach_all == pytest.approx(1 - told.missed)


def test_with_a_fan_out_of_all_one_round_misses_only_lost_messages() -> None:
    """Fan-out to all others: the first round reaches whom its messages reach."""
    group = GroupModel(processes=11, events_per_round=1, loss=0.3, in_step=True, eager=False)
    told = expect(group, settings(10, 0))
    assert told.missed == pytest.approx(3.0)
    assert told.reach_all == pytest.approx(0.7**10)
    assert told.latency_mean == pytest.approx(0.5)
    assert told.latency_p99 == pytest.approx(0.99, abs=1e-3)


def test_recovery_needs_a_live_holder_and_two_messages() -> None:
    group = GroupModel(processes=1000, events_per_round=1, loss=0.1, failure=0.2, in_step=True)
    for asked in (1, 3):
        told = expect(group, settings(4, 12, asked=asked))
        fails = 1 - 0.8 * 0.9 * 0.9
        assert 1 - told.recovery_success == pytest.approx(fails**asked, rel=0.02)
        assert told.missed_after_recovery == pytest.approx(
            told.missed_share * (1 - told.recovery_success), rel=1e-6
        )
    small = expect(group, settings(4, 12, recovery_buffer=10))
    assert small.recovery_success < 0.01 < small.buffer_overflow


def test_bounds_are_those_of_the_paper() -> None:
    """The load of section 6.2: 6 events a round, 5 hops counted as 6 relays."""
    group = GroupModel(processes=250, events_per_round=6, failure=0.04, creators=25)
    told = bounds(group, settings(4, 5, asked=4))
    assert told.retention == 24
    assert told.recovery_buffer == 288
    assert told.buffer_failure == pytest.approx((math.e / 4) ** 144)
    assert (told.asked, told.asked_is_vacuous) == (20, False)
    assert told.asked_failure == pytest.approx((math.e / 4) ** 10)
    assert told.tolerated_failure == pytest.approx(4 / 500)
    calm = bounds(GroupModel(processes=250, events_per_round=6), settings(4, 5))
    assert (calm.asked, calm.asked_failure, calm.asked_is_vacuous) == (0, 1.0, True)


def test_chernoff_is_on_the_safe_side_of_the_tail() -> None:
    for events, rounds in ((0.5, 8), (6, 24), (40, 30)):
        mean = events * rounds
        trials = 250 * rounds
        tail = binomial_at_least(trials, events / 250, math.ceil(2 * mean) + 1)
        assert tail < (math.e / 4) ** mean


# --- plans -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "group",
    [
        GroupModel(processes=2, events_per_round=0.1),
        GroupModel(processes=7, events_per_round=3, loss=0.2, failure=0.2),
        GroupModel(processes=250, events_per_round=6, loss=0.002, in_step=True),
        GroupModel(processes=250, events_per_round=6, loss=0.002, delay=0.25),
        GroupModel(processes=2000, events_per_round=30, loss=0.05, keep="youngest", creators=25),
        GroupModel(processes=50, events_per_round=200, in_step=True),
    ],
)
def test_a_plan_keeps_what_was_asked_and_nothing_speaks_against_it(group: GroupModel) -> None:
    made = plan(group)
    chosen, told = made.settings, made.promise
    assert told.missed <= 0.05
    assert told.missed_after_recovery < told.missed_share
    assert told.full_messages <= 0.011
    assert told.buffer_overflow <= 1e-6
    assert expect(group, chosen) == told
    assert not doubts(
        processes=group.processes,
        fan_out=chosen.fan_out,
        hops=chosen.hops,
        events_per_message=chosen.events_per_message,
        history=chosen.history,
        events_per_round=group.events_per_round,
        recovery_buffer=chosen.recovery_buffer,
        asked=chosen.asked,
    )


def test_a_plan_has_no_hop_too_many() -> None:
    group = GroupModel(processes=250, events_per_round=6, loss=0.002, in_step=True)
    chosen = plan(group).settings
    assert (chosen.fan_out, chosen.hops) == (4, 5)
    assert expect(group, settings(4, chosen.hops - 1)).missed > 0.05
    assert plan(group, share=0.01).settings.hops == 4
    assert plan(group, fan_out=8).settings.hops < chosen.hops


def test_more_of_anything_good_never_misses_more() -> None:
    def missed(fan_out: int, hops: int, loss: float, *, in_step: bool) -> float:
        group = GroupModel(processes=100, events_per_round=1, loss=loss, in_step=in_step)
        return expect(group, settings(fan_out, hops)).missed

    for in_step in (True, False):
        for row in (
            [missed(4, hops, 0.1, in_step=in_step) for hops in range(7)],
            [missed(fan_out, 4, 0.1, in_step=in_step) for fan_out in range(1, 7)],
            [missed(4, 4, loss, in_step=in_step) for loss in (0.6, 0.4, 0.2, 0.0)],
        ):
            assert all(worse > better for worse, better in pairwise(row)), row


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"processes": 0}, "processes must be 2"),
        ({"processes": 10**9}, "processes must be 2"),
        ({"events_per_round": 0}, "events per round"),
        ({"events_per_round": math.nan}, "events per round"),
        ({"events_per_round": math.inf}, "events per round"),
        ({"loss": 1.0}, "loss must be"),
        ({"loss": -0.1}, "loss must be"),
        ({"failure": 1.5}, "failure must be"),
        ({"creators": 11}, "creators must be"),
        ({"delay": 100.0}, "delay must be"),
    ],
)
def test_impossible_groups_are_rejected(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        GroupModel(**{"processes": 10, "events_per_round": 1.0, **wrong})


def test_impossible_settings_and_wishes_are_rejected() -> None:
    group = GroupModel(processes=10, events_per_round=1)
    for chosen in (settings(0, 3), settings(10, 3), settings(3, -1), settings(3, 101)):
        with pytest.raises(ValueError, match="must be"):
            expect(group, chosen)
    for chosen in (settings(3, 3, room=0), settings(3, 3, asked=10), settings(3, 3, history=0)):
        with pytest.raises(ValueError, match="must be"):
            expect(group, chosen)
    with pytest.raises(ValueError, match="more than nothing"):
        plan(group, missed=0)
    with pytest.raises(ValueError, match="fan-out must be 1 to 9"):
        plan(group, fan_out=10)
    lossy = GroupModel(processes=500, events_per_round=1, loss=0.9, in_step=True)
    with pytest.raises(ValueError, match="does not bring an event to all but"):
        plan(lossy, fan_out=1)


# --- advice ----------------------------------------------------------------------------------


def test_advice_names_what_cannot_work() -> None:
    def said(**changed: float) -> str:
        sound = {
            "processes": 250, "fan_out": 4, "hops": 5, "events_per_message": 20, "history": 40,
            "events_per_round": 6, "recovery_buffer": 288, "asked": 4,
        }  # fmt: skip
        return " ".join(doubts(**(sound | changed)))

    assert said() == ""  # as in the paper's experiments
    assert "at most 5 of 250 processes" in said(hops=0)
    assert "only 3 others" in said(processes=4)
    assert "need at least 36" in said(history=35)
    assert "hears of 4 events a round, but 6 are made" in said(events_per_message=1)
    assert "144 are made" in said(recovery_buffer=100)
    assert "recovery asks 300" in said(asked=300)
    assert said(history=1, events_per_round=0) == ""


# --- tails -----------------------------------------------------------------------------------


def test_tails_agree_with_sums_of_probabilities() -> None:
    for mean in (0.1, 3.0, 40.0):
        chances = [math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(200)]
        for count in (0, 1, 3, 40, 60):
            assert poisson_at_least(mean, count) == pytest.approx(sum(chances[count:]), abs=1e-12)
        capped = sum(min(k, 5) * chance for k, chance in enumerate(chances))
        assert poisson_capped(mean, 5) == pytest.approx(capped)
    for trials, chance in ((5, 0.5), (40, 0.1), (40, 0.9)):
        exact = [
            math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k)
            for k in range(trials + 1)
        ]
        for count in range(trials + 2):
            tail = binomial_at_least(trials, chance, count)
            assert tail == pytest.approx(sum(exact[count:]), abs=1e-12)
    assert poisson_at_least(1e6, 1_000_000) == pytest.approx(0.5, abs=1e-3)
    assert smallest(lambda k: 1 / k, 0.1) == 10
    assert smallest(lambda k: 0.0, 0.1) == 1
