"""Status sends: one answer within the bound; OK means that it arrived, the rest says nothing."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.sim.probes import (
    MILLISECOND,
    SECOND,
    STATUS,
    Stage,
    StatusProbe,
    Word,
    cut,
    fault,
    first,
    say,
)

from ordercast.scenario.faults.fault import Fault
from ordercast.scenario.schema import NetworkSettings
from ordercast.units import Duration, Rate

BOUND = 50 * MILLISECOND
CALM = NetworkSettings(jitter=0.3, answer_within=Duration(BOUND))

TROUBLES: dict[str, list[Fault]] = {
    "none": [],
    "loss": [fault("loss", SECOND, "n2", 5 * SECOND, rate=0.5)],
    "crash": [fault("crash", SECOND, "n2", 2 * SECOND), fault("crash", 5 * SECOND, "n2")],
    "pause": [fault("pause", at * SECOND, "n2", 500 * MILLISECOND) for at in range(1, 6)],
    # A millisecond after a question: it is underway, and its answer is cut off.
    "partition": [cut(at * SECOND + MILLISECOND, "n1 | n2", SECOND // 2) for at in range(1, 6)],
    "way there": [cut(SECOND, "n1 | n2", 2 * SECOND, "one-way")],
    "way back": [cut(SECOND, "n2 | n1", 2 * SECOND, "one-way")],
    "slow": [fault("slow", SECOND, "n2", 3 * SECOND, factor=12.0)],
}


def ask(trouble: str, seed: int = 1, network: NetworkSettings = CALM) -> Stage:
    stage = Stage(2, probe=StatusProbe, faults=TROUBLES[trouble], network=network, seed=seed)
    stage.run()
    return stage


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("seed", range(3))
def test_every_status_send_is_answered_once_within_the_bound(trouble: str, seed: int) -> None:
    stage = ask(trouble, seed)
    end = stage.now
    asked = {question.token: question.at for question in stage.asked}
    due = {token for token, at in asked.items() if at + BOUND <= end}
    answers = Counter(answer.token for answer in stage.told)
    assert set(answers.values()) == {1}
    assert due <= set(answers)
    assert all(0 < answer.at - asked[answer.token] <= BOUND for answer in stage.told)


@pytest.mark.parametrize("trouble", TROUBLES)
def test_ok_means_that_the_packet_arrived(trouble: str) -> None:
    stage = ask(trouble)
    arrived = {heard.text: heard.at for heard in stage.heard}
    for answer in stage.told:
        if answer.arrived:
            assert arrived[str(answer.token)] < answer.at
    assert any(answer.arrived for answer in stage.told)


def fates(stage: Stage) -> set[tuple[bool, bool]]:
    """The combinations of (told OK, arrived in truth) that occurred."""
    arrived = {heard.text for heard in stage.heard}
    return {(answer.arrived, str(answer.token) in arrived) for answer in stage.told}


@pytest.mark.parametrize(
    ("trouble", "lost_too", "arrived_too"),
    [
        ("none", False, False),
        ("loss", True, True),
        ("crash", True, False),
        ("pause", False, True),  # it arrives when the target goes on: too late to be told
        ("partition", True, True),
        ("way there", True, False),
        ("way back", False, True),
        ("slow", False, True),
    ],
)
def test_not_ok_does_not_mean_that_the_packet_was_lost(
    trouble: str, lost_too: bool, arrived_too: bool
) -> None:
    expected = {(True, True)}
    expected |= {(False, False)} if lost_too else set()
    expected |= {(False, True)} if arrived_too else set()
    found: set[tuple[bool, bool]] = set()
    for seed in range(5):
        found |= fates(ask(trouble, seed))
    assert found == expected


def test_a_status_send_may_be_lost_but_is_never_duplicated() -> None:
    wild = NetworkSettings(
        jitter=0.3, loss=0.3, duplicate=1.0, reorder=0.5, answer_within=Duration(BOUND)
    )
    stage = ask("none", network=wild)
    assert max(Counter(stage.texts("n2")).values()) == 1
    assert len(stage.heard) / len(stage.asked) == pytest.approx(0.7, abs=0.06)
    told_ok = sum(answer.arrived for answer in stage.told)
    assert told_ok / len(stage.told) == pytest.approx(0.7 * 0.7, abs=0.06)


def test_the_bound_runs_from_the_call_and_not_from_the_departure() -> None:
    """It takes a second to be on the line: it arrives, long after the asker was told."""
    narrow = NetworkSettings(jitter=0.0, bandwidth=Rate(100_000), answer_within=Duration(BOUND))
    stage = Stage(2, network=narrow)
    stage.at(SECOND, "n1", say("n2", "long", STATUS, token=1, padding=100_000)).run()
    assert [(answer.at, answer.arrived) for answer in stage.told] == [(SECOND + BOUND, False)]
    assert [heard.at > 2 * SECOND for heard in stage.heard] == [True]


def test_a_sender_that_died_gets_no_answer_and_neither_does_its_next_incarnation() -> None:
    stage = Stage(2, faults=[fault("restart", SECOND, "n1", MILLISECOND)], network=CALM)
    stage.at(SECOND - MILLISECOND, "n1", say("n2", "asked", STATUS, token=1)).run()
    assert stage.texts("n2") == ["asked"]
    assert stage.told == []


def test_a_packet_names_the_incarnation_that_sent_it() -> None:
    """Even if that incarnation is over, and the next has begun, when it arrives."""
    faults = [
        fault("slow", SECOND - 2 * MILLISECOND, "n2", 100 * MILLISECOND, factor=10.0),
        fault("restart", SECOND, "n1", MILLISECOND),
    ]
    stage = Stage(2, faults=faults)
    stage.at(SECOND - MILLISECOND, "n1", say("n2", "from the first", STATUS, token=1)).run()
    (heard,) = stage.heard
    assert heard.at > SECOND + 10 * MILLISECOND
    assert heard.sender == first("n1")


def test_a_status_send_to_an_ended_incarnation_does_not_arrive() -> None:
    stage = Stage(2, faults=[fault("restart", SECOND, "n2", MILLISECOND)], network=CALM)
    stage.at(2 * SECOND, "n1", say(first("n2"), "to the dead", STATUS, token="dead"))
    stage.at(2 * SECOND, "n1", say("n2", "to the living", STATUS, token="living"))
    stage.run()
    assert stage.texts("n2") == ["to the living"]
    assert {answer.token: answer.arrived for answer in stage.told} == {
        "dead": False,
        "living": True,
    }


def test_a_status_send_to_a_non_member_does_not_arrive() -> None:
    foreign = Word("another group", "who?", "status")
    stage = Stage(2, network=CALM)
    stage.at(SECOND, "n1", lambda step: step.send("n2", foreign, STATUS, "t")).run()
    assert stage.heard == []
    assert [(answer.token, answer.arrived) for answer in stage.told] == [("t", False)]
