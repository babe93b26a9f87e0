"""Drawings: what they show, that they are the same every time, and that they fit any page."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ordercast.errors import UsageError
from ordercast.spark.experiment import Experiment, Figure, load_experiment
from ordercast.spark.figures import (
    INK,
    MOST_LINES,
    combinations_of,
    figure,
    figures_of,
    lines_of,
    standalone,
)
from ordercast.spark.results import Combination, Estimate, combine, write_results
from ordercast.spark.trials import Manifest
from ordercast.trace.parquet import load_pyarrow

EXPERIMENTS = sorted((Path(__file__).resolve().parents[2] / "experiments").glob("*[0-9ls].toml"))
LOSS = Figure(
    title="Loss & load",
    x="load",
    y="lost_share",
    lines="variant",
    x_label="events a round",
    percent=True,
    marks={"bound": 2.5},
)


def combinations(lines: int = 2) -> list[Combination]:
    return [
        Combination(
            {"variant": f"v{line}", "load": load, "note": "same"},
            3,
            0,
            0,
            0,
            {"lost_share": Estimate(0.01 * load * (line + 1), 0.005)},
        )
        for line in range(lines)
        for load in (3, 1, 2)
    ]


def test_a_line_for_each_value_with_its_points_in_order() -> None:
    one, two = lines_of(combinations(), LOSS)
    assert (one.label, two.label) == ("v0", "v1")
    assert [x for x, _ in one.points] == [1, 2, 3]
    assert two.points[0][1].value == pytest.approx(0.02)


def test_settings_that_differ_as_well_tell_lines_apart() -> None:
    twice = combinations(1) + [
        one._replace(settings={**one.settings, "note": "other"}) for one in combinations(1)
    ]
    assert [line.label for line in lines_of(twice, LOSS)] == [
        "variant v0, note same",
        "variant v0, note other",
    ]


def test_a_line_keeps_its_place_where_others_are_left_out() -> None:
    """So it has the same colour in all drawings of an experiment."""
    spec = Figure(title="t", x="load", y="lost_share", lines="variant", only=["v1"])
    [line] = lines_of(combinations(), spec)
    assert (line.place, line.label) == (1, "v1")


def test_the_same_results_give_the_same_bytes() -> None:
    assert figure(combinations(), LOSS) == figure(combinations(), LOSS)


def test_a_drawing_is_svg_that_takes_the_colours_of_its_page() -> None:
    svg = figure(combinations(), LOSS)
    root = ElementTree.fromstring(svg)
    assert root.get("aria-label") == "Loss & load"
    words = {node.text for node in root.iter() if node.tag.endswith("}text")}
    assert {"events a round", "v0", "v1", "bound"} <= words
    assert "currentColor" in svg
    assert INK not in svg
    assert "<style" not in svg  # it would reach everything else on the page
    assert not re.search(r"#ffffff|#000000", svg)
    assert len(svg) < 40_000


def test_ids_of_two_drawings_on_one_page_differ() -> None:
    one, two = (
        set(re.findall(r' id="([^"]*)"', figure(combinations(), LOSS, name))) for name in "ab"
    )
    assert one
    assert not one & two


def test_a_file_brings_colours_for_light_and_dark() -> None:
    [drawn] = figures_of(Experiment(name="e", scenario="s", figure=[LOSS]), combinations())
    ElementTree.fromstring(standalone(drawn))
    assert "prefers-color-scheme:dark" in standalone(drawn)


def test_words_on_the_x_axis_keep_their_order() -> None:
    spec = Figure(title="by word", x="variant", y="lost_share", lines="load")
    words = re.findall(r">(v\d+)</text>", figure(combinations(3), spec))
    assert words == ["v0", "v1", "v2"]


def test_figures_of_an_experiment_have_names_and_say_how_sure_they_are() -> None:
    twice = Experiment(name="e", scenario="s", figure=[LOSS, LOSS])
    drawn = figures_of(twice, combinations())
    assert [one.name for one in drawn] == ["loss-load", "loss-load-2"]
    assert drawn[0].title == "Loss & load"
    assert drawn[0].caption == "Means of 3 seeds with 95 % confidence."


def test_lines_beyond_the_limit_are_counted() -> None:
    [drawn] = figures_of(
        Experiment(name="e", scenario="s", figure=[LOSS]), combinations(MOST_LINES + 2)
    )
    assert "2 more lines are left out." in drawn.caption


def test_without_figures_a_standard_set_is_drawn() -> None:
    grid = {"variant": ["v0", "v1"], "load": [1, 2, 3]}
    [drawn] = figures_of(Experiment(name="e", scenario="s", grid=grid), combinations())
    assert drawn.title == "Lost share"
    assert not figures_of(Experiment(name="e", scenario="s"), combinations())


def test_figures_without_results_are_left_out_or_rejected() -> None:
    nothing = Figure(title="none", x="load", y="view_change_mean")
    assert not figures_of(Experiment(name="e", scenario="s", figure=[nothing]), combinations())
    with pytest.raises(UsageError, match="nothing to draw"):
        figure(combinations(), nothing)


def test_the_table_of_results_draws_the_same(tmp_path: Path) -> None:
    manifests = [
        Manifest(
            id=f"{load}-{seed}",
            place=load,
            seed=seed,
            settings={"load": load},
            ending="finished",
            metrics={"lost_share": load / 10 + seed / 100},
        )
        for load in (1, 2, 3)
        for seed in (1, 2)
    ]
    table = load_pyarrow().parquet.read_table(write_results(tmp_path, manifests))
    spec = Figure(title="t", x="load", y="lost_share")
    assert combinations_of(table) == combine(manifests)
    assert figure(table, spec) == figure(combine(manifests), spec)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('x = "workload.rat"\ny = "lost_share"', "e.toml:7: unknown key of the grid"),
        ('x = "workload.rate"\ny = "lost_shar"', "did you mean 'lost_share'?"),
        ('x = "workload.rate"\ny = "lost_share"\nline = "a"', "did you mean 'lines'?"),
    ],
)
def test_a_figure_that_cannot_be_drawn_is_rejected_before_anything_runs(
    tmp_path: Path, text: str, told: str
) -> None:
    (tmp_path / "base.toml").write_text('name = "base"\n', encoding="utf-8")
    path = tmp_path / "e.toml"
    path.write_text(
        'name = "e"\nscenario = "base.toml"\n[grid]\n"workload.rate" = [1, 2]\n'
        f'[[figure]]\ntitle = "t"\n{text}\n',
        encoding="utf-8",
    )
    with pytest.raises(UsageError) as raised:
        load_experiment(path)
    assert told in str(raised.value)


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_our_experiments_can_be_read(path: Path) -> None:
    experiment, trials = load_experiment(path)
    assert len({(trial.place, trial.seed) for trial in trials}) == len(trials) > 1
    drawn = {figure.title for figure in experiment.figure}
    assert len(drawn) == len(experiment.figure)
