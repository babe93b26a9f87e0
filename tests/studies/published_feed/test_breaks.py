"""Where the published feed breaks: docs/feed-published.md.

Each is a scenario that anybody can run. It ends as documented whatever the seed. Without what goes
wrong in it, and with the repair that the page names, its law is kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.studies.published_feed.runs import ROOT, document, ran, run

from ordercast.cli.main import main
from ordercast.testing import simulate

LOST = ("agreement", "completeness", "durable")
NEXT, FORWARDS = {"vector": "next"}, {"recovery": "forwards"}


class Shown(NamedTuple):
    laws: tuple[str, ...]  # all that are broken
    law: str  # the one that the page names
    why: str  # how its explanation begins
    mended: dict[str, Any]  # options with which no law is broken


SHOWN = {
    "sorted": Shown((*LOST, "no-silent-gap"), "completeness", "n1 never delivered n4:1", NEXT),
    "unforwarded": Shown(LOST, "completeness", "n1 never delivered n5:1", FORWARDS),
    "hole": Shown(
        (*LOST, "no-silent-gap"), "no-silent-gap", "n1 delivered n5:2, and had neither", FORWARDS
    ),
    "twice": Shown(
        (*LOST, "no-duplication", "no-silent-gap"),
        "no-duplication",
        "n1 delivered n5:2, and n1 delivered it again",
        FORWARDS,
    ),
    "moved": Shown(LOST, "completeness", "n1 never delivered n4:1", FORWARDS),
    "answers": Shown(
        ("reply-order",), "reply-order", "n1 delivered n4:1, a reply to n5:1, and had", {}
    ),
    "circle": Shown(
        (*LOST, "one-tree"), "one-tree", "in g, parents formed a circle: n3 below n2", {}
    ),
    "detour": Shown(
        ("causal", "optimistic-causal", "reply-order"),
        "reply-order",
        "n3 delivered n4:2, a reply to n2:1, and had",
        {},
    ),
    "theorem-3": Shown((*LOST, "no-silent-gap"), "completeness", "n4 never delivered n7:1", NEXT),
    "quick": Shown(LOST, "completeness", "n1 never delivered n4:1", FORWARDS),
}
CASES = pytest.mark.parametrize("name", SHOWN)


@CASES
@pytest.mark.parametrize("seed", [1, 2])
def test_these_laws_are_broken_and_no_others(name: str, seed: int) -> None:
    shown, found = SHOWN[name], ran(name, seed)
    assert found.laws == sorted(shown.laws)
    assert found.broken[shown.law].startswith(shown.why)


@pytest.mark.parametrize("name", [name for name, shown in SHOWN.items() if shown.mended])
def test_with_the_repair_every_law_is_kept(name: str) -> None:
    assert ran(name, **SHOWN[name].mended).laws == []


@pytest.mark.parametrize("name", ["sorted", "theorem-3"])
def test_without_sorting_it_is_kept_too(name: str) -> None:
    assert ran(name, batches="arrival").laws == []


@pytest.mark.parametrize("name", ["unforwarded", "quick", "moved", "twice", "hole"])
def test_the_other_repair_alone_loses_messages(name: str) -> None:
    assert "completeness" in ran(name, **NEXT).laws


@pytest.mark.parametrize("name", [*SHOWN, "resends"])
def test_without_what_goes_wrong_every_law_is_kept(name: str) -> None:
    only = [fault for fault in document(name)["fault"] if fault.get("input") == "Posting"]
    found = ran(name, fault=only)
    assert found.laws == []
    assert found.counters["delivered"]
    assert not found.counters["duplicates"]


@CASES
def test_the_command_ends_with_1_and_shows_the_witness(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    path = f"scenarios/feed-published-{name}.toml"
    assert main(["sim", path, "--seed", "1"]) == 1
    told = capsys.readouterr().out
    assert f"{SHOWN[name].law} is broken: {SHOWN[name].why}" in " ".join(told.split())
    assert f"again: ordercast sim {path} --seed 1" in told


@pytest.mark.parametrize("path", sorted((ROOT / "scenarios").glob("feed-published-*.toml")))
def test_live_runs_are_rejected_with_the_reason(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["live", str(path)]) == 2
    assert "runs in the simulator only, as it may lose messages" in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted((ROOT / "scenarios").glob("feed-published-*.toml")))
def test_every_packet_goes_through_the_codec(path: Path) -> None:
    assert simulate(path, 1, round_trip=True).trace.rows == simulate(path, 1).trace.rows


# --- who has what --------------------------------------------------------------------------------


def test_sorted_the_batch_makes_a_message_its_own_duplicate() -> None:
    found = ran("sorted")
    for name in ("n1", "n2", "n5"):
        assert found.delivered(name) == ["n2:1", "n4:2"]
    assert found.delivered("n3") == found.delivered("n4") == ["n2:1", "n4:1", "n4:2"]
    assert found.counters["lacking"] == 2  # y


def test_unforwarded_the_coordinator_returns_what_the_failed_node_keeps() -> None:
    found = ran("unforwarded")
    assert [name for name in ("n1", "n2", "n3", "n4", "n5") if found.delivered(name)] == [
        "n3",
        "n5",
    ]
    assert (found.counters["returned"], found.counters["duplicates"]) == (1, 1)


def test_hole_nodes_go_on_behind_it() -> None:
    found = ran("hole")
    assert found.delivered("n3") == found.delivered("n5") == ["n5:1", "n5:2"]
    assert found.delivered("n1") == found.delivered("n2") == found.delivered("n4") == ["n5:2"]


def test_twice_at_three_nodes() -> None:
    found = ran("twice")
    for name in ("n1", "n2", "n4"):
        assert found.delivered(name) == ["n5:2", "n5:2"]
    assert found.counters["lacking"] == 1


def test_moved_the_sum_is_below_zero() -> None:
    """1 upward message of a, and D of p is 4: v sent three messages and its join_request."""
    found = ran("moved")
    assert found.counters["lacking"] == 1 - 4
    have = [
        name for name in ("n1", "n2", "n3", "n4", "n5", "n6") if "n4:1" in found.delivered(name)
    ]
    assert have == ["n3", "n4", "n5"]


def test_answers_arrive_in_the_order_of_the_batches() -> None:
    found = ran("answers")
    assert found.delivered("n1") == found.delivered("n2") == ["n2:1", "n4:1", "n5:1"]
    assert found.delivered("n5") == ["n2:1", "n5:1", "n4:1"]
    assert ran("answers", batches="arrival", **NEXT, **FORWARDS).laws == [
        "reply-order"
    ]  # nothing mends it


@pytest.mark.parametrize("k", [10, 50])
def test_resends_of_messages_that_nobody_lacks(k: int) -> None:
    found = document("resends")
    crash = [fault for fault in found["fault"] if fault["kind"] == "crash"]
    post = next(fault for fault in found["fault"] if fault["kind"] == "give")
    posts = [{**post, "at": f"{100 + place}ms"} for place in range(k)]
    one = run({**found, "fault": posts + crash}, 1)
    assert one.laws == []
    assert one.counters["resent"] == one.counters["duplicates"] == 2 * k
    assert sum(row.kind == "recover" for row in one.rows) == 2 * k


def test_the_scenario_of_the_resends() -> None:
    found = ran("resends")
    assert found.laws == []
    assert found.counters["resent"] == 20
    assert found.counters["lacking"] == 0
    crash = next(fault for fault in document("resends")["fault"] if fault["kind"] == "crash")
    again = ran("resends", fault=[*document("resends")["fault"], {**crash, "at": "700ms"}])
    assert (again.counters["transitions"], again.counters["resent"]) == (2, 20)


def test_circle_two_nodes_are_cut_off() -> None:
    found = ran("circle")
    assert found.delivered("n1") == found.delivered("n4") == ["n4:1"]
    assert found.delivered("n2") == found.delivered("n3") == []
    assert "one-tree" in ran("circle", drop="waits").laws  # the other reading is a circle too


def test_a_node_that_moves_below_itself() -> None:
    move, _, post = document("circle")["fault"]
    found = ran("circle", tree={"n3": "n2"}, fault=[move, post])
    assert "one-tree" in found.laws


def test_detour_nobody_fails_and_one_node_moves() -> None:
    found = ran("detour")
    assert found.delivered("n3") == ["n4:2", "n2:1"]
    assert found.counters["moves"] == 1
    assert not {row.kind for row in found.rows} & {"crash", "suspect", "lose", "leave"}


def test_theorem_3_the_mover_lacks_what_its_new_parent_had() -> None:
    found = ran("theorem-3")
    assert found.delivered("n7") == ["n1:1", "n7:1", "n7:2"]
    assert found.delivered("n6") == ["n1:1", "n7:2"]
    assert found.counters["moves"] == 1
