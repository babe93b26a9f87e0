"""The page of runs that `ordercast live` or `sim` left in a lake."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ordercast.cli.main import main
from ordercast.report.narrative import tell
from ordercast.report.run_page import run_page
from ordercast.testing import simulate
from ordercast.trace.parquet import write_trace
from ordercast.trace.schema import Trace
from ordercast.trace.text import parse_history

ROOT = Path(__file__).resolve().parents[2]
MEMBERS = ROOT / "scenarios" / "total-members.toml"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    write_trace(tmp_path, simulate(MEMBERS, 1).trace)
    return tmp_path


def test_the_command_writes_the_page_of_a_lake(
    lake: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lake)
    assert main(["report", "."]) == 0
    assert capsys.readouterr().out.strip() == "report.html"
    html = (lake / "report.html").read_text(encoding="utf-8")
    for words in (
        f"ordercast: {lake.name}",
        "kept every law",
        "n2 leaves g",
        "n2 joins g",
        "n4 joins g",
        "disjoint-views",
    ):
        assert words in html


def test_a_run_that_broke_a_law_is_shown_with_the_witness(lake: Path) -> None:
    trace = simulate(MEMBERS, 2).trace
    twice = next(row for row in trace.rows if row.kind == "deliver")
    last = max(row.step for row in trace.rows if row.process == twice.process)
    rows = [*trace.rows, msgspec.structs.replace(twice, step=last + 1)]
    write_trace(lake, Trace(trace.header, rows))
    page = run_page(lake)
    assert page.tone == "bad"
    assert page.lead == "1 of 2 runs broke a law or did not finish."
    assert [section.id for section in page.sections if section.id.startswith("broken-")] == [
        f"broken-{trace.header.run}"
    ]


def test_a_run_with_an_undecided_law_is_in_doubt_and_not_broken(tmp_path: Path) -> None:
    """Without a view row nobody can say whether the laws about views hold."""
    text = "run r family=total ending=finished\nn1 submit n1:1\nn1 deliver n1:1\n"
    write_trace(tmp_path, parse_history(text))
    page = run_page(tmp_path)
    assert page.tone == "doubt"
    assert page.lead == "No law was broken, but not every law of the run could be decided."
    write_trace(tmp_path, simulate(MEMBERS, 1).trace)
    assert "but not every law of 1 of 2 runs could be decided" in run_page(tmp_path).lead


def test_a_member_that_joins_with_the_run_is_not_told_but_a_later_one_is() -> None:
    """Live processes start, and wait for each other, before the run begins."""
    text = "run r start=1s\nn1 start at=1ms\nn2 start at=2ms\nn1 join at=1005ms\nn2 join at=2s\n"
    assert [line.text for line in tell(parse_history(text))] == ["n2 joins g"]


LEFT = "run r{} family=causal ending=finished\nn1 join\nn2 join\nn2 leave\n"


def test_laws_that_were_not_asked_are_in_the_lead_and_in_the_table(tmp_path: Path) -> None:
    write_trace(tmp_path, parse_history(LEFT.format(1)))
    page = run_page(tmp_path)
    assert page.lead == "The run r1 kept every law. Not asked, because something failed: 2 laws."
    (laws,) = (section for section in page.sections if section.id == "laws-r1")
    assert laws.about == [
        "The laws completeness and causal were not asked: the family causal promises them only "
        "while nothing fails, and here n2 left g."
    ]
    answers = {row[0].text: row[1].text for row in laws.parts[0].rows}
    assert answers["completeness"] == answers["causal"] == "not asked"
    assert answers["optimistic-causal"] == "holds"
    write_trace(tmp_path, parse_history(LEFT.format(2).replace("leave", "stop")))
    lead = run_page(tmp_path).lead
    assert lead == "2 runs kept every law. In 1 of them laws were not asked: something failed."


def test_a_run_of_an_unknown_family_is_judged_by_all_laws_and_says_so(tmp_path: Path) -> None:
    write_trace(tmp_path, parse_history(LEFT.format(1).replace("causal", "casual")))
    (laws,) = (section for section in run_page(tmp_path).sections if section.id == "laws-r1")
    said = "All laws are judged: unknown family 'casual': did you mean 'causal'?"
    assert laws.about == [said]


def test_a_run_that_was_cut_off_has_a_page_too(
    lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (header,) = lake.glob("run=*/run.json")
    header.unlink()
    assert main(["report", str(lake)]) == 0
    assert "broke a law or did not finish" in (lake / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("folder", ["empty", "absent"])
def test_a_folder_without_runs_is_refused_with_both_ways_to_get_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], folder: str
) -> None:
    (tmp_path / "empty").mkdir()
    assert main(["report", str(tmp_path / folder)]) == 2
    said = capsys.readouterr().err
    assert "that ordercast lab has written, or one that ordercast live or sim has written" in said
    assert ("does not exist" in said) == (folder == "absent")
    assert not (tmp_path / folder / "report.html").exists()
