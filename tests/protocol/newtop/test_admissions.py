"""A name that comes and goes: how soon it is taken in again, and how long it stops its group."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from ordercast.protocol.newtop.admissions import FORGIVEN, LONGEST, MOST_NAMES, Admissions
from ordercast.scenario.file import load_scenario
from ordercast.testing import Simulated, simulate
from ordercast.types import NodeId, View, Waiting
from ordercast.units import SECOND

LOOP = """
name = "crash loop"
family = "{family}"
processes = 4
duration = "60s"
quiet = "10s"
{options}
[workload]
rate = 20
[[group]]
name = "orders"
members = ["n1", "n2", "n3", "n4"]
open = true
anchors = ["n1"]
"""
RESTART = """
[[fault]]
at = "{at}ms"
kind = "restart"
nodes = ["n4"]
for = "100ms"
"""
LOOP_SECONDS = range(3, 58)


def test_the_first_return_is_not_delayed_and_the_next_ones_ever_more() -> None:
    admissions = Admissions(10)
    now, pauses = 0, []
    admissions.note(now, [NodeId("n1"), NodeId("n2")])
    for incarnation in range(1, 8):
        node, since = NodeId("n2", incarnation), now
        while not admissions.may_come(now, node):
            now += 1
        admissions.note(now, [NodeId("n1"), node])
        assert admissions.may_come(now, node), "it is in"
        pauses.append(now - since)
    assert pauses == [0, 10, 20, 40, 80, 80, 80]
    assert max(pauses) == LONGEST * 10
    assert admissions.may_come(now, NodeId("n1", 1)), "another name has nothing to do with it"


def test_a_name_that_stayed_begins_anew() -> None:
    admissions = Admissions(10)
    for incarnation in range(5):
        admissions.note(0, [NodeId("n2", incarnation)])
    assert not admissions.may_come(1, NodeId("n2", 5))
    later = FORGIVEN * 10
    admissions.note(later, [NodeId("n2", 5)])
    assert admissions.may_come(later, NodeId("n2", 6))


def test_names_are_remembered_up_to_a_limit() -> None:
    admissions = Admissions(10)
    for incarnation in (0, 1, 2):
        admissions.note(0, [NodeId("n2", incarnation)])
    assert not admissions.may_come(0, NodeId("n2", 3))
    admissions.note(0, [NodeId(f"m{number}") for number in range(MOST_NAMES)])
    assert admissions.may_come(0, NodeId("n2", 3))


def loop(folder: Path, family: str, options: str) -> Simulated:
    """n4 restarts once a second, for most of a minute."""
    text = LOOP.format(family=family, options=options)
    text += "".join(RESTART.format(at=1000 * second) for second in LOOP_SECONDS)
    path = folder / "loop.toml"
    path.write_text(text, encoding="utf-8")
    return simulate(load_scenario(path), 1)


def stopped(run: Simulated) -> float:
    """The part of the loop in which n1 delivered nothing, in pauses that a user would notice."""
    first, last = LOOP_SECONDS[0] * SECOND, LOOP_SECONDS[-1] * SECOND
    rows = [row for row in run.trace.rows if row.kind == "deliver" and row.process == "n1"]
    times = [first, *(row.at for row in rows if first <= row.at <= last), last]
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    return sum(pause for pause in pauses if pause > SECOND // 4) / (last - first)


@pytest.mark.parametrize(
    ("family", "options"),
    [("total", ""), ("total", '[options]\nreform = "auto"'), ("sequenced", ""), ("atomic", "")],
)
def test_a_member_that_crashes_in_a_loop_stops_its_group_for_a_part_of_the_time(
    family: str, options: str, tmp_path: Path
) -> None:
    run = loop(tmp_path, family, options)
    assert not run.broken
    views = [item for item in run.heard["n1"] if isinstance(item, View)]
    formations = {view.formation for view in views if "n4" in {one.name for one in view.members}}
    most = 5 + (LOOP_SECONDS[-1] - LOOP_SECONDS[0]) / LONGEST
    assert 3 <= len(formations) <= most
    assert stopped(run) < 2 / LONGEST
    assert {one.name for one in views[-1].members} == {"n1", "n2", "n3", "n4"}
    waits = {item.why for item in run.heard["n4"] if isinstance(item, Waiting)}
    why = "takes in a node that restarts again and again only after a pause"
    assert f"n1 is in 'orders', and {why}" in waits
