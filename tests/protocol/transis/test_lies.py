"""Packets that no honest member sends are refused and change nothing; old ones are dropped."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ordercast.errors import PeerError
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import DATAGRAM, LINK, Step
from ordercast.protocol.transis.member import SynchronyMember
from ordercast.protocol.transis.packets import (
    Cast,
    ConfigurationId,
    Court,
    Decline,
    Fetch,
    Fetched,
    GoneMember,
    Hello,
    Installed,
    Leave,
    Proposal,
    Ready,
    SideKnowledge,
    Status,
    Summary,
)
from ordercast.testing.stage import Stage
from ordercast.types import NodeId

N1, N2, N3 = MEMBERS = tuple(NodeId(name) for name in ("n1", "n2", "n3"))
STRANGER = NodeId("nobody")
CID = ConfigurationId(2, N1, 0)
OLD = ConfigurationId(1, N2, 0)
ALL = tuple((node, CID) for node in MEMBERS)


def staged() -> Stage:
    """Three members; n2 has sent one event, which all have."""
    stage = Stage.of("synchrony", "n1 n2 n3")
    stage.submit("n2", [b"a"])
    stage.settle(ticks=2)
    return stage


def cast(**changes: Any) -> Cast:
    fields = {"cid": CID, "seq": 2, "height": 2, "vector": (0, 2, 0), "service": "agreed"}
    fields |= {"number": 2, "payloads": [b"x"], "size": 1}
    return Cast("g", **(fields | changes))


def proposal(**changes: Any) -> Proposal:
    fields = {"cid": CID, "serial": 1, "joined": ALL, "failed": (N3,), "sent": 1}
    fields |= {"received": (0, 1, 0)}
    return Proposal("g", **(fields | changes))


LIES: dict[str, Packet] = {
    "an event after a gap": cast(seq=3, vector=(0, 3, 0)),
    "an event again": cast(seq=1, vector=(0, 1, 0)),
    "a vector of another length": cast(vector=(0, 2)),
    "an event after what we never sent": cast(vector=(1, 2, 0)),
    "a height that does not grow": cast(height=1),
    "a height far beyond all": cast(height=1 << 50),
    "a number that does not grow": cast(number=1),
    "a status of another length": Status("g", CID, 1, 1, (0, 1)),
    "an acknowledgement of what we never sent": Status("g", CID, 1, 1, (1, 1, 0)),
    "a status that takes events back": Status("g", CID, 0, 1, (0, 0, 0)),
    "a clock far beyond all": Status("g", CID, 1, 1 << 50, (0, 1, 0)),
    "a summary in a small group": Summary("g", CID, (0, 1, 0), (0, 1, 0), (0, 1, 0)),
    "a proposal without its sender": proposal(joined=((N1, CID), (N3, CID))),
    "a proposal from elsewhere": proposal(joined=((N1, CID), (N2, OLD), (N3, CID))),
    "a proposal that excludes its sender": proposal(failed=(N2,)),
    "a proposal that is not sorted": proposal(joined=ALL[::-1]),
    "a proposal of another length": proposal(received=(0, 1)),
    "a proposal with what we never sent": proposal(received=(1, 1, 0)),
    "a proposal that lacks its own events": proposal(received=(0, 0, 0)),
    "a proposal with a stranger": proposal(joined=(*ALL, (STRANGER, OLD))),
    "candidates that are strangers": Court("g", CID, ((STRANGER, OLD),)),
    "an announcement of a stranger's view": Hello("g", OLD, (), (N2, STRANGER)),
    "an announcement without its sender": Hello("g", OLD, (), (N3,)),
    "a fetch of what we did not offer": Fetch("g", CID, N3, 1, 1),
    "a fetch of a stranger's events": Fetch("g", CID, STRANGER, 1, 1),
    "an event of a stranger": Fetched("g", STRANGER, cast()),
    "an event of ours from another": Fetched("g", N1, cast(seq=1, vector=(1, 1, 0))),
    "a departure that takes events back": Leave("g", CID, 0),
    "knowledge of a stranger": Ready("g", CID, CID, (GoneMember(STRANGER, (0, 0, 0), 0),)),
    "knowledge of another length": Ready("g", CID, CID, (GoneMember(N3, (0, 0), 0),)),
}


def tell(machine: SynchronyMember, sender: NodeId, packet: Packet) -> Step:
    step = Step(10**9)
    machine.receive(step, sender, packet)
    machine.drain(step)
    return step


@pytest.mark.parametrize("what", LIES)
def test_a_lie_is_refused_and_changes_nothing(what: str) -> None:
    stage = staged()
    before = copy.deepcopy(stage.machine("n1"))
    machine: Any = stage.machine("n1")
    with pytest.raises(PeerError):
        tell(machine, N2, LIES[what])
    assert described(machine) == described(before)


def described(machine: Any) -> object:
    """All that a member has, but for its clock."""
    current = machine.current
    graph, change, courting = current.graph, current.change, machine.announcer.courting
    return (
        *(current.cid, graph.received, graph.acks, graph.high, graph.held, graph.arrived),
        *(change.stage, change.dirty, change.suggestion.as_proposed(), change.proposals),
        *(change.readies, current.leaving, courting.heard, machine.own.counter),
    )


def test_a_stranger_is_refused_in_a_closed_group() -> None:
    machine: Any = staged().machine("n1")
    for packet in (Hello("g", OLD, (), (STRANGER,)), proposal(), Leave("g", CID, 0)):
        with pytest.raises(PeerError, match="not a member"):
            tell(machine, STRANGER, packet)
    with pytest.raises(PeerError, match="not a member of view"):
        tell(machine, STRANGER, cast())


OF_FORMER_VIEWS: list[Packet] = [
    cast(cid=OLD, vector=(7,)),
    Status("g", OLD, 9, 9, (9, 9)),
    Summary("g", OLD, (9, 9), (9, 9), (9, 9)),
    Fetch("g", OLD, N3, 1, 9),
    Fetched("g", N3, cast(cid=OLD)),
    Leave("g", OLD, 4),
    Court("g", OLD, ALL),
    Decline("g", OLD, N3),
    Ready("g", OLD, OLD, ()),
    Installed("g", OLD, (SideKnowledge(OLD, ()),)),
    Proposal("g", OLD, 1, ((N1, OLD), (N2, OLD)), (), 0, (0,)),
]


@pytest.mark.parametrize("packet", OF_FORMER_VIEWS, ids=lambda packet: type(packet).__name__)
def test_a_backlog_of_former_views_is_dropped_quietly(packet: Packet) -> None:
    machine: Any = staged().machine("n1")
    before = copy.deepcopy(machine)
    step = tell(machine, N2, packet)
    assert not step.outputs
    assert described(machine) == described(before)


def test_more_than_two_windows_that_nobody_acknowledged_are_refused() -> None:
    stage = staged()
    machine: Any = stage.machine("n1")
    stage.throttle("n1", True)
    window = machine.options.window
    for seq in range(2, 2 + 2 * window):
        tell(machine, N2, cast(seq=seq, height=seq, number=seq, vector=(0, seq, 0)))
    seq = 2 + 2 * window
    with pytest.raises(PeerError, match="window"):
        tell(machine, N2, cast(seq=seq, height=seq, number=seq, vector=(0, seq, 0)))
    assert machine.current.graph.held == 2 * window


def test_a_liar_that_excludes_a_member_is_excluded_by_it() -> None:
    stage = staged()
    machine: Any = stage.machine("n1")
    tell(machine, N2, proposal(failed=(N1,)))
    assert machine.current.change.is_failed(N2)


def test_announcements_and_probes_travel_by_datagram_and_all_else_by_link() -> None:
    stage = staged()
    stage.crash("n3")
    stage.settle(ticks=20)
    channels = {
        (type(what.packet).__name__, what.channel)
        for _, what in stage.log
        if hasattr(what, "channel")
    }
    by_datagram = {kind for kind, channel in channels if channel == DATAGRAM}
    by_link = {kind for kind, channel in channels if channel == LINK}
    assert by_datagram == {"Hello", "Probe"}
    assert by_link >= {"Status", "Proposal", "Ready", "Installed"}
    assert not by_link & by_datagram


def test_one_that_comes_along_with_more_than_it_has_has_failed() -> None:
    """n2 sends an event that follows one of n3, and then proposes to go on without n3 and says that
    it never had that one. Nobody could deliver the event, so n1 does not wait for it."""
    stage = staged()
    machine: Any = stage.machine("n1")
    stage.crash("n3")
    stage.inject(N2, "n1", cast(vector=(0, 2, 1), height=3), LINK)
    assert machine.current.graph.held == 1
    stage.inject(N2, "n1", proposal(serial=4, sent=2, received=(0, 2, 0)), LINK)
    assert machine.current.change.is_failed(N2)
