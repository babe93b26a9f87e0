"""Random schedules of the published membership protocol: one document a seed.

`faults` crashes one or two machines, or only has others believe so, while everybody sends. Every
one is noticed by n1, and by each other machine with probability 0.7, up to 32 ms later. `joins`
merges two to four configurations of four machines, which notice each other at different times; in
half of the schedules, if asked for, one machine crashes meanwhile, and all others notice that three
times. `safe` has n4 send safe messages and crash, and n3 cut off from n1 and n2 at some moment of
the 30 ms in which they agree on that. Delays are lognormal around 3 ms with sigma 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from tests.studies.published_synchrony.runs import FAMILY

from ordercast.check.laws import judge_run
from ordercast.check.promise import promises_with
from ordercast.check.verdict import Answer
from ordercast.scenario.file import parse_scenario
from ordercast.sim.world import Simulation
from ordercast.trace.schema import Trace
from ordercast.trace.sinks import MemorySink


def faults(seed: int, *, alive: bool = False, **options: Any) -> dict[str, Any]:
    draw = Random(seed)
    names = [f"n{place}" for place in range(1, draw.choice([4, 5]) + 1)]
    found: list[dict[str, Any]] = []
    for suspect in names[-draw.choice([1, 2]) :]:
        at = 200 + draw.randrange(40)
        if not alive:
            found.append({"at": f"{at}ms", "kind": "crash", "nodes": [suspect]})
        for name in names:
            if name != suspect and (draw.random() < 0.7 or name == "n1"):
                found.append(_break(at + 2 + draw.randrange(30), [name], suspect))
    options = {"joins": False, **options}
    return _document(names, options, found, {"rate": 50})


def joins(seed: int, *, crash: bool = False, **options: Any) -> dict[str, Any]:
    draw = Random(seed)
    names = ["n1", "n2", "n3", "n4"]
    order = draw.sample(names, 4)
    count = draw.choice([2, 3, 4])
    sides = [[name] for name in order[:count]]
    for name in order[count:]:
        draw.choice(sides).append(name)
    found: list[dict[str, Any]] = [
        {
            "at": f"{10 + draw.randrange(4)}ms",
            "kind": "give",
            "nodes": [name],
            "input": "Intercept",
        }
        for name in names
        if draw.random() < 0.6 or name == "n1"
    ]
    if crash and draw.random() < 0.5:
        dead = draw.choice(names)
        found.append({"at": f"{12 + draw.randrange(20)}ms", "kind": "crash", "nodes": [dead]})
        others = [name for name in names if name != dead]
        found += [_break(at, others, dead) for at in (80, 160, 240)]
    options = {"sides": sides, "alpha": "6ms", **options}
    load = {"rate": 20, "begins": dict.fromkeys(names, "400ms")}
    return _document(names, options, found, load)


def safe(seed: int, **options: Any) -> dict[str, Any]:
    draw = Random(seed)
    cut = {"kind": "partition", "sides": [["n1", "n2"], ["n3"]]}
    found: list[dict[str, Any]] = [
        {"at": "200ms", "kind": "crash", "nodes": ["n4"]},
        *(_break(203 + draw.randrange(10), [name], "n4") for name in ("n1", "n2", "n3")),
        {"at": f"{200 + draw.randrange(30)}ms", **cut},
        _break(300, ["n1", "n2"], "n3"),
        _break(300, ["n3"], "n1"),
        _break(301, ["n3"], "n2"),
    ]
    options = {"joins": False, "service": "safe", "prompt_after": "5ms", **options}
    names = ["n1", "n2", "n3", "n4"]
    return _document(names, options, found, {"rate": 50, "senders": ["n4"]})


def count(make: Callable[[int], dict[str, Any]], seeds: Iterable[int]) -> Counter[str]:
    """In how many of these schedules each law is broken, and any.

    Undecided: a machine that lives is in Stage 1 or 2 at the end, after a second in which nothing
    went wrong. Laws that are broken where none is are counted once more, as `decided: LAW`.
    """
    found: Counter[str] = Counter()
    for seed in seeds:
        sink = MemorySink()
        world = Simulation(parse_scenario(make(seed)), seed, sink=sink)
        outcome = world.run()
        assert outcome.error is None, (seed, outcome.error)
        judged = judge_run(Trace(outcome.header, sink.rows), promises=promises_with(world.families))
        broken = [one.law for one in judged.verdicts if one.answer is Answer.BROKEN]
        found.update(broken)
        found["any"] += bool(broken)
        seats = [seat for process in world.processes.values() for seat in process.host.seated]
        undecided = any(seat.machine.counters("g")["stage"] for seat in seats)
        found["undecided"] += undecided
        if not undecided:
            found.update(f"decided: {law}" for law in broken)
    return +found


def _break(at: int, nodes: list[str], peer: str) -> dict[str, Any]:
    fault = {"at": f"{at}ms", "kind": "give", "nodes": nodes, "input": "CommunicationBreak"}
    return {**fault, "values": {"peer": peer}}


def _document(
    names: list[str], options: dict[str, Any], faults: list[dict[str, Any]], load: dict[str, Any]
) -> dict[str, Any]:
    return {
        "name": "schedule",
        "family": FAMILY,
        "processes": len(names),
        "duration": "600ms",
        "quiet": "1s",
        "options": {"limit": 300, **options},
        "workload": load,
        "network": {"delay": "3ms", "jitter": 1.0},
        "fault": faults,
    }
