"""A tree of nodes as SVG, and who was whose parent over time, a lane a node.

The root stands at the left, and children to the right of their parent, in the order of their names,
so that two pictures of one tree can be compared. The page that holds these drawings has all
colours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from ordercast.check.parents import Life, ParentLink, adoptions_in, children_in, moves_in
from ordercast.units import SECOND

LONGEST_NAME = 12
CHARACTER = 7.3  # of the page's font
ROW, GAP, EDGE, TALL_EDGE = 23, 26, 8, 18  # an edge that was may bend around the tree
MOST_FORMER = 3
"""Edges of the former tree in a picture: more of them hide the present one."""
SMALLEST = 0.7
"""A picture is not shown smaller than that; where there is less room, it scrolls."""
LANE, TOP, TIMES = 19, 24, 22
ALL_LANES = 1080
MOST_TICKS = 12
TICKS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)


class TreePicture(NamedTuple):
    """A drawing on a page."""

    name: str
    title: str
    caption: str
    svg: str


class Marks(NamedTuple):
    """What a picture of a tree points out."""

    changed: Mapping[Life, Life | None] = {}  # nodes with another parent: whom they had
    along: frozenset[Life] = frozenset()  # what comes along with a node that moves
    leaving: Life | None = None  # a node that is about to leave its parent


class Moment(NamedTuple):
    at: int
    name: str


def _natural(life: Life) -> tuple[int, str, int]:
    """n2 before n10."""
    return len(life[0]), *life


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def _words(life: Life) -> str:
    return f"{life[0]}#{life[1]}" if life[1] else life[0]


# --- a tree ----------------------------------------------------------------------------------


class _Layout:
    """Where each node stands. Of parents that form a circle one is put first, by name."""

    def __init__(self, parents: Mapping[Life, Life | None]) -> None:
        self.parents = parents
        self.children = children_in(parents)
        for several in self.children.values():
            several.sort(key=_natural)
        longest = max((len(_short(life[0])) for life in parents), default=1)
        self.box = round(longest * CHARACTER + 12)
        self.step = self.box + GAP
        self.place: dict[Life, tuple[float, float]] = {}
        self.rows = 0
        known = [life for life, parent in parents.items() if parent not in parents]
        for life in [*sorted(known, key=_natural), *sorted(parents, key=_natural)]:
            if life not in self.place:
                self._put(life)

    def _put(self, root: Life) -> None:
        """Leaves below each other; every other node in the middle of its children."""
        depths: dict[Life, int] = {}
        waiting = [(root, 0)]
        while waiting:  # no recursion: a tree may be deep
            life, depth = waiting.pop()
            if life not in depths:
                depths[life] = depth
                waiting += [(child, depth + 1) for child in reversed(self.children.get(life, []))]
        below = {life: self._placed_below(life, depths) for life in depths}
        rows: dict[Life, float] = {}
        for life in depths:  # from the top
            if not below[life]:
                rows[life] = self.rows
                self.rows += 1
        for life in reversed(depths):
            if below[life]:
                rows[life] = (rows[below[life][0]] + rows[below[life][-1]]) / 2
        for life, depth in depths.items():
            place = EDGE + depth * self.step, TALL_EDGE + ROW * (rows[life] + 0.5)
            self.place[life] = place

    def _placed_below(self, life: Life, depths: Mapping[Life, int]) -> list[Life]:
        """Its children, but for the one that closes a circle."""
        return [child for child in self.children.get(life, []) if depths[child] > depths[life]]

    @property
    def width(self) -> float:
        return max((x for x, _ in self.place.values()), default=0) + self.box + EDGE

    @property
    def height(self) -> float:
        return ROW * max(self.rows, 1) + 2 * TALL_EDGE

    def edge(self, parent: Life, child: Life, kind: str) -> str:
        (x1, y1), (x2, y2) = self.place[parent], self.place[child]
        x1 += self.box
        way = f"M{x1:g},{y1:g} H{x1 + GAP / 2:g} V{y2:g} H{x2:g}"
        return f'<path class="edge {kind}" d="{way}"/>'

    def bent_edge(self, parent: Life, child: Life, kind: str) -> str:
        """One that may lead to any place: from above, below or beside."""
        (x1, y1), (x2, y2) = self.place[parent], self.place[child]
        if x1 == x2:  # beside what stands between them
            way = f"M{x1:g},{y1:g} C{x1 - GAP:g},{y1:g} {x1 - GAP:g},{y2:g} {x2:g},{y2:g}"
            return f'<path class="edge {kind}" d="{way}"/>'
        x1, x2 = x1 + self.box / 2, x2 + self.box / 2
        side = 1 if y1 > y2 or kind == "circle" else -1
        y1, y2 = y1 + side * (ROW - 5) / 2, y2 + side * (ROW - 5) / 2
        bend = side * ROW
        way = f"M{x1:g},{y1:g} C{x1:g},{y1 + bend:g} {x2:g},{y2 + bend:g} {x2:g},{y2:g}"
        return f'<path class="edge {kind}" d="{way}"/>'


def width_of(parents: Mapping[Life, Life | None]) -> float:
    """How wide its picture is, at least."""
    return _Layout(parents).width


def draw_tree(
    parents: Mapping[Life, Life | None], marks: Marks, title: str, width: float = 0
) -> str:
    """All nodes that are there, each to the right of its parent."""
    layout = _Layout(parents)
    width, height = max(layout.width, width), layout.height
    plain: list[str] = []
    marked: list[str] = []  # above the plain ones
    bent: list[str] = []  # above everything
    for life in layout.place:
        parent = parents[life]
        if parent is not None and parent in layout.place:
            if layout.place[parent][0] >= layout.place[life][0]:
                bent.append(layout.bent_edge(parent, life, "circle"))
            elif life in marks.changed:
                marked.append(layout.edge(parent, life, "changed"))
            elif life == marks.leaving:
                marked.append(layout.edge(parent, life, "leaving"))
            else:
                plain.append(layout.edge(parent, life, "plain"))
        before = marks.changed.get(life)
        if before is not None and before in layout.place and len(marks.changed) <= MOST_FORMER:
            bent.append(layout.bent_edge(before, life, "former"))
    nodes = [_node(layout, life, _kind(life, marks)) for life in layout.place]
    return "".join(
        [
            f'<svg class="tree" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
            f'height="{height:g}" style="min-width: {SMALLEST * width:.0f}px" role="img">',
            f"<title>{escape(title)}</title>",
            *(plain + marked + nodes + bent),
            "</svg>",
        ]
    )


def _kind(life: Life, marks: Marks) -> str:
    if life in marks.changed or life == marks.leaving:
        return "node changed"
    return "node along" if life in marks.along else "node"


def _node(layout: _Layout, life: Life, kind: str) -> str:
    (x, y), parent = layout.place[life], layout.parents[life]
    told = f"{_words(life)}, " + (f"below {_words(parent)}" if parent else "without a parent")
    box, tall = layout.box, ROW - 5
    return (
        f'<g class="{kind}"><title>{escape(told)}</title>'
        f'<rect x="{x:g}" y="{y - tall / 2:g}" width="{box}" height="{tall}" rx="4"/>'
        f'<text x="{x + box / 2:g}" y="{y + 4:g}" text-anchor="middle">'
        f"{escape(_short(life[0]))}</text></g>"
    )


# --- over time -------------------------------------------------------------------------------


def draw_lanes(
    links: Sequence[ParentLink], begins: int, ends: int, start: int, moments: Sequence[Moment]
) -> str:
    """A lane a node, with the parents that it had from one time to another."""
    lanes: dict[str, list[ParentLink]] = {}
    for link in links:
        lanes.setdefault(link.row.process, []).append(link)
    names = sorted(lanes, key=lambda name: _natural((name, 0)))
    left = round(max(len(_short(name)) for name in names) * CHARACTER) + 14
    bottom = TOP + LANE * len(names)
    width, height = left + ALL_LANES + 24, bottom + TIMES

    def x_of(at: int) -> float:
        return left + ALL_LANES * (min(max(at, begins), ends) - begins) / max(ends - begins, 1)

    parts = [
        f'<svg class="lanes" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img"><title>Who was the parent of whom, and when</title>'
    ]
    for number, name in enumerate(names):
        y = TOP + LANE * number
        parts.append(f'<text x="4" y="{y + 14}">{escape(_short(name))}</text>')
        for link in lanes[name]:
            until = ends if link.until is None else link.until
            parts += _span(link, x_of(link.row.at), x_of(until), y)
    rows = {name: TOP + LANE * number for number, name in enumerate(names)}
    for move in moves_in(links):
        parts.append(f'<path class="moved" d="M{x_of(move.at):.1f},{rows[move.life[0]]} v{LANE}"/>')
    for link in adoptions_in(links):
        x, y = x_of(link.row.at), rows[link.row.process]
        parts.append(f'<path class="found" d="M{x:.1f},{y} v{LANE}"/>')
    parts += _times(begins, ends, start, bottom, x_of)
    free = float(left)  # so far the words over the lanes reach
    for moment in sorted(moments):
        x, half = x_of(moment.at), len(moment.name) * CHARACTER / 2
        at = min(max(x, free + half), left + ALL_LANES - half + 12)
        free = at + half + CHARACTER
        parts.append(f'<path class="moment" d="M{x:.1f},{TOP - 5} V{bottom}"/>')
        parts.append(f'<text class="when" x="{at:.1f}" y="{TOP - 10}" text-anchor="middle">')
        parts.append(f"{escape(moment.name)}</text>")
    return "".join([*parts, "</svg>"])


def _span(link: ParentLink, x1: float, x2: float, y: int) -> list[str]:
    """One parent, for a time; its name, where there is room for it."""
    kind = "span" if link.parent is not None else "span alone"
    told = f"below {_words(link.parent)}" if link.parent else "without a parent"
    parts = [
        f'<rect class="{kind}" x="{x1:.1f}" y="{y + 2}" width="{max(x2 - x1, 0):.1f}" '
        f'height="{LANE - 4}"><title>{escape(f"{_words(link.life)} {told}")}</title></rect>'
    ]
    shown = _short(link.parent[0]) if link.parent else ""
    if shown and x2 - x1 > len(shown) * CHARACTER + 8:
        parts.append(f'<text class="name" x="{x1 + 5:.1f}" y="{y + 14}">{escape(shown)}</text>')
    return parts


def _times(begins: int, ends: int, start: int, y: int, x_of: Callable[[int], float]) -> list[str]:
    """Seconds of the run, below the lanes."""
    span = max(ends - begins, 1) / SECOND
    step = next((tick for tick in TICKS if span / tick <= MOST_TICKS), TICKS[-1])
    first = -(-(begins - start) // (step * SECOND))
    found = []
    for number in range(first, first + MOST_TICKS + 2):
        at = start + number * step * SECOND
        if at <= ends:
            x = x_of(at)
            words = f"{number * step} s"
            found.append(
                f'<text class="when" x="{x:.1f}" y="{y + 15}" text-anchor="middle">{words}</text>'
            )
    return found
