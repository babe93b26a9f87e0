"""`ordercast lab`: a sweep on Spark: many scenarios and seeds, laws and figures."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

import msgspec
from rich import box
from rich.table import Table

from ordercast.cli import screen
from ordercast.errors import UsageError

SHOWN = ("lost_share", "rounds_mean", "rounds_p99", "throughput", "recover_success", "packet_bytes")
"""The figures that are shown; all of them are in results.parquet."""
SCENARIOS = "scenarios"


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "lab",
        help="run an experiment: a sweep of simulations on Spark",
        description="Runs every combination of an experiment's grid with every seed, checks the "
        "laws, measures, and writes one table. What is done is not done again: after a kill the "
        "same command goes on.",
    )
    parser.add_argument("experiment", type=Path, metavar="EXPERIMENT", help="a TOML file")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="(out/NAME of the experiment)")
    parser.add_argument(
        "--master", default="local[*,4]", metavar="URL", help="where Spark runs (embedded)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a combination")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    try:
        from ordercast.spark.experiment import load_experiment
        from ordercast.spark.results import combine, write_results
        from ordercast.spark.session import open_session
        from ordercast.spark.sweep import sweep
    except ModuleNotFoundError as error:
        raise UsageError(f'sweeps need {error.name}: pip install "ordercast[spark]"') from error
    experiment, cells = load_experiment(arguments.experiment)
    out = arguments.out or Path("out") / arguments.experiment.stem
    console = screen.stderr()
    console.print(f"{experiment.name}: {len(cells)} runs into {out}", markup=False)
    progress = screen.progress(console)
    with progress, open_session(arguments.master) as spark:
        task = progress.add_task("runs", total=len(cells))
        manifests = sweep(
            spark,
            cells,
            out,
            experiment.keep.traces,
            lambda done: progress.update(task, completed=done),
        )
    path = write_results(out, manifests)
    combinations = combine(manifests)
    if arguments.json:
        for each in combinations:
            screen.json_line(each._asdict())
    else:
        screen.stdout().print(_table(combinations))
        screen.stdout().print(f"all figures: {path}", markup=False)
    return _conclude(manifests, cells, out)


def _table(combinations: list[Any]) -> Table:
    keys = list(combinations[0].settings) if combinations else []
    shown = [name for name in SHOWN if any(name in each.figures for each in combinations)]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for key in keys:
        table.add_column(key.rpartition(".")[2])
    for name in ("runs", "broken", *shown):
        table.add_column(name.replace("_", " "), justify="right", no_wrap=True)
    for each in combinations:
        figures = [_figure(each.figures.get(name)) for name in shown]
        values = [str(value) for value in each.settings.values()]
        table.add_row(*values, str(each.runs), str(each.broken + each.failed), *figures)
    return table


def _figure(estimate: Any) -> str:
    if estimate is None:
        return ""
    margin = "" if estimate.margin is None else f"±{estimate.margin:.1g}"
    return f"{estimate.value:.3g}{margin}"


def _conclude(manifests: list[Any], cells: list[Any], out: Path) -> int:
    """Names the runs that broke, each with the command that shows it again."""
    by_id = {cell.id: cell for cell in cells}
    wrong = [one for one in manifests if one.broken or one.error]
    for one in wrong[:10]:
        path = out / SCENARIOS / f"{one.id.rpartition('-')[0]}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        document = by_id[one.id].document
        path.write_bytes(msgspec.json.format(msgspec.json.encode(document, enc_hook=str)))
        again = shlex.join(["ordercast", "sim", str(path), "--seed", str(one.seed)])
        why = one.error or "; ".join(one.broken)
        screen.stderr().print(f"{one.id}: {why}\n    again: {again}", markup=False)
    if len(wrong) > 10:
        screen.stderr().print(f"and {len(wrong) - 10} more")
    return 1 if wrong else 0
