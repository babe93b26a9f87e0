"""What `join` is asked for, checked: all that can be wrong is found before anything begins."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from ordercast.errors import UsageError
from ordercast.kernel.family import Family, Level, Plan
from ordercast.kernel.terms import terms_of
from ordercast.levels import chosen, level_type, not_a_level
from ordercast.net.config import Config, table_of
from ordercast.net.directory import BY_PEERS
from ordercast.net.message import Hooks
from ordercast.net.security import may
from ordercast.settings import convert, dotted, located
from ordercast.types import objection_to_group
from ordercast.units import Quantity

log = logging.getLogger("ordercast.net")


def plan_of(
    config: Config,
    families: Mapping[str, Family],
    name: str,
    level: Level,
    members: list[str] | None,
    hooks: Hooks,
) -> tuple[Family, Plan, dict[str, str]]:
    """The group as its machine is configured with it, and the terms that others compare.

    UsageError: it cannot be joined like that.
    """
    if objection := objection_to_group(name):
        raise UsageError(objection)
    family, options = chosen(_checked(level, families), families)
    rules = config.group.get(name)
    names = members or (rules.members if rules else None)
    if family.not_live:
        raise UsageError(f"{name!r}: {family.not_live}")
    if unfit := family.objection(name, options, names):
        raise UsageError(unfit.why)
    _check_hooks(name, family, options, hooks)
    if hooks.vote is not None and family.formation is not None:
        options = family.formation.asking(options)
    listed = bool(names)
    names = names or [config.name, *config.peers]
    _check_members(config, name, names, family.largest_group)
    plan = Plan(name, tuple(sorted(set(names))), options, formed=False)
    for advice in family.advice(plan, 0.0):
        log.warning("%s: %s", name, advice)
    terms = terms_of(family.name, plan, family.personal)
    if not listed:
        terms["members"] = BY_PEERS
    return family, plan, terms


def _checked(level: Level, families: Mapping[str, Family]) -> Level:
    """What a constructor takes as it comes: numbers in their bounds, quantities with a unit."""
    kind = type(level)
    if kind not in map(level_type, families.values()):
        raise not_a_level(level)
    given = {
        name: str(value) if isinstance(value, Quantity) else value
        for name in level.__struct_fields__
        if (value := getattr(level, name)) is not None
    }
    try:
        return convert(given, kind)
    except msgspec.ValidationError as error:
        where, what = located(str(error), kind)
        raise UsageError(f"{kind.__name__}: {dotted(where)}: {what}") from error


def _check_hooks(name: str, family: Family, options: Any, given: Hooks) -> None:
    """What an application may be asked, and what it must be able to answer."""
    hooks = (given.snapshot is not None) + (given.restore is not None)
    state, formation = family.state, family.formation
    if not given.reads and (hooks or (state is not None and state.needed(options))):
        raise UsageError(
            f"{name!r} hands over its state when it is read: a member with read=False has none"
        )
    if hooks == 1 or (hooks == 0 and state is not None and state.needed(options)):
        raise UsageError(f"{name!r} hands over its state: give join a snapshot and a restore")
    if hooks and (state is None or not state.possible(options)):
        more = f": {state.hint}" if state is not None else ""
        raise UsageError(f"{name!r} hands over no state{more}")
    if given.vote is not None and formation is None:
        raise UsageError(f"{name!r} is not formed by invitations: there is nothing to vote on")
    if given.vote is None and formation is not None and formation.asks(options):
        raise UsageError(f"{name!r} asks its application about invitations: give join a vote")


def _check_members(config: Config, name: str, names: list[str], most: int) -> None:
    if not may(config, config.name, name, "join"):
        raise UsageError(f"{config.name} may not be in {name!r}: {table_of(name)} members")
    if config.name not in names:
        raise UsageError(f"{config.name} is not a member of {name!r}: {', '.join(names)}")
    not_permitted = [other for other in names if not may(config, other, name, "join")]
    if not_permitted:
        who = ", ".join(not_permitted)
        raise UsageError(f"{who} may not be in {name!r}: {table_of(name)} members has others")
    if len(names) > most:
        raise UsageError(f"{name!r} would have {len(names)} members: at most {most} members")
