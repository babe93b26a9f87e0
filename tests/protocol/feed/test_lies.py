"""What no honest peer says is refused, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from ordercast.errors import PeerError, UsageError
from ordercast.kernel.log import Appended, Entry, Reference
from ordercast.kernel.packet import Packet
from ordercast.protocol.hpp import FAMILY
from ordercast.protocol.hpp.edges import Edge
from ordercast.protocol.hpp.member import FeedMember
from ordercast.protocol.hpp.packets import (
    LARGEST_EPOCH,
    Ack,
    AskHashes,
    Beat,
    Branch,
    Digest,
    Entries,
    Fetched,
    Hashes,
    Join,
    Leaves,
    Offer,
    Pulse,
    Rumour,
    Seek,
    SessionId,
    Welcome,
)
from ordercast.testing.stage import Stage
from ordercast.types import NodeId
from ordercast.wire.codec import Codec

STRANGER = NodeId("n9", 0)
FAR = Beat((1 << 40), "n9", 0, 0)


def a_pair() -> tuple[Stage, FeedMember, Edge]:
    """n1 below n2, both with an event of n1."""
    stage = Stage.of("feed", "n1 n2", beat="100ms", moves="none")
    stage.settle(ticks=2)
    stage.submit("n1", [b"a"])
    stage.settle()
    machine = stage.machine("n2")
    assert isinstance(machine, FeedMember)
    (edge,) = machine.edges.all()
    return stage, machine, edge


def entry(number: int = 1, prev: int = 0, name: str = "n3", birth: int = 77) -> Entry:
    return Entry(name, birth, number, prev, payloads=[b"xy"], size=2)


def entries(edge: Edge, *items: Entry, through: int = 9) -> Entries:
    return Entries("g", edge.session, through, list(items))


LIES: dict[str, Callable[[Edge], Packet]] = {
    "a hole": lambda e: entries(e, entry(3, 2)),
    "a hole behind what came before": lambda e: entries(e, entry(1), entry(3, 2)),
    "a chain that forks": lambda e: entries(e, entry(5), entry(7, 3)),
    "a number that is not above the one before": lambda e: entries(e, entry(3, 3)),
    "payloads of another size": lambda e: entries(e, msgspec.structs.replace(entry(), size=1)),
    "a gap with payloads": lambda e: entries(e, msgspec.structs.replace(entry(), is_gap=True)),
    "an entry of no stream": lambda e: entries(e, entry(birth=0)),
    "a reply before its original": lambda e: entries(
        e, msgspec.structs.replace(entry(), reply=Reference("n4", 5, 1))
    ),
    "events of ours that we do not have": lambda e: entries(e, entry(1, 0, "n2", 2)),
    "a position that goes back": lambda e: entries(e, through=0),
    "an acknowledgement of what is not there": lambda e: Ack("g", e.session, 1 << 60),
    "beats of a child": lambda e: Pulse("g", e.session, FAR, 0),
    "a rumour of an epoch far ahead": lambda e: Ack("g", e.session, 0, Rumour(FAR, "n1")),
    "hashes that nobody asked for": lambda e: Hashes("g", e.session, 1, [Branch(0, [1] * 64)]),
    "leaves that nobody asked for": lambda e: Leaves("g", e.session, [1], []),
    "nodes that no tree has": lambda e: AskHashes("g", e.session, 3, [1 << 23]),
    "a session of somebody else": lambda e: Join(
        "g", SessionId(STRANGER, 9), FAR, 5, None, Digest()
    ),
    "neither a place nor a digest": lambda e: Join(
        "g", SessionId(e.peer, 9), Beat(0, "n1", 0, 0), 5, None, None
    ),
    "a place and a digest": lambda e: Welcome("g", e.session, Beat(0, "n1", 0, 0), 5, 3, Digest()),
    "our own log": lambda e: Join(
        "g", SessionId(e.peer, 9), Beat(0, "n1", 0, 0), 2, None, Digest()
    ),
    "another tree of hashes": lambda e: Join(
        "g", SessionId(e.peer, 9), Beat(0, "n1", 0, 0), 1, None, Digest(hashes=[1, 2])
    ),
    "an epoch far ahead": lambda e: Seek("g", FAR),
    "an epoch at the end of all numbers": lambda e: Offer(
        "g", Beat(LARGEST_EPOCH - 1, "n1", 0, 0), 5, True, []
    ),
    "a gap in the place of a rotten entry": lambda e: Fetched(
        "g", 1, [Entry("n1", 1, 1, 0, is_gap=True)]
    ),
    "a record for the disk": lambda e: Appended("g", entry()),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_refused_and_changes_nothing(lie: str) -> None:
    stage, machine, edge = a_pair()
    before = machine.counters("g"), machine.hierarchy.beat, dict(machine.log.vector.items())
    packet = LIES[lie](edge)
    with pytest.raises(PeerError):
        stage.inject(edge.peer, "n2", packet)
    after = machine.counters("g"), machine.hierarchy.beat, dict(machine.log.vector.items())
    assert after == before
    stage.submit("n1", [b"b"])
    stage.settle()
    assert [event.payloads for event in stage.deliveries(stage.node("n2"))] == [[b"a"], [b"b"]]


def test_a_second_log_of_one_name_and_the_log_of_another_are_refused() -> None:
    stage, _, edge = a_pair()
    copy = Join("g", SessionId(STRANGER, 1), Beat(0, "n9", 0, 0), edge.log, None, Digest())
    with pytest.raises(PeerError, match="copy"):
        stage.inject(STRANGER, "n2", copy)


def test_a_parent_is_not_taken_as_a_child() -> None:
    stage, _, _ = a_pair()
    child = stage.machine("n1")
    assert isinstance(child, FeedMember)
    parent = stage.node("n2")
    assert child.edges.parent is not None
    assert child.edges.parent.peer == parent
    join = Join("g", SessionId(parent, 9), Beat(0, "n2", 0, 0), 2, None, Digest())
    stage.inject(parent, "n1", join)
    assert child.edges.parent is not None
    assert child.edges.children == []


def test_a_packet_of_a_session_that_is_over_is_answered_and_ignored() -> None:
    stage, machine, edge = a_pair()
    former = SessionId(edge.session.opener, 99)
    stage.inject(edge.peer, "n2", Entries("g", former, 5, [entry()]))
    assert machine.counters("g")["entries"] == 1
    answers = [each.packet for each in stage.underway("n2", "n1")]
    assert [type(each).__name__ for each in answers] == ["Closed"]


def test_a_reply_to_what_was_not_delivered_here_is_refused() -> None:
    stage, _, _ = a_pair()
    host = stage.actors["n1"].host
    with pytest.raises(UsageError, match="reply"):
        host.submit("g", [b"x"], 1, stage.now, "", Reference("n2", 2, 1))


def test_an_event_that_is_too_large_is_refused() -> None:
    stage = Stage.of("feed", "n1", largest_event="10B")
    with pytest.raises(UsageError, match="largest_event"):
        stage.submit("n1", [b"x" * 11])


def test_packets_survive_the_wire() -> None:
    _, _, edge = a_pair()
    codec = Codec([FAMILY])
    for lie in LIES.values():
        packet = lie(edge)
        if not isinstance(packet, Appended | Entries):
            assert codec.decode(codec.encode(packet)) == packet
    with pytest.raises(PeerError):
        codec.decode(codec.encode(entries(edge, msgspec.structs.replace(entry(), size=9000))))
