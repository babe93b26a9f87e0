"""Members of an open group on a stage: each has an entry of its own, and lists no others."""

from __future__ import annotations

from typing import Any

from tests.protocol.newtop.forming_table import QUICK, run

from ordercast.kernel.family import Family, FoundingRule
from ordercast.protocol.newtop import FAMILY
from ordercast.testing.stage import Stage
from ordercast.types import View, Waiting

FOUNDS = FoundingRule(founds=True)
JOINS = FoundingRule()


def open_stage(entries: dict[str, FoundingRule], family: Family = FAMILY, **options: Any) -> Stage:
    return Stage.open(family, entries, **{**QUICK, **options})


def founded(names: str, family: Family = FAMILY, more: str = "", **options: Any) -> Stage:
    """The first has founded the group and the others have joined, one after the other.

    Those named in `more` may come later.
    """
    first, *others = names.split()
    entries = {first: FOUNDS, **dict.fromkeys([*others, *more.split()], JOINS)}
    stage = open_stage(entries, family, **options)
    stage.enter(first)
    run(stage, 3)
    for name in others:
        stage.enter(name, first)
        run(stage, 12)
    return stage


def expecting(count: int, names: str) -> dict[str, FoundingRule]:
    return dict.fromkeys(names.split(), FoundingRule(expect=count))


def waits(stage: Stage, name: str) -> list[tuple[tuple[str, ...], str]]:
    """What the present incarnation said that it waits for."""
    now = stage.node(name)
    found = [what for who, what in stage.log if who == now and isinstance(what, Waiting)]
    return [(what.on, what.why) for what in found]


def seen(stage: Stage, name: str) -> list[str]:
    """The members of each view of the present incarnation."""
    now = stage.node(name)
    views = [what for who, what in stage.log if who == now and isinstance(what, View)]
    return [" ".join(map(str, view.members)) for view in views]
