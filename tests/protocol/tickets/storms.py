"""Runs of the family of holders with whatever may go wrong, all of it drawn from one seed."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

import msgspec
from tests.protocol.tickets.holders import FAMILY

from ordercast.check.laws import check
from ordercast.check.verdict import Verdict
from ordercast.scenario.file import parse_scenario
from ordercast.sim.world import Simulation
from ordercast.trace.schema import Row, Trace
from ordercast.trace.sinks import MemorySink

KINDS = ("crash", "crash", "restart", "pause", "partition", "one-way", "loss")
SIZES = (1, 2, 3, 4, 5, 7, 9)


class Storm(NamedTuple):
    rows: list[Row]
    verdict: Verdict
    error: str | None
    processes: int
    tickets: int

    def count(self, cause: str) -> int:
        return sum(row.kind == "ticket" and row.cause == cause for row in self.rows)

    @property
    def goes_on(self) -> bool:
        """Whether anybody got or renewed a ticket in the last seconds."""
        end = self.rows[-1].at
        causes = ("acquired", "renewed")
        return any(
            row.kind == "ticket" and row.cause in causes and row.at > end - 2_000_000_000
            for row in self.rows
        )


def storm(
    seed: int,
    *,
    drift: float = 0.05,
    disks: tuple[str, ...] = ("kept",),
    fickle: float = 0.02,
    restless: float = 0.0,
    seconds: int = 12,
    sizes: tuple[int, ...] = SIZES,
) -> Storm:
    """So many seconds in which things go wrong, and half as many in which they do not."""
    draw = Random(seed)
    count, tickets = draw.choice(sizes), draw.choice((1, 2, 4))
    names = [f"n{number + 1}" for number in range(count)]
    most = 16 * seconds // 12
    faults = [_fault(draw, names, disks, seconds) for _ in range(draw.randrange(most // 4, most))]
    for name in draw.sample(names, min(2, count)):
        sign = draw.choice((-1, 1))
        faults.append({"at": "1ms", "kind": "skew", "nodes": [name], "drift": sign * drift * 0.98})
    document: dict[str, Any] = {
        "name": "storm",
        "processes": count,
        "duration": f"{seconds}s",
        "quiet": f"{seconds // 2}s",
        "workload": {"rate": 0.001},
        "network": {"delay": "3ms", "jitter": 1.0, "loss": 0.05, "duplicate": 0.05},
        "fault": faults,
    }
    options = {"tickets": tickets, "drift": drift, "fickle": fickle, "restless": restless}
    scenario = msgspec.structs.replace(parse_scenario(document), family="holders", options=options)
    sink = MemorySink()
    outcome = Simulation(scenario, seed, sink=sink, families={"holders": FAMILY}).run()
    trace = Trace(outcome.header, sink.rows)
    verdict = check(trace, ["ticket-uniqueness"])[0]
    return Storm(sink.rows, verdict, outcome.error, count, tickets)


def _fault(draw: Random, names: list[str], disks: tuple[str, ...], seconds: int) -> dict[str, Any]:
    kind = draw.choice(KINDS if len(names) > 1 else ("crash", "restart", "pause"))
    fault: dict[str, Any] = {"at": f"{draw.randrange(300, 1000 * (seconds - 1))}ms", "kind": kind}
    mixed = draw.sample(names, len(names))
    if kind in ("partition", "one-way"):
        place = draw.randrange(1, len(mixed))
        fault["sides"] = [mixed[:place], mixed[place:]]
    else:
        fault["nodes"] = mixed[:1]
    if kind != "restart":
        fault["for"] = f"{draw.randrange(50, 2500)}ms"
    if kind in ("crash", "restart"):
        fault["disk"] = draw.choice(disks)
    return fault
