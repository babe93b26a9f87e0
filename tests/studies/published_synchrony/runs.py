"""Runs of the published membership protocol: its scenarios with other options, and their views."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from ordercast.scenario.file import parse_scenario
from ordercast.testing import Simulated, simulate
from ordercast.trace.schema import TraceLevel
from ordercast.units import MILLISECOND

ROOT = Path(__file__).resolve().parents[3]
FAMILY = "ordercast.studies.published_synchrony:FAMILY"


def document(name: str) -> dict[str, Any]:
    path = ROOT / "scenarios" / f"synchrony-published-{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def ran(name: str, seed: int = 1, *, wire: bool = False, **changes: Any) -> Simulated:
    """The scenario, with other options, or without its faults (fault=[])."""
    found = document(name)
    found["fault"] = changes.pop("fault", found["fault"])
    found["options"] |= changes
    level = TraceLevel.WIRE if wire else TraceLevel.APP
    run = simulate(parse_scenario(found), seed, level=level)
    assert run.outcome.error is None, (name, seed, run.outcome.error)
    return run


def laws(run: Simulated) -> list[str]:
    return [verdict.law for verdict in run.broken]


def views(run: Simulated, process: str) -> list[tuple[str, ...]]:
    """The members of each view that a process installed, in its order."""
    rows = [row for row in run.trace.rows if (row.kind, row.process) == ("view", process)]
    return [tuple(row.members or ()) for row in rows]


def sent(run: Simulated, message: str, *, since: int = 0) -> list[tuple[str, int]]:
    """Broadcasts of a kind: who made them, and when in milliseconds. Each counts once."""
    found = [
        (row.process, row.peer, row.at // MILLISECOND)
        for row in run.trace.rows
        if (row.kind, row.message) == ("send", message) and row.at >= since * MILLISECOND
    ]
    first = {process: peer for process, peer, _ in reversed(found)}
    return [(process, at) for process, peer, at in found if peer == first[process]]
