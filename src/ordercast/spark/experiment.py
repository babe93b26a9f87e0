"""Experiment files: a scenario, a grid of settings, and how many seeds.

    name = "figure 5"
    scenario = "../scenarios/causal.toml"    # beside this file
    seeds = 20
    [grid]                                   # each combination with each seed: a trial
    variant = ["gossip", "R4"]               # names of variants: several settings at once
    "workload.per_round" = [0.05, 0.1]
    "processes, options.tickets" = [[25, 25], [50, 50]]    # settings that go together
    "label.share, network.loss" = [["1 in 10", 0.1]]       # a label sets nothing
    [variants."R4"]
    family = "causal"
    "options.recovery" = "any-4"
    [keep]
    traces = "failures"                      # none | failures | all
    [[figure]]                               # what is drawn of the results
    title = "Loss"
    x = "workload.per_round"
    y = "lost_share"
    lines = "variant"
    [tune]                                   # a setting that is searched for each run: tune.py

Every trial's scenario is checked before anything runs.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from ordercast.check.metrics import NAMES
from ordercast.errors import UsageError, unknown_word
from ordercast.scenario.file import parse_scenario
from ordercast.settings import Source, read_source
from ordercast.spark.tune import Tune, carried, checked, put

MOST_COMBINATIONS = 10_000
MOST_TRIALS = 1_000_000
VARIANT = "variant"
"""The key of the grid that names variants. Without variants it is a mere label."""
LABEL = "label."
"""Keys of the grid that begin so set nothing: they say what the settings beside them mean."""


class Keep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    traces: Literal["none", "failures", "all"] = "failures"


class Figure(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One drawing: a metric of the runs over a key of the grid, a line for each of another."""

    title: Annotated[str, Meta(min_length=1, max_length=100)]
    x: str
    y: str
    lines: str | None = None
    only: list[str] = []  # of the lines; empty: all
    x_label: Annotated[str, Meta(max_length=100)] | None = None
    y_label: Annotated[str, Meta(max_length=100)] | None = None
    log_x: bool = False
    log_y: bool = False
    percent: bool = False  # shares are written as such
    marks: dict[str, float] = {}  # places on the x axis that mean something
    caption: Annotated[str, Meta(max_length=1000)] = ""


class Experiment(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1, max_length=100)]
    scenario: str
    seeds: Annotated[int, Meta(ge=1, le=100_000)] = 1
    first_seed: Annotated[int, Meta(ge=0, lt=1 << 61)] = 1
    grid: dict[str, list[Any]] = {}
    variants: dict[str, dict[str, Any]] = {}
    keep: Keep = Keep()
    figure: Annotated[list[Figure], Meta(max_length=50)] = []
    tune: Tune | None = None


class Trial(NamedTuple):
    """One combination of the grid with one seed: one run."""

    id: str  # of the combination and the seed: names the run and its manifest
    place: int  # of the combination, in the order of the grid
    settings: dict[str, Any]  # what the grid says, by dotted key
    seed: int
    document: dict[str, Any]  # the whole scenario


def load_experiment(path: Path) -> tuple[Experiment, list[Trial]]:
    """The experiment in a file and all its trials. UsageError is one sentence."""
    source = read_source(path, "an experiment")
    if "scenario" not in source.document and "duration" in source.document:
        raise UsageError(f"{path} is a scenario, and not an experiment: use ordercast sim")
    experiment = source.struct(Experiment, "an experiment")
    _refuse_figures(experiment, source)
    return experiment, list(_trials(experiment, source, path))


def keys_of(experiment: Experiment) -> list[str]:
    """What the settings of its trials name, in order."""
    return [key for together in experiment.grid for key in _names(together)]


def _refuse_figures(experiment: Experiment, source: Source) -> None:
    keys = keys_of(experiment)
    for place, figure in enumerate(experiment.figure):
        for name, key in (("x", figure.x), ("lines", figure.lines)):
            if key is not None and key not in keys:
                told = unknown_word("key of the grid", key, keys)
                raise source.error(("figure", place, name), told)
        if figure.y not in NAMES:
            told = unknown_word("metric", figure.y, NAMES)
            raise source.error(("figure", place, "y"), told)


def _trials(experiment: Experiment, source: Source, path: Path) -> Iterator[Trial]:
    file = path.parent / experiment.scenario
    base = read_source(file, "a scenario")
    axes = [_axis(experiment, source, key) for key in experiment.grid]
    count = math.prod(len(axis) for axis in axes)
    if count > MOST_COMBINATIONS or count * experiment.seeds > MOST_TRIALS:
        raise source.error(
            ("grid",),
            f"{count} combinations of {experiment.seeds} seeds: at most {MOST_COMBINATIONS} "
            f"combinations and {MOST_TRIALS} runs",
        )
    for place, chosen in enumerate(itertools.product(*axes)):
        settings = {key: value for part in chosen for key, value in part.items()}
        document = _with(base.document, settings, experiment, source)
        tune = experiment.tune
        try:
            whole = document if tune is None else checked(document, tune)
            parse_scenario(whole, base.text, str(file))
        except UsageError as error:
            told = ", ".join(f"{key} = {value!r}" for key, value in settings.items())
            raise UsageError(f"{path}: with {told or 'no change'}: {error}") from error
        if tune is not None:
            document = carried(document, tune)
        for seed in range(experiment.first_seed, experiment.first_seed + experiment.seeds):
            yield Trial(_identity(document, seed), place, settings, seed, document)


def _names(together: str) -> list[str]:
    return [name.strip() for name in together.split(",")]


def _axis(experiment: Experiment, source: Source, together: str) -> list[dict[str, Any]]:
    """The values of one line of the grid, each as settings."""
    values, names = experiment.grid[together], _names(together)
    where = ("grid", together)
    if not values:
        raise source.error(where, f"grid.{together} has no values")
    if len(names) == 1:
        axis = [{together: value} for value in values]
    else:
        for value in values:
            if not isinstance(value, list) or len(value) != len(names):
                raise source.error(
                    where, f"grid.{together}: {value!r} is not a list of {len(names)} values"
                )
        axis = [dict(zip(names, value, strict=True)) for value in values]
    for settings in axis:
        name = settings.get(VARIANT)
        if name is not None and experiment.variants and name not in experiment.variants:
            raise source.error(where, unknown_word("variant", str(name), experiment.variants))
    return axis


def _with(
    document: dict[str, Any], settings: dict[str, Any], experiment: Experiment, source: Source
) -> dict[str, Any]:
    """The scenario with these settings. What the grid says comes after what a variant says."""
    changed = copy.deepcopy(document)
    variant = experiment.variants.get(str(settings.get(VARIANT)), {})
    for key, value in variant.items():
        _put(changed, key, value, source, "variants")
    for key, value in settings.items():
        if key != VARIANT and not key.startswith(LABEL):
            _put(changed, key, value, source, "grid")
    return changed


def _put(document: dict[str, Any], key: str, value: Any, source: Source, table: str) -> None:
    try:
        put(document, key, value)
    except UsageError as error:
        raise source.error((table, key), f"{table}.{error}") from error


def _identity(document: dict[str, Any], seed: int) -> str:
    """The same scenario and seed are the same run, whatever else the experiment holds."""
    text = msgspec.json.encode(document, order="deterministic", enc_hook=str)
    return f"{blake2b(text, digest_size=6).hexdigest()}-{seed}"
