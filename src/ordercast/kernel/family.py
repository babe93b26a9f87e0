"""How a family of protocols presents itself: one object makes it run in every world."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import NamedTuple, Protocol

import msgspec

from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.types import NodeId


class Plan(NamedTuple):
    """One group as a member is configured with it."""

    group: str
    members: tuple[str, ...]  # names, sorted
    options: object  # the family's own options struct
    # Where groups form: whether this one is there from the beginning, made of first lives. Only a
    # simulation can have it so. What is joined through the door `join` forms in any case.
    formed: bool = True


class Build(Protocol):
    def __call__(
        self, me: NodeId, plans: tuple[Plan, ...], chance: Random, kept: Sequence[Packet]
    ) -> list[Machine]:
        """Makes the machines that serve the plans. `kept` is what an earlier life kept."""


def _everybody(plan: Plan, name: str) -> bool:
    return True


def _never(plan: Plan) -> bool:
    return False


def _nothing(plan: Plan, events_per_second: float) -> list[str]:
    return []


class Family(NamedTuple):
    """A protocol family as drivers know it: one entry makes it run in every world."""

    name: str
    options: type[msgspec.Struct]  # its defaults work
    packets: tuple[type[Packet], ...]  # in the form in which they travel
    build: Build
    largest_group: int  # members; what all its buffers together can bear
    may_send: Callable[[Plan, str], bool] = _everybody  # who may submit at all
    tells_stability: bool = True  # whether members know who has what
    advice: Callable[[Plan, float], list[str]] = (
        _nothing  # what is doubtful about a group's options
    )
    licensed: Callable[[Plan], bool] = _never  # whether its machines are `Licensed`
    rejoins: bool = False  # whether `start` may follow `leave`, for a member that comes again
    # One machine of a process, which is `Formed`, serves all groups of all families that have the
    # same `build`.
    shared: bool = False


def by_machine(plans: Iterable[tuple[Family, Plan]]) -> list[tuple[Family, tuple[Plan, ...]]]:
    """Which plans are built together: those of a family, or of all families that share machines."""
    found: dict[object, tuple[Family, list[Plan]]] = {}
    for family, plan in plans:
        key = family.build if family.shared else family.name
        found.setdefault(key, (family, []))[1].append(plan)
    return [(family, tuple(together)) for family, together in found.values()]
