"""Members of totally ordered groups on a stage, and what the tests ask of them."""

from __future__ import annotations

from typing import Any

from ordercast.kernel.family import Plan
from ordercast.protocol.newtop import FAMILY
from ordercast.protocol.newtop.epoch import GroupEpoch
from ordercast.protocol.newtop.member import NewtopMember
from ordercast.protocol.newtop.options import NewtopOptions
from ordercast.testing.stage import Stage
from ordercast.types import NodeId, View


def staged(groups: dict[str, str], **options: Any) -> Stage:
    """A started stage: groups by name, with their members."""
    plans = [
        Plan(group, tuple(sorted(names.split())), NewtopOptions(**options))
        for group, names in groups.items()
    ]
    stage = Stage(FAMILY, plans)
    stage.start()
    return stage


def member(stage: Stage, name: str) -> NewtopMember:
    (seat,) = stage.actors[name].host.seated
    assert isinstance(seat.machine, NewtopMember)
    return seat.machine


def group(stage: Stage, name: str, of: str = "g") -> GroupEpoch:
    return member(stage, name).joined[of]


def suspect(stage: Stage, name: str, peer: str) -> None:
    """A member of the group g suspects another one."""
    epoch = group(stage, name)
    stage.act(name, lambda step: epoch.agreement.suspect(epoch, step, node(peer), "silent"))


def node(name: str) -> NodeId:
    return NodeId(name, 0)


def heard(stage: Stage, name: str) -> list[str]:
    """What the application of a first incarnation received: messages, and views as {members}."""
    found: list[str] = []
    for who, what in stage.log:
        if who != node(name):
            continue
        if isinstance(what, View):
            found.append(f"{what.group}{{{' '.join(one.name for one in what.members)}}}")
        elif hasattr(what, "payloads") and hasattr(what, "stamp"):
            found += [one.decode() for one in what.payloads]
    return found


def messages(stage: Stage, name: str) -> list[str]:
    return [one for one in heard(stage, name) if "{" not in one]


def views(stage: Stage, name: str, of: str = "g") -> list[str]:
    return [one for one in heard(stage, name) if one.startswith(f"{of}{{")]


def carry(stage: Stage, source: str, target: str) -> None:
    """All packets in flight from one to the other arrive."""
    for parcel in stage.underway(source, target):
        stage.deliver(parcel)


def fall_silent(stage: Stage, name: str) -> None:
    """Cuts a member off from everybody, both ways."""
    for other in stage.actors:
        if other != name:
            stage.cut(name, other)


def wait(stage: Stage, rounds: int = 120) -> None:
    """Long enough for suspicions to arise and to be confirmed or refuted."""
    stage.settle(ticks=rounds)


def leave(stage: Stage, name: str, of: str = "g") -> None:
    """The application of a member leaves a group."""
    stage.leave(name, of)


def die_heard_by(stage: Stage, name: str, survivor: str, data: bytes) -> None:
    """Sends something that only one other member receives, and crashes."""
    stage.submit(name, [data])
    carry(stage, name, survivor)
    die(stage, name)


def die(stage: Stage, name: str) -> None:
    """A member crashes, and nothing that it had under way arrives anywhere."""
    stage.crash(name)
    for parcel in stage.underway(name):
        if parcel in stage.underway(name):  # what is behind it goes with it
            stage.drop(parcel)
