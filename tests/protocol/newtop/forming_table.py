"""Members on a stage that form their groups, and what their applications know."""

from __future__ import annotations

from typing import Any

from tests.protocol.newtop.table import member, wait

from ordercast.protocol.newtop import FAMILY
from ordercast.protocol.newtop.attempt import Voting
from ordercast.testing.stage import Stage
from ordercast.types import Event, Partitioned, Refused, StateGiven, StateWanted, View

QUICK = {"prompt_after": "10ms", "silence_limit": "20ms", "suspicion_limit": "100ms"}


def stage_of(names: str, formed: bool = False, **options: Any) -> Stage:
    return Stage.of(FAMILY, names, formed=formed, **{**QUICK, **options})


def run(stage: Stage, rounds: int = 12) -> None:
    """Rounds in which applications provide as their state all events that they know."""
    for _ in range(rounds):
        stage.settle(ticks=1)
        for name, actor in stage.actors.items():
            asked = sum(
                isinstance(what, StateWanted) for who, what in stage.log if who == actor.node
            )
            while actor.alive and actor.answered < asked:
                stage.provide(name, " ".join(known(stage, name)).encode())
    stage.settle()


def outputs(stage: Stage, name: str) -> list[Any]:
    """What the application of the present incarnation received."""
    kinds = (Event, View, StateGiven, Partitioned, Refused)
    now = stage.node(name)
    return [what for who, what in stage.log if who == now and isinstance(what, kinds)]


def known(stage: Stage, name: str) -> list[str]:
    """What the application knows: the state that it was given, and what came after."""
    found: list[str] = []
    for what in outputs(stage, name):
        if isinstance(what, StateGiven):
            found = (what.state or b"").decode().split()
        elif isinstance(what, Event):
            found += [one.decode() for one in what.payloads]
    return found


def view_of(stage: Stage, name: str) -> tuple[str, str]:
    """The formation that a member is in, and the members of its view."""
    found = [what for what in outputs(stage, name) if isinstance(what, View)]
    if not found:
        return "", ""
    return found[-1].formation, " ".join(str(one) for one in found[-1].members)


def vote_of(stage: Stage, name: str) -> Voting | None:
    """The vote that a member takes part in."""
    attempt = member(stage, name).named["g"].attempt
    return attempt if isinstance(attempt, Voting) else None


def refusals(stage: Stage, name: str) -> list[str]:
    return [what.why for what in outputs(stage, name) if isinstance(what, Refused)]


def part(stage: Stage, one: str, other: str) -> None:
    for first in one.split():
        for second in other.split():
            stage.cut(first, second)


def rejoin(stage: Stage, one: str, other: str) -> None:
    for first in one.split():
        for second in other.split():
            stage.mend(first, second)


def partitioned(**options: Any) -> Stage:
    """n1 and n2 here, n3 there; each side has continued, and the network cut has healed."""
    stage = stage_of("n1 n2 n3", formed=True, **options)
    stage.submit("n3", [b"before"])
    run(stage, 4)
    part(stage, "n1 n2", "n3")
    wait(stage, 40)
    stage.submit("n1", [b"here"])
    stage.submit("n3", [b"there"])
    run(stage, 4)
    rejoin(stage, "n1 n2", "n3")
    run(stage, 4)
    assert view_of(stage, "n1") == view_of(stage, "n2") == ("", "n1 n2")
    assert view_of(stage, "n3") == ("", "n3")
    return stage
