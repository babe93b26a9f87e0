"""What `join` is asked for, checked: all that can be wrong is found before anything begins."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypedDict, TypeVar

import msgspec

from ordercast.errors import UsageError
from ordercast.kernel.family import Family, FoundingRule, Level, Plan
from ordercast.kernel.founding import entry_of
from ordercast.kernel.terms import terms_of
from ordercast.levels import chosen, level_type, not_a_level
from ordercast.net.config import Config, GroupRules, table_of
from ordercast.net.directory import BY_PEERS, HOOKS
from ordercast.net.message import Hooks
from ordercast.net.security import may
from ordercast.settings import convert, dotted, located
from ordercast.types import Invitation, objection_to_group
from ordercast.units import Quantity

log = logging.getLogger("ordercast.net")
T = TypeVar("T")


class Wanted(NamedTuple):
    """How an application asks to be in a group."""

    members: list[str] | None = None  # exactly these: the group is closed
    expect: int | None = None
    founder: str | None = None
    of: int | None = None  # how many nodes, at most, give `expect`


class JoinHow(TypedDict, total=False):
    """Keywords of `node.join`."""

    expect: int | None
    of: int | None
    founder: str | None
    snapshot: Callable[[], bytes] | None
    restore: Callable[[bytes], None] | None
    vote: Callable[[Invitation], bool] | None
    read: bool


class Remembered(NamedTuple):
    """What a node's folder says about a group, and whether it has others to ask about it."""

    # The members when this node was last in it, by the family that it was of.
    last: Callable[[str], tuple[str, ...]] = lambda family: ()
    reborn: bool = False  # an earlier folder was lost, so the node may have been in it
    seeds: bool = False  # that are not the node itself


class JoinPlan(NamedTuple):
    family: Family
    plan: Plan  # as the machine is configured with it
    terms: dict[str, str]  # that others compare


def plan_of(
    config: Config,
    families: Mapping[str, Family],
    name: str,
    level: Level,
    wanted: Wanted,
    hooks: Hooks,
    past: Remembered,
) -> JoinPlan:
    """The group as this node joins it. UsageError: it cannot be joined like that."""
    if objection := objection_to_group(name):
        raise UsageError(objection)
    level, wanted = _checked(level, families), _checked_wanted(name, wanted)
    family, options = chosen(level, families)
    if family.not_live:
        raise UsageError(f"{name!r}: {family.not_live}")
    rules = config.group.get(name, GroupRules())
    wanted = Wanted(
        rules.members if wanted.members is None else wanted.members,
        rules.expect if wanted.expect is None else wanted.expect,
        rules.founder if wanted.founder is None else wanted.founder,
        rules.of if wanted.of is None else wanted.of,
    )
    _check_wanted(name, family, wanted)
    if unfit := family.objection(name, options, wanted.members):
        raise UsageError(unfit.why)
    _check_hooks(name, family, options, hooks)
    if not hooks.reads and family.state is not None:
        options = family.state.unread(options)
    if hooks.vote is not None and family.formation is not None:
        options = family.formation.asking(options)
    entry = None
    names = wanted.members or [config.name, *config.peers]
    if _is_open(config, family, wanted):
        names, entry = [config.name], _entry(config, family, wanted, past)
        if not family.founded and family.quorum is not None and family.quorum.needed(options):
            raise UsageError(
                f"{name!r} has a quorum, and nobody founds a group of {family.name}: list its "
                "members, so that there is something to have a majority of"
            )
    elif unfit := family.objection(name, options, names):
        raise UsageError(unfit.why)
    _check_members(config, name, names, family.largest_group)
    plan = Plan(name, tuple(sorted(set(names))), options, formed=False, entry=entry)
    for advice in family.advice(plan, 0.0):
        log.warning("%s: %s", name, advice)
    terms = terms_of(family.name, plan, family.personal) | _of_level(level, family)
    if entry is None and not wanted.members:
        terms["members"] = BY_PEERS
    if hooks.reads and family.state is not None and family.state.possible(options):
        terms[HOOKS] = "with" if hooks.snapshot is not None else "without"
    if wanted.expect:
        terms["expect"] = f"{wanted.expect} of {wanted.of}" if wanted.of else str(wanted.expect)
    return JoinPlan(family, plan, terms)


def _check_wanted(name: str, family: Family, wanted: Wanted) -> None:
    members, expect, founder, of = wanted
    if of is not None and (expect is None or not expect <= of < 2 * expect):
        raise UsageError(
            f"{name!r}: of says how many nodes give expect, which must be more than half of them: "
            f"it cannot be {of} with expect={expect}"
        )
    if expect is None and founder is None:
        return
    what = "expect" if founder is None else "founder"
    if members:
        raise UsageError(f"{name!r} has the members that are listed: {what} is for open groups")
    if not family.opens:
        raise UsageError(f"{name!r} is {family.name}, which is never open: list its members")
    if expect is not None and founder is not None:
        raise UsageError(f"{name!r}: give a founder, or how many to expect, and not both")
    if family.logged:
        raise UsageError(
            f"{name!r} is {family.name}, which nobody founds and which waits for nobody: a member "
            f"begins with its own log, and finds the others. Leave {what} out"
        )
    if founder is not None and not family.founded:
        raise UsageError(
            f"{name!r} is {family.name}, which nobody founds: a member is in it as soon as it "
            "knows another one. Leave founder out, or say how many to expect"
        )
    if expect is not None and not 1 <= expect <= family.largest_group:
        most = family.largest_group
        raise UsageError(f"{name!r} cannot expect {expect} members: give 1 to {most}")


def _is_open(config: Config, family: Family, wanted: Wanted) -> bool:
    """Configured peers are the members of a group that says nothing about its members."""
    says = wanted.expect is not None or wanted.founder is not None
    return family.opens and not wanted.members and (says or bool(config.seeds) or not config.peers)


def _entry(config: Config, family: Family, wanted: Wanted, past: Remembered) -> FoundingRule:
    return entry_of(
        config.name,
        seeds=past.seeds or bool(config.peers),
        expect=wanted.expect or 0,
        of=wanted.of or 0,
        founder=wanted.founder or "",
        reborn=past.reborn,
        last=past.last(family.name),
    )


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
    return _converted(given, kind, kind.__name__)


def _checked_wanted(name: str, wanted: Wanted) -> Wanted:
    """As a settings file may have it, too."""
    given = {key: value for key, value in wanted._asdict().items() if value is not None}
    rules = _converted(given, GroupRules, repr(name))
    if rules.members == []:
        raise UsageError(
            f"{name!r}: members: give at least one name, or leave members out: the group is open"
        )
    return Wanted(rules.members, rules.expect, rules.founder, rules.of)


def _converted(given: dict[str, Any], kind: type[T], title: str) -> T:
    try:
        return convert(given, kind)
    except msgspec.ValidationError as error:
        where, what = located(str(error), kind, given)
        raise UsageError(f"{title}: {dotted(where)}: {what}") from error


def _of_level(level: Level, family: Family) -> dict[str, str]:
    """The options by which an application chose this family among those of one level: `Total.by`.

    Families that have one in common differ by its value, which says more than their names.
    """
    names = [name for name in level.__struct_fields__ if not hasattr(family.options, name)]
    return {f"{type(level).__name__}.{name}": str(getattr(level, name)) for name in names}


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
        raise UsageError(f"{name!r} asks nobody whether it comes: there is nothing to vote on")
    if given.vote is None and formation is not None and formation.asks(options):
        raise UsageError(f"{name!r} asks its application whether it comes: give join a vote")


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
