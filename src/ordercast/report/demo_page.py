"""The page of the demo: a live run, its laws, a sweep, and a bug that was planted."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ordercast.check.laws import Checked
from ordercast.check.verdict import Answer, Verdict
from ordercast.report.narrative import tell
from ordercast.report.page import Page, Section
from ordercast.report.run_page import laws_section, narrative_section
from ordercast.report.sweep_page import broken_part, lead_of, sweep_sections
from ordercast.spark.outcome import read_outcome
from ordercast.trace.schema import Trace


class Bug(NamedTuple):
    trace: Trace
    verdict: Verdict
    seed: int
    name: str


def demo_page(live: Trace, judged: Checked, sweep: Path, bug: Bug) -> Page:
    outcome = read_outcome(sweep)
    swept, tone = lead_of(outcome.manifests, outcome.missing)
    held = all(one.answer is Answer.HOLDS for one in judged.verdicts)
    lived = "The live group kept all that it promised" if held else "The live group broke a promise"
    sections = [
        narrative_section(tell(live), "narrative", "The live run"),
        laws_section(live, judged, "live-laws", "Its laws"),
        *(_of_the_sweep(section) for section in sweep_sections(outcome, sweep)),
        _bug(bug),
    ]
    about = [
        "Five real processes formed a causal cluster in which three may update at a time. One of "
        "these was killed, and another process took its ticket over. Spark judged what they wrote "
        "down, and swept simulations of a larger cluster.",
    ]
    lead = f"{lived}. In the sweep: {swept[0].lower()}{swept[1:]}"
    return Page("ordercast demo", lead, tone if held else "bad", about, sections)


def _of_the_sweep(section: Section) -> Section:
    """Beside the live run, its titles must say whose they are."""
    titles = {"laws": "The laws in the sweep", "settings": "Settings of the sweep"}
    return section._replace(title=titles.get(section.id, section.title))


def _bug(bug: Bug) -> Section:
    title = f"{bug.name}, seed {bug.seed}"
    about = [
        "In a simulated fifo group the survivors forget to pass on what a dead member had sent to "
        "only some of them. This bug was planted, so that a broken promise can be seen."
    ]
    return Section("bug", "A planted bug", [broken_part(title, bug.trace, bug.verdict)], about)
