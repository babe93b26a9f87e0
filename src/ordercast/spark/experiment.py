"""Experiment files: a scenario, a grid of settings, and how many seeds.

    name = "figure 5"
    scenario = "../scenarios/causal.toml"    # beside this file
    seeds = 20
    [grid]                                   # every combination is a cell
    "workload.per_round" = [0.05, 0.1]
    "options.recovery" = ["off", "any-4"]
    [keep]
    traces = "failures"                      # none | failures | all

Every cell's scenario is checked before anything runs.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from ordercast.errors import UsageError
from ordercast.settings import Source, read_source
from ordercast.sim.scenario_file import parse_scenario

MOST_CELLS = 10_000
MOST_RUNS = 1_000_000


class Keep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    traces: Literal["none", "failures", "all"] = "failures"


class Experiment(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1, max_length=100)]
    scenario: str
    seeds: Annotated[int, Meta(ge=1, le=100_000)] = 1
    first_seed: Annotated[int, Meta(ge=0, lt=1 << 61)] = 1
    grid: dict[str, list[Any]] = {}
    keep: Keep = Keep()


class Cell(NamedTuple):
    """One combination of the grid with one seed: one run."""

    id: str  # of the combination and the seed: names the run and its manifest
    place: int  # of the combination, in the order of the grid
    settings: dict[str, Any]  # what the grid says, by dotted key
    seed: int
    document: dict[str, Any]  # the whole scenario


def load_experiment(path: Path) -> tuple[Experiment, list[Cell]]:
    """The experiment in a file and all its cells. UsageError is one sentence."""
    source = read_source(path, "an experiment")
    experiment = source.struct(Experiment, "an experiment")
    return experiment, list(_cells(experiment, source, path))


def _cells(experiment: Experiment, source: Source, path: Path) -> Iterator[Cell]:
    file = path.parent / experiment.scenario
    base = read_source(file, "a scenario")
    keys = list(experiment.grid)
    for key, values in experiment.grid.items():
        if not values:
            raise source.error(("grid", key), f"grid.{key} has no values")
    combinations = list(itertools.product(*experiment.grid.values()))
    if len(combinations) > MOST_CELLS or len(combinations) * experiment.seeds > MOST_RUNS:
        raise source.error(
            ("grid",),
            f"{len(combinations)} combinations of {experiment.seeds} seeds: at most {MOST_CELLS} "
            f"combinations and {MOST_RUNS} runs",
        )
    for place, chosen in enumerate(combinations):
        settings = dict(zip(keys, chosen, strict=True))
        document = _with(base.document, settings, source)
        try:
            parse_scenario(document, base.text, str(file))
        except UsageError as error:
            told = ", ".join(f"{key} = {value!r}" for key, value in settings.items())
            raise UsageError(f"{path}: with {told or 'no change'}: {error}") from error
        for seed in range(experiment.first_seed, experiment.first_seed + experiment.seeds):
            yield Cell(_identity(document, seed), place, settings, seed, document)


def _with(document: dict[str, Any], settings: dict[str, Any], source: Source) -> dict[str, Any]:
    changed = copy.deepcopy(document)
    for key, value in settings.items():
        *path, last = key.split(".")
        table = changed
        for part in path:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise source.error(("grid", key), f"grid.{key}: {part} is not a table there")
        table[last] = value
    return changed


def _identity(document: dict[str, Any], seed: int) -> str:
    """The same scenario and seed are the same run, whatever else the experiment holds."""
    text = msgspec.json.encode(document, order="deterministic", enc_hook=str)
    return f"{blake2b(text, digest_size=6).hexdigest()}-{seed}"
