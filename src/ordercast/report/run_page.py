"""The page of runs, live or simulated: what happened, who delivered what, and their laws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ordercast.check.laws import LAWS, Checked, judge_run
from ordercast.check.promise import unknown_family
from ordercast.check.verdict import Answer
from ordercast.report.narrative import Line, tell
from ordercast.report.page import (
    CodePart,
    NarrativeLine,
    NarrativePart,
    Page,
    Section,
    TableCell,
    TablePart,
)
from ordercast.report.sweep_page import (
    NOT_ASKED,
    TONES,
    as_json,
    broken_part,
    not_asked_in_short,
)
from ordercast.report.tree_section import tree_sections
from ordercast.trace.lake import find_runs, read_run
from ordercast.trace.schema import Ending, Header, Trace

RUNS_SHOWN = 20
"""The page of more would be read by nobody: `ordercast check` judges them all."""
NARRATIVE_LINES = 500


def run_page(lake: Path) -> Page:
    """The page of the traces in a lake. TraceError: there are none."""
    folders = find_runs(lake)
    several = len(folders) > 1
    runs: list[tuple[Header, Checked]] = []
    sections: list[Section] = []
    for folder in folders[:RUNS_SHOWN]:  # one trace in memory at a time
        trace = read_run(folder)
        judged = judge_run(trace)
        runs.append((trace.header, judged))
        sections += _sections(trace, judged, several=several)
    about = []
    if len(folders) > RUNS_SHOWN:
        about.append(f"The first {RUNS_SHOWN} of {len(folders)} runs.")
    return Page(f"ordercast: {lake.resolve().name}", *_lead(runs), about, sections)


def _lead(runs: Sequence[tuple[Header, Checked]]) -> tuple[str, str]:
    """How the runs went, in a sentence or two, and its tone."""
    answers = [{one.answer for one in judged.verdicts} for _, judged in runs]
    wrong = sum(
        Answer.BROKEN in found or header.ending != Ending.FINISHED
        for (header, _), found in zip(runs, answers, strict=True)
    )
    unknown = sum(Answer.UNKNOWN in found for found in answers)
    several = len(runs) > 1
    alone = f"The run {runs[0][0].run}"
    if wrong:
        some = f"{wrong} of {len(runs)} runs" if several else alone
        return f"{some} broke a law or did not finish.", "bad"
    if unknown:
        some = f"{unknown} of {len(runs)} runs" if several else "the run"
        return f"No law was broken, but not every law of {some} could be decided.", "doubt"
    left_out = sum(bool(judged.not_asked) for _, judged in runs)
    kept = f"{f'{len(runs)} runs' if several else alone} kept every law."
    if left_out and several:
        kept += f" {not_asked_in_short(left_out)}"
    elif left_out:
        laws = sum(len(some.laws) for some in runs[0][1].not_asked)
        what = "1 law" if laws == 1 else f"{laws} laws"
        kept += f" Not asked, because something failed: {what}."
    return kept, "good"


def _sections(trace: Trace, judged: Checked, *, several: bool) -> list[Section]:
    run = trace.header.run
    of_run = f" of {run}" if several else ""
    sections = [
        narrative_section(tell(trace), f"narrative-{run}", f"What happened{of_run}"),
        members_section(trace, f"members-{run}", f"Who delivered what{of_run}"),
        *tree_sections(trace, of_run),
        laws_section(trace, judged, f"laws-{run}", f"The laws{of_run}"),
    ]
    broken = [one for one in judged.verdicts if one.answer is Answer.BROKEN]
    if broken:
        parts = [broken_part(f"{one.law} in {run}", trace, one) for one in broken]
        sections.append(Section(f"broken-{run}", f"What broke{of_run}", parts))
    settings = CodePart("the scenario", as_json(trace.header.parameters))
    sections.append(Section(f"settings-{run}", f"Settings{of_run}", [settings]))
    return sections


def narrative_section(narrative: Sequence[Line], id: str, title: str) -> Section:
    tones = {"bad": "bad", "good": "good", "load": "soft"}
    lines = [
        NarrativeLine(f"{line.at / 1e9:.3f} s", line.text, tones.get(line.tone, ""))
        for line in narrative[:NARRATIVE_LINES]
    ]
    left_out = len(narrative) - len(lines)
    about = [f"{left_out} later lines are left out."] if left_out else []
    return Section(id, title, [NarrativePart(lines)], about)


def members_section(trace: Trace, id: str, title: str) -> Section:
    incarnations = sorted({(row.process, row.incarnation) for row in trace.rows})
    counts = Counter((row.process, row.incarnation, row.kind) for row in trace.rows)
    kinds = ("submit", "deliver", "lose", "suspect", "blocked")
    ends = {(row.process, row.incarnation): row.kind for row in trace.rows if row.kind in _ENDS}
    rows = [
        [
            TableCell(f"{process}#{incarnation}" if incarnation else process),
            *(TableCell(f"{counts[process, incarnation, kind]:,}") for kind in kinds),
            TableCell(_ENDS.get(ends.get((process, incarnation), ""), "unknown")),
        ]
        for process, incarnation in incarnations
    ]
    columns = ("member", "submitted", "delivered", "given up", "suspicions", "blocked", "ended")
    return Section(id, title, [TablePart(columns, rows, frozenset(range(1, 6)))])


_ENDS = {"crash": "by a crash", "stop": "with the run"}


def laws_section(trace: Trace, judged: Checked, id: str, title: str) -> Section:
    answers = [(one.law, str(one.answer), f"{len(trace.rows):,}") for one in judged.verdicts]
    answers += [(law, NOT_ASKED, "") for some in judged.not_asked for law in some.laws]
    rows = [
        [
            TableCell(law),
            TableCell(answer, TONES[answer]),
            TableCell(count),
            TableCell(LAWS[law].says if law in LAWS else ""),
        ]
        for law, answer, count in answers
    ]
    table = TablePart(("law", "answer", "rows judged", "what it says"), rows, frozenset({2}))
    unknown = unknown_family(trace.header.family)
    about = [*([unknown] if unknown else []), *map(str, judged.not_asked)]
    return Section(id, title, [table], about)
