"""Which laws a run has to keep: what its family promises, or each of its families on its groups.

What a family promises only while nothing fails is added where the rows show no crash, no suspicion,
no loss, no restart and no member that left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from ordercast.check.history import PROMISES, FamilyPromises, History
from ordercast.check.verdict import Verdict, worst
from ordercast.errors import unknown_word
from ordercast.kernel.family import Family
from ordercast.trace.schema import Header, Row, Trace
from ordercast.types import name_of


def promises_with(families: Iterable[Family]) -> FamilyPromises:
    """All known promises, and those of these families, wherever they live."""
    given = {each.name: each.promises for each in families if each.promises is not None}
    return {**PROMISES, **given}


def promised(history: History) -> frozenset[str] | None:
    """What the run's family promises for it, without what follows; None if it is not known."""
    promises = history.promises
    if promises is None:
        return None
    return frozenset(promises.laws + (promises.when_nothing_fails if history.calm else ()))


class NotAsked(msgspec.Struct, frozen=True):
    """Laws that a family promises only while nothing fails, in a run in which something failed."""

    family: str
    laws: tuple[str, ...]
    why: str  # what failed

    def __str__(self) -> str:
        *most, last = self.laws
        laws = f"laws {', '.join(most)} and {last} were" if most else f"law {last} was"
        promise = f"the family {self.family} promises {'them' if most else 'it'}"
        return f"The {laws} not asked: {promise} only while nothing fails, and here {self.why}."


def not_asked_in(runs: Sequence[tuple[int, Sequence[NotAsked]]]) -> list[str]:
    """What was not asked of these runs, given with their seeds: a sentence for the same laws."""
    same: dict[tuple[str, ...], list[tuple[int, NotAsked]]] = {}
    for seed, left_out in runs:
        for one in left_out:
            same.setdefault((one.family, *one.laws), []).append((seed, one))
    return [
        f"{len(several)} of {len(runs)} runs, the first with seed {several[0][0]}. {several[0][1]}"
        if len(runs) > 1
        else str(several[0][1])
        for several in same.values()
    ]


def unknown_family(family: str | None, promises: FamilyPromises = PROMISES) -> str | None:
    """What to say of a run whose family is named, and nobody knows what it promises."""
    if family is None or family in promises:
        return None
    return f"All laws are judged: {unknown_word('family', family, promises)}"


def families_of(header: Header) -> dict[str, list[str]]:
    """The families of a run and their groups, as far as its parameters tell.

    Empty where the header's own family stands for all groups.
    """
    found: dict[str, list[str]] = {}
    groups = header.parameters.get("group")
    for group in groups if isinstance(groups, list) else ():
        if isinstance(group, dict) and isinstance(group.get("name"), str):
            found.setdefault(group.get("family") or header.family or "", []).append(group["name"])
    return {} if found.keys() <= {header.family or ""} else found


def judge_families(
    header: Header,
    judge: Callable[[Header, list[str]], Iterable[Verdict]],
    order: Iterable[str],
) -> list[Verdict]:
    """Each family by its own promise, on its own groups; of two answers to a law the worse one.

    Laws that `order` does not name come last: a family may promise one that nobody has.

    `judge` is given a header that names the one family, and that family's groups.
    """
    found: dict[str, Verdict] = {}
    shared = {key: value for key, value in header.parameters.items() if key != "group"}
    for family, groups in families_of(header).items():
        alone = msgspec.structs.replace(header, family=family, parameters=shared)
        for verdict in judge(alone, groups):
            found[verdict.law] = worst([found.get(verdict.law, verdict), verdict])
    return [found[name] for name in dict.fromkeys([*order, *found]) if name in found]


def rows_of_groups(trace: Trace, groups: list[str]) -> list[Row]:
    """The rows of these groups in all their formations, and those of no group."""
    return [row for row in trace.rows if row.group is None or name_of(row.group) in groups]
