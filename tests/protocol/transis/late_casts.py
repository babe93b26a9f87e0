"""A member that leaves between being ready for a view and installing it, with an event to send.

n4 has crashed, and the others have agreed on the view without it. n3 is ready: the cut of that
decision binds it. n1 installs the view before it hears anything that n3 sent since; n2 hears n3
first. So what n3 casts now is delivered by n2 in the former view, and by n1 not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from ordercast.kernel.family import Family
from ordercast.protocol.transis.member import SynchronyMember
from ordercast.protocol.transis.packets import Installed, Ready
from ordercast.testing.stage import Stage
from ordercast.trace.schema import Trace
from ordercast.trace.text import parse_history
from ordercast.types import Event, View

NAMES = ("n1", "n2", "n3")


def played(family: Family) -> Trace:
    """What the laws look at: views, submissions and deliveries of all but n4."""
    stage = Stage.of(family, "n1 n2 n3 n4", merge="none")
    stage.settle(ticks=2)
    stage.crash("n4")
    while not all(_member(stage, name).current.change.readied for name in NAMES):
        _deliver_all_but(stage, (Ready, Installed))
        for name in NAMES:
            stage.fire(name)
    stage.submit("n3", [b"late"], service="basic")
    stage.leave("n3")
    for source, target in (("n2", "n1"), ("n3", "n1"), ("n3", "n2"), ("n1", "n2")):
        for message in stage.underway(source, target):
            if message.channel.in_order:
                stage.deliver(message)
    return parse_history("\n".join(_rows(stage)))


def _member(stage: Stage, name: str) -> SynchronyMember:
    return cast(SynchronyMember, stage.machine(name))


def _deliver_all_but(stage: Stage, kinds: tuple[type, ...]) -> None:
    """What is behind one of these on its link waits, too."""
    while True:
        behind = set()
        for message in stage.underway():
            path = message.path
            if path in behind or message.target == "n4":
                continue
            if not isinstance(message.packet, kinds):
                stage.deliver(message)
                break
            behind.add(path)
        else:
            return


def _rows(stage: Stage) -> Iterator[str]:
    yield "run late-cast family=synchrony ending=finished"
    for who, what in stage.log:
        if isinstance(what, Event):
            yield f"{who} deliver {what.origin}:{what.number} cause={what.service}"
        elif isinstance(what, View):
            names = ",".join(member.name for member in what.members)
            yield f"{who} view {what.id} {names}" + " cause=transitional" * what.transitional
    yield "n3 submit n3:1 cause=basic"
    yield "n4 crash"
