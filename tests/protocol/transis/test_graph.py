"""The causal graph and the services against slow, obvious versions."""

from __future__ import annotations

from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from ordercast.errors import PeerError
from ordercast.kernel.buffers import Limit
from ordercast.protocol.transis.graph import CausalGraph
from ordercast.protocol.transis.options import SERVICES, Service
from ordercast.protocol.transis.packets import Cast, ConfigurationId, Status
from ordercast.protocol.transis.refusals import refuse_cast, refuse_status
from ordercast.protocol.transis.services import THE_END, Deliveries
from ordercast.types import NodeId

LIMIT = Limit(1000, 1 << 30)
NODES = tuple(NodeId(name) for name in "abcd")
CID = ConfigurationId(2, NODES[0], 0)


class Sender:
    """A member of a configuration whose packets travel as a test wants."""

    def __init__(self, place: int, count: int) -> None:
        self.place = place
        self.graph = CausalGraph(NODES[:count], NODES[place], LIMIT)
        self.admitted: list[tuple[int, Cast]] = []

    def cast(self, service: Service) -> Cast:
        seq, height, vector = self.graph.next_place()
        cast = Cast("g", CID, seq, height, vector, service, seq, [b"x"], 1)
        self.graph.admit(self.place, cast)
        self.admitted.append((self.place, cast))
        return cast

    def status(self) -> Status:
        return Status("g", CID, *self.graph.status())

    def take(self, place: int, packet: Cast | Status) -> None:
        if isinstance(packet, Cast):
            refuse_cast(self.graph, NODES[place], place, packet)
            self.graph.take(place, packet, self.admitted)
        else:
            refuse_status(self.graph, NODES[place], place, packet)
            self.graph.take_status(place, packet)


def past_of(cast: tuple[int, int], parents: dict[tuple[int, int], list[tuple[int, int]]]) -> set:
    """All events before one, by following what its sender had seen."""
    found: set[tuple[int, int]] = set()
    pending = [cast]
    while pending:
        for parent in parents[pending.pop()]:
            if parent not in found:
                found.add(parent)
                pending.append(parent)
    return found


def play(seed: int, count: int, steps: int) -> tuple[list[Sender], dict]:
    """Members cast and acknowledge at random, over FIFO links that are slow at random."""
    draw = Random(seed)
    members = [Sender(place, count) for place in range(count)]
    links: dict[tuple[int, int], list[Cast | Status]] = {
        (one, two): [] for one in range(count) for two in range(count) if one != two
    }
    parents: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for _ in range(steps):
        what = draw.random()
        sender = draw.choice(members)
        packet: Cast | Status | None = None
        if what < 0.25:
            parents[sender.place, sender.graph.sent + 1] = [
                (place, cast.seq) for place, cast in sender.admitted
            ]
            packet = sender.cast(draw.choice(SERVICES))
        elif what < 0.4:
            packet = sender.status()
        if packet is not None:
            for (one, _), link in links.items():
                if one == sender.place:
                    link.append(packet)
        else:
            one, two = draw.choice(list(links))
            if links[one, two]:
                members[two].take(one, links[one, two].pop(0))
        # What is admitted follows all that is before it, and vectors say exactly what that is.
        for member in members:
            seen = {(place, cast.seq) for place, cast in member.admitted}
            assert all(past_of(event, parents) <= seen for event in seen)
    for (one, two), link in links.items():
        while link:
            members[two].take(one, link.pop(0))
    return members, parents


@given(st.integers(0, 10**6), st.integers(2, 4))
@settings(deadline=None, max_examples=40)
def test_admission_is_causal_and_vectors_are_the_past(seed: int, count: int) -> None:
    members, parents = play(seed, count, 60)
    for member in members:
        assert len(member.admitted) == len(parents)  # all came at last
        for place, cast in member.admitted:
            past = past_of((place, cast.seq), parents)
            for other in range(count):
                of_other = {seq for who, seq in past if who == other}
                expected = len(of_other) + (other == place)
                assert cast.vector[other] == expected
                assert of_other == set(range(1, len(of_other) + 1))
        heights = {(place, cast.seq): cast.height for place, cast in member.admitted}
        for event, height in heights.items():
            below = [heights[one] for one in past_of(event, parents)]
            assert height == 1 + max(below, default=0)


def slow_order(
    admitted: list[tuple[int, Cast]], horizon: tuple[int, int], stable: list[int]
) -> list[Cast]:
    """The rules of the services as they are stated, looking at everything each time."""
    left = [(place, cast) for place, cast in admitted if cast.service != "basic"]
    done: list[Cast] = []
    while True:
        for place, cast in left:
            before = [
                other
                for who, other in left
                if cast.vector[who] >= other.seq and (who, other) != (place, cast)
            ]
            if cast.service == "causal" and not before:
                break
        else:
            ordered = [(cast.height, place, cast) for place, cast in left]
            ordered = [one for one in ordered if one[2].service != "causal"]
            if not ordered:
                return done
            height, place, cast = min(ordered, key=lambda one: one[:2])
            if (height, place) >= horizon or (cast.service == "safe" and stable[place] < cast.seq):
                return done
        left.remove((place, cast))
        done.append(cast)


@given(st.integers(0, 10**6), st.integers(2, 4), st.integers(0, 60))
@settings(deadline=None, max_examples=60)
def test_services_deliver_by_their_rules(seed: int, count: int, steps: int) -> None:
    members, _ = play(seed, count, steps)
    draw = Random(seed)
    orders = []
    for member in members:
        deliveries = Deliveries(count)
        for place, cast in member.admitted:
            if cast.service != "basic":
                deliveries.add(place, cast)
        horizon = draw.randrange(0, 10), draw.randrange(count)
        stable = tuple(draw.randrange(0, up_to + 1) for up_to in member.graph.received)
        due = [cast for _, cast in deliveries.take_due(member.graph.received, horizon, stable)]
        expected = slow_order(member.admitted, horizon, list(stable))
        assert sorted(map(key, due)) == sorted(map(key, expected))
        ordered = [cast for cast in due if cast.service != "causal"]
        assert ordered == [cast for cast in expected if cast.service != "causal"]
        rest = [cast for _, cast in deliveries.take_rest(member.graph.received)]
        whole = slow_order(member.admitted, THE_END, [10**6] * count)
        assert sorted(map(key, due + rest)) == sorted(map(key, whole))
        orders.append([key(cast) for cast in due + rest if cast.service != "causal"])
    assert all(order == orders[0] for order in orders)  # one order, whoever delivers


def key(cast: Cast) -> tuple[int, tuple[int, ...]]:
    return cast.height, cast.vector


def test_nothing_is_admitted_while_the_application_is_full() -> None:
    a, b = Sender(0, 2), Sender(1, 2)
    b.graph.is_full = True
    b.take(0, a.cast("agreed"))
    assert (b.graph.received, b.graph.held) == ([0, 0], 1)
    b.graph.is_full = False
    b.graph.admit_held(b.admitted)
    assert (b.graph.received, b.graph.held) == ([1, 0], 0)


def test_a_frozen_stream_is_admitted_only_as_far_as_a_proposal_reaches() -> None:
    a, b, c = (Sender(place, 3) for place in range(3))
    first, second, third = a.cast("agreed"), a.cast("agreed"), a.cast("agreed")
    for cast in (first, second):
        c.take(0, cast)
    answer = c.cast("causal")  # follows both
    b.take(2, answer)
    b.take(0, first)
    b.graph.freeze({0: 2})
    b.take(0, second)  # from a link that is not read any more
    assert b.graph.received == [1, 0, 0]
    b.graph.take_fetched(0, second, b.admitted)
    b.graph.take_fetched(0, third, b.admitted)
    assert b.graph.received == [2, 0, 1]
    assert b.graph.left_over() == [(0, third)]


def test_a_status_counts_when_the_events_before_it_are_admitted() -> None:
    a, b, c = (Sender(place, 3) for place in range(3))
    event = a.cast("agreed")
    c.take(0, event)
    answer = c.cast("agreed")
    b.take(2, answer)  # held: it follows an event of a
    b.take(2, c.status())
    assert b.graph.high[2] == 0
    assert b.graph.lacks(0)  # somebody has an event of a that we lack
    b.take(0, event)
    assert b.graph.high[2] == 2


def test_what_all_have_and_was_delivered_is_discarded() -> None:
    a, b = Sender(0, 2), Sender(1, 2)
    for _ in range(3):
        b.take(0, a.cast("agreed"))
    a.take(1, b.status())
    assert a.graph.stable() == (3, 0)
    a.graph.collect(a.graph.stable(), [2, 0])
    assert a.graph.store[0].count == 1
    a.graph.collect(a.graph.stable(), [3, 0])
    assert a.graph.store[0].count == 0


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"seq": 2, "vector": (2, 0)}, "after event 0"),
        ({"vector": (1, 0, 0)}, "does not fit"),
        ({"vector": (0, 0)}, "does not fit"),
        ({"vector": (1, 1)}, "never sent"),
        ({"height": 2}, "none of them has height 2"),
    ],
)
def test_an_event_that_no_member_would_send_is_refused(changes: dict, why: str) -> None:
    b = Sender(1, 2)
    fields = {"seq": 1, "height": 1, "vector": (1, 0), "service": "agreed", "number": 1}
    cast = Cast("g", CID, **(fields | changes), payloads=[b"x"], size=1)
    with pytest.raises(PeerError, match=why):
        b.take(0, cast)
    assert (b.graph.received, b.graph.held, b.graph.arrived[0]) == ([0, 0], 0, (0, 0, 0))


@pytest.mark.parametrize(
    ("sent", "clock", "vector", "why"),
    [
        (0, 0, (0, 0, 0), "does not fit"),
        (1, 0, (0, 0), "does not fit"),
        (0, 0, (0, 1), "never sent"),
        (0, 1, (0, 0), "none of them has height 1"),
    ],
)
def test_a_status_that_no_member_would_send_is_refused(
    sent: int, clock: int, vector: tuple[int, ...], why: str
) -> None:
    b = Sender(1, 2)
    with pytest.raises(PeerError, match=why):
        b.take(0, Status("g", CID, sent, clock, vector))
