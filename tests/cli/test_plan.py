"""`ordercast plan`: a table that a scenario takes, its promises, and a sentence for nonsense."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from ordercast.units import Duration

GROUP = ("plan", "--processes", 250, "--events-per-round", 6, "--loss", 0.002, "--in-step")


def test_a_plan_is_toml_and_says_what_it_promises(ordercast) -> None:
    ran = ordercast(*GROUP, "--round", "100ms")
    assert (ran.code, ran.err) == (0, "")
    options = tomllib.loads(ran.out)["options"]
    assert list(options) == [
        "round", "fan_out", "hops", "events_per_message", "history", "recovery_buffer",
        "recovery", "time_to_terminate", "time_to_recover",
    ]  # fmt: skip
    assert (options["fan_out"], options["hops"]) == (4, 5)
    assert options["recovery"].startswith("any-")
    assert Duration.parse(options["time_to_terminate"]) == Duration.parse("600ms")
    for told in ("missed by gossip alone", "model", "paper", "lemma 5.2", "theorem 5.2"):
        assert told in ran.out


def test_json_has_the_group_the_settings_and_the_promise(ordercast) -> None:
    told = json.loads(ordercast(*GROUP, "--failure", 0.04, "--creators", 25, "--json").out)
    assert set(told) == {"group", "settings", "promise", "paper", "advice"}
    assert told["group"]["creators"] == 25
    assert told["promise"]["missed"] <= 0.05
    assert told["paper"]["asked"] == 20


def test_given_settings_are_evaluated(ordercast) -> None:
    told = json.loads(ordercast(*GROUP, "--check", "4,4,20", "--json").out)
    assert told["settings"]["events_per_message"] == 20
    assert told["promise"]["missed"] == pytest.approx(0.98, abs=0.1)
    told = json.loads(ordercast(*GROUP, "--hops", 4, "--fan-out", 6, "--json").out)
    assert (told["settings"]["fan_out"], told["settings"]["hops"]) == (6, 4)
    ran = ordercast(*GROUP, "--history", 20)
    assert "history is 20" in ran.out
    assert tomllib.loads(ran.out)["options"]["history"] == 20
    ran = ordercast(*GROUP, "--check", "4,5,20", "--asked", 0)
    assert tomllib.loads(ran.out)["options"]["recovery"] == "originator"


def test_the_wanted_reliability_may_be_a_share(ordercast) -> None:
    told = json.loads(ordercast(*GROUP, "--missed", "1%", "--json").out)
    assert told["settings"]["hops"] == 4
    assert told["promise"]["missed_share"] <= 0.01


def test_a_promise_can_be_measured(ordercast) -> None:
    told = json.loads(ordercast(*GROUP, "--check", "4,4,20", "--measure", 200, "--json").out)
    rounds = told["rounds"]
    assert [each["round"] for each in rounds] == list(range(6))
    for each in rounds:
        assert each["measured"] == pytest.approx(each["model"], rel=0.03)
    assert rounds[-1]["model"] == pytest.approx(250 - told["promise"]["missed"])
    views = json.loads(
        ordercast(*GROUP, "--check", "4,4,20", "--measure", 200, "--view-size", 6, "--json").out
    )["rounds"]
    assert views[-1]["measured"] < rounds[-1]["measured"] - 2
    shown = ordercast(*GROUP, "--measure", 3)
    assert "rounds after it was made" in shown.out
    assert tomllib.loads(shown.out)["options"]["fan_out"] == 4


def test_unsynchronised_rounds_are_measured_in_slots(ordercast) -> None:
    ran = ordercast(*GROUP[:-1], "--check", "4,5,20", "--measure", 60, "--json")
    rounds = json.loads(ran.out)["rounds"]
    assert rounds[1]["measured"] > 25  # in step, five have it by then
    for each in rounds[2:]:
        assert each["measured"] == pytest.approx(each["model"], rel=0.05)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("--processes", 0), "processes must be 2"),
        (("--processes", 10**12), "processes must be 2"),
        (("--loss", 1), "loss must be"),
        (("--loss=-0.5",), "loss must be"),
        (("--loss", "nan"), "loss must be"),
        (("--failure", 2), "failure must be"),
        (("--events-per-round", "inf"), "events per round"),
        (("--creators", 0), "creators must be"),
        (("--creators", 251), "creators must be"),
        (("--missed", 0), "more than nothing"),
        (("--missed", "few"), "--missed wants"),
        (("--fan-out", 250), "fan-out must be"),
        (("--check", "4,5"), "--check wants"),
        (("--check", "4,-5,20"), "hops must be"),
        (("--check", "4,5,0"), "events_per_message must be"),
        (("--hops", 10**9), "hops must be"),
        (("--round", "0s"), "--round must be"),
        (("--round", "5"), "--round: '5' is not a duration"),
        (("--delay", "1h"), "delay must be"),
        (("--measure", 0), "--measure wants 1 to"),
        (("--measure", 1, "--keep", "oldest"), "keeps the youngest age"),
        (("--measure", 1, "--view-size", 250), "view size must be 1 to 249"),
        (("--view-size", 20), "goes with --measure"),
    ],
)
def test_wrong_usage_exits_2_with_a_sentence(
    ordercast, wrong: tuple[object, ...], said: str
) -> None:
    ran = ordercast(*GROUP, *wrong)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1


def test_a_tree_is_planned_beside_gossip_and_other_schemes(ordercast) -> None:
    done = ordercast("plan", "feed", "--nodes", 2000, "--fan-out", 8, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["tree"]["hops_most"] <= 8
    assert found["dead"]["published"] < found["dead"]["plain"]
    assert found["gossip"]["sends"] == 15
    assert [costs["scheme"] for costs in found["costs"]][:2] == ["feed", "HPP as published"]
    done = ordercast("plan", "feed", "--nodes", 2000, "--fan-out", 8)
    assert "One message to 2,000 nodes" in done.out
    assert "not reached where orphans are adopted" in done.out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("feed", "--nodes", 1), "nodes must be 2"),
        (("feed", "--nodes", 9, "--delay", "fast"), "--delay"),
        (("--processes", 3), "--events-per-round"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(ordercast, words: tuple[Any, ...], why: str) -> None:
    done = ordercast("plan", *words)
    assert done.code == 2
    assert why in done.err
