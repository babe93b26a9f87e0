"""Runs in which an open group is founded while paths are cut and members die, drawn from one seed.

Five members expect three: there must never be two foundings, whatever arrives when.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from tests.protocol.newtop.formation_mutants import moving_by
from tests.protocol.newtop.forming_table import part, run, view_of
from tests.protocol.newtop.open_table import expecting, open_stage

from ordercast.kernel.family import Build, Family, FoundingRule, Plan, machine_for_all
from ordercast.kernel.founding import entry_of, remembered
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step
from ordercast.protocol.newtop import FAMILY
from ordercast.protocol.newtop.attempt import Entering
from ordercast.protocol.newtop.bond import FREE
from ordercast.protocol.newtop.entrance import Demand, Entrance
from ordercast.protocol.newtop.formation import NamedGroup
from ordercast.protocol.newtop.member import NewtopMember
from ordercast.protocol.newtop.packets import Invite, Vote
from ordercast.protocol.newtop.transitions import Transitions
from ordercast.testing.actor import Posted
from ordercast.testing.stage import Stage
from ordercast.types import NodeId, StateWanted, View

NAMES = "n1 n2 n3 n4 n5"


class Founding(NamedTuple):
    begun: list[str]  # formations that founded the group, as far as anybody began one
    apart: bool  # members that live are not in one view in the end
    invited: dict[str, int]  # by founding, begun or not: how many


def founding(
    seed: int,
    family: Family = FAMILY,
    deaths: bool = False,
    rounds: int = 50,
    restarts: bool = False,
    losses: bool = False,
) -> Founding:
    """`restarts`: members that are in no group yet restart with their folders. `losses`: any
    restart without, and others know their names."""
    draw = Random(seed)
    stage = open_stage(expecting(3, NAMES), family)
    names = NAMES.split()
    for name in names:
        stage.enter(name, *(other for other in names if other != name))
    for _ in range(draw.randrange(60, 300)):
        chance = draw.random()
        if chance < 0.06:
            side = draw.sample(names, draw.randrange(1, 3))
            for one in side:
                for other in names:
                    if other not in side:
                        stage.cut(one, other)
        elif chance < 0.12:
            for one, other in list(stage.cuts):
                stage.mend(one, other, one_way=True)
        elif chance < 0.125 and deaths:
            name = draw.choice(names)
            if stage.actors[name].alive:
                stage.crash(name)
        elif chance < 0.16 and restarts:
            name = draw.choice(names)
            if view_of(stage, name) == ("", ""):  # else it founds it again as one that was in it
                restart(stage, name)
        elif chance < 0.15 and losses:
            restart(stage, draw.choice(names), lost=True)
        elif chance < 0.35:
            _provide(stage)
            living = [name for name in names if stage.actors[name].alive and stage.timers(name)]
            if living:
                stage.fire(draw.choice(living))
        else:
            _deliver_some(stage, draw)
    for one, other in list(stage.cuts):
        stage.mend(one, other, one_way=True)
    run(stage, rounds)
    living = [name for name in names if stage.actors[name].alive]
    together = {view_of(stage, name) for name in living}
    return Founding(foundings(stage), len(together) > 1, invited_to(stage))


def restart(stage: Stage, name: str, *, lost: bool = False, **rule: int) -> None:
    """With its folder, which remembers its last view, or without."""
    if stage.actors[name].alive:
        stage.crash(name)
    if lost:
        stage.actors[name].disk.erase()
    views = [what for who, what in stage.log if who.name == name and isinstance(what, View)]
    last = () if lost or not views else remembered((), views[-1])
    entry = entry_of(name, seeds=True, **{"expect": 3, **rule}, reborn=lost, last=last)
    stage.plans = tuple(
        plan._replace(entry=entry) if plan.members == (name,) else plan for plan in stage.plans
    )
    stage.enter(name, *(other for other in NAMES.split() if other != name))


def _deliver_some(stage: Stage, draw: Random) -> None:
    for _ in range(draw.randrange(1, 12)):
        paths = sorted({one.path for one in stage.underway()} - set(stage.cuts))
        if paths:
            first = stage.underway(*draw.choice(paths))[0]
            stage.deliver(first)


def _provide(stage: Stage) -> None:
    for name, actor in stage.actors.items():
        asked = [what for who, what in stage.log if who == actor.node]
        while actor.alive and actor.answered < sum(isinstance(x, StateWanted) for x in asked):
            stage.provide(name, b"")


def invited_to(stage: Stage) -> dict[str, int]:
    return {
        what.packet.formation: len(what.packet.members)
        for _, what in stage.log
        if isinstance(what, Posted) and isinstance(what.packet, Invite) and what.packet.founds
    }


def foundings(stage: Stage) -> list[str]:
    invited = invited_to(stage)
    begun = {what.formation for _, what in stage.log if isinstance(what, View)}
    return [formation for formation in invited if formation in begun]


# --- two foundings, if members went wrong --------------------------------------------------------


def cut_before_the_last_vote(family: Family = FAMILY) -> Stage:
    """n1 and n2 have all votes, and n3 lacks that of n1. Then n3 meets two others."""
    stage = three_of_five(family)
    for _ in range(200):
        if any(isinstance(one.packet, Vote) for one in stage.underway("n1", "n3")):
            return _divided(stage)
        stage.deliver(stage.underway()[0])
    raise AssertionError("n1 does not vote")


def cut_before_the_state(family: Family = FAMILY) -> Stage:
    """All three have started, and n3 does not get the state. Then it meets two others."""
    stage = three_of_five(family)
    stage.settle()
    assert any(isinstance(what, StateWanted) for _, what in stage.log)
    return _divided(stage)


def three_of_five(family: Family) -> Stage:
    stage = open_stage(expecting(3, NAMES), family)
    for name in ("n3", "n2", "n1"):
        stage.enter(name, *(other for other in ("n1", "n2", "n3") if other != name))
    return stage


def _divided(stage: Stage) -> Stage:
    part(stage, "n1 n2", "n3 n4 n5")
    run(stage, 60)
    stage.enter("n4", "n3")
    stage.enter("n5", "n3")
    run(stage, 60)
    return stage


# --- members that found twice ------------------------------------------------------------------


class Consents(Entrance):
    """Founds the group with any other, and votes for a founding by any two."""

    @property
    def _demand(self) -> Demand:
        return Demand(FoundingRule(expect=2), FREE)


class FoundsWithAnybody(NewtopMember):
    """Is in groups of such an entrance."""

    def _add(self, plan: Plan) -> NamedGroup:
        named = super()._add(plan)
        named.gathering._entrance.__class__ = Consents
        return named


class BeginsWithoutAll(Transitions):
    """Begins a founding with those that have started."""

    def _ask_state(self, step: Step, named: NamedGroup, entering: Entering) -> bool:
        entering.epoch.is_founding = False
        return super()._ask_state(step, named, entering)


class Forgets(Transitions):
    """Founds the group again after a founding that it had started in."""

    def advance(self, step: Step) -> bool:
        moved = super().advance(step)
        for named in self._named.values():
            named.started.bond = FREE
        return moved


def has_no_disk(
    me: NodeId, plans: tuple[Plan, ...], chance: Random, records: Sequence[Packet]
) -> list[Machine]:
    """Builds members that do not remember foundings over a restart."""
    return FAMILY.build(me, plans, chance, ())


MUTANTS: dict[str, Build] = {
    "founds-with-anybody": machine_for_all(FoundsWithAnybody),
    "begins-without-all": moving_by(BeginsWithoutAll),
    "forgets": moving_by(Forgets),
}


def mutant(name: str) -> Family:
    return FAMILY._replace(build=MUTANTS[name])
