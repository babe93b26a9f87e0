"""What is explored: who plays, by which rules of the world, and how far.

A `Setting` is a family with its groups and members, and the rules of its small world. `Bounds` say
how much may happen on one path. Both are plain data; `search.py` tells what is made of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from ordercast.errors import UsageError
from ordercast.kernel.family import Family, Plan, by_machine
from ordercast.kernel.inputs import Input
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Heard
from ordercast.protocol.families import FAMILIES
from ordercast.scenario import chance
from ordercast.scenario.file import plans_in
from ordercast.scenario.schema import Scenario
from ordercast.sim.clock import TRUE, Clock
from ordercast.store.memory_log import replayed
from ordercast.types import NodeId

MOST = 1 << 30


class Bounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How much may happen on any one path. What is not mentioned does not happen."""

    submissions: int | Mapping[str, int] = 1  # a member; or by name, the others none
    timers: int = 0  # firings, of all members together
    crashes: int = 0
    restarts: int = 0
    losses: int = 0  # packets by datagram or status; only `settle` can tell lost from late
    duplicates: int = 0  # datagrams that arrive once more
    cuts: int = 0  # of a pair of members, both ways, until it is mended
    inputs: int = 0  # of those that the setting lists, by all members together
    joins: int = 0  # of groups that the setting lists, by all members together
    depth: int = MOST  # steps of a schedule
    max_states: int = 200_000

    def submissions_of(self, name: str) -> int:
        given = self.submissions
        return given if isinstance(given, int) else given.get(name, 0)


NO_BOUNDS = Bounds(**{name: MOST for name in Bounds.__struct_fields__ if name != "max_states"})


class Setting(msgspec.Struct, frozen=True):
    """Who plays and by which rules. Made by `setting` or `setting_of`."""

    names: tuple[str, ...]
    parts: tuple[tuple[Family, tuple[Plan, ...]], ...]
    seed: int = 0  # of the chance that machines are built with
    prelude: bool = True  # let the group form in peace before anything is explored
    clocks: bool = False  # let machines read their clocks, which are then part of the state
    together: bool = False  # all clocks show one time, which a timer that runs out brings forward
    rates: Mapping[str, float] = {}  # together: who gains how many seconds a second, or loses
    latest_only: bool = False  # a datagram replaces those of its type on the same way
    rounds: int = 16  # of timers, in the prelude and when settling
    # What applications may do at any time, such as Leave("g") or Backpressure("g", True): all of
    # them, or by name each of its own.
    inputs: tuple[Input, ...] | Mapping[str, tuple[Input, ...]] = ()
    # By name: groups that a member is not in when it starts. It may join them at any time.
    joins: Mapping[str, tuple[str, ...]] = {}
    # What an application makes of its state in a group, and of what it hears there. That state is
    # given to members that need it. None: applications have no state.
    application: Callable[[bytes, Heard], bytes] | None = None
    # Rows have the time that all clocks show, which is then part of the logs: for laws that compare
    # times. Only clocks that are `together`, without `rates`, show one time.
    timed: bool = False

    def __post_init__(self) -> None:
        if self.timed and (not self.together or self.rates):
            raise UsageError("a timed setting has clocks that are together, and no rates")
        listed = set(self.joins)
        if not isinstance(self.inputs, tuple):
            listed |= set(self.inputs)
        for name in sorted(listed - set(self.names)):
            raise UsageError(f"{name} takes no part: the members are {', '.join(self.names)}")
        for group in sorted({one for groups in self.joins.values() for one in groups}):
            if group not in self.groups:
                raise UsageError(f"nobody can join {group!r}, which is no group of this setting")
        shared = {family.build: family for family, _ in self.parts if family.one_machine}
        if self.joins and len(shared) > 1:
            raise UsageError("members that join later share one machine at most")

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(plan.group for _, plans in self.parts for plan in plans)

    @property
    def family(self) -> str | None:
        return self.parts[0][0].name if len(self.parts) == 1 else None

    def inputs_of(self, name: str) -> tuple[Input, ...]:
        return self.inputs if isinstance(self.inputs, tuple) else self.inputs.get(name, ())

    def plan_of(self, name: str, group: str) -> tuple[Family, Plan]:
        """A group as the member of this name is configured with it."""
        return next(
            (family, plan)
            for family, plans in self.parts
            for plan in plans
            if plan.group == group and name in plan.members
        )

    def clock_of(self, name: str) -> Clock:
        return TRUE.drifting(0, self.rates[name]) if name in self.rates else TRUE

    def build(self, me: NodeId, records: Sequence[Packet]) -> list[Machine]:
        """The machines of one incarnation."""
        machines: list[Machine] = []
        own = [
            (family, plan)
            for family, plans in self.parts
            for plan in plans
            if me.name in plan.members and plan.group not in self.joins.get(me.name, ())
        ]
        logged = [plan.group for family, plan in own if family.logged]
        for group in logged:
            log = replayed(group, self.log_of(me.name, group), records)
            records = [one for one in records if one.group != group] + log.records()
        for family, plans in by_machine(own):
            machines += family.build(me, plans, self.draw(me, family), records)
        return machines

    def log_of(self, name: str, group: str) -> int:
        """The identity of a log. No disk is lost here."""
        return 1 + chance.stream(self.seed, "log", group, name).getrandbits(32)

    def draw(self, me: NodeId, family: Family, plan: Plan | None = None) -> Random:
        """The chance of a machine: of one that joins later, or of those that begin together."""
        group = () if plan is None else (plan.group,)
        return chance.stream(self.seed, "member", family.name, me, *group)


def setting(
    family: Family,
    members: int | Sequence[str],
    options: object = None,
    *,
    group: str = "g",
    **rules: Any,
) -> Setting:
    """One group of one family. Members are names, or a number of them: n1 and so on."""
    if isinstance(members, int):
        members = [f"n{number}" for number in range(1, members + 1)]
    names = tuple(sorted(members))
    plan = Plan(group, names, family.options() if options is None else options)
    return Setting(names, ((family, (plan,)),), **rules)


def setting_of(
    scenario: Scenario, families: Mapping[str, Family] = FAMILIES, **rules: Any
) -> Setting:
    """The groups, members and options of a scenario; its load, times and faults do not matter."""
    if any(group.open for group in scenario.groups()):
        raise UsageError(f"{scenario.name}: open groups cannot be explored: list the members")
    plans: dict[str, tuple[Family, list[Plan]]] = {}
    for family, plan in plans_in(scenario, families):
        plans.setdefault(family.name, (family, []))[1].append(plan)
    parts = tuple((family, tuple(own)) for family, own in plans.values())
    return Setting(scenario.names, parts, **rules)
