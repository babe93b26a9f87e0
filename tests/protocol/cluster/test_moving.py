"""Tickets that change hands in a causal cluster: leases, and what is refused about them."""

from __future__ import annotations

import pytest

from ordercast.errors import PeerError
from ordercast.kernel.step import Step
from ordercast.protocol.cluster.causal_member import CausalMember
from ordercast.protocol.cluster.moving import Moving
from ordercast.protocol.cluster.packets import Update, Updates
from ordercast.protocol.tickets.entries import SEQUENCE_BITS
from ordercast.sim.explore.fingerprint import encode
from ordercast.testing.actor import Posted
from ordercast.testing.stage import Stage
from ordercast.types import Event, NodeId, Updating

N1, N2, N3, N4 = (NodeId(f"n{place}") for place in range(1, 5))


def entry(epoch: int, sequence: int) -> int:
    return epoch << SEQUENCE_BITS | sequence


def cluster(names: str = "n1 n2 n3 n4", tickets: int = 1) -> Stage:
    """Founded, and at rest; n1 is the guard set. Nobody asks for what gossip did not bring."""
    stage = Stage.of(
        "causal",
        names,
        tickets=tickets,
        guards=1,
        lease="400ms",
        round="100ms",
        join_wait="100ms",
        hops=0,
        fan_out=3,
        digests=False,
        recovery="off",
    )
    stage.settle(ticks=6)
    return stage


def member(stage: Stage, name: str) -> CausalMember:
    found = stage.machine(name)
    assert isinstance(found, CausalMember)
    return found


def moving(stage: Stage, name: str) -> Moving:
    found = member(stage, name).ownership
    assert isinstance(found, Moving)
    return found


def notified(stage: Stage, node: NodeId) -> list[str]:
    """What the application of one incarnation was notified of about its right to send."""
    return [what.cause for who, what in stage.log if who == node and isinstance(what, Updating)]


def updates(stage: Stage, node: NodeId) -> list[Update]:
    """What one incarnation made, as it first left."""
    posted = [what.packet for who, what in stage.log if who == node and isinstance(what, Posted)]
    found = {
        update.key: update
        for packet in posted
        if isinstance(packet, Updates)
        for update, _ in packet.updates
        if update.origin == node
    }
    return list(found.values())


def deliver(stage: Stage, source: str, target: str, kind: type = Updates) -> None:
    found = [each for each in stage.underway(source, target) if isinstance(each.packet, kind)]
    stage.deliver(found[0])


def owned_by_n2() -> Stage:
    stage = cluster()
    stage.seek("n2", True)
    stage.settle(ticks=2)
    assert stage.submit("n2", [b"a"]) is not None
    stage.settle()
    return stage


def pass_time(stage: Stage, name: str, ticks: int) -> None:
    """At one member alone; what others sent stays underway."""
    for _ in range(ticks):
        stage.fire(name, "tickets")


# --- our lease ----------------------------------------------------------------------------------


def test_an_acquisition_is_announced_before_any_event_and_not_delivered() -> None:
    stage = owned_by_n2()
    announcement, first = updates(stage, N2)
    assert (announcement.entry, announcement.payloads) == (entry(1, 1), [])
    assert (first.entry, first.number) == (entry(1, 2), 1)
    for node in (N1, N2, N3, N4):
        assert [event.payloads for event in stage.deliveries(node)] == [[b"a"]]
    assert notified(stage, N2) == ["acquired"]
    assert notified(stage, N3) == []


def test_a_member_without_a_ticket_creates_no_event() -> None:
    stage = owned_by_n2()
    assert not stage.accepts("n3")
    assert stage.submit("n3", [b"x"]) is None


def test_a_released_ticket_carries_its_last_event_and_its_clock() -> None:
    stage = owned_by_n2()
    stage.seek("n2", False)
    assert not stage.accepts("n2")
    assert notified(stage, N2) == ["acquired", "released"]
    stage.settle()
    stage.seek("n3", True)
    stage.settle(ticks=2)
    part = moving(stage, "n3").part
    assert (part.ticket, part.epoch, part.base) == (0, 2, entry(1, 2))
    assert moving(stage, "n3").target == (entry(1, 2),)
    (announcement,) = updates(stage, N3)
    assert (announcement.entry, announcement.base) == (entry(2, 1), entry(1, 2))


def test_the_new_owner_goes_on_with_the_entry_and_receivers_follow() -> None:
    stage = owned_by_n2()
    stage.seek("n2", False)
    stage.settle()
    stage.seek("n3", True)
    stage.settle(ticks=2)
    assert stage.submit("n3", [b"b"]) is not None
    stage.settle()
    for node in (N1, N2, N3, N4):
        found = [(str(one.origin), one.stamp) for one in stage.deliveries(node)]
        assert found == [("n2", (entry(1, 2),)), ("n3", (entry(2, 2),))]


def test_a_new_owner_waits_for_the_events_of_earlier_owners() -> None:
    """But not for ever: as long as for any recovery."""
    stage = cluster()
    stage.seek("n2", True)
    stage.settle(ticks=2)
    stage.submit("n2", [b"a"])
    for parcel in stage.underway("n2", "n3"):
        stage.drop(parcel)
    stage.settle()
    stage.seek("n2", False)
    stage.settle()
    stage.seek("n3", True)
    stage.settle(ticks=1)
    assert moving(stage, "n3").part.ticket == 0
    assert not updates(stage, N3), "it lacks an event of the lease before"
    stage.settle(ticks=20)
    assert [update.entry for update in updates(stage, N3)] == [entry(2, 1)]


def takeover() -> Stage:
    """n2 has made b, which is late on all ways, and lets its lease run out. n3 has the ticket."""
    stage = owned_by_n2()
    assert stage.submit("n2", [b"b"]) is not None
    pass_time(stage, "n1", 8)
    stage.seek("n3", True)
    for source, target in (("n3", "n1"), ("n1", "n3")) * 2:
        for parcel in stage.underway(source, target):
            stage.deliver(parcel)
    assert moving(stage, "n3").part.ticket == 0
    return stage


def test_events_of_a_former_owner_are_obsolete_where_the_new_epoch_was_seen() -> None:
    stage = takeover()
    for parcel in stage.underway("n3", "n1"):
        stage.deliver(parcel)
    assert member(stage, "n1").order.clock[0] == entry(2, 1)
    deliver(stage, "n2", "n1")
    assert [one.payloads for one in stage.deliveries(N1)] == [[b"a"]]


def test_events_of_a_former_owner_are_delivered_where_they_arrive_first() -> None:
    stage = takeover()
    deliver(stage, "n2", "n4")
    deliver(stage, "n3", "n4")
    assert [one.payloads for one in stage.deliveries(N4)] == [[b"a"], [b"b"]]
    assert member(stage, "n4").order.clock[0] == entry(2, 1)


def test_an_owner_that_sees_its_ticket_in_a_higher_epoch_stops_at_once() -> None:
    stage = takeover()
    deliver(stage, "n3", "n2")
    assert not stage.accepts("n2")
    assert notified(stage, N2)[-1] == "disconnected"
    assert moving(stage, "n2").part.ticket is None


def test_an_owner_is_suspended_when_its_leases_end_and_resumes() -> None:
    stage = owned_by_n2()
    stage.cut("n1", "n2")
    assert stage.accepts("n2")
    pass_time(stage, "n2", 8)
    assert not stage.accepts("n2")
    assert stage.submit("n2", [b"x"]) is None
    assert notified(stage, N2) == ["acquired", "suspended"]
    stage.mend("n1", "n2")
    stage.settle(ticks=4)
    assert notified(stage, N2) == ["acquired", "suspended", "resumed"]
    assert stage.submit("n2", [b"c"]) is not None


def test_sending_stops_by_the_clock_without_any_notification() -> None:
    stage = owned_by_n2()
    pass_time(stage, "n1", 8)  # the clock goes on, and n2 does nothing
    assert not stage.accepts("n2")


# --- what is refused -----------------------------------------------------------------------------


def update(
    place: int, origin: NodeId = N3, number: int = 1, base: int = 0, payload: bool = True
) -> Update:
    payloads = [b"x"] if payload else []
    return Update(0, (place,), origin, number, payloads, len(payloads), base)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (update(entry(0, 2)), "as entry 2"),
        (update(entry(2, 0)), "as entry"),
        (update(entry(2, 1)), "as entry"),  # an announcement with a payload
        (update(entry(2, 2), payload=False), "as entry"),
        (update(entry(2, 2), base=entry(1, 2)), "numbers go backwards"),
        (update(entry(2, 1), base=entry(2, 1), payload=False), "numbers go backwards"),
        (update(entry(2, 1), base=entry(3, 1), payload=False), "numbers go backwards"),
        (update(entry(2, 9), number=2), "sent event 2 of n3 as entry"),
        (update(entry(1, 9), number=9, origin=N2), "never made"),
        (update(entry(1, 9), number=9), "never made"),
        (update(entry(5, 2), origin=N2), "never made"),
        (Update(0, (entry(2, 2), 1), N3, 1, [b"x"], 1), "a stamp of 2 entries"),
    ],
)
def test_impossible_inputs_are_rejected_and_change_nothing(given: Update, why: str) -> None:
    stage = owned_by_n2()
    machine, step = member(stage, "n2"), Step(stage.now)
    before = encode(machine)
    with pytest.raises(PeerError, match=why):
        machine.receive(step, N4, Updates("g", [(given, 1)], None))
    assert encode(machine) == before
    assert not step.sent
    assert not step.outputs


def test_the_first_event_of_a_lease_decides_who_created_its_events() -> None:
    stage = owned_by_n2()
    machine = member(stage, "n4")
    lies = [
        update(entry(1, 3), origin=N3, number=2),  # of n2's lease
        update(entry(1, 3), origin=N2, number=7),  # with numbers that do not follow
        update(entry(1, 3), origin=NodeId("n2", 1), number=2),  # another incarnation
    ]
    for count, lie in enumerate(lies, 1):
        step = Step(stage.now)
        machine.receive(step, N3, Updates("g", [(lie, 1)], None))
        assert not [one for one in step.outputs if isinstance(one, Event)]
        assert machine.counters("g")["not_believed"] == count
    step = Step(stage.now)
    machine.receive(step, N3, Updates("g", [(update(entry(1, 3), N2, 2), 1)], None))
    assert [one.payloads for one in step.outputs if isinstance(one, Event)] == [[b"x"]]
