"""What a peer sends wrong is refused before anything changes; what comes too late is ignored."""

from __future__ import annotations

import copy

import pytest
from tests.protocol.newtop.table import fall_silent, group, member, node, staged, views, wait

from ordercast.errors import PeerError
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step
from ordercast.protocol.fifo.packets import Leave as FifoLeave
from ordercast.protocol.newtop.packets import Confirm, Data, Leave, Null, Refute, Suspect
from ordercast.types import NodeId

N1, N2, N3, STRANGER = node("n1"), node("n2"), node("n3"), NodeId("n9", 0)


def data(order: int, previous: int = 0, origin: NodeId = N2) -> Data:
    return Data("g", "", order, previous, 0, 0, origin, 1, [b"x"], 1)


LIES: dict[str, tuple[NodeId, Packet]] = {
    "a stranger": (STRANGER, Null("g", "", 1, 0, 0, 0)),
    "another incarnation of a member": (NodeId("n2", 1), Null("g", "", 1, 0, 0, 0)),
    "an event in another's name": (N2, data(1, origin=N3)),
    "a number not above the one before": (N2, Null("g", "", 5, 5, 0, 0)),
    "a gap": (N2, Null("g", "", 9, 7, 0, 0)),
    "a leap": (N2, Null("g", "", 1 << 50, 0, 0, 0)),
    "deliveries that cannot be": (N2, Null("g", "", 1, 0, 2, 0)),
    "asking for what is to come": (N2, Null("g", "", 1, 0, 0, 1)),
    "a suspicion of a stranger": (N2, Suspect("g", "", 1, 0, 0, 0, STRANGER, 0)),
    "a refutation about a stranger": (N2, Refute("g", "", 1, 0, 0, 0, STRANGER, 0, [])),
    "a relayed chain with a gap": (
        N2,
        Refute("g", "", 9, 0, 0, 0, N3, 0, [Null("g", "", 2, 0, 0, 0), Null("g", "", 4, 3, 0, 0)]),
    ),
    "a relayed event of a third": (
        N2,
        Refute("g", "", 9, 0, 0, 0, N3, 0, [data(2, origin=N2)]),
    ),
    "a relayed chain of another group": (
        N2,
        Refute("g", "", 9, 0, 0, 0, N3, 0, [Null("h", "", 2, 0, 0, 0)]),
    ),
    "an empty confirmation": (N2, Confirm("g", "", 1, 0, 0, 0, [])),
    "a confirmation about a stranger": (N2, Confirm("g", "", 1, 0, 0, 0, [(STRANGER, 0)])),
    "a packet of another family": (N2, FifoLeave("g")),
}


@pytest.mark.parametrize("lie", LIES, ids=str)
def test_a_lie_is_rejected_and_changes_nothing(lie: str) -> None:
    stage = staged({"g": "n1 n2 n3"})
    machine = member(stage, "n1")
    before = copy.deepcopy(machine)
    step = Step(stage.now)
    with pytest.raises(PeerError):
        machine.receive(step, *LIES[lie])
    assert [*step.sent, *step.outputs, *step.timers] == []
    assert machine.order.clock.value == before.order.clock.value == 0
    assert group(stage, "n1").streams.up_to(N2) == 0
    assert views(stage, "n1") == ["g{n1 n2 n3}"]


def test_more_events_than_any_window_allows_are_rejected() -> None:
    stage = staged({"g": "n1 n2"}, window=1)
    flood = [Data("g", "", order, order - 1, 0, 0, N2, order, [b"x"], 1) for order in range(1, 20)]
    for packet in flood[:9]:
        stage.inject(N2, "n1", packet)
    with pytest.raises(PeerError, match="more than its window"):
        stage.inject(N2, "n1", flood[9])


def test_duplicate_packets_change_nothing() -> None:
    stage = staged({"g": "n1 n2 n3"})
    stage.inject(N2, "n1", data(1))
    waiting = len(member(stage, "n1").order.queue)
    stage.inject(N2, "n1", data(1))
    assert len(member(stage, "n1").order.queue) == waiting == 1


def test_the_sender_of_a_contradicting_confirmation_is_excluded() -> None:
    """n1 never suspected n3: no member that follows the rules can have confirmed its failure."""
    stage = staged({"g": "n1 n2 n3"})
    stage.inject(N2, "n1", Confirm("g", "", 1, 0, 0, 0, [(N3, 0)]))
    assert member(stage, "n1").counters("g")["contradictions"] == 1
    assert views(stage, "n1") == ["g{n1 n2 n3}"]
    assert list(group(stage, "n1").agreement.suspicions.suspected) == [N2]


def test_packets_of_an_excluded_member_are_ignored() -> None:
    stage = staged({"g": "n1 n2 n3"})
    fall_silent(stage, "n3")
    wait(stage)
    clock = member(stage, "n1").order.clock.value
    stage.inject(N3, "n1", data(clock + 100, clock + 99, N3))
    assert member(stage, "n1").order.clock.value == clock
    assert views(stage, "n1")[-1] == "g{n1 n2}"


def test_a_relayed_chain_that_does_not_connect_is_ignored() -> None:
    stage = staged({"g": "n1 n2 n3"})
    relayed = [Null("g", "", 8, 7, 0, 0), Leave("g", "", 9, 8, 0, 0)]
    stage.inject(N2, "n1", Refute("g", "", 20, 0, 0, 0, N3, 7, relayed))
    assert group(stage, "n1").streams.up_to(N3) == 0
    assert not group(stage, "n1").agreement.suspicions.forced
