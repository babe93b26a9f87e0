"""`ordercast lab`: run an experiment: a sweep of simulations on Spark.

Runs every combination of an experiment's grid with every seed, checks the laws, measures, and
writes one table. What is done is not done again: after a kill the same command goes on.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from rich import box
from rich.markup import escape
from rich.table import Table

from ordercast.check.promise import not_asked_in
from ordercast.check.verdict import Answer
from ordercast.cli import screen
from ordercast.cli.modules import find_beside
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", type=Path, metavar="EXPERIMENT", help="a TOML file")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="(out/NAME of the experiment)")
    parser.add_argument(
        "--master", default=EMBEDDED, metavar="URL", help="where Spark runs (embedded)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a combination")


def run(arguments: argparse.Namespace) -> int:
    try:
        from ordercast.cli.report import write_report
        from ordercast.spark.results import RESULTS, combine
        from ordercast.spark.session import open_session
    except ModuleNotFoundError as error:
        raise UsageError(f'sweeps need {error.name}: pip install "ordercast[spark]"') from error
    loaded = load(arguments.experiment)  # what is wrong with it is told before Spark starts
    out = arguments.out or Path("out") / arguments.experiment.stem
    with open_session(arguments.master, light=True) as spark:
        manifests = run_experiment(spark, loaded, out)
    if arguments.json:
        for each in combine(manifests):
            screen.json_line(each._asdict())
    else:
        print_results(manifests)
        screen.stdout().print(f"all metrics: {out / RESULTS}", markup=False)
    try:
        told = f"the report: {write_report(out)}"
    except UsageError as error:  # pages are an extra, and the metrics are written
        told = f"no report: {error}"
    screen.stderr().print(told, markup=False)
    return exit_code(manifests)


class LoadedExperiment(NamedTuple):
    experiment: Any
    trials: list[Any]
    scenario: dict[str, Any]  # as it is before the grid changes it
    folders: list[str]  # where modules of families may be


def load(file: Path) -> LoadedExperiment:
    """The experiment in a file, and the scenario that it varies. UsageError: one is wrong."""
    from ordercast.spark.experiment import load_experiment

    named = read_source(file, "an experiment").document.get("scenario")
    scenario = file.parent / named if isinstance(named, str) else file
    folders = find_beside(file, scenario)
    return LoadedExperiment(
        *load_experiment(file), read_source(scenario, "a scenario").document, folders
    )


def run_experiment(spark: Any, loaded: LoadedExperiment, out: Path) -> list[Any]:
    """Does what is not done of an experiment. Returns the manifests of all its runs."""
    from ordercast.spark.outcome import write_outcome
    from ordercast.spark.results import write_results
    from ordercast.spark.sweep import sweep

    experiment, trials, scenario, folders = loaded
    write_outcome(out, experiment, scenario, trials)
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
            folders,
        )
    write_results(out, manifests)
    _name_broken(manifests, trials, out)
    return manifests


def exit_code(manifests: list[Any]) -> int:
    if any(one.broken or one.error for one in manifests):
        return 1
    return 3 if any(Answer.UNKNOWN in one.laws.values() for one in manifests) else 0


def print_results(manifests: list[Any]) -> None:
    from ordercast.spark.results import combine

    out = screen.stdout()
    out.print(_table(combine(manifests)))
    for sentence in not_asked_in([(one.seed, one.not_asked) for one in manifests]):
        out.print(sentence, markup=False)


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
        values = [escape(str(value)) for value in each.settings.values()]
        table.add_row(*values, str(each.runs), str(each.broken + each.failed), *shown_values)
    return table


def _estimate(estimate: Any) -> str:
    if estimate is None:
        return ""
    margin = "" if estimate.margin is None else f"±{float(f'{estimate.margin:.1g}'):.6g}"
    return f"{float(f'{estimate.value:.3g}'):.6g}{margin}"


def _name_broken(manifests: list[Any], trials: list[Any], out: Path) -> None:
    """The runs that broke, each with the command that shows it again."""
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
