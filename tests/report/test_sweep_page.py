"""The page of a sweep says how it went, and can be written again from the folder alone."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.report.pages import folder_of_a_sweep

from ordercast.check.laws import check
from ordercast.check.promise import NotAsked
from ordercast.errors import UsageError
from ordercast.report.page import render
from ordercast.report.sweep_page import sweep_page
from ordercast.spark.outcome import EXPERIMENT_FILE, read_outcome
from ordercast.spark.trials import LAKE, manifest_path
from ordercast.trace.parquet import write_trace
from ordercast.trace.schema import Trace
from ordercast.trace.text import parse_history


def test_a_sound_sweep_says_so_and_lists_no_broken_run(tmp_path: Path) -> None:
    page = sweep_page(folder_of_a_sweep(tmp_path, sound=True))
    assert (page.lead, page.tone) == ("All promised laws hold in all 4 runs.", "good")
    assert [section.id for section in page.sections] == [
        "laws",
        "figures",
        "combinations",
        "settings",
    ]
    laws = page.sections[0].parts[0]
    assert [row[0].text for row in laws.rows] == ["no-duplication", "fifo", "agreement"]
    assert {row[1].text for row in laws.rows} == {"holds"}
    rows = sum(one.rows for one in read_outcome(tmp_path / "out").manifests)
    assert {(row[2].text, row[3].text) for row in laws.rows} == {("4", f"{rows}")}


def test_laws_that_were_not_asked_are_counted_and_named(tmp_path: Path) -> None:
    out = folder_of_a_sweep(tmp_path, sound=True)
    left_out = NotAsked("fifo", ("completeness", "agreement"), "n2 left g")
    for one in read_outcome(out).manifests[:2]:
        laws = {law: answer for law, answer in one.laws.items() if law != "agreement"}
        manifest = msgspec.structs.replace(one, laws=laws, not_asked=[left_out])
        manifest_path(out, one.id).write_bytes(msgspec.json.encode(manifest))
    page = sweep_page(out)
    some = "In 2 of them laws were not asked: something failed."
    assert (page.lead, page.tone) == (f"All promised laws hold in all 4 runs. {some}", "good")
    laws = page.sections[0]
    assert laws.about == [f"2 of 4 runs, the first with seed 1. {left_out}"]
    columns = laws.parts[0].columns
    shown = {
        row[0].text: (row[1].text, row[2].text, row[columns.index("not asked")].text)
        for row in laws.parts[0].rows
    }
    assert shown == {
        "no-duplication": ("holds", "4", "0"),
        "fifo": ("holds", "4", "0"),
        "agreement": ("holds", "2", "2"),
        "completeness": ("not asked", "0", "2"),
    }


def test_a_law_that_the_checker_does_not_have_is_shown_as_undecided(tmp_path: Path) -> None:
    out = folder_of_a_sweep(tmp_path, sound=True)
    one = read_outcome(out).manifests[0]
    manifest = msgspec.structs.replace(one, laws={**one.laws, "from-elsewhere": "unknown"})
    manifest_path(out, one.id).write_bytes(msgspec.json.encode(manifest))
    page = sweep_page(out)
    assert page.tone == "doubt"
    last = page.sections[0].parts[0].rows[-1]
    assert [last[0].text, last[1].text] == ["from-elsewhere", "unknown in 1"]


def test_a_break_is_explained_in_a_group_whose_family_promises_the_law(tmp_path: Path) -> None:
    """Another group of the run, of a family without that promise, goes against it earlier."""
    out = folder_of_a_sweep(tmp_path, sound=True)
    one = read_outcome(out).manifests[0]
    rows = []
    for group, number in (("a", 1), ("b", 2)):
        mine, theirs = f"n1:{number}", f"n2:{number}"
        rows += [f"n1 submit {mine} group={group}", f"n2 submit {theirs} group={group}"]
        rows += [f"n1 deliver {event} group={group}" for event in (mine, theirs)]
        rows += [f"n2 deliver {event} group={group}" for event in (theirs, mine)]
    trace = parse_history("\n".join([f"run {one.id} ending=finished", *rows]))
    groups = [{"name": "a", "family": "fifo"}, {"name": "b", "family": "total"}]
    header = msgspec.structs.replace(trace.header, family="fifo", parameters={"group": groups})
    write_trace(out / LAKE, Trace(header, trace.rows), replace=True)
    manifest = msgspec.structs.replace(one, laws={"total": "broken"}, broken=["total: it fell"])
    manifest_path(out, one.id).write_bytes(msgspec.json.encode(manifest))
    (shown,) = next(each for each in sweep_page(out).sections if each.id == "broken").parts
    (alone,) = check(Trace(header, trace.rows), ["total"])
    (by_promise,) = (each for each in check(Trace(header, trace.rows)) if each.law == "total")
    assert [alone.witness[0].group, by_promise.witness[0].group] == ["a", "b"]
    assert shown.words[0] == f"total is broken: {by_promise.why}"


def test_a_broken_run_is_shown_with_its_diagram_and_its_command(tmp_path: Path) -> None:
    out = folder_of_a_sweep(tmp_path, sound=False)
    page = sweep_page(out)
    assert page.lead == "1 of 4 runs broke a law. 1 run could not be finished."
    assert page.tone == "bad"
    broken, failed = next(one for one in page.sections if one.id == "broken").parts
    assert broken.is_open
    assert "agreement is broken: n2 delivered n1:1" in broken.words[0]
    assert broken.diagram.startswith("<svg")
    assert "deliver n1:1" in broken.diagram
    assert broken.again.startswith(f"ordercast sim {out}/scenarios/")
    assert broken.again.endswith("--seed 2")
    assert not failed.is_open
    assert "numbers <increase>" in failed.words[0]


def test_everything_is_escaped_and_nothing_is_fetched(tmp_path: Path) -> None:
    html = render(sweep_page(folder_of_a_sweep(tmp_path, sound=False)))
    assert "a &lt;sweep&gt; &amp; its page" in html
    assert "numbers &lt;increase&gt;" in html
    for fetched in ("<script", "<link", "@import", "src=", 'href="http', 'href="/', "url(http"):
        assert fetched not in html, fetched


def test_the_same_folder_gives_the_same_bytes(tmp_path: Path) -> None:
    out = folder_of_a_sweep(tmp_path, sound=False)
    assert render(sweep_page(out)) == render(sweep_page(out))


def test_unfinished_runs_are_counted(tmp_path: Path) -> None:
    out = folder_of_a_sweep(tmp_path, sound=True)
    manifest_path(out, read_outcome(out).manifests[1].id).unlink()
    page = sweep_page(out)
    assert page.lead == "Not done yet: 1 run. The same command goes on with them."
    assert page.tone == "doubt"


def test_a_folder_that_is_no_sweep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no experiment.json: give a folder that ordercast"):
        sweep_page(tmp_path)
    (tmp_path / EXPERIMENT_FILE).write_text("{", encoding="utf-8")
    with pytest.raises(UsageError, match="cannot be read"):
        sweep_page(tmp_path)
    out = folder_of_a_sweep(tmp_path, sound=True)
    written = (
        (out / EXPERIMENT_FILE).read_text(encoding="utf-8").replace('"version":1', '"version":9')
    )
    (out / EXPERIMENT_FILE).write_text(written, encoding="utf-8")
    with pytest.raises(UsageError, match="is of version 9; this ordercast reads 1"):
        sweep_page(out)
