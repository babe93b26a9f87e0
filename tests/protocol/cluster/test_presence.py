"""Who is there, as one member of a cluster without views sees it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from ordercast.protocol.cluster.presence import MOST_GONE, MOST_PRESENT, UNDERWAY, Presence
from ordercast.scenario.file import parse_scenario
from ordercast.testing import Simulated, simulate
from ordercast.types import Joined, Left, NodeId

ME, N2, N3 = NodeId("n1"), NodeId("n2"), NodeId("n3")
SILENCE = 20


def said(news: Iterable[Joined | Left]) -> list[str]:
    return [
        f"{one.member} {'joined' if isinstance(one, Joined) else one.why}" for one in list(news)
    ]


def presence(*nodes: NodeId) -> Presence:
    found = Presence(ME, "g", SILENCE)
    list(found.heard((node, 0) for node in nodes))
    return found


def rounds(found: Presence, count: int) -> list[str]:
    return [text for _ in range(count) for text in said(found.round())]


def test_a_name_of_which_anything_is_heard_is_a_member_once() -> None:
    found = presence()
    assert said(found.heard([(N2, 3), (ME, 0), (N2, 0)])) == ["n2 joined"]
    assert found.members() == [N2]


def test_what_was_heard_of_too_long_ago_is_no_member() -> None:
    assert said(presence().heard([(N2, SILENCE + 1)])) == []


def test_a_higher_incarnation_replaces_and_a_lower_one_is_ignored() -> None:
    found = presence(N2)
    assert said(found.heard([(NodeId("n2", 7), 5)])) == ["n2 replaced", "n2#7 joined"]
    assert said(found.heard([(N2, 0)])) == []


def test_a_member_that_said_farewell_left_and_old_news_does_not_bring_it_back() -> None:
    found = presence(N2, N3)
    assert said(found.left([(N2, 1), (NodeId("n3", 4), 0)])) == ["n2 left"]
    rounds(found, 1)
    assert said(found.heard([(N2, 1), (N2, 0)])) == []
    rounds(found, UNDERWAY)
    assert said(found.heard([(N2, 0)])) == ["n2 joined"]
    assert said(found.left([(N2, UNDERWAY + 3)])) == []


def test_a_member_of_which_nothing_is_heard_is_silent_and_may_come_back() -> None:
    found = presence(N2, N3)
    gone = []
    for _ in range(2 * SILENCE):
        list(found.heard([(N3, 2)]))
        gone += rounds(found, 1)
    assert gone == ["n2 silent"]
    assert said(found.heard([(N2, SILENCE)])) == []
    rounds(found, 1)
    assert said(found.heard([(N2, 0)])) == ["n2 joined"]


def test_among_many_a_member_may_be_silent_for_longer() -> None:
    many = [NodeId(f"m{number}") for number in range(200)]
    found = presence(N2, *many)
    gone = []
    for _ in range(100):
        list(found.heard((node, 0) for node in many))
        gone += rounds(found, 1)
    assert gone == []


def test_invented_names_take_no_memory_without_end_and_push_out_nobody() -> None:
    found = presence(N2)
    for number in range(MOST_PRESENT + 100):
        list(found.heard([(NodeId(f"ghost{number}"), 0)]))
    assert len(found.members()) == MOST_PRESENT
    assert N2 in found.members()
    gone = [NodeId(f"ghost{number}") for number in range(MOST_GONE + 100)]
    list(found.left((node, 0) for node in gone))
    assert len(found._gone) == MOST_GONE


# --- thirty members of an open group ------------------------------------------------------------


MEMBERS = [f"n{number}" for number in range(1, 31)]


def run(family: str, seed: int) -> Simulated:
    """All know n1 alone. n7 crashes for good, n8 leaves, n9 restarts, n30 comes late."""
    document = {
        "name": "presence",
        "family": family,
        "processes": 30,
        "duration": "9s",
        "quiet": "6s",
        "options": {"updaters": ["n1"]} if family == "causal" else {},
        "workload": {"rate": 5, "senders": ["n1"]},
        "network": {"loss": 0.01},
        "group": [{"name": "g", "members": MEMBERS, "open": True, "anchors": ["n1"]}],
        "fault": [
            {"at": "3s", "kind": "crash", "nodes": ["n7"]},
            {"at": "4s", "kind": "leave", "nodes": ["n8"]},
            {"at": "5s", "kind": "crash", "nodes": ["n9"], "for": "500ms"},
            {"at": "6s", "kind": "join", "nodes": ["n30"]},
        ],
    }
    return simulate(parse_scenario(document), seed)


@pytest.mark.parametrize("family", ["gossip", "causal"])
def test_thirty_members_see_each_other_come_and_go(family: str) -> None:
    done = run(family, 1)
    assert done.outcome.error is None
    assert not done.broken
    there = {*MEMBERS} - {"n7", "n8"}
    for name in sorted(there):
        present: dict[str, NodeId] = {}
        why: dict[str, list[str]] = {}
        for item in done.heard[name]:
            if isinstance(item, Joined):
                if item.member.name == name:
                    present = {}  # a new incarnation
                present[item.member.name] = item.member
            elif isinstance(item, Left):
                assert present.pop(item.member.name) == item.member
                why.setdefault(item.member.name, []).append(item.why)
        assert {*present} == there
        assert present["n9"].incarnation == 1
        if name not in ("n9", "n30"):
            assert why == {"n7": ["silent"], "n8": ["left"], "n9": ["replaced"]}
