"""Lost folders: which number the next incarnation takes, and what becomes of an outdated one."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from tests.sim.probes import DATAGRAM, MILLISECOND, SECOND, Stage, cut, fault, persist, say

from ordercast.kernel.identity import COUNTED, DRAWN_BITS, SURE_BITS, UNSURE_BITS, Acquaintances
from ordercast.scenario.faults.fault import Fault
from ordercast.sim import identities
from ordercast.testing import simulate
from ordercast.types import NodeId

LOST_FIFO = Path(__file__).resolve().parents[2] / "scenarios" / "lost-fifo.toml"
OTHERS = ("n2", "n3")


def lost(at: int, name: str = "n1") -> Fault:
    return fault("restart", at, name, disk="lost")


def stage_of(faults: Iterable[Fault], seed: int = 1) -> Stage:
    """Three processes, of which the first says hello to both others every second."""
    stage = Stage(3, faults=faults, seed=seed)
    for second in range(1, 9):
        stage.at(second * SECOND, "n1", say(OTHERS, str(second), DATAGRAM))
    return stage


def numbers(stage: Stage, name: str = "n1") -> list[int]:
    return [row.incarnation for row in stage.rows_of("start", name)]


# --- which number --------------------------------------------------------------------------------


def test_it_leaves_out_a_few_numbers_if_everybody_answers() -> None:
    stage = stage_of([lost(2500 * MILLISECOND), lost(4500 * MILLISECOND)])
    stage.run()
    first, second, third = numbers(stage)
    for before, after in ((first, second), (second, third)):
        assert COUNTED <= after - before < COUNTED + (1 << SURE_BITS)


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_number_that_its_folder_counted_and_nobody_met_is_not_used_again(seed: int) -> None:
    starts = [fault("restart", at * MILLISECOND, "n1") for at in (2100, 2200, 2300)]
    stage = stage_of(
        [cut(2 * SECOND, "n1 | n2 n3", SECOND), *starts, lost(3500 * MILLISECOND)], seed
    )
    stage.run()
    *counted, last = numbers(stage)
    assert counted == [0, 1, 2, 3]
    assert last >= COUNTED
    causes = [row.cause for row in stage.rows_of("start", "n1")]
    assert causes == [None, None, None, None, "empty"]


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_number_that_was_taken_and_lost_before_anybody_met_it_is_not_used_again(
    seed: int,
) -> None:
    """It is silent in between, so the others know of it only by what it asked."""
    stage = stage_of([lost(at * MILLISECOND) for at in (2100, 2200, 2300, 2400)], seed)
    stage.run()
    taken = numbers(stage)
    assert all(after - before >= COUNTED for before, after in pairwise(taken))


@pytest.mark.parametrize(
    "absent",
    [
        fault("crash", 2 * SECOND, "n3"),
        fault("pause", 2 * SECOND, "n3", 4 * SECOND),
        cut(2 * SECOND, "n1 | n3", 4 * SECOND),
        cut(2 * SECOND, "n1 | n3", 4 * SECOND, "one-way"),
        cut(2 * SECOND, "n3 | n1", 4 * SECOND, "one-way"),
    ],
    ids=["crashed", "paused", "cut off", "deaf", "mute"],
)
def test_it_skips_numbers_if_somebody_does_not_answer(absent: Fault) -> None:
    """Who does not answer may have met a newer one than those who do."""
    stage = stage_of([absent, lost(2500 * MILLISECOND)])
    stage.run()
    assert COUNTED <= numbers(stage)[1] < COUNTED + (1 << UNSURE_BITS)


def test_it_draws_a_number_if_nobody_knows_its_name() -> None:
    drawn = []
    for seed in range(1, 6):
        stage = stage_of([cut(2 * SECOND, "n1 | n2 n3", SECOND), lost(2 * SECOND)], seed)
        stage.run()
        drawn.append(numbers(stage)[1])
    assert all(0 < number <= 1 << DRAWN_BITS for number in drawn)
    assert len(set(drawn)) == len(drawn)
    again = stage_of([cut(2 * SECOND, "n1 | n2 n3", SECOND), lost(2 * SECOND)], 5)
    again.run()
    assert numbers(again)[1] == drawn[-1], "the seed decides"


def test_a_folder_that_is_there_counts_on_from_a_drawn_number() -> None:
    faults = [cut(2 * SECOND, "n1 | n2 n3", SECOND), lost(2 * SECOND)]
    stage = stage_of([*faults, fault("restart", 5 * SECOND, "n1")])
    stage.run()
    _, drawn, last = numbers(stage)
    assert last == drawn + 1


def test_a_folder_is_lost_even_if_another_crash_keeps_the_process_down_longer() -> None:
    faults = [
        fault("crash", 1500 * MILLISECOND, "n1", 4 * SECOND),
        fault("restart", 2 * SECOND, "n1", SECOND, disk="lost"),
        cut(5 * SECOND, "n1 | n2 n3", SECOND),
    ]
    stage = stage_of(faults)
    stage.run()
    assert len(numbers(stage)) == 2
    assert numbers(stage)[1] > 1, "it asked when it started, and nobody answered"


# --- outdated incarnations -----------------------------------------------------------------------


def drawn_twice(*more: Fault, seed: int) -> Stage:
    """Twice the process draws a number while it is cut off, and is heard after each time."""
    faults = [
        *(cut(at * SECOND, "n1 | n2 n3", SECOND) for at in (2, 5)),
        *(lost(at * SECOND + 100 * MILLISECOND) for at in (2, 5)),
    ]
    stage = stage_of([*faults, *more], seed)
    stage.at(5500 * MILLISECOND, "n1", persist("of the second"))
    stage.run()
    return stage


def test_an_outdated_incarnation_is_refused_and_abandons_itself() -> None:
    seen = set()
    for seed in range(1, 9):
        stage = drawn_twice(seed=seed)
        _, first, second, *newest = numbers(stage)
        heard = {heard.sender.incarnation for heard in stage.heard}
        causes = [row.cause for row in stage.rows_of("crash", "n1")]
        seen.add(second < first)
        if second > first:
            assert (newest, heard) == ([], {0, first, second})
            assert causes == [None, None]
        else:
            assert heard == {0, first, *newest}, "nothing of the outdated one reaches a machine"
            assert COUNTED <= newest[0] - first < COUNTED + (1 << UNSURE_BITS), "it always skips"
            assert causes == [None, None, "abandoned"]
            assert stage.found[-1] == (NodeId("n1", newest[0]), []), "its records are erased"
    assert seen == {False, True}


def test_a_paused_process_abandons_itself_when_it_runs_again() -> None:
    for seed in range(1, 9):
        pause = fault("pause", 7 * SECOND + MILLISECOND, "n1", 500 * MILLISECOND)
        stage = drawn_twice(pause, seed=seed)
        for row in stage.rows_of("crash", "n1")[2:]:
            assert row.cause == "abandoned"
            assert row.at > 8 * SECOND, "its next word is answered"


def test_the_outdated_one_hears_of_it_from_whoever_it_meets() -> None:
    """n3 has met the newer incarnation, n2 has not, and n3 does not hear n1: n2 tells it."""
    seen = set()
    for seed in range(1, 9):
        faults = [
            cut(2 * SECOND, "n1 | n2 n3", SECOND),
            lost(2100 * MILLISECOND),
            cut(3 * SECOND, "n1 | n2", 2 * SECOND),  # only n3 meets the first drawn one
            cut(5 * SECOND, "n1 | n2 n3", SECOND),
            lost(5100 * MILLISECOND),
            cut(6 * SECOND, "n1 | n3", 4 * SECOND),
        ]
        stage = stage_of(faults, seed)
        stage.at(5500 * MILLISECOND, "n3", say("n2", "I know it", DATAGRAM))
        stage.run()
        _, first, second, *newest = numbers(stage)
        seen.add(second < first)
        assert bool(newest) is (second < first)
    assert seen == {False, True}


# --- what it is for ------------------------------------------------------------------------------


def zero_if_unknown(
    name: str, reported: Iterable[NodeId | None], is_sure: bool, chance: Random
) -> NodeId:
    known = [node.incarnation for node in reported if node is not None]
    return NodeId(name, max(known, default=-1) + 1)


def always_zero(
    name: str, reported: Iterable[NodeId | None], is_sure: bool, chance: Random
) -> NodeId:
    return NodeId(name, 0)


@pytest.mark.parametrize("rule", [zero_if_unknown, always_zero])
def test_to_begin_at_zero_again_is_caught(monkeypatch: pytest.MonkeyPatch, rule: object) -> None:
    """Two incarnations then have the same event numbers, and one log: this is why one is drawn."""
    monkeypatch.setattr(identities, "first_incarnation", rule)
    if rule is always_zero:  # and nobody refuses the second of one number
        monkeypatch.setattr(Acquaintances, "newer_than", lambda self, node: None)
    run = simulate(LOST_FIFO, 1)
    assert "what n2 never sent" in str(run.outcome.error)
    assert {str(verdict.answer) for verdict in run.verdicts} == {"unknown"}
    assert "n1 wrote two rows as step 1" in {verdict.why for verdict in run.verdicts}


def test_a_run_in_which_no_folder_is_lost_keeps_no_acquaintances() -> None:
    stage = stage_of([fault("restart", 2 * SECOND, "n1")])
    stage.run()
    assert {process.acquaintances for process in stage.world.processes.values()} == {None}
