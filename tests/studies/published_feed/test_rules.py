"""The rules of Figures 2 to 4 and section 5.3, one by one."""

from __future__ import annotations

from typing import Any

import pytest
from tests.studies.published_feed.runs import FAMILY, Ran, run

from ordercast.errors import PeerError, UsageError
from ordercast.kernel.step import LINK
from ordercast.scenario.file import parse_scenario
from ordercast.studies.published_feed import FAMILY as FEED
from ordercast.studies.published_feed.inputs import Move, Posting
from ordercast.studies.published_feed.member import PublishedNode
from ordercast.studies.published_feed.packets import Item, Message, Resend, VectorValue
from ordercast.studies.published_feed.transition import ParentReport, plan
from ordercast.testing.stage import Stage
from ordercast.types import Event, NodeId

TREE = {"n3": "n2", "n4": "n3", "n5": "n3"}  # r-p-f-{a, b}


def feed(**options: Any) -> Stage:
    return Stage.of(FEED, "n1 n2 n3 n4 n5", **{"tree": TREE, **options})


def node(stage: Stage, name: str) -> PublishedNode:
    found = stage.machine(name)
    assert isinstance(found, PublishedNode)
    return found


def vector(stage: Stage, name: str) -> tuple[int, dict[str, int], int, int, int]:
    """U, D, L, W and W' of a node."""
    own = node(stage, name).state.vectors.own
    return own.up, own.down, own.local, own.sent_down, own.sent_up


def told(stage: Stage, name: str) -> list[str]:
    return [
        f"{what.origin}:{what.number}"
        for at, what in stage.log
        if at.name == name and isinstance(what, Event)
    ]


# --- Figure 2 ------------------------------------------------------------------------------------


def test_figure_2_every_vector_after_one_message_of_each_kind() -> None:
    """a posts, then p posts: once upwards and once downwards past f."""
    stage = feed()
    stage.submit("n4", [b"up"])
    stage.settle()
    stage.submit("n2", [b"down"])
    stage.settle()
    for name in TREE:
        assert told(stage, name) == ["n4:1", "n2:1"]
    # f: the first came from a (D, W, W') and p acknowledged it (U); the second came from p (U, W)
    assert vector(stage, "n3") == (2, {"n4": 1, "n5": 0}, 0, 2, 1)
    assert vector(stage, "n4") == (2, {}, 1, 1 + 1, 1)  # L, W, W'; then U by ack, and U, W
    assert vector(stage, "n5") == (2, {}, 0, 2, 0)
    assert vector(stage, "n2")[1] == {"n3": 1}
    assert node(stage, "n3").state.vectors.made_by_child == {"n4": 1, "n5": 0}  # V^C
    # V^P of b: the first came to f from a, the second from above
    of_f = node(stage, "n5").state.vectors.parent
    assert (of_f.up, of_f.down, of_f.local) == (1, {"n4": 1, "n5": 0}, 0)
    assert node(stage, "n5").state.vectors.received == {"n4": 1, "n2": 1}  # MV


def test_each_message_takes_each_edge_once() -> None:
    stage = feed()
    for name in ("n1", "n2", "n3", "n4", "n5"):
        stage.submit(name, [b"x"])
    stage.settle()
    for name in ("n1", "n2", "n3", "n4", "n5"):
        assert len(told(stage, name)) == 5
        assert node(stage, name).counters("g")["duplicates"] == 0


@pytest.mark.parametrize(("vector", "expected"), [("increments", [2]), ("next", [1, 2])])
def test_mv_grows_by_one_whatever_the_number_is(vector: str, expected: list[int]) -> None:
    """Number 2 before number 1: as printed 2 makes MV 1, and then 1 is a duplicate."""
    stage = feed(vector=vector)
    for tag, sequence in ((1, 2), (2, 1)):
        message = Message("n4", sequence, 0, "normal")
        stage.inject(NodeId("n4"), "n3", Item("g", tag, message, ""), LINK)
    assert told(stage, "n3") == [f"n4:{number}" for number in expected]


def test_the_fifo_queue_waits_for_what_was_sent_before() -> None:
    stage = feed()
    for tag in (3, 2):
        stage.inject(NodeId("n4"), "n3", Item("g", tag, Message("n4", tag, 0, "normal"), ""), LINK)
    assert told(stage, "n3") == []
    stage.inject(NodeId("n4"), "n3", Item("g", 1, Message("n4", 1, 0, "normal"), ""), LINK)
    assert told(stage, "n3") == ["n4:1", "n4:2", "n4:3"]


# --- Figure 3 ------------------------------------------------------------------------------------


def test_figure_3_the_views_and_vectors_after_a_move() -> None:
    stage = feed()
    stage.submit("n4", [b"before"])
    stage.settle()
    stage.give("n4", Move("g", "n2"))
    stage.settle()
    views = {name: node(stage, name).state.view for name in ("n1", "n2", "n3", "n4", "n5")}
    assert views["n4"].parent == "n2"
    assert (views["n4"].grandparent, views["n4"].siblings) == ("n1", ["n3", "n4"])
    assert (views["n2"].children, views["n3"].children) == (["n3", "n4"], ["n5"])
    assert views["n1"].of_children == {"n2": ["n3", "n4"]}
    assert views["n5"].siblings == ["n5"]
    assert node(stage, "n4").moves.old_parent == ""
    # V of OP has lost the entry, that of NP has a new one
    assert vector(stage, "n3")[1] == {"n5": 0}
    assert vector(stage, "n2")[1] == {"n3": 2, "n4": 0}
    stage.submit("n4", [b"after"])
    stage.settle()
    assert told(stage, "n5") == ["n4:1", "n4:3"]  # the request had number 2
    assert [peer for kind, peer in notes(stage, "n4") if kind == "parent"] == ["n3#0", "n2#0"]


def notes(stage: Stage, name: str) -> list[tuple[str, object]]:
    """What a machine has noted: kind and peer."""
    found = []
    for at, what in stage.log:
        if at.name == name and hasattr(what, "columns"):
            found.append((what.kind, what.columns.get("peer")))
    return found


def test_what_the_new_parent_sends_waits_for_the_drop() -> None:
    stage = feed()
    stage.give("n4", Move("g", "n2"))
    while "n4" not in node(stage, "n2").state.view.children:
        stage.deliver(stage.underway()[0])
    for message in stage.underway("n2", "n4"):
        stage.deliver(message)  # the ack
    stage.submit("n2", [b"new"])
    for message in stage.underway("n2", "n4"):
        stage.deliver(message)
    assert node(stage, "n4").moves.blocks("n2")
    assert told(stage, "n4") == []
    stage.settle()
    assert told(stage, "n4") == ["n2:2"]  # the drop had number 1


def test_a_node_that_asks_sends_nothing_upwards() -> None:
    stage = feed()
    stage.give("n4", Move("g", "n2"))
    sent = len(stage.underway("n4", "n3"))
    stage.submit("n4", [b"held"])
    assert len(stage.underway("n4", "n3")) == sent
    stage.settle()
    assert told(stage, "n2") == ["n4:2"]


# --- Figure 4 ------------------------------------------------------------------------------------


def state(up: int = 0, local: int = 0, **down: int) -> VectorValue:
    return VectorValue(up, down, local, 0, 0)


def test_figure_4_nothing_is_missing() -> None:
    children = {"a": state(a=0, b=0), "b": state(a=0, b=0)}
    planned = plan("f", ParentReport("p", 0, 0, 0), children)
    assert planned.resends == {"a": [], "b": [], "p": []}
    assert planned.lacking == 0


def test_figure_4_case_1_and_2_the_parent_has_it() -> None:
    """Steps 5 and 6: p has sent three messages down, a got two; f made one that only p has."""
    children = {"a": state(up=2, a=0, b=0), "b": state(up=3, a=0, b=0)}
    planned = plan("f", ParentReport("p", 3, 1, 1), children)
    assert planned.resends["p"] == [
        Resend(("a",), "down", 1),
        Resend(("a",), "made", 1),
        Resend(("b",), "made", 1),
    ]
    assert planned.resends["a"] == planned.resends["b"] == []


def test_figure_4_case_3_a_child_has_it() -> None:
    """Step 6: f made two messages, of which b has both, a one and p none."""
    children = {"a": state(local=1, a=0, b=0), "b": state(local=2, a=0, b=0)}
    planned = plan("f", ParentReport("p", 0, 0, 0), children)
    assert planned.resends["b"] == [
        Resend(("a",), "made", 1),
        Resend(("p",), "made", 2),
        Resend(("p",), "up", 2),  # step 8 takes them for messages of children: see below
    ]
    assert planned.lacking == 2


def test_figure_4_step_8_counts_with_max_l() -> None:
    """D of p has nothing of what f made, and still Max_L_f is taken off: y is 2 for nothing."""
    children = {"a": state(local=2, a=0)}
    assert plan("f", ParentReport("p", 0, 0, 0), children).lacking == 2
    assert plan("f", ParentReport("p", 0, 2, 2), children).lacking == 0


def test_figure_4_case_4_children_have_it() -> None:
    """Steps 7 and 8: f got two messages of a, of which b has one and p none."""
    children = {"a": state(a=2, b=0), "b": state(a=1, b=0)}
    planned = plan("f", ParentReport("p", 0, 0, 0), children)
    assert planned.resends["a"] == [Resend(("b",), "up", 1), Resend(("p",), "up", 2)]
    assert planned.resends["b"] == [Resend(("p",), "up", 2)]  # step 8 asks every child


def test_figure_4_without_a_parent_steps_5_and_8_fall_away() -> None:
    children = {"a": state(local=1, a=2, b=0), "b": state(a=1, b=0)}
    planned = plan("f", None, children)
    assert planned.resends == {
        "a": [Resend(("b",), "made", 1), Resend(("b",), "up", 1)],
        "b": [],
    }


# --- the cases of Table 2, as runs ---------------------------------------------------------------


def cut(source: str, target: str) -> dict[str, Any]:
    return {"at": "145ms", "kind": "one-way", "sides": [[source], [target]], "for": "30ms"}


def one_message(who: str, *cuts: dict[str, Any], post_at: int = 150, crash_at: int = 155) -> Ran:
    """One message, f crashes and is back at 400 ms."""
    post = {"at": f"{post_at}ms", "kind": "give", "nodes": [who], "input": "Posting"}
    lasts = f"{400 - crash_at}ms"
    crash = {"at": f"{crash_at}ms", "kind": "crash", "nodes": ["n3"], "for": lasts}
    return run(
        {
            "name": "table 2",
            "family": FAMILY,
            "processes": 5,
            "duration": "600ms",
            "quiet": "300ms",
            "options": {"tree": TREE, "posts": "given"},
            "workload": {"senders": [who], "rate": 1000, "pattern": "steady", "payload": 1},
            "network": {"delay": "1ms", "jitter": 0.0, "shape": "uniform"},
            "fault": [*cuts, post, crash],
        },
        1,
    )


TABLE_2 = {
    "P(f) to f, f dies": ("n2", [cut("n3", "n4"), cut("n3", "n5")]),
    "f to C_i(f), f dies": ("n3", [cut("n3", "n2"), cut("n3", "n4")]),
    "f to P(f), f dies": ("n3", [cut("n3", "n4"), cut("n3", "n5")]),
    "C_i(f) to f, f dies": ("n4", [cut("n3", "n2"), cut("n3", "n5")]),
    "C_i(f) to f, and f did not get it": ("n4", [cut("n4", "n3")]),
}


@pytest.mark.parametrize("case", TABLE_2)
def test_table_2_one_message_reaches_everybody(case: str) -> None:
    who, cuts = TABLE_2[case]
    found = one_message(who, *cuts)
    assert found.laws == []
    for name in ("n1", "n2", "n3", "n4", "n5"):
        assert found.delivered(name) == [f"{who}:1"]
    late = {row.process for row in found.rows if row.kind == "recover"}
    assert late, "the transition had nothing to do"


def test_a_message_that_only_f_has_is_sent_when_it_recovers() -> None:
    """Section 5.3, function 1."""
    found = one_message("n3", cut("n3", "n2"), cut("n3", "n4"), cut("n3", "n5"))
    assert found.laws == []
    at = {row.process: row.at for row in found.rows if row.kind == "deliver"}
    assert {name for name, when in at.items() if when > 400_000_000} == {"n1", "n2", "n4", "n5"}


@pytest.mark.parametrize("who", ["n1", "n2", "n4", "n5"])
def test_diffusion_goes_past_the_failed_node(who: str) -> None:
    """Section 5.2: everybody else has it long before f is back, and f afterwards."""
    found = one_message(who, crash_at=20)
    assert found.laws == []
    at = {row.process: row.at // 1_000_000 for row in found.rows if row.kind == "deliver"}
    assert at.pop("n3") > 400
    assert max(at.values()) <= 155
    assert found.counters["diffused"]
    for child in ("n4", "n5"):
        if who in ("n1", "n2"):  # from above, by CO
            assert found.vectors[child].own.up == 1
        assert found.vectors[child].parent.value() == found.vectors["n3"].own.value()


@pytest.mark.parametrize("post_at", [399, 402, 403])
def test_a_message_that_is_posted_while_f_recovers_is_counted_once(post_at: int) -> None:
    """f starts at 400 ms, b hears of it at 401, and f has all answers at 402."""
    found = one_message("n5", crash_at=20, post_at=post_at)
    assert found.laws == []
    assert found.vectors["n3"].own.down["n5"] == 1
    assert found.vectors["n5"].parent.down["n5"] == 1


def test_a_message_that_is_underway_to_the_coordinator_then_is_lost() -> None:
    """As in the scenario `unforwarded`, and no path is cut."""
    found = one_message("n5", crash_at=20, post_at=401)
    assert "completeness" in found.laws
    assert [name for name in found.vectors if found.delivered(name)] == ["n3", "n5"]


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        ({"n2": "n3", "n3": "n2"}, "below itself: n2 < n3 < n2"),
        ({"n3": "n9"}, "tree names 'n9', who is no member"),
        ({"n1": "n2"}, "'n1' is the root"),
    ],
)
def test_a_tree_that_is_none_is_refused(tree: dict[str, str], why: str) -> None:
    found = {"name": "x", "family": FAMILY, "processes": 3, "options": {"tree": tree}}
    with pytest.raises(UsageError, match=why):
        parse_scenario(found)


@pytest.mark.parametrize(
    ("sender", "item", "why"),
    [
        ("n9", Item("g", 1, Message("n4", 1, 0, "normal"), ""), "is no other node"),
        ("n4", Item("g", 1, Message("n9", 1, 0, "normal"), ""), "a message of 'n9'"),
        ("n4", Item("g", 200_000, Message("n4", 1, 0, "normal"), ""), "more is the limit"),
    ],
)
def test_packets_of_strangers_are_refused(sender: str, item: Item, why: str) -> None:
    stage = feed()
    with pytest.raises(PeerError, match=why):
        stage.inject(NodeId(sender), "n3", item, LINK)
    assert told(stage, "n3") == []


def test_inputs_that_make_no_sense_are_refused() -> None:
    stage = feed(posts="given")
    with pytest.raises(UsageError, match="cannot move to 'n9'"):
        stage.give("n4", Move("g", "n9"))
    with pytest.raises(UsageError, match="n5 has no message of 'n2' to answer"):
        stage.give("n5", Posting("g", "n2"))
