"""A folder as `ordercast lab` leaves it, with a run that broke and one that never finished."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ordercast.check.laws import check
from ordercast.check.verdict import Answer
from ordercast.spark.experiment import Trial, load_experiment
from ordercast.spark.outcome import write_outcome
from ordercast.spark.trials import LAKE, Manifest, manifest_path
from ordercast.trace.parquet import write_trace
from ordercast.trace.schema import Trace
from ordercast.trace.text import parse_history

HISTORIES = Path(__file__).resolve().parents[1] / "histories"
EXPERIMENT = """
name = "a <sweep> & its page"
scenario = "base.toml"
seeds = 2
[grid]
"network.loss" = [0.0, 0.1]
"""


def history(name: str, run: str) -> Trace:
    trace = parse_history((HISTORIES / f"{name}.history").read_text(encoding="utf-8"))
    return Trace(msgspec.structs.replace(trace.header, run=run), trace.rows)


def folder_of_a_sweep(folder: Path, *, sound: bool) -> Path:
    """Manifests as trials write them, of histories whose verdicts are known."""
    (folder / "base.toml").write_text('name = "b"\nfamily = "fifo"\nprocesses = 3\n', "utf-8")
    (folder / "e.toml").write_text(EXPERIMENT, encoding="utf-8")
    experiment, trials = load_experiment(folder / "e.toml")
    out = folder / "out"
    write_outcome(out, experiment, {"name": "b"}, trials)
    names: list[str | None] = ["sound-agreement"] * 4
    if not sound:
        names[1], names[3] = "broken-agreement", None
    for trial, name in zip(trials, names, strict=True):
        path = manifest_path(out, trial.id)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode(_manifest(trial, name, out)))
    return out


def _manifest(trial: Trial, name: str | None, out: Path) -> Manifest:
    what = {"id": trial.id, "place": trial.place, "seed": trial.seed, "settings": trial.settings}
    if name is None:
        return Manifest(**what, ending="failed", error="AssertionError: numbers <increase>")
    trace = history(name, trial.id)
    verdicts = check(trace, ["no-duplication", "fifo", "agreement"])
    broken = [f"{one.law}: {one.why}" for one in verdicts if one.answer is Answer.BROKEN]
    if broken:
        write_trace(out / LAKE, trace, replace=True)
    laws = {one.law: str(one.answer) for one in verdicts}
    metrics = {"lost_share": 0.25 * trial.seed, "delivered": 4.0}
    return Manifest(
        **what, ending="finished", laws=laws, broken=broken, rows=len(trace.rows), metrics=metrics
    )
