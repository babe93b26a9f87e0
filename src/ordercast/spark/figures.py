"""Results as drawings: SVG that fits any page, light or dark.

    for drawn in figures_of(experiment, combinations):
        (folder / f"{drawn.name}.svg").write_text(standalone(drawn))

Rules.
 1. The same results give the same bytes: nothing in a drawing tells when or where it was made.
 2. Text and axes have the colour of the text around them (`currentColor`), nothing has a
    background. Lines differ in colour, which the colour-blind can tell apart, in marker and in
    dashes.
 3. Means over the seeds; bands, or bars where the x axis has no numbers, are the margins of 95 %
    confidence.
 4. Text stays text, so that it can be searched and read aloud.

matplotlib is imported when something is drawn, and used without its global state.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from html import escape
from importlib import import_module
from typing import Any, NamedTuple

import msgspec

from ordercast.check.metrics import NAMES
from ordercast.errors import UsageError
from ordercast.spark.experiment import Experiment, Figure, keys_of
from ordercast.spark.results import Combination, Estimate, estimate

MOST_LINES = 8
"""More cannot be told apart. The caption says how many were left out."""
MOST_POINTS = 500
INCHES = (5.2, 3.4)
INK = "#010203"  # stands for currentColor until the drawing is made
LINE_COLOURS = "#0072b2 #d55e00 #009e73 #cc79a7 #56b4e9 #e69f00 #8c6bb1 #7f7f7f".split()
MARKERS = "osD^vPX*"
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), "-", "--")
USUAL = ("lost_share", "rounds_mean", "latency_mean", "throughput", "recover_success")
"""The metrics that are drawn of an experiment that does not choose, as far as it has them."""

_SETTINGS = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9.0,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": INK,
    "grid.alpha": 0.15,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}
_LIGHT_AND_DARK = (
    "<style>svg{color:#1f2328}@media(prefers-color-scheme:dark){svg{color:#e6edf3}}</style>"
)


class Drawn(NamedTuple):
    name: str  # for files and links: small letters, digits and dashes
    title: str
    caption: str
    svg: str  # to be put into a page


class Curve(NamedTuple):
    place: int  # among all lines of the experiment, drawn or not: each has its colour everywhere
    label: str | None
    points: list[tuple[Any, Estimate]]  # in the order of the x axis


def figures_of(experiment: Experiment, combinations: list[Combination]) -> list[Drawn]:
    """What the experiment wants drawn; or the usual, if it does not say.

    A drawing for which there are no results is left out.
    """
    found, names = [], set()
    for spec in experiment.figure or _usual(experiment, combinations):
        lines = lines_of(combinations, spec)
        if not lines:
            continue
        name = stem = "-".join(re.findall(r"[a-z0-9]+", spec.title.lower())) or "figure"
        number = 1
        while name in names:
            number += 1
            name = f"{stem}-{number}"
        names.add(name)
        caption = " ".join(filter(None, (spec.caption, _left_out(lines), _margins(combinations))))
        found.append(Drawn(name, spec.title, caption, figure(combinations, spec, name)))
    return found


def figure(results: Any, spec: Figure, name: str = "figure") -> str:
    """One drawing as SVG. `results`: combinations, or the table in results.parquet.

    `name` keeps the ids of several drawings on one page apart.
    """
    combinations = results if isinstance(results, list) else combinations_of(results)
    lines = lines_of(combinations, spec)
    if not lines:
        raise UsageError(f"no run has a metric {spec.y!r} for {spec.x!r}: there is nothing to draw")
    try:
        matplotlib = import_module("matplotlib")
        canvas = import_module("matplotlib.figure")
    except ImportError as error:
        raise UsageError('drawings need matplotlib: pip install "ordercast[web]"') from error
    with matplotlib.rc_context({**_SETTINGS, "svg.hashsalt": name}):
        sheet = canvas.Figure(figsize=INCHES, layout="constrained")
        axes = sheet.add_subplot()
        _draw(axes, lines[:MOST_LINES], spec)
        _label(axes, spec, matplotlib)
        out = io.StringIO()
        metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
        sheet.savefig(out, format="svg", transparent=True, metadata=metadata)
    return _for_pages(out.getvalue(), spec.title)


def standalone(drawn: Drawn) -> str:
    """The drawing as a file of its own, which has no text around it to take a colour from."""
    return drawn.svg.replace(">", f">{_LIGHT_AND_DARK}", 1) + "\n"


def combinations_of(table: Any) -> list[Combination]:
    """The rows of results.parquet by combination, in their order."""
    by_settings: dict[str, list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        by_settings.setdefault(row["settings"], []).append(row)
    found = []
    for settings, rows in by_settings.items():
        values = {name: [row[name] for row in rows if row.get(name) is not None] for name in NAMES}
        found.append(
            Combination(
                msgspec.json.decode(settings),
                len(rows),
                sum(row.get("broken") is not None for row in rows),
                sum(row.get("error") is not None for row in rows),
                sum(row.get("not_asked") is not None for row in rows),
                {name: estimate(several) for name, several in values.items() if several},
            )
        )
    return found


# --- what is drawn ---------------------------------------------------------------------------


def lines_of(combinations: list[Combination], spec: Figure) -> list[Curve]:
    """The lines of a drawing. Where a line would have two points at one place, because other
    settings differ as well, these become part of what tells lines apart."""
    known = [one for one in combinations if spec.x in one.settings]
    keys = [spec.lines] if spec.lines is not None else []
    places = {_written(one.settings, [spec.x, *keys]) for one in known}
    if len(places) < len(known):
        others = dict.fromkeys(key for one in known for key in one.settings)
        keys += [
            key
            for key in others
            if key not in (spec.x, *keys) and len({str(o.settings.get(key)) for o in known}) > 1
        ]
    lines: dict[str, list[tuple[Any, Estimate]]] = {}
    for one in known:
        several = lines.setdefault(_written(one.settings, keys), [])
        wanted = not spec.only or str(one.settings.get(str(spec.lines))) in spec.only
        if wanted and spec.y in one.metrics:
            several.append((one.settings[spec.x], one.metrics[spec.y]))
    for several in lines.values():
        if _numeric(x for x, _ in several):
            several.sort(key=lambda point: point[0])
        del several[MOST_POINTS:]
    numbered = enumerate(lines.items())
    return [Curve(place, label or None, several) for place, (label, several) in numbered if several]


def _usual(experiment: Experiment, combinations: list[Combination]) -> list[Figure]:
    """One drawing for each of the usual metrics, over the key of the grid with most numbers."""
    keys = keys_of(experiment)
    values = {key: {str(one.settings.get(key)) for one in combinations} for key in keys}
    varied = [key for key in keys if len(values[key]) > 1]
    if not varied:
        return []
    numeric = [key for key in varied if _numeric(one.settings[key] for one in combinations)]
    x = max(numeric or varied, key=lambda key: len(values[key]))
    lines = next((key for key in varied if key != x), None)
    told = {name for one in combinations for name in one.metrics}
    return [
        Figure(title=name.replace("_", " ").capitalize(), x=x, y=name, lines=lines)
        for name in USUAL
        if name in told
    ]


def _written(settings: dict[str, Any], keys: list[str]) -> str:
    if len(keys) == 1:
        return str(settings.get(keys[0]))
    return ", ".join(f"{key.rpartition('.')[2]} {settings.get(key)}" for key in keys)


def _numeric(values: Iterable[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _left_out(lines: list[Curve]) -> str:
    more = len(lines) - MOST_LINES
    return f"{more} more lines are left out." if more > 0 else ""


def _margins(combinations: list[Combination]) -> str:
    runs = {one.runs for one in combinations}
    if runs == {1}:
        return "One run each."
    told = str(min(runs)) if len(runs) == 1 else f"{min(runs)} to {max(runs)}"
    return f"Means of {told} seeds with 95 % confidence."


# --- drawing ---------------------------------------------------------------------------------


def _draw(axes: Any, lines: list[Curve], spec: Figure) -> None:
    numeric = all(_numeric(x for x, _ in line.points) for line in lines)
    words = list(dict.fromkeys(str(x) for line in lines for x, _ in line.points))
    if not numeric:
        axes.set_xticks(range(len(words)), words)
    for line in lines:
        place = line.place % MOST_LINES
        xs = [x if numeric else words.index(str(x)) for x, _ in line.points]
        ys = [point.value for _, point in line.points]
        margins = [point.margin or 0.0 for _, point in line.points]
        low = [
            max(0.0, y - margin) if y >= 0 else y - margin
            for y, margin in zip(ys, margins, strict=True)
        ]
        high = [y + margin for y, margin in zip(ys, margins, strict=True)]
        if spec.percent:
            high = [min(1.0, value) for value in high]
        colour = LINE_COLOURS[place]
        axes.plot(
            xs,
            ys,
            color=colour,
            marker=MARKERS[place],
            linestyle=DASHES[place],
            label=line.label,
            clip_on=False,
        )
        if numeric:
            axes.fill_between(xs, low, high, color=colour, alpha=0.2, linewidth=0)
        else:
            axes.vlines(xs, low, high, color=colour, linewidth=1.2)
    for words_of, x in spec.marks.items():
        axes.axvline(x, color=INK, linewidth=1, linestyle=(0, (2, 2)), alpha=0.7)
        axes.annotate(
            words_of,
            (x, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(3, -2),
            textcoords="offset points",
            va="top",
            fontsize=8,
        )


def _label(axes: Any, spec: Figure, matplotlib: Any) -> None:
    axes.set_xlabel(spec.x_label or spec.x.rpartition(".")[2].replace("_", " "))
    axes.set_ylabel(spec.y_label or spec.y.replace("_", " "))
    if spec.log_x:
        axes.set_xscale("log")
    if spec.log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    if spec.percent:
        ticker = import_module("matplotlib.ticker")
        axes.yaxis.set_major_formatter(ticker.PercentFormatter(1.0, decimals=None))
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="best")


def _for_pages(svg: str, title: str) -> str:
    """Without what belongs to files, or would leak into a page that holds several drawings."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)  # hashed ids are on paths; groups count from 1
    svg = svg.replace(INK, "currentColor")
    start = f'<svg role="img" aria-label="{escape(title)}" stroke-linejoin="round"'
    svg = svg.replace("<svg", start, 1)
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    return re.sub(r"\n\s*", "\n", svg).strip()
