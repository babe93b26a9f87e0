"""Which members may update a cluster, and which one begins it, as the options say.

No state: what a running member knows of tickets is in ownership.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ordercast.kernel.family import Objection, Plan
from ordercast.protocol.cluster.options import CausalOptions


def updaters_of(plan: Plan) -> tuple[str, ...]:
    """The owners of tickets 0, 1 and so on."""
    options = plan.options
    assert isinstance(options, CausalOptions)
    return tuple(options.updaters) or _first(plan.members, options.tickets)


@lru_cache(maxsize=64)
def _first(members: tuple[str, ...], count: int) -> tuple[str, ...]:
    """Asked by every member of a simulated group of thousands."""
    return tuple(sorted(members, key=_natural)[:count])


def may_send(plan: Plan, name: str) -> bool:
    """Whether a member may ever make events."""
    options = plan.options
    assert isinstance(options, CausalOptions)
    return options.ownership != "fixed" or name in updaters_of(plan)


def tickets_move(plan: Plan) -> bool:
    options = plan.options
    assert isinstance(options, CausalOptions)
    return options.ownership != "fixed"


def objection(group: str, options: Any, members: Sequence[str] | None) -> Objection | None:
    """The bootstrap node and the owners of the tickets must be members."""
    assert isinstance(options, CausalOptions)
    if members is None and options.ownership == "fixed" and not options.updaters:
        why = f"{group!r} has fixed owners of tickets, and anybody may join it: name its updaters"
        return Objection("updaters", why)
    if members is None:
        return None
    if options.founder and options.founder not in members:
        why = f"the founder of {group!r} is {options.founder}, which is no member"
        return Objection("founder", why)
    for name in options.updaters:
        if name not in members:
            why = f"options.updaters: {name!r} is not a member of group {group!r}"
            return Objection("updaters", why)
    return None


def founder_of(plan: Plan) -> str:
    """The bootstrap node of a cluster in which tickets change hands."""
    options = plan.options
    assert isinstance(options, CausalOptions)
    if plan.entry is not None:
        return plan.entry.founder or (plan.members[0] if plan.entry.founds else "")
    return options.founder or min(plan.members, key=_natural)


def _natural(name: str) -> list[tuple[int, str]]:
    """So that n10 comes after n9."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d+)", name)]
