"""Sets of machines as sorted tuples of names: they are compared, sent, and never iterated as sets.

Amir, Dolev, Kramer, Malki: Membership algorithms for multicast communication groups (Transis,
1992). Its sets are CCS, F, J, F_before and F_after.
"""

from __future__ import annotations

from typing import TypeAlias

Machines: TypeAlias = tuple[str, ...]


def united(one: Machines, other: Machines) -> Machines:
    return tuple(sorted(dict.fromkeys(one + other)))


def without(one: Machines, other: Machines) -> Machines:
    return tuple(name for name in one if name not in other)


def common(one: Machines, other: Machines) -> Machines:
    return tuple(name for name in one if name in other)


def within(one: Machines, other: Machines) -> bool:
    return all(name in other for name in one)
