"""Runs of several families with every packet in their traces: what metrics are tried on."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from ordercast.scenario.file import parse_scenario
from ordercast.sim.world import Simulation
from ordercast.trace.schema import Trace, TraceLevel
from ordercast.trace.sinks import MemorySink

ROUND = 50_000_000
CALM = {"name": "calm", "processes": 4, "duration": "1s", "quiet": "1s"}
SCENARIOS: dict[str, dict[str, Any]] = {
    "causal": {
        **CALM,
        "family": "causal",
        "options": {"tickets": 3, "join_wait": "50ms", "round": "50ms", "hops": 1, "fan_out": 1}
        | {"ownership": "fixed"},
        "network": {"loss": 0.2},
    },
    "gossip": {
        **CALM,
        "family": "gossip",
        "options": {"round": "50ms", "fan_out": 1, "hops": 2, "events_per_message": 2},
        "workload": {"per_round": 2},
    },
    "fifo": {
        **CALM,
        "family": "fifo",
        "options": {"window": 4},
        "workload": {"rate": 200},
        "fault": [{"at": "300ms", "kind": "restart", "nodes": ["n2"], "for": "200ms"}],
    },
    "tickets": {
        **CALM,
        "family": "causal",
        "duration": "5s",
        "options": {"tickets": 2, "round": "50ms", "lease": "400ms", "join_wait": "50ms"},
        "chaos": {"faults": ["restart"], "every": "300ms", "longest": "200ms", "disks": "kept"},
    },
    "feed": {
        **CALM,
        "family": "feed",
        "duration": "8s",
        "options": {"beat": "50ms"},
        "workload": {"rate": 5},
        "fault": [
            {
                "at": "4s",
                "kind": "give",
                "nodes": ["n1", "n2"],
                "input": "Relocate",
                "values": {"to": "n3"},
            }
        ],
    },
}


@cache
def simulated(name: str) -> Trace:
    sink = MemorySink()
    outcome = Simulation(parse_scenario(SCENARIOS[name]), 1, sink=sink, level=TraceLevel.WIRE).run()
    assert outcome.error is None
    return Trace(msgspec.structs.replace(outcome.header, run=name), sink.rows)
