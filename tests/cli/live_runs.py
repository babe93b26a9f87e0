"""Runs a scenario by command, live or in both worlds, and demands that its laws hold."""

from __future__ import annotations

import json
from typing import Any


def run_live(ordercast: Any, scenario: object, *more: object) -> dict[str, Any]:
    """What `ordercast live` prints as JSON."""
    ran = ordercast("live", scenario, "--json", *more)
    assert ran.code == 0, ran.out + ran.err
    printed: dict[str, Any] = json.loads(ran.out)
    assert set(laws_of(printed).values()) == {"holds"}
    return printed


def run_in_both_worlds(ordercast: Any, scenario: object, *more: object) -> dict[str, Any]:
    """The same of the live run. A simulated one was held to the same laws."""
    simulated = ordercast("sim", scenario, "--seed", 1, "--json")
    assert simulated.code == 0, simulated.out + simulated.err
    printed = run_live(ordercast, scenario, *more)
    assert laws_of(printed) == laws_of(json.loads(simulated.out))
    return printed


def laws_of(printed: dict[str, Any]) -> dict[str, str]:
    return {law["law"]: law["answer"] for law in printed["laws"]}
