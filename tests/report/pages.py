"""A folder as `ordercast lab` leaves it, with a run that broke and one that never finished."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ordercast.check.laws import check
from ordercast.check.verdict import Answer
from ordercast.spark.cells import LAKE, Manifest, manifest_path
from ordercast.spark.experiment import Cell, load_experiment
from ordercast.spark.outcome import write_outcome
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
    """Manifests as cells write them, of histories whose verdicts are known."""
    (folder / "base.toml").write_text('name = "b"\nfamily = "fifo"\nprocesses = 3\n', "utf-8")
    (folder / "e.toml").write_text(EXPERIMENT, encoding="utf-8")
    experiment, cells = load_experiment(folder / "e.toml")
    out = folder / "out"
    write_outcome(out, experiment, {"name": "b"}, cells)
    names: list[str | None] = ["sound-agreement"] * 4
    if not sound:
        names[1], names[3] = "broken-agreement", None
    for cell, name in zip(cells, names, strict=True):
        path = manifest_path(out, cell.id)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode(_manifest(cell, name, out)))
    return out


def _manifest(cell: Cell, name: str | None, out: Path) -> Manifest:
    what = {"id": cell.id, "place": cell.place, "seed": cell.seed, "settings": cell.settings}
    if name is None:
        return Manifest(**what, ending="failed", error="AssertionError: numbers <increase>")
    trace = history(name, cell.id)
    verdicts = check(trace, ["no-duplication", "fifo", "agreement"])
    broken = [f"{one.law}: {one.why}" for one in verdicts if one.answer is Answer.BROKEN]
    if broken:
        write_trace(out / LAKE, trace, replace=True)
    laws = {one.law: str(one.answer) for one in verdicts}
    figures = {"lost_share": 0.25 * cell.seed, "delivered": 4.0}
    return Manifest(
        **what, ending="finished", laws=laws, broken=broken, rows=len(trace.rows), figures=figures
    )
