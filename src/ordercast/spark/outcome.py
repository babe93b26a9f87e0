"""What a sweep's folder says about itself, so that its pages can be written again at any time.

`experiment.json` holds the experiment, the scenario that it varies, and which runs belong to it, in
order. Everything else is in the manifests of the runs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ordercast.errors import UsageError
from ordercast.spark.experiment import Experiment, Trial
from ordercast.spark.trials import Manifest, manifest_path, read_manifest

EXPERIMENT_FILE = "experiment.json"
SCENARIOS = "scenarios"
"""Where the scenarios of runs that broke are, for `ordercast sim`."""
OUTCOME_VERSION = 1


class Run(msgspec.Struct, frozen=True):
    id: str
    place: int  # of its combination, in the order of the grid
    settings: dict[str, Any]


class OutcomeFile(msgspec.Struct, frozen=True, kw_only=True):
    version: int = OUTCOME_VERSION
    experiment: Experiment
    scenario: dict[str, Any]  # as it is before the grid changes it
    runs: list[Run]


class SweepOutcome(NamedTuple):
    experiment: Experiment
    scenario: dict[str, Any]
    manifests: list[Manifest]  # in order, of those runs that are done
    missing: int  # runs that are not done


def write_outcome(
    out: Path, experiment: Experiment, scenario: dict[str, Any], trials: list[Trial]
) -> None:
    runs = [Run(trial.id, trial.place, trial.settings) for trial in trials]
    written = OutcomeFile(experiment=experiment, scenario=scenario, runs=runs)
    out.mkdir(parents=True, exist_ok=True)
    temporary = out / f"{EXPERIMENT_FILE}.{os.getpid()}.tmp"
    temporary.write_bytes(msgspec.json.encode(written, enc_hook=str, order="deterministic"))
    temporary.replace(out / EXPERIMENT_FILE)


def read_outcome(out: Path) -> SweepOutcome:
    """What `ordercast lab` left in a folder. UsageError: it left nothing of use."""
    path = out / EXPERIMENT_FILE
    try:
        written = msgspec.json.decode(path.read_bytes(), type=OutcomeFile)
    except FileNotFoundError:
        raise UsageError(
            f"{out} has no {EXPERIMENT_FILE}: give a folder that ordercast lab has written"
        ) from None
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    if written.version != OUTCOME_VERSION:
        raise UsageError(
            f"{path} is of version {written.version}; this ordercast reads {OUTCOME_VERSION}"
        )
    found = [(run, read_manifest(manifest_path(out, run.id))) for run in written.runs]
    manifests = [
        msgspec.structs.replace(manifest, place=run.place, settings=run.settings)
        for run, manifest in found
        if manifest is not None
    ]
    missing = len(found) - len(manifests)
    return SweepOutcome(written.experiment, written.scenario, manifests, missing)
