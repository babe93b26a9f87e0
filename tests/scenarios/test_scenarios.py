"""Every scenario keeps its family's laws; chaos keeps them over thousands of seeds.

A part of the seeds is run always, and all of them with `-m long`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ordercast.scenario.file import load_scenario
from ordercast.testing import Simulated, simulate

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = sorted((ROOT / "scenarios").glob("*.toml"))
# The published algorithms break laws, and these show how: tests/studies/published_ring and
# tests/studies/published_synchrony.
SOUND = [path for path in SCENARIOS if "-published-" not in path.stem]
CHUNK = 50
STORMS = {
    "chaos": (100, 2000),
    "causal-chaos": (50, 1000),
    "tickets-chaos": (50, 5000),
    "synchrony-chaos": (50, 5000),
    "synchrony-quorum-chaos": (50, 1000),
    "synchrony-state-chaos": (0, 1000),
    "synchrony-lossy": (0, 2000),
    "feed-chaos": (0, 2000),
}
"""Seeds that are run always, and all of them."""
OF_CHAOS, OF_NEWCOMERS_AND_LOSSES = 300, 1000
"""Seeds of every scenario with chaos, and of every one whose members join or lose their folders.
Those of one scenario: make test ARGS="-m long tests/scenarios -k open-total-chaos"."""
COMPARED_SEEDS = (1,)
LONGEST_SECONDS = {
    "lost-loop": 25,
    "open-ordered-live": 15,
    "open-causal-live": 10,
    "many": 10,
    "feed-many": 10,
    "feed-fifteen": 10,
    "lost-total": 8,
}


def storms() -> list[Any]:
    """The first seed of each chunk: some always, the rest when long tests are asked for."""
    return [
        pytest.param(path.stem, first, marks=[pytest.mark.long] * (first > always))
        for path in SOUND
        for always, all_of_them in [seeds_in_storms(path.stem)]
        for first in range(1, all_of_them, CHUNK)
    ]


def seeds_in_storms(name: str) -> tuple[int, int]:
    """Seeds of a scenario that are run always, and all of them."""
    always, most = STORMS.get(name, (0, 0))
    if "chaos" in name:
        most = max(most, OF_CHAOS)
    # Those that are made for live runs last for minutes.
    if name.startswith(("open-", "lost-")) and not name.endswith(("-live", "-loop")):
        most = max(most, OF_NEWCOMERS_AND_LOSSES)
    return always, most


def test_storms_are_of_every_scenario_that_is_one() -> None:
    assert {path.stem for path in SOUND} >= STORMS.keys()
    assert seeds_in_storms("chaos") == (100, 2000)
    assert seeds_in_storms("atomic-chaos") == (0, 300)
    assert seeds_in_storms("open-fifo-chaos") == seeds_in_storms("lost-total") == (0, 1000)
    assert seeds_in_storms("open-fifo-live") == seeds_in_storms("lost-loop") == (0, 0)
    assert len(storms()) > 500
    always = [each for each in storms() if not each.marks]
    assert len(always) == sum(seeds // CHUNK for seeds, _ in STORMS.values())


def assert_lawful(run: Simulated) -> None:
    seed = run.outcome.header.seed
    assert run.outcome.error is None, f"seed {seed}: {run.outcome.error}"
    for verdict in run.verdicts:
        assert verdict.answer == "holds", f"seed {seed}: {verdict.law}: {verdict.why}"


def regressions() -> list[tuple[str, int]]:
    lines = (Path(__file__).parent / "regressions.txt").read_text(encoding="utf-8").splitlines()
    words = [line.partition("#")[0].split() for line in lines]
    return [(entry[0], int(entry[1])) for entry in words if entry]


def by_length(paths: list[Path]) -> list[Any]:
    """The longest are started first: a scenario for a minute and more, with several groups."""
    marks = {name: [pytest.mark.slow(seconds)] for name, seconds in LONGEST_SECONDS.items()}
    assert marks.keys() <= {path.stem for path in paths}
    return [pytest.param(path, id=path.stem, marks=marks.get(path.stem, [])) for path in paths]


def seeds_of(path: Path) -> range:
    """One of a scenario for which a seed takes several seconds, and two of others."""
    is_long = LONGEST_SECONDS.get(path.stem, 0) >= 10 or load_scenario(path).processes >= 100
    return range(1, 2 if is_long else 3)


@pytest.mark.parametrize("path", by_length(SOUND))
def test_scenario_keeps_its_laws_with_and_without_the_codec(path: Path) -> None:
    """The codec changes nothing: with some seeds both runs are made, and have the same rows."""
    for seed in seeds_of(path):
        coded = simulate(path, seed, round_trip=True)
        assert_lawful(coded)
        if seed in COMPARED_SEEDS:
            assert simulate(path, seed).trace.rows == coded.trace.rows


@pytest.mark.long
@pytest.mark.parametrize("path", SOUND, ids=lambda path: path.stem)
def test_the_codec_changes_nothing_with_more_seeds(path: Path) -> None:
    for seed in range(2, 6):
        coded = simulate(path, seed, round_trip=True)
        assert_lawful(coded)
        assert simulate(path, seed).trace.rows == coded.trace.rows


@pytest.mark.parametrize(("name", "seed"), regressions())
def test_seeds_that_once_broke_a_law_keep_it_now(name: str, seed: int) -> None:
    # A seed means what it meant when it was found: the scenario as it was then, if it has changed.
    pinned = Path(__file__).parent / "pinned" / f"{name}.toml"
    now = ROOT / "scenarios" / f"{name}.toml"
    assert_lawful(simulate(pinned if pinned.exists() else now, seed))


@pytest.mark.parametrize(("name", "first"), storms())
def test_chaos_keeps_every_law(name: str, first: int) -> None:
    scenario = load_scenario(ROOT / "scenarios" / f"{name}.toml")
    for seed in range(first, first + CHUNK):
        assert_lawful(simulate(scenario, seed))


@pytest.mark.parametrize("first", range(20_001, 20_051, 25))
def test_chaos_keeps_every_law_through_the_codec(first: int) -> None:
    scenario = load_scenario(ROOT / "scenarios" / "chaos.toml")
    for seed in range(first, first + 25):
        assert_lawful(simulate(scenario, seed, round_trip=True))


def test_every_scenario_is_in_the_table_of_the_folder() -> None:
    table = (ROOT / "scenarios" / "README.md").read_text(encoding="utf-8")
    missing = [path.stem for path in SCENARIOS if f"[{path.stem}]({path.name})" not in table]
    assert not missing
    assert len(SCENARIOS) >= 10


def test_a_scenario_does_what_it_says() -> None:
    """The scenarios that are there to show something show it."""

    def kinds(name: str) -> dict[str, int]:
        counts: dict[str, int] = {}
        for row in simulate(ROOT / "scenarios" / f"{name}.toml", 1).trace.rows:
            counts[row.kind] = counts.get(row.kind, 0) + 1
        return counts

    assert "suspect" not in kinds("calm")
    assert "suspect" not in kinds("short_cut")
    assert kinds("one_crash")["crash"] == 1
    assert kinds("restarts")["start"] == 8
    assert kinds("too_long_away")["lose"] > 100
    assert kinds("backpressure")["blocked"] > 1
    split = kinds("split_in_two")
    assert split["suspect"] == split["refute"] == 12
    assert "lose" not in split
