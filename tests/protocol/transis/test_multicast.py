"""The carrier by multicast: what is lost is recovered, and what peers make of that is limited."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ordercast.errors import PeerError
from ordercast.kernel.inputs import Backpressure
from ordercast.kernel.step import LARGEST_DATAGRAM, LINK, MULTICAST
from ordercast.protocol.transis.flow import FEWEST, START, PacedEvents
from ordercast.protocol.transis.member import SynchronyMember
from ordercast.protocol.transis.multicast import QUERIES_TO_ALL, is_large
from ordercast.protocol.transis.options import Synchrony
from ordercast.protocol.transis.packets import Cast, Fetch, Fetched, Query, Status
from ordercast.protocol.transis.recovery import AHEAD
from ordercast.testing.stage import InFlight, Stage
from ordercast.types import NodeId, Unreached
from ordercast.units import MILLISECOND

N1, N2, N3 = NodeId("n1"), NodeId("n2"), NodeId("n3")


def played(names: str = "n1 n2 n3", **options: Any) -> Stage:
    stage = Stage.of("synchrony", names, multicast="239.1.2.3:7777", **options)
    stage.settle(ticks=1)
    return stage


def member(stage: Stage, name: str) -> SynchronyMember:
    machine = stage.machine(name)
    assert isinstance(machine, SynchronyMember)
    return machine


def lose(stage: Stage, *to: str, kind: type = object) -> list[InFlight]:
    """All that is multicast to these now."""
    lost = [
        one
        for name in to
        for one in stage.underway(None, name)
        if one.channel is MULTICAST and isinstance(one.packet, kind)
    ]
    for one in lost:
        stage.drop(one)
    return lost


def heard(stage: Stage, node: NodeId) -> list[bytes]:
    return [event.payloads[0] for event in stage.deliveries(node)]


def run(stage: Stage, lasts: int, *deaf: str) -> None:
    """So long, in which nothing that is multicast gets to the deaf."""
    end = stage.now + lasts
    while True:
        lose(stage, *deaf)
        while left := stage.underway():
            if left[0].path in stage.cuts:
                break
            stage.deliver(left[0])
            lose(stage, *deaf)
        at, name = min((actor.timers()[0][0], name) for name, actor in stage.actors.items())
        if at > end:
            return
        stage.fire(name)


def cast_of(stage: Stage, name: str, seq: int) -> Cast:
    place = member(stage, name).current.graph.me
    [found] = member(stage, name).current.graph.events(place, seq, seq)
    return found


def test_a_gap_and_a_repetition_are_ordinary() -> None:
    stage = played()
    for number in range(3):
        stage.submit("n1", [b"%d" % number])
    first, second, third = stage.underway("n1", "n3")
    stage.drop(first)
    for one in (third, second, stage.double(second)):
        stage.deliver(one)
    assert member(stage, "n3").current.graph.held == 2
    stage.settle(ticks=2)
    assert heard(stage, N3) == [b"0", b"1", b"2"]


def test_the_last_event_is_recovered_though_nothing_follows_it() -> None:
    stage = played()
    stage.submit("n1", [b"last"])
    lose(stage, "n2", "n3")
    run(stage, 10 * MILLISECOND)
    assert heard(stage, N1) == heard(stage, N2) == heard(stage, N3) == [b"last"]


def test_any_holder_gives_what_its_origin_cannot_give_any_more() -> None:
    stage = played(service="causal")
    stage.submit("n1", [b"only n2 has it"])
    lose(stage, "n3")
    stage.settle()
    stage.cut("n1", "n3")
    stage.submit("n2", [b"next"])
    stage.mend("n1", "n3")
    stage.cut("n1", "n3", one_way=True)
    run(stage, 200 * MILLISECOND)
    assert heard(stage, N3)[:2] == [b"only n2 has it", b"next"]


def test_a_lost_acknowledgement_is_asked_for() -> None:
    stage = played(service="safe")
    stage.submit("n1", [b"safe"])
    for one in stage.underway("n1"):
        stage.deliver(one)
    assert lose(stage, "n1", "n2", "n3", kind=Status)
    stage.settle(ticks=3)
    assert heard(stage, N1) == heard(stage, N2) == heard(stage, N3) == [b"safe"]


def test_what_nobody_asked_for_is_not_taken_from_another_member() -> None:
    stage = played()
    stage.submit("n1", [b"true"])
    forged = msgspec.structs.replace(cast_of(stage, "n1", 1), payloads=[b"fake"])
    stage.inject(N2, "n3", Fetched("g", N1, forged), LINK)
    assert not heard(stage, N3)
    assert not member(stage, "n3").current.graph.held
    stage.settle(ticks=2)
    assert heard(stage, N3) == [b"true"]


def test_asking_again_and_again_does_not_help() -> None:
    stage = played(window=400)
    for number in range(400):
        stage.submit("n1", [b"%d" % number])
    lose(stage, "n2", "n3")
    sent = member(stage, "n1").current.graph.sent
    assert sent < 400, "no more than arrives is in flight"
    cid = member(stage, "n1").current.cid
    for _ in range(100):
        stage.inject(N3, "n1", Fetch("g", cid, N1, 1, 400), LINK)
    given = [one for one in stage.underway("n1", "n3") if isinstance(one.packet, Fetched)]
    assert sent <= len(given) <= AHEAD + sent


def test_a_range_of_another_view_is_refused() -> None:
    stage = played()
    cid = member(stage, "n1").current.cid
    for fetch in (Fetch("g", cid, NodeId("n9"), 1, 2), Fetch("g", cid, N1, 2, 1)):
        with pytest.raises(PeerError):
            stage.inject(N3, "n1", fetch, LINK)
    stage.inject(N3, "n1", Fetch("g", cid, N2, 1, 1 << 40), LINK)  # it may have been lied to


def test_numbers_and_heights_must_fit_between_their_neighbours() -> None:
    stage = played()
    for number in range(3):
        stage.submit("n1", [b"%d" % number])
    _, second, third = (cast_of(stage, "n1", seq) for seq in (1, 2, 3))
    stage.inject(N1, "n3", third, MULTICAST)
    for lie in (
        msgspec.structs.replace(second, number=third.number),
        msgspec.structs.replace(second, height=third.height),
    ):
        with pytest.raises(PeerError):
            stage.inject(N1, "n3", lie, MULTICAST)
    stage.inject(N1, "n3", second, MULTICAST)
    assert member(stage, "n3").current.graph.held == 2


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"vector": (200, 0, 0), "seq": 200, "height": 200}, "more than it can have sent"),
        ({"vector": (1, 0, 1)}, "never sent"),
        ({"height": 2}, "none of them has height"),
        ({"vector": (2, 0, 0)}, "does not fit its view"),
    ],
)
def test_the_limits_of_links_hold(changed: dict[str, Any], why: str) -> None:
    stage = played()
    stage.submit("n1", [b"x"])
    lie = msgspec.structs.replace(cast_of(stage, "n1", 1), **changed)
    with pytest.raises(PeerError, match=why):
        stage.inject(N1, "n3", lie, MULTICAST)


def test_a_query_of_members_that_there_are_not_is_refused() -> None:
    stage = played()
    graph = member(stage, "n1").current.graph
    query = Query("g", member(stage, "n1").current.cid, *graph.status(), 1 << 3, False)
    with pytest.raises(PeerError, match="more members"):
        stage.inject(N1, "n3", query, MULTICAST)


def test_a_large_event_goes_by_links_once() -> None:
    stage = played()
    stage.submit("n1", [bytes(LARGEST_DATAGRAM)])
    assert is_large(cast_of(stage, "n1", 1))
    assert [one.channel for one in stage.underway("n1")] == [LINK, LINK]
    late = stage.underway("n1", "n3")
    stage.deliver(stage.underway("n1", "n2")[0])
    while any(others := [one for one in stage.underway() if one not in late]):
        stage.deliver(others[0])  # n3 hears of it, and asks
    stage.fire("n3")
    while any(others := [one for one in stage.underway() if one not in late]):
        assert not isinstance(others[0].packet, Fetched)
        stage.deliver(others[0])
    stage.settle(ticks=2)
    assert len(heard(stage, N3)) == 1


def test_a_member_that_leaves_gives_what_not_all_have() -> None:
    stage = played(service="causal")
    stage.submit("n1", [b"last words"])
    lose(stage, "n2", "n3")
    stage.leave("n1")
    stage.settle(ticks=4)
    assert heard(stage, N2) == heard(stage, N3) == [b"last words"]


def test_a_member_that_hears_no_multicast_gets_links_after_it_has_said_so_twice() -> None:
    stage = played()
    for number in range(3):
        stage.submit("n1", [b"%d" % number])
        lose(stage, "n3")
        run(stage, 250 * MILLISECOND, "n3")
        assert heard(stage, N3)[-1] == b"%d" % number
    news = [what for who, what in stage.log if who == N1 and isinstance(what, Unreached)]
    assert news == [Unreached("g", (N3,))]
    stage.submit("n1", [b"by link"])
    assert LINK in [one.channel for one in stage.underway("n1", "n3")]


def test_a_slow_member_is_not_taken_for_one_that_hears_nothing() -> None:
    stage = played()
    for number in range(3):
        stage.submit("n1", [b"%d" % number])
        for _ in range(2 * QUERIES_TO_ALL):
            stage.fire("n1")
        run(stage, 50 * MILLISECOND)
    assert not [what for _, what in stage.log if isinstance(what, Unreached)]


def test_fewer_bytes_are_in_flight_when_some_were_asked_for() -> None:
    own = PacedEvents(Synchrony(multicast="239.1.2.3:7777", window=1000))
    own.slow_down(0)
    own.slow_down(1)  # the same burst
    assert own.allowed == START // 2
    for seq in range(1, 200):
        own.submit([b"x" * 1000], 1000, "agreed")
        if own.may_cast:
            own.take(seq)
    assert own.unstable * 2000 <= START
    own.discard_up_to(own.unstable)
    assert START // 2 < own.allowed < START
    for time in range(1, 20):
        own.slow_down(time * 1_000_000_000)
    assert own.allowed == FEWEST


def test_nothing_is_retained_beyond_the_window_of_a_member_that_reads_nothing() -> None:
    stage = played(window=4)
    stage.give("n3", Backpressure("g", True))
    for number in range(40):
        stage.submit("n1", [b"%d" % number])
        stage.settle()
    graph = member(stage, "n3").current.graph
    assert graph.held <= 4
    assert not heard(stage, N3)
    stage.give("n3", Backpressure("g", False))
    stage.settle(ticks=3)
    assert heard(stage, N3)


def test_links_carry_everything_where_there_is_no_address() -> None:
    stage = Stage.of("synchrony", "n1 n2 n3")
    stage.settle(ticks=1)
    stage.submit("n1", [b"x"])
    assert {one.channel for one in stage.underway("n1")} == {LINK}


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("239.1.2.3", "and not '239.1.2.3'"),
        ("10.0.0.1:7777", "an address of IPv4 multicast"),
        ("[ff02::1]:7777", "an address of IPv4 multicast"),
        ("239.1.2.3:0", "a port from 1 to 65535"),
        ("239.1.2.3:x", "a port from 1 to 65535"),
    ],
)
def test_an_address_must_be_one_of_multicast(place: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Synchrony(multicast=place)
