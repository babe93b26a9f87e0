"""The page of runs, live or simulated: what happened, who delivered what, and their laws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ordercast.check.laws import LAWS, check
from ordercast.check.verdict import Answer, Verdict
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
from ordercast.report.sweep_page import TONES, as_json, broken_part
from ordercast.trace.lake import find_runs, read_run
from ordercast.trace.schema import Ending, Trace

RUNS_SHOWN = 20
"""The page of more would be read by nobody: `ordercast check` judges them all."""
NARRATIVE_LINES = 500


def run_page(lake: Path) -> Page:
    """The page of the traces in a lake. TraceError: there are none."""
    folders = find_runs(lake)
    traces = [read_run(folder) for folder in folders[:RUNS_SHOWN]]
    verdicts = [check(trace) for trace in traces]
    lead, tone = _lead(traces, verdicts)
    about = []
    if len(folders) > RUNS_SHOWN:
        about.append(f"The first {RUNS_SHOWN} of {len(folders)} runs.")
    sections = [
        section
        for trace, judged in zip(traces, verdicts, strict=True)
        for section in _sections(trace, judged, several=len(traces) > 1)
    ]
    return Page(f"ordercast: {lake.name}", lead, tone, about, sections)


def _lead(traces: Sequence[Trace], verdicts: Sequence[Sequence[Verdict]]) -> tuple[str, str]:
    """How the runs went, in one sentence, and its tone."""
    answers = [{one.answer for one in judged} for judged in verdicts]
    wrong = sum(
        Answer.BROKEN in found or trace.header.ending != Ending.FINISHED
        for trace, found in zip(traces, answers, strict=True)
    )
    unknown = sum(Answer.UNKNOWN in found for found in answers)
    several = len(traces) > 1
    alone = f"The run {traces[0].header.run}"
    if wrong:
        some = f"{wrong} of {len(traces)} runs" if several else alone
        return f"{some} broke a law or did not finish.", "bad"
    if unknown:
        some = f"{unknown} of {len(traces)} runs" if several else "the run"
        return f"No law was broken, but not every law of {some} could be decided.", "doubt"
    return f"{f'{len(traces)} runs' if several else alone} kept every law.", "good"


def _sections(trace: Trace, verdicts: Sequence[Verdict], *, several: bool) -> list[Section]:
    run = trace.header.run
    of_run = f" of {run}" if several else ""
    sections = [
        narrative_section(tell(trace), f"narrative-{run}", f"What happened{of_run}"),
        members_section(trace, f"members-{run}", f"Who delivered what{of_run}"),
        laws_section(trace, verdicts, f"laws-{run}", f"The laws{of_run}"),
    ]
    broken = [one for one in verdicts if one.answer is Answer.BROKEN]
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


def laws_section(trace: Trace, verdicts: Sequence[Verdict], id: str, title: str) -> Section:
    rows = [
        [
            TableCell(one.law),
            TableCell(str(one.answer), TONES[one.answer]),
            TableCell(f"{len(trace.rows):,}"),
            TableCell(LAWS[one.law].says if one.law in LAWS else ""),
        ]
        for one in verdicts
    ]
    table = TablePart(("law", "answer", "rows judged", "what it says"), rows, frozenset({2}))
    return Section(id, title, [table])
