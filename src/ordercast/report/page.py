"""What a page holds, and how it becomes one self-contained file.

A page is plain values: a title, a sentence that says how it went, and sections of tables, figures,
narratives and broken runs. Everything is escaped; only drawings that this package made are put in
as they are. No script, no network: it can be mailed, printed and opened in ten years. The same
values give the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module, resources
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

from ordercast.errors import UsageError

TEMPLATE = "page.html"


class Drawing(Protocol):
    """A figure as SVG, made by `ordercast.spark.figures` or `tree_drawing`."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def caption(self) -> str: ...
    @property
    def svg(self) -> str: ...


class TableCell(NamedTuple):
    """What stands in one place of a table."""

    text: str
    tone: str = ""  # good, bad or doubt
    margin: str = ""


class TablePart(NamedTuple):
    columns: Sequence[str]
    rows: Sequence[Sequence[TableCell]]
    numbers: frozenset[int] = frozenset()  # the columns that hold numbers
    kind: str = "table"


class FiguresPart(NamedTuple):
    figures: Sequence[Drawing]
    kind: str = "figures"


class WidePart(NamedTuple):
    """A drawing as wide as the page, which scrolls where there is less room."""

    title: str
    caption: str
    svg: str
    kind: str = "wide"


class NarrativeLine(NamedTuple):
    when: str
    text: str
    tone: str = ""


class NarrativePart(NamedTuple):
    lines: Sequence[NarrativeLine]
    kind: str = "narrative"


class BrokenPart(NamedTuple):
    """A run in which a promise was broken, or that could not be finished."""

    title: str
    words: Sequence[str]
    diagram: str = ""  # SVG
    text: str = ""  # where there is no drawing
    again: str = ""  # the command that shows it again
    is_open: bool = False
    kind: str = "broken"


class CodePart(NamedTuple):
    title: str
    text: str
    kind: str = "code"


Part: TypeAlias = TablePart | FiguresPart | WidePart | NarrativePart | BrokenPart | CodePart


class Section(NamedTuple):
    id: str
    title: str
    parts: Sequence[Part]
    about: Sequence[str] = ()


class Page(NamedTuple):
    title: str
    lead: str
    tone: str  # good, bad or doubt: of the lead
    about: Sequence[str]
    sections: Sequence[Section]


def render(page: Page) -> str:
    """The page as HTML. UsageError: what it takes is not installed."""
    try:
        jinja2: Any = import_module("jinja2")
    except ModuleNotFoundError as error:
        raise UsageError('report pages need jinja2: pip install "ordercast[web]"') from error
    text = resources.files(__package__).joinpath(TEMPLATE).read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    html: str = environment.from_string(text).render(page=page)
    return html


def write_page(path: Path, page: Page) -> None:
    """Under its name only when it is complete."""
    html = render(page)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(html, encoding="utf-8")
    temporary.replace(path)
