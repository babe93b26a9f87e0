"""How often random schedules break the published membership protocol: docs/synchrony-published.md.

A part of the seeds is run always, and all of them with `-m long`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.studies.published_synchrony.runs import document, laws, ran, sent
from tests.studies.published_synchrony.schedules import count, faults, joins, safe

from ordercast.scenario.file import parse_scenario
from ordercast.testing import simulate


def scenario(name: str, **options: Any) -> Callable[[int], dict[str, Any]]:
    found = document(name)
    found["options"] |= options
    return lambda seed: found


def dead(**options: Any) -> Callable[[int], dict[str, Any]]:
    return lambda seed: faults(seed, **options)


def merging(**options: Any) -> Callable[[int], dict[str, Any]]:
    return lambda seed: joins(seed, answers="growth", **options)


SCHEDULES: dict[str, tuple[Callable[[int], dict[str, Any]], dict[str, int]]] = {
    "faults, a change a set": (
        scenario("random-faults"),
        {"any": 18, "view-agreement": 18, "decided: view-agreement": 18},
    ),
    "faults, a change a message": (scenario("random-faults", changes="message"), {}),
    "dead, a change a set": (
        dead(changes="set"),
        {"any": 1, "view-agreement": 1, "decided: view-agreement": 1},
    ),
    "joins": (
        scenario("random-joins"),
        {"any": 8, "undecided": 8, "completeness": 8, "disjoint-views": 8},
    ),
    "joins, remembered": (
        scenario("random-joins", outside="remembered"),
        {"any": 1, "undecided": 1, "completeness": 1, "disjoint-views": 1},
    ),
    "merging, a crash": (
        merging(crash=True),
        {
            "any": 7,
            "undecided": 5,
            "completeness": 5,
            "disjoint-views": 5,
            "view-agreement": 3,
            "decided: view-agreement": 2,
        },
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_thirty_seeds_break_it_so_often(name: str) -> None:
    make, expected = SCHEDULES[name]
    assert count(make, range(1, 31)) == expected


def test_a_machine_that_hears_of_its_removal_assents_to_it_each_time() -> None:
    assert count(dead(alive=True), range(1, 11))["view-agreement"] == 10
    found = count(dead(alive=True, own_removal="excludes"), range(1, 11))
    assert found == {"any": 1, "rest": 1, "decided: rest": 1}  # Figure 3 answers late messages


def test_a_later_join_may_free_a_machine_that_waits() -> None:
    """It has missed a view, though nobody failed: n4 counted on it."""
    found = count(merging(), [338])
    assert found == {"any": 1, "view-agreement": 1, "decided: view-agreement": 1}


EXCLUDES = {"alive": True, "own_removal": "excludes"}


@pytest.mark.parametrize(
    ("seed", "options"), [(243, {}), (214, EXCLUDES), (305, EXCLUDES), (462, EXCLUDES)]
)
def test_only_who_was_given_up_has_other_messages(seed: int, options: dict[str, Any]) -> None:
    """Theorem 4.3 speaks of pairs that accept each other. The law, and the view, know of more."""
    run = simulate(parse_scenario(faults(seed, **options)), seed)
    (broken,) = run.broken
    assert broken.law == "virtual-synchrony"
    has = next(row.process for row in broken.witness if row.kind == "deliver")
    lacks = [row for row in broken.witness if row.process != has]
    installed = max(lacks, key=lambda row: row.step)
    assert has in (installed.members or ())
    given_up = [
        row
        for row in run.trace.rows
        if (row.kind, row.process, row.peer) == ("suspect", installed.process, has)
    ]
    assert given_up[0].step < installed.step


def not_safe_in(seeds: range, flush: str) -> int:
    runs = (simulate(parse_scenario(safe(seed, flush=flush)), seed) for seed in seeds)
    return sum("safe" in laws(run) for run in runs)


@pytest.mark.parametrize("flush", ["waits", "delivers"])
def test_a_member_lacks_a_safe_message(flush: str) -> None:
    assert not_safe_in(range(1, 41), flush) == 7


def echoes(late: str, seeds: range) -> tuple[int, int]:
    """The most FA messages of a run, and when the last one of all runs was sent."""
    runs = [sent(ran("random-faults", seed, wire=True, late=late), "Fault") for seed in seeds]
    return max(map(len, runs)), max(faults[-1][1] for faults in runs)


def test_among_three_with_random_delays_the_echo_dies_out() -> None:
    assert echoes("counts", range(1, 31)) > (20, 270)
    assert echoes("ignored", range(1, 31)) < (12, 250)


LONG = {
    "faults, a change a set": (scenario("random-faults"), 1000, "view-agreement", 564),
    "faults, a message": (scenario("random-faults", changes="message"), 1000, "any", 0),
    "dead, a change a set": (dead(changes="set"), 500, "view-agreement", 24),
    "dead, a change a message": (dead(), 500, "virtual-synchrony", 1),
    "dead, a change a message: rest": (dead(), 500, "rest", 6),
    "alive": (dead(alive=True), 500, "view-agreement", 500),
    "alive, excludes": (dead(alive=True, own_removal="excludes"), 500, "virtual-synchrony", 3),
    "alive, excludes: rest": (dead(alive=True, own_removal="excludes"), 500, "rest", 9),
    "joins": (scenario("random-joins"), 1000, "undecided", 300),
    "joins, remembered": (scenario("random-joins", outside="remembered"), 1000, "undecided", 42),
    "joins, patient": (scenario("random-joins", alpha="50ms"), 1000, "undecided", 2),
    "merging": (merging(), 500, "undecided", 151),
    "merging, remembered": (merging(outside="remembered"), 500, "undecided", 30),
    "merging, a crash": (merging(crash=True), 500, "undecided", 114),
    "merging, remembered, a crash": (
        merging(crash=True, outside="remembered"),
        500,
        "decided: view-agreement",
        22,
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", LONG)
def test_the_numbers_of_the_page(name: str) -> None:
    make, seeds, what, expected = LONG[name]
    assert count(make, range(1, seeds + 1))[what] == expected


@pytest.mark.long
def test_the_numbers_of_the_page_about_safe_and_echoes() -> None:
    assert not_safe_in(range(1, 501), "waits") == not_safe_in(range(1, 501), "delivers") == 50
    assert echoes("counts", range(1, 201)) == (43, 393)
    assert echoes("ignored", range(1, 201)) == (10, 250)
