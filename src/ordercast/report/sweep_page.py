"""The page of a sweep: the laws, the figures, every combination, what broke, and the settings."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ordercast.check.context import rows_around, who_was_there
from ordercast.check.diagram import draw as draw_text
from ordercast.check.laws import LAWS, check
from ordercast.check.metrics import NAMES
from ordercast.check.promise import not_asked_in
from ordercast.check.verdict import Answer, Verdict
from ordercast.errors import TraceError
from ordercast.report.page import (
    BrokenPart,
    CodePart,
    FiguresPart,
    Page,
    Part,
    Section,
    TableCell,
    TablePart,
)
from ordercast.report.space_time import draw
from ordercast.spark.figures import figures_of
from ordercast.spark.outcome import SCENARIOS, SweepOutcome, read_outcome
from ordercast.spark.results import Combination, Estimate, combine
from ordercast.spark.trials import LAKE, Manifest
from ordercast.trace.lake import read_run
from ordercast.trace.parquet import run_folder
from ordercast.trace.schema import Trace

PAGE = "report.html"
MOST_BROKEN = 10
"""Broken runs that are shown with all that is known about them."""
NOT_ASKED = "not asked"
TONES = {"broken": "bad", "unknown": "doubt", "holds": "good", NOT_ASKED: "soft"}
"""The answers of laws, the worst first, and how each is shown."""


def sweep_page(out: Path) -> Page:
    """What `ordercast lab` left in a folder, as a page."""
    outcome = read_outcome(out)
    lead, tone = lead_of(outcome.manifests, outcome.missing)
    experiment = outcome.experiment
    combinations = combine(outcome.manifests)
    about = [
        f"{len(combinations)} combinations of settings, {experiment.seeds} seeds each: "
        f"{len(outcome.manifests):,} simulated runs, "
        f"{sum(one.rows for one in outcome.manifests):,} rows of traces judged."
    ]
    return Page(experiment.name, lead, tone, about, sweep_sections(outcome, out))


def sweep_sections(outcome: SweepOutcome, out: Path) -> list[Section]:
    combinations = combine(outcome.manifests)
    sections = [laws_section(outcome.manifests)]
    figures = figures_of(outcome.experiment, combinations)
    if figures:
        sections.append(Section("figures", "Figures", [FiguresPart(figures)]))
    sections.append(
        Section(
            "combinations",
            "Every combination",
            [_table(combinations)],
            ["Means over the seeds, ± how far the true mean may lie away with 95 % confidence."],
        )
    )
    wrong = [one for one in outcome.manifests if one.broken or one.error]
    if wrong:
        sections.append(broken_section(wrong, out))
    sections.append(_settings(outcome))
    return sections


def lead_of(manifests: Sequence[Manifest], missing: int = 0) -> tuple[str, str]:
    """How it went, in one sentence."""
    wrong = sum(bool(one.broken) for one in manifests)
    failed = sum(one.error is not None for one in manifests)
    unknown = sum(Answer.UNKNOWN in one.laws.values() for one in manifests)
    told = []
    if wrong:
        told.append(f"{wrong} of {_runs(len(manifests))} broke a law.")
    if failed:
        told.append(f"{_runs(failed)} could not be finished.")
    if missing:
        told.append(f"Not done yet: {_runs(missing)}. The same command goes on with them.")
    if told:
        return " ".join(told), "bad" if wrong or failed else "doubt"
    if unknown:
        return f"No law was broken; in {_runs(unknown)} not every law could be decided.", "doubt"
    left_out = sum(bool(one.not_asked) for one in manifests)
    some = f" {not_asked_in_short(left_out)}" if left_out else ""
    return f"All promised laws hold in all {len(manifests):,} runs.{some}", "good"


def not_asked_in_short(runs: int) -> str:
    return f"In {runs:,} of them laws were not asked: something failed."


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count:,} runs"


def laws_section(manifests: Sequence[Manifest]) -> Section:
    """Each law, on how many runs and rows it was judged, what it answered, and in how many runs it
    was not asked."""
    answers: dict[str, Counter[str]] = {}
    judged: Counter[str] = Counter()
    for one in manifests:
        for law, answer in one.laws.items():
            answers.setdefault(law, Counter())[answer] += 1
            judged[law] += one.rows
        for law in {law for some in one.not_asked for law in some.laws}:
            answers.setdefault(law, Counter())[NOT_ASKED] += 1
    rows = []
    for law in (name for name in dict.fromkeys([*LAWS, *sorted(answers)]) if name in answers):
        counts = answers[law]
        worst = next(answer for answer in TONES if counts[answer])
        always = worst in (Answer.HOLDS, NOT_ASKED)
        rows.append(
            [
                TableCell(law),
                TableCell(worst if always else f"{worst} in {counts[worst]:,}", TONES[worst]),
                TableCell(f"{counts.total() - counts[NOT_ASKED]:,}"),
                TableCell(f"{judged[law]:,}"),
                TableCell(f"{counts[NOT_ASKED]:,}"),
                TableCell(LAWS[law].says if law in LAWS else ""),
            ]
        )
    columns = ("law", "answer", "runs", "rows judged", NOT_ASKED, "what it says")
    about = not_asked_in([(one.seed, one.not_asked) for one in manifests])
    return Section("laws", "Laws", [TablePart(columns, rows, frozenset({2, 3, 4}))], about)


def _table(combinations: list[Combination]) -> TablePart:
    keys = list(combinations[0].settings) if combinations else []
    measured = {name for each in combinations for name in each.metrics}
    names = [name for name in NAMES if name in measured]
    rows = [
        [
            *(TableCell(str(value)) for value in each.settings.values()),
            TableCell(f"{each.runs}"),
            _wrong(each.broken + each.failed),
            *(_number(each.metrics.get(name)) for name in names),
        ]
        for each in combinations
    ]
    columns = [key.rpartition(".")[2] for key in keys]
    columns += ["runs", "broken", *(name.replace("_", " ") for name in names)]
    return TablePart(columns, rows, frozenset(range(len(keys), len(columns))))


def _wrong(count: int) -> TableCell:
    return TableCell(str(count), "bad" if count else "")


def _number(estimate: Estimate | None) -> TableCell:
    if estimate is None:
        return TableCell("")
    margin = "" if estimate.margin is None else _plain(estimate.margin, 2)
    return TableCell(_plain(estimate.value, 4), "", margin)


def _plain(value: float, digits: int) -> str:
    """So many digits, and no power of ten where that can be helped."""
    return f"{float(f'{value:.{digits}g}'):,.10g}"


def broken_section(wrong: Sequence[Manifest], out: Path) -> Section:
    parts: list[Part] = [
        _broken(one, out, is_open=place == 0) for place, one in enumerate(wrong[:MOST_BROKEN])
    ]
    about = []
    if len(wrong) > MOST_BROKEN:
        about = [f"The first {MOST_BROKEN} of {len(wrong)}; all of them are in results.parquet."]
    return Section("broken", "What broke", parts, about)


def _broken(one: Manifest, out: Path, is_open: bool) -> BrokenPart:
    settings = ", ".join(f"{key} = {value}" for key, value in one.settings.items())
    title = f"seed {one.seed}{': ' + settings if settings else ''}"
    scenario = out / SCENARIOS / f"{one.id}.json"
    again = shlex.join(["ordercast", "sim", str(scenario), "--seed", str(one.seed)])
    words = [one.error] if one.error else []
    judged = _judged(one, out)
    if judged is None:
        return BrokenPart(title, [*words, *one.broken], again=again, is_open=is_open)
    return broken_part(title, *judged, again, is_open)


def broken_part(
    title: str, trace: Trace, verdict: Verdict, again: str = "", is_open: bool = True
) -> BrokenPart:
    """A verdict with a picture of what it rests on."""
    words = [f"{verdict.law} is broken: {verdict.why}"]
    law = LAWS.get(verdict.law)
    if law is not None:
        words.append(f"The law says: {law.says}.")
    diagram = draw(rows_around(trace, verdict), who_was_there(trace, verdict))
    text = "" if diagram else draw_text(verdict.witness)
    return BrokenPart(title, words, diagram, text, again, is_open)


def _judged(one: Manifest, out: Path) -> tuple[Trace, Verdict] | None:
    """The first broken law of a run whose trace was kept, judged once more."""
    law = next((law for law, answer in one.laws.items() if answer == Answer.BROKEN), None)
    if law is None:
        return None
    try:
        trace = read_run(run_folder(out / LAKE, one.id))
    except TraceError:
        return None  # not kept, or not any more
    # By its promises and not alone: in a run of several families only those that promise it count.
    verdict = next((one for one in check(trace) if one.law == law), None)
    return (trace, verdict) if verdict and verdict.answer is Answer.BROKEN else None


def _settings(outcome: SweepOutcome) -> Section:
    experiment: dict[str, Any] = msgspec.to_builtins(outcome.experiment, enc_hook=str)
    return Section(
        "settings",
        "Settings",
        [
            CodePart("The experiment", as_json(experiment)),
            CodePart("The scenario that it varies", as_json(outcome.scenario)),
        ],
    )


def as_json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=str)).decode()
