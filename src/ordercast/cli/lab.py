"""`ordercast lab`: a sweep on Spark: many scenarios and seeds, laws and metrics."""

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
from ordercast.settings import read_source
from ordercast.spark.session import EMBEDDED

METRICS_SHOWN = (
    "lost_share",
    "rounds_mean",
    "rounds_p99",
    "throughput",
    "recover_success",
    "packet_bytes",
)
"""The metrics that are shown; all of them are in results.parquet."""


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
        "--master", default=EMBEDDED, metavar="URL", help="where Spark runs (embedded)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a combination")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    try:
        from ordercast.cli.report import write_report
        from ordercast.spark.experiment import load_experiment
        from ordercast.spark.results import RESULTS
        from ordercast.spark.session import open_session
    except ModuleNotFoundError as error:
        raise UsageError(f'sweeps need {error.name}: pip install "ordercast[spark]"') from error
    load_experiment(arguments.experiment)  # what is wrong with it is told before Spark starts
    out = arguments.out or Path("out") / arguments.experiment.stem
    with open_session(arguments.master, light=True) as spark:
        combinations, wrong = run_experiment(spark, arguments.experiment, out)
    if arguments.json:
        for each in combinations:
            screen.json_line(each._asdict())
    else:
        print_combinations(combinations)
        screen.stdout().print(f"all metrics: {out / RESULTS}", markup=False)
    try:
        told = f"the report: {write_report(out)}"
    except UsageError as error:  # pages are an extra, and the metrics are written
        told = f"no report: {error}"
    screen.stderr().print(told, markup=False)
    return 1 if wrong else 0


def run_experiment(spark: Any, file: Path, out: Path) -> tuple[list[Any], int]:
    """Does what is not done of an experiment: its combinations, and how many runs went wrong."""
    from ordercast.spark.experiment import load_experiment
    from ordercast.spark.outcome import write_outcome
    from ordercast.spark.results import combine, write_results
    from ordercast.spark.sweep import sweep

    experiment, trials = load_experiment(file)
    base = read_source(file.parent / experiment.scenario, "a scenario").document
    write_outcome(out, experiment, base, trials)
    console = screen.stderr()
    console.print(f"{experiment.name}: {len(trials)} runs into {out}", markup=False)
    progress = screen.progress(console)
    with progress:
        task = progress.add_task("runs", total=len(trials))
        manifests = sweep(
            spark,
            trials,
            out,
            experiment.keep.traces,
            lambda done: progress.update(task, completed=done),
            lambda sentence: console.print(sentence, markup=False),
        )
    write_results(out, manifests)
    return combine(manifests), _conclude(manifests, trials, out)


def print_combinations(combinations: list[Any]) -> None:
    screen.stdout().print(_table(combinations))


def _table(combinations: list[Any]) -> Table:
    keys = list(combinations[0].settings) if combinations else []
    shown = [name for name in METRICS_SHOWN if any(name in each.metrics for each in combinations)]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for key in keys:
        table.add_column(key.rpartition(".")[2], no_wrap=True)
    for name in ("runs", "broken", *shown):
        table.add_column(name.replace("_", "\n"), justify="right", no_wrap=True)
    for each in combinations:
        shown_values = [_estimate(each.metrics.get(name)) for name in shown]
        values = [str(value) for value in each.settings.values()]
        table.add_row(*values, str(each.runs), str(each.broken + each.failed), *shown_values)
    return table


def _estimate(estimate: Any) -> str:
    if estimate is None:
        return ""
    margin = "" if estimate.margin is None else f"±{float(f'{estimate.margin:.1g}'):.6g}"
    return f"{float(f'{estimate.value:.3g}'):.6g}{margin}"


def _conclude(manifests: list[Any], trials: list[Any], out: Path) -> int:
    """Names the runs that broke, each with the command that shows it again, and counts them."""
    from ordercast.spark.outcome import SCENARIOS
    from ordercast.spark.tune import settled

    by_id = {trial.id: trial for trial in trials}
    wrong = [one for one in manifests if one.broken or one.error]
    for one in wrong[:10]:
        path = out / SCENARIOS / f"{one.id}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        document = settled(by_id[one.id].document, one.seed)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(document, enc_hook=str)))
        again = shlex.join(["ordercast", "sim", str(path), "--seed", str(one.seed)])
        why = one.error or "; ".join(one.broken)
        screen.stderr().print(f"{one.id}: {why}\n    again: {again}", markup=False)
    if len(wrong) > 10:
        screen.stderr().print(f"and {len(wrong) - 10} more")
    return len(wrong)
