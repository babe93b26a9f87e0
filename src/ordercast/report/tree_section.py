"""The trees of a run, where members of a group form one: pictures, and who was whose parent.

Shown are the first tree of all, the tree before and after one move, and the last tree. The move is
the one with most nodes below the node that moves: there most can go wrong. Rows of kind `parent`
say all of it, whatever family wrote them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ordercast.check.parents import (
    Life,
    ParentChange,
    ParentLink,
    Parents,
    adoptions_in,
    moves_in,
    parents_at,
    path_of,
)
from ordercast.report.page import FiguresPart, Part, Section, WidePart
from ordercast.report.tree_drawing import (
    MOST_FORMER,
    Marks,
    Moment,
    TreePicture,
    draw_lanes,
    draw_tree,
    width_of,
)
from ordercast.trace.schema import Row, Trace
from ordercast.units import SECOND

MOST_NODES = 64
"""A picture of more cannot be read."""
MOST_LINKS = 3000
"""Of a drawing over time."""
MOST_MOVES = 1000
"""Among which one is chosen."""
MOST_TREES = 4
"""Groups of a run whose trees are shown."""

State = Mapping[Life, Life | None]


class TreeStory(NamedTuple):
    """What is shown of one group."""

    links: Sequence[ParentLink]
    moves: Sequence[ParentChange]
    first: int | None  # when there was one tree for the first time
    chosen: ParentChange | None
    last: int
    start: int  # of the run

    def when(self, at: int) -> str:
        return f"{(at - self.start) / SECOND:.3f} s"


def tree_sections(trace: Trace, of_run: str = "") -> list[Section]:
    """A section for each group that forms a tree: none in most families."""
    found = Parents.of(sorted(trace.rows, key=lambda row: row.step)).links
    start = trace.header.start or min((row.at for row in trace.rows), default=0)
    sections = []
    for number, group in enumerate(sorted(found)[:MOST_TREES]):
        story = read_story(found[group], trace.rows, start)
        id = f"tree-{number}-{trace.header.run}"
        more = len(found) - MOST_TREES if number == MOST_TREES - 1 else 0
        sections.append(_section(story, id, f"The tree of {group}{of_run}", more))
    return sections


def read_story(links: Sequence[ParentLink], rows: Sequence[Row], start: int) -> TreeStory:
    """What there is to show: `rows` are those of the whole run."""
    moves = moves_in(links)
    few = len({link.row.process for link in links}) <= MOST_NODES
    first = _first_tree(links) if few else None
    settled = [move for move in moves if first is not None and move.at > first]
    return TreeStory(
        links, moves, first, _choose(links, settled or moves), _last(links, rows), start
    )


def _first_tree(links: Sequence[ParentLink]) -> int | None:
    """When for the first time one node was above all that were there, at least half of all."""
    processes = {link.row.process for link in links}
    for at in sorted({link.row.at for link in links}):
        state = parents_at(links, at)
        roots = [life for life, parent in state.items() if parent is None]
        whole = len(roots) == 1 and len(state) > 1 and 2 * len(state) >= len(processes)
        if whole and all(roots[0] in path_of(life, state) for life in state if life != roots[0]):
            return at
    return None


def _choose(links: Sequence[ParentLink], moves: Sequence[ParentChange]) -> ParentChange | None:
    """The move of the node with most below it; the first one of these."""
    best, most = None, -1
    for move in moves[:MOST_MOVES]:
        below = len(_below(move.life, parents_at(links, move.at)))
        if below > most:
            best, most = move, below
    return best


def _below(life: Life, state: State) -> frozenset[Life]:
    return frozenset(other for other in state if life in path_of(other, state))


def _last(links: Sequence[ParentLink], rows: Sequence[Row]) -> int:
    """The last instant before processes stop, or leave, for good."""
    changed = max(link.row.at for link in links)
    ends = [row.at for row in rows if row.kind in ("stop", "leave") and row.at > changed]
    return min(ends, default=max(row.at for row in rows) + 1) - 1


# --- on the page -----------------------------------------------------------------------------


def _section(story: TreeStory, id: str, title: str, more: int) -> Section:
    about = [_counts(len(story.moves), len(adoptions_in(story.links)))]
    parts: list[Part] = []
    nodes = len({link.row.process for link in story.links})
    if nodes > MOST_NODES:
        about.append(f"There are {nodes} nodes; trees of up to {MOST_NODES} are drawn.")
    else:
        parts.append(FiguresPart(list(_pictures(story, id))))
        if len(story.links) <= MOST_LINKS:
            parts.append(WidePart("Who was whose parent", _ABOUT_LANES, _lanes(story)))
        else:
            about.append(f"Not drawn over time: {len(story.links):,} changes of a parent.")
    if more:
        about.append(f"Not shown: the trees of {more} other groups.")
    return Section(id, title, parts, about)


def _counts(moves: int, found: int) -> str:
    told = f"Moves from one parent to another: {moves:,}."
    return f"{told} Nodes that lost their parent and found one: {found:,}." if found else told


def _pictures(story: TreeStory, id: str) -> Iterator[TreePicture]:
    """In the order of time; each marks what changed since the one before it."""
    shown: State | None = None
    scenes = _scenes(story)
    width = max(width_of(parents_at(story.links, at)) for at, *_ in scenes)  # one scale
    for at, name, title, note, move in scenes:
        state = parents_at(story.links, at)
        marks = _marks(state, shown, move, is_after=name == "after")
        told = f"{story.when(at)}: {_shape(state)}. {note}".strip()
        if marks.changed and move is None:
            told += f" Marked: {_nodes(len(marks.changed))} with another parent than before."
            if len(marks.changed) <= MOST_FORMER:
                told += " Dashed: the former parent."
        yield TreePicture(f"{id}-{name}", title, told, draw_tree(state, marks, told, width))
        shown = state


def _scenes(story: TreeStory) -> list[tuple[int, str, str, str, ParentChange | None]]:
    """When, and what is said of it."""
    scenes: list[tuple[int, str, str, str, ParentChange | None]] = []
    if story.first is not None:
        scenes.append((story.first, "first", "The first tree", "", None))
    if story.chosen is not None:
        move = story.chosen
        who, former, parent = (life[0] for life in (move.life, move.former, move.parent))
        along = len(_below(move.life, parents_at(story.links, move.at)))
        note = f"{who} is about to leave {former} for {parent}."
        after = f"{who} is below {parent}, with {_nodes(along)} below it; dashed: where it was."
        scenes.append((move.at - 1, "before", f"Before a move of {who}", note, move))
        scenes.append((move.at, "after", f"After the move of {who}", after, move))
    scenes.append((story.last, "last", "The last tree", "", None))
    return sorted(scenes, key=lambda scene: scene[0])


def _marks(state: State, shown: State | None, move: ParentChange | None, is_after: bool) -> Marks:
    if move is not None:
        along = _below(move.life, state)
        if is_after:
            return Marks({move.life: move.former}, along)
        return Marks(along=along, leaving=move.life)
    if shown is None:
        return Marks()
    return Marks(
        {
            life: shown[life]
            for life, parent in state.items()
            if parent is not None and life in shown and shown[life] != parent
        }
    )


def _shape(state: State) -> str:
    """How many nodes there are, and how they stand."""
    roots = sorted(life[0] for life, parent in state.items() if parent is None)
    paths = {life: path_of(life, state) for life in state}
    told = f"{_nodes(len(state))}, "
    told += f"the root is {roots[0]}, " if len(roots) == 1 else f"{len(roots)} without a parent, "
    told += f"{_several(max(map(len, paths.values()), default=0), 'level')} below"
    tops = {life: (path or [life])[-1] for life, path in paths.items()}
    gone = sum(parent is not None and parent not in state for parent in state.values())
    told += f"; the parent of {_nodes(gone)} does not run any more" if gone else ""
    circle = sum(state[top] in state for top in tops.values())
    return told + (f"; {_nodes(circle)} in or below a circle of parents" if circle else "")


def _nodes(count: int) -> str:
    return _several(count, "node")


def _several(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count} {what}s"


_ABOUT_LANES = (
    "A lane a node, with the name of its parent. Strong grey: it has none, so it is the root, or "
    "looks for one. Nothing: it does not run. A thin line across a lane is a move; at a thick one "
    "a node that had lost its parent found one."
)


def _lanes(story: TreeStory) -> str:
    moments = [Moment(at, name) for at, name, *_ in _scenes(story) if name != "after"]
    named = [Moment(at, "move" if name == "before" else name) for at, name in moments]
    begins = min(link.row.at for link in story.links)
    return draw_lanes(story.links, begins, story.last, story.start, named)
