"""What holds for an open group under any schedule, as test_properties.py has them."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings
from tests.protocol.fifo.test_properties import (
    NAMES,
    ROOMY,
    TIGHT,
    Move,
    come_to_rest,
    delivered,
    everybody,
    lost,
    play,
    steady,
    stormy,
)

from ordercast.kernel.family import FoundingRule
from ordercast.kernel.inputs import Acquainted
from ordercast.protocol.fifo.member import STREAMS_IN_A_REPORT
from ordercast.testing.stage import Stage
from ordercast.types import NodeId, View


class OpenStage(Stage):
    """Everybody knows everybody's name when it starts, as if all were seeds of all."""

    def start(self, name: str | None = None) -> None:
        super().start(name)
        if name is not None:
            others = tuple(other for other in self.actors if other != name)
            self.give(name, Acquainted("g", others))


def on_open_stage(options: dict[str, Any]) -> Stage:
    entries = dict.fromkeys(NAMES, FoundingRule(expect=3))
    stage = OpenStage.open("fifo", entries, suspicion_limit="200ms", **options)
    stage.start()
    stage.settle(ticks=2)
    return stage


def founded_by_one(options: dict[str, Any]) -> Stage:
    """n1 founds, and the others join while the schedule goes on."""
    entries = {"n1": FoundingRule(founds=True), "n2": FoundingRule(), "n3": FoundingRule()}
    stage = OpenStage.open("fifo", entries, suspicion_limit="200ms", **options)
    stage.start()
    return stage


@settings(deadline=None, derandomize=True, max_examples=100)
@given(stormy, st.sampled_from([ROOMY, TIGHT]), st.sampled_from([on_open_stage, founded_by_one]))
def test_events_come_in_order_once_and_without_unreported_gaps(
    schedule: list[Move], options: dict[str, Any], begin: Any
) -> None:
    stage = come_to_rest(play(begin(options), schedule))
    for node in everybody(stage):
        got: dict[NodeId, list[int]] = {}
        for origin, number in delivered(stage, node):
            got.setdefault(origin, []).append(number)
        missed = lost(stage, node)
        for origin, received in got.items():
            assert received == sorted(set(received))
            gaps = {*range(received[0], received[-1] + 1)} - {*received}
            assert {(origin.name, number) for number in gaps} <= missed


@settings(deadline=None, derandomize=True, max_examples=100)
@given(steady)
def test_every_event_reaches_all_founders_or_is_reported_as_lost(schedule: list[Move]) -> None:
    stage = come_to_rest(play(on_open_stage(ROOMY), schedule))
    nodes = [stage.node(name) for name in NAMES]
    made = {pair for node in nodes for pair in delivered(stage, node) if pair[0] == node}
    for node in nodes:
        missing = made - {*delivered(stage, node)}
        assert {(origin.name, number) for origin, number in missing} <= lost(stage, node)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(stormy, st.sampled_from([on_open_stage, founded_by_one]))
def test_after_the_faults_the_live_members_are_one_group(schedule: list[Move], begin: Any) -> None:
    stage = come_to_rest(play(begin(TIGHT), schedule))
    alive = {actor.node for actor in stage.actors.values() if actor.alive}
    for node in alive:
        known: Any = stage.machine(node.name)
        if any(who in alive and isinstance(what, View) for who, what in stage.log):
            assert {node, *known.peers.present} == alive
            assert stage.accepts(node.name)
        assert len(known.streams.by_origin) < STREAMS_IN_A_REPORT
