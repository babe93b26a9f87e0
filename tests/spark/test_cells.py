"""Cells and what is made of them, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from ordercast.spark.cells import manifest_path, read_manifest, run_cell
from ordercast.spark.results import combine, estimate, write_results
from ordercast.trace.lake import find_runs, read_run

DOCUMENT = {
    "name": "cell",
    "family": "causal",
    "processes": 4,
    "duration": "1s",
    "quiet": "1s",
    "options": {"tickets": 2, "join_wait": "50ms"},
    "network": {"bandwidth": "100MB/s"},
}


def test_a_cell_is_simulated_judged_measured_and_kept(tmp_path: Path) -> None:
    manifest = run_cell("a-1", 0, 1, {"x": 1}, DOCUMENT, tmp_path, "all")
    assert manifest.error is None
    assert set(manifest.laws.values()) == {"holds"}
    assert manifest.figures["lost_share"] == 0
    assert manifest.figures["delivered"] == 4 * manifest.figures["submitted"] > 0
    assert manifest.figures["packet_bytes"] > 100
    [run] = find_runs(tmp_path / "lake")
    assert len(read_run(run).rows) == manifest.rows
    assert read_manifest(manifest_path(tmp_path, "a-1")) == manifest


def test_the_same_cell_gives_the_same_bytes(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        run_cell("a-1", 0, 1, {}, DOCUMENT, tmp_path / folder, "all")
    one, two = (
        {p.relative_to(tmp_path / f): p.read_bytes() for p in (tmp_path / f).rglob("*.*")}
        for f in ("one", "two")
    )
    assert one == two


def test_a_cell_that_is_done_is_not_done_again(tmp_path: Path) -> None:
    first = run_cell("a-1", 0, 1, {}, DOCUMENT, tmp_path, "none")
    again = run_cell("a-1", 3, 1, {"y": 2}, {"name": "cannot be run"}, tmp_path, "none")
    assert again.figures == first.figures
    assert (again.place, again.settings) == (3, {"y": 2})


def test_a_manifest_that_was_cut_off_is_none(tmp_path: Path) -> None:
    run_cell("a-1", 0, 1, {}, DOCUMENT, tmp_path, "none")
    path = manifest_path(tmp_path, "a-1")
    whole = path.read_bytes()
    path.write_bytes(whole[:50])
    assert read_manifest(path) is None
    run_cell("a-1", 0, 1, {}, DOCUMENT, tmp_path, "none")
    assert path.read_bytes() == whole


def test_a_cell_that_breaks_is_told_and_ends_nothing(tmp_path: Path) -> None:
    manifest = run_cell("a-1", 0, 1, {}, {"name": "x", "family": "none"}, tmp_path, "none")
    assert manifest.ending == "failed"
    assert "unknown family" in (manifest.error or "")


def test_figures_of_seeds_become_a_mean_and_a_margin(tmp_path: Path) -> None:
    manifests = [run_cell(f"a-{s}", 0, s, {}, DOCUMENT, tmp_path, "none") for s in (1, 2, 3)]
    [combination] = combine(manifests)
    assert (combination.runs, combination.broken) == (3, 0)
    delivered = [one.figures["delivered"] for one in manifests]
    assert combination.figures["delivered"].value == pytest.approx(sum(delivered) / 3)
    path = write_results(tmp_path, manifests)
    before = path.read_bytes()
    assert write_results(tmp_path, manifests).read_bytes() == before


def test_a_margin_is_students() -> None:
    value, margin = estimate([1.0, 2.0, 3.0])
    assert value == 2.0
    assert margin == pytest.approx(4.303 / 3**0.5, rel=1e-3)
    assert estimate([5.0]) == (5.0, None)
