"""`ordercast demo` does the main job: a live group, a kill, the laws on Spark, a sweep, a page."""

from __future__ import annotations

import re
import tomllib

import pytest
from tests.pages import ROOT, run

from ordercast.cli import demo
from ordercast.report.narrative import tell
from ordercast.scenario.file import parse_scenario
from ordercast.studies.demonstration import LIVE
from ordercast.testing import simulate

DEMO = "make demo"
"""As the README says. Its page is in out/demo."""


@pytest.mark.slow(60)
def test_the_demo_shows_the_kill_the_laws_the_sweep_and_the_bug() -> None:
    ran = run(DEMO.split(), ROOT)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for part in (
        "n2 is killed (SIGKILL)",
        "n2 is started again",
        "n2 crashes",
        "n4 wants to update",
        "s ago when it died",
        "n2 starts again, as incarnation 1",
        "✓ optimistic-causal",
        "✓ ticket-uniqueness",
        "The laws completeness and causal were not asked",
        "What is recovery good for?",
        "And if there were a bug?",
        "agreement is broken",
    ):
        assert part in ran.stdout, part
    assert "Traceback" not in ran.stderr
    page = (ROOT / "out" / "demo" / "report.html").read_text(encoding="utf-8")
    assert "The live group kept all that it promised. In the sweep: all promised laws hold" in page
    assert "The laws completeness and causal were not asked" in page
    assert page.count("<svg") >= 4, "two figures, a diagram, and the head of its arrows"
    assert re.search(r"n4 may update: it has ticket \d, which n2 left \d\.\d s ago", page)


def test_in_the_simulator_too_another_member_takes_the_ticket_of_a_killed_owner() -> None:
    scenario = parse_scenario(tomllib.loads(LIVE))
    for seed in (1, 2, 3):
        run = simulate(scenario, seed)
        assert not run.broken
        narrative = [line.text for line in tell(run.trace)]
        takes = [text for text in narrative if text.endswith("ago when it died")]
        assert len(takes) == 1
        assert takes[0].startswith("n4 may update: it has ticket ")
        assert (
            narrative.index("n4 wants to update")
            < narrative.index("n2 crashes")
            < narrative.index(takes[0])
        )


def test_the_planted_bug_is_found_and_another_seed_finds_it_too() -> None:
    for first in (1, 30):
        simulated, seed = demo._find_bug(first)
        assert seed >= first
        assert simulated.broken[0].law == "agreement"


def test_version_prints_the_version(ordercast) -> None:
    assert ordercast("--version").out.startswith("ordercast 0.")
