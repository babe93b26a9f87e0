"""The pictures of a tree: who is whose parent, what a move changes, and how it was over time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ordercast.check.parents import Parents
from ordercast.report.page import FiguresPart, Section, WidePart, render
from ordercast.report.run_page import run_page
from ordercast.report.tree_drawing import Marks, draw_lanes, draw_tree
from ordercast.report.tree_section import MOST_LINKS, MOST_NODES, MOST_TREES, tree_sections
from ordercast.testing import simulate
from ordercast.trace.parquet import write_trace
from ordercast.trace.text import parse_history
from ordercast.units import SECOND

ROOT = Path(__file__).resolve().parents[2]
TREE = """run r family=feed ending=finished
n1 start at=0s
n2 start at=0s
n3 start at=0s
n10 start at=0s
n1 parent at=0s
n2 parent at=0s
n3 parent at=0s
n10 parent at=0s
n2 parent peer=n1#0 at=1s
n10 parent peer=n3#0 at=1s
n3 parent peer=n2#0 at=2s
n10 parent peer=n2#0 at=3s
n3 parent peer=n1#0 at=4s
n10 parent peer=n3#0 at=5s
n3 parent peer=n2#0 at=6s
n2 parent at=7s
n2 parent peer=n1#0 at=8s
n1 stop at=10s
n2 stop at=10s
n3 stop at=10s
n10 stop at=10s
"""
N1, N2, N3, N10 = ("n1", 0), ("n2", 0), ("n3", 0), ("n10", 0)
PARENTS = {N1: None, N2: N1, N3: N2, N10: N2}


def section(text: str = TREE) -> Section:
    (found,) = tree_sections(parse_history(text, "here"))
    return found


def names(svg: str) -> list[str]:
    return re.findall(r"</title><rect[^>]*/><text[^>]*>([^<]*)</text>", svg)


def places(svg: str) -> dict[str, tuple[float, float]]:
    found = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)".*?<text[^>]*>([^<]*)<', svg)
    return {name: (float(x), float(y)) for x, y, name in found}


def test_children_stand_to_the_right_of_their_parent_in_the_order_of_names() -> None:
    svg = draw_tree(PARENTS, Marks(), "a tree")
    at = places(svg)
    assert at["n1"][0] < at["n2"][0] < at["n3"][0] == at["n10"][0]
    assert at["n3"][1] < at["n10"][1]
    assert at["n2"][1] == (at["n3"][1] + at["n10"][1]) / 2
    assert svg.count('class="edge plain"') == 3


def test_no_two_nodes_share_a_place() -> None:
    """Also below several roots, and where the parent of a node is not there."""
    wild = {(f"n{number}", 0): (f"n{number // 3}", 0) for number in range(3, 40)}
    svg = draw_tree({**wild, ("n1", 0): None, ("n2", 0): None, ("x", 0): ("y", 0)}, Marks(), "")
    at = places(svg)
    assert len(at) == 40
    assert len({*at.values()}) == 40


def test_what_changed_is_marked_and_where_it_was_is_dashed() -> None:
    svg = draw_tree(PARENTS, Marks({N3: N1}, frozenset({N10})), "")
    assert svg.count('class="edge changed"') == svg.count('class="edge former"') == 1
    assert svg.count('class="node changed"') == svg.count('class="node along"') == 1
    (beside,) = re.findall(
        r'class="edge former" d="([^"]*)"', draw_tree(PARENTS, Marks({N10: N3}), "")
    )
    assert beside.startswith(f"M{places(svg)['n3'][0]:g},"), "not through the names in this column"
    leaving = draw_tree(PARENTS, Marks(leaving=N2), "")
    assert leaving.count('class="edge leaving"') == leaving.count('class="node changed"') == 1


def test_names_are_escaped_and_long_ones_cut() -> None:
    svg = draw_tree({("a<b", 0): None, ("x" * 90, 1): ("a<b", 0)}, Marks(), "<title>")
    assert names(svg) == ["a&lt;b", "x" * 11 + "…"]
    assert "<title>&lt;title&gt;</title>" in svg
    assert f"<title>{'x' * 90}#1, below a&lt;b</title>" in svg


def test_a_circle_is_drawn_as_one() -> None:
    """Whoever is first by name stands at the left, and an edge leads back to it."""
    svg = draw_tree({N1: None, N2: N10, N3: N2, N10: N3}, Marks(), "")
    assert names(svg) == ["n1", "n2", "n3", "n10"]
    at = places(svg)
    assert at["n1"][0] == at["n2"][0] < at["n3"][0] < at["n10"][0]
    assert svg.count('class="edge plain"') == 2
    assert svg.count('class="edge circle"') == 1
    assert names(draw_tree({N1: N1}, Marks(), "")) == ["n1"]


def test_parents_that_are_gone_and_circles_are_told() -> None:
    text = TREE.replace("n1 stop at=10s", "n2 crash at=9s\nn1 stop at=10s").replace(
        "n2 stop at=10s\n", ""
    )
    (*_, last) = section(text).parts[0].figures
    told = "3 nodes, the root is n1, 1 level below; the parent of 1 node does not run any more."
    assert told in last.caption
    (*_, last) = (
        section(TREE.replace("n2 parent peer=n1#0 at=8s", "n2 parent peer=n10#0 at=8s"))
        .parts[0]
        .figures
    )
    assert "3 nodes in or below a circle of parents." in last.caption


def test_a_section_shows_the_first_tree_the_greatest_move_and_the_last_tree() -> None:
    """n3 moves three times; the last time n10 is below it."""
    found = section()
    assert found.title == "The tree of g"
    assert found.about == [
        "Moves from one parent to another: 4. Nodes that lost their parent and found one: 1."
    ]
    pictures, lanes = found.parts
    assert isinstance(pictures, FiguresPart)
    assert isinstance(lanes, WidePart)
    assert [(one.title, one.caption.partition(":")[0]) for one in pictures.figures] == [
        ("The first tree", "2.000 s"),
        ("Before a move of n3", "6.000 s"),
        ("After the move of n3", "6.000 s"),
        ("The last tree", "10.000 s"),
    ]
    before, after = pictures.figures[1:3]
    assert before.caption.endswith("n3 is about to leave n1 for n2.")
    assert after.caption.endswith("n3 is below n2, with 1 node below it; dashed: where it was.")
    assert "<title>n3, below n1</title>" in before.svg
    assert "<title>n3, below n2</title>" in after.svg
    assert "4 nodes, the root is n1, 3 levels below" in after.caption


def test_the_last_tree_marks_what_changed_since_the_move() -> None:
    text = TREE.replace("n1 stop", "n10 parent peer=n1#0 at=9s\nn1 stop", 1)
    (*_, last) = section(text).parts[0].figures
    assert last.caption.endswith(
        "Marked: 1 node with another parent than before. Dashed: the former parent."
    )
    assert last.svg.count('class="node changed"') == 1


def test_a_tree_in_which_nobody_moves_has_two_pictures() -> None:
    text = "\n".join(TREE.splitlines()[:11]) + "\nn3 parent peer=n2#0 at=2s\n"
    found = section(text)
    assert [one.title for one in found.parts[0].figures] == ["The first tree", "The last tree"]
    assert found.about == ["Moves from one parent to another: 0."]


def test_a_run_without_parents_has_no_such_section() -> None:
    assert tree_sections(parse_history("run r\nn1 start\nn1 join\n", "here")) == []


def test_over_time_each_node_has_a_lane_each_parent_a_span_and_each_move_a_line() -> None:
    rows = parse_history(TREE, "here").rows
    links = Parents.of(rows).links["g"]
    svg = draw_lanes(links, 0, 10 * SECOND, 0, [])
    assert svg.count('class="span"') == len([link for link in links if link.parent])
    assert svg.count('class="span alone"') == len([link for link in links if not link.parent])
    assert svg.count('class="moved"') == 4
    assert svg.count('class="found"') == 1
    assert re.findall(r">(\d+ s)<", svg) == [f"{second} s" for second in range(11)]


def test_a_large_tree_is_counted_and_not_drawn() -> None:
    several = [f"n{number} parent peer=n0#0" for number in range(1, MOST_NODES + 1)]
    found = section("run r\nn0 parent\n" + "\n".join(several) + "\n")
    assert found.parts == []
    assert found.about[1] == f"There are {MOST_NODES + 1} nodes; trees of up to 64 are drawn."


def test_changes_without_end_are_counted_and_not_drawn() -> None:
    several = [f"n1 parent peer=n{2 + step % 2}#0" for step in range(MOST_LINKS)]
    found = section("run r\nn2 parent\n" + "\n".join(several) + "\n")
    assert [part.kind for part in found.parts] == ["figures"]
    assert found.about[1] == f"Not drawn over time: {MOST_LINKS + 1:,} changes of a parent."


def test_more_groups_than_a_page_holds_are_counted() -> None:
    several = [f"n1 parent group=g{number}" for number in range(MOST_TREES + 2)]
    found = tree_sections(parse_history("run r\n" + "\n".join(several) + "\n", "here"))
    assert len(found) == MOST_TREES
    assert found[-1].about[-1] == "Not shown: the trees of 2 other groups."


@pytest.mark.parametrize("scenario", ["feed-moves", "feed-published-circle"])
def test_the_page_of_a_run_has_the_pictures_of_whatever_family(
    tmp_path: Path, scenario: str
) -> None:
    write_trace(tmp_path, simulate(ROOT / "scenarios" / f"{scenario}.toml", 1).trace)
    page = run_page(tmp_path)
    (tree,) = [one for one in page.sections if one.id.startswith("tree-")]
    html = render(page)
    for picture in tree.parts[0].figures:
        assert picture.svg in html
    assert html.count('class="lanes"') == 1
    assert render(run_page(tmp_path)) == html
