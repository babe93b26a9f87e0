"""Without faults: each event once over each edge, and one tree that stays."""

from __future__ import annotations

from collections import Counter

import msgspec
from tests.protocol.feed.storms import SCENARIOS, Storm

from ordercast.scenario.file import load_scenario
from ordercast.sim.world import Simulation
from ordercast.testing.stage import Stage
from ordercast.trace.schema import TraceLevel
from ordercast.trace.sinks import MemorySink


def test_each_event_travels_once_over_each_edge() -> None:
    storm = Storm("feed-calm", 1)
    assert not storm.broken
    events = sum(row.kind == "submit" for row in storm.trace.rows)
    # A few at the start go twice, while the tree is put together.
    assert events * 6 <= storm.counters["sent"] <= events * 6 + 5
    assert storm.counters["duplicates"] <= 5
    assert storm.counters["silences"] == storm.counters["moves"] == 0


def test_an_idle_edge_costs_a_beat_and_an_acknowledgement_a_period() -> None:
    scenario = load_scenario(SCENARIOS / "feed-calm.toml")
    workload = msgspec.structs.replace(scenario.workload, senders=0)
    idle = msgspec.structs.replace(scenario, workload=workload)
    sink = MemorySink()
    Simulation(idle, 1, sink=sink, level=TraceLevel.WIRE).run()
    late = [row for row in sink.rows if row.kind == "send" and row.at >= 4_000_000_000]
    sent = Counter(row.message for row in late)
    beats = 8 * 10  # seconds, a second
    assert set(sent) <= {"Pulse", "Ack", "Seek", "Offer"}
    assert abs(sent["Pulse"] - 6 * beats) <= 12
    assert abs(sent["Ack"] - 6 * beats) <= 12
    # The root asks one node a beat, and the others measure every ten.
    assert sent["Seek"] <= beats + 6 * beats // 10 + 12


def test_events_are_stable_when_another_log_has_them() -> None:
    stage = Stage.of("feed", "n1 n2", beat="100ms")
    stage.settle(ticks=1)
    event = stage.submit("n1", [b"a"])
    assert event is not None
    assert stage.actors["n1"].host.stable_up_to("g") == 0
    stage.settle()
    assert stage.actors["n1"].host.stable_up_to("g") == event.number


def test_a_lone_node_accepts_and_is_the_root_of_its_own_tree() -> None:
    stage = Stage.of("feed", "n1", beat="100ms")
    assert stage.submit("n1", [b"a"]) is not None
    stage.settle(ticks=20)
    assert stage.machine("n1").counters("g")["roots"] == 1
