"""Tuning: a setting that is searched for each run, so that a metric has a given value.

The cluster papers' first experiment gives each trial the round at which 0.2 % of connections
fail, as otherwise trials would be compared under different strain. An experiment says so:

    [tune]
    key = "options.round"           # a duration of the scenario
    until = "failed_share"          # of status sends that got no answer in time
    at = 0.002                      # the longest setting at which more fail is too short
    from = "5ms"                    # where the search begins
    to = "2s"
    steps = 8                       # pilot simulations
    [tune.times]                    # what follows it: so many times the setting
    "network.answer_within" = 1
    duration = 60
    quiet = 20
    [tune.pilot]                    # and what pilots have instead
    duration = 30

The search halves a range on a scale of ratios, with pilot simulations of the same seed, and takes
the shortest setting that was found good enough. It is a pure function of scenario, seed and rules,
and part of the run's task: whoever runs a trial finds the same setting.

What fails must grow as the setting falls. Where even the longest does not do, that one is taken,
and the metric `failed_share` of the run shows it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from random import Random
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ordercast.errors import UsageError
from ordercast.kernel.family import Build, Family, Plan
from ordercast.kernel.inputs import Input, StatusResult
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step
from ordercast.levels import find_family
from ordercast.protocol.families import FAMILIES
from ordercast.scenario.file import parse_scenario
from ordercast.scenario.schema import Scenario
from ordercast.settings import convert
from ordercast.sim.world import Simulation
from ordercast.types import NodeId
from ordercast.units import Duration

KEY = "tune"
"""Where a trial's document carries its rules; `settled` takes them out again."""

Times = Annotated[float, Meta(gt=0, le=1_000_000)]


class Tune(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    key: str
    until: Literal["failed_share"] = "failed_share"
    at: Annotated[float, Meta(gt=0, lt=1)]
    low: Duration = msgspec.field(name="from")
    high: Duration = msgspec.field(name="to")
    steps: Annotated[int, Meta(ge=1, le=30)] = 8
    times: dict[str, Times] = {}
    pilot: dict[str, Times] = {}


class StatusAnswers:
    """How many status sends of a run were answered, and how many were not in time."""

    def __init__(self) -> None:
        self.told = 0
        self.failed = 0

    @property
    def failed_share(self) -> float | None:
        """None: the run had no status sends."""
        return self.failed / self.told if self.told else None

    def watch(self, scenario: Scenario) -> dict[str, Family]:
        """The families that it may name, with machines whose answers are counted here.

        Families that share a machine are known by their common `build`, so it is wrapped once.
        """
        words = map(scenario.family_of, scenario.groups())
        families = FAMILIES | {word: find_family(word) for word in words}
        builds = {family.build: self._watched_build(family.build) for family in families.values()}
        return {name: one._replace(build=builds[one.build]) for name, one in families.items()}

    def _watched_build(self, unwatched: Build) -> Build:
        def build(
            me: NodeId, plans: tuple[Plan, ...], chance: Random, records: Sequence[Packet]
        ) -> list[Machine]:
            machines = unwatched(me, plans, chance, records)
            for machine in machines:
                if StatusResult in machine.takes:
                    self._watch(machine)
            return machines

        return build

    def _watch(self, machine: Machine) -> None:
        take = machine.on

        def on(step: Step, given: Input) -> None:
            if isinstance(given, StatusResult):
                self.told += 1
                self.failed += not given.arrived
            take(step, given)

        # On this one object: a machine around the machine would cost every packet a call.
        vars(machine)["on"] = on


def settled(document: dict[str, Any], seed: int) -> dict[str, Any]:
    """The scenario that a trial runs: its document, tuned if it says how."""
    if KEY not in document:
        return document
    rest = {name: value for name, value in document.items() if name != KEY}
    return tuned(rest, seed, convert(document[KEY], Tune))


def tuned(document: dict[str, Any], seed: int, tune: Tune) -> dict[str, Any]:
    """The document with the shortest setting at which no more fail than may."""
    low, high = _range(tune)
    good = high
    for _ in range(tune.steps):
        middle = math.exp((math.log(low) + math.log(good)) / 2)
        setting = Duration(round(middle / 1000) * 1000)  # microseconds are fine enough
        if not low < setting < good:
            break
        if _failed_share(with_setting(document, setting, tune, tune.pilot), seed) <= tune.at:
            good = setting
        else:
            low = setting
    return with_setting(document, good, tune, {})


def checked(document: dict[str, Any], tune: Tune) -> dict[str, Any]:
    """The document with the longest setting, for a look at whether it can be run at all."""
    return with_setting(document, _range(tune)[1], tune, {})


def carried(document: dict[str, Any], tune: Tune) -> dict[str, Any]:
    """The document with the rules inside, as trials hand it on."""
    rules: Any = msgspec.to_builtins(tune, enc_hook=str)
    rules |= {"from": str(tune.low), "to": str(tune.high)}
    return {**document, KEY: rules}


def with_setting(
    document: dict[str, Any], setting: Duration, tune: Tune, instead: dict[str, float]
) -> dict[str, Any]:
    changed = copy.deepcopy(document)
    for key, times in {tune.key: 1.0, **tune.times, **instead}.items():
        put(changed, key, str(Duration(round(setting * times))))
    return changed


def put(document: dict[str, Any], key: str, value: Any) -> None:
    """Sets a dotted key. UsageError: there is something that is not a table on the way."""
    *path, last = key.split(".")
    table = document
    for part in path:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise UsageError(f"{key}: {part} is not a table there")
    table[last] = value


def _failed_share(document: dict[str, Any], seed: int) -> float:
    answers = StatusAnswers()
    scenario = parse_scenario(document)
    outcome = Simulation(scenario, seed, families=answers.watch(scenario)).run()
    if outcome.error is not None:
        raise RuntimeError(f"a pilot broke: {outcome.error}")
    if answers.failed_share is None:
        raise UsageError(
            "nothing to tune by: no status sends were made; set options.transport to status"
        )
    return answers.failed_share


def _range(tune: Tune) -> tuple[Duration, Duration]:
    if not 0 < tune.low < tune.high:
        raise UsageError(f"tune: from {tune.low} to {tune.high} is no range")
    return tune.low, tune.high
