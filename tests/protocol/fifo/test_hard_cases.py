"""Hard cases, each of which fifo once got wrong."""

from __future__ import annotations

from typing import Any

import pytest

from ordercast.errors import PeerError
from ordercast.kernel.losses import LOSSES_AT_ONCE
from ordercast.kernel.packet import Packet
from ordercast.protocol.fifo import FAMILY
from ordercast.protocol.fifo.member import MOST_UNREPORTED
from ordercast.protocol.fifo.packets import Alive, Data, Start
from ordercast.protocol.fifo.streams import INCARNATIONS_REMEMBERED
from ordercast.testing.actor import Posted
from ordercast.testing.stage import Stage
from ordercast.types import NodeId
from ordercast.wire.codec import Codec

N1, N2, N3 = NodeId("n1"), NodeId("n2"), NodeId("n3")


def formed(**options: Any) -> Stage:
    stage = Stage.of("fifo", "n1 n2 n3", suspicion_limit="200ms", **options)
    stage.settle(ticks=1)
    return stage


def numbers(stage: Stage, node: NodeId) -> list[int]:
    return [event.number for event in stage.deliveries(node)]


def lost(stage: Stage, node: NodeId) -> list[object]:
    return [note.columns["number"] for note in stage.notes(node, "lose")]


def test_a_relay_with_a_gap_says_where_the_stream_goes_on() -> None:
    stage = formed(window=1, retain=4)
    stage.submit("n1", [b"1"])
    stage.settle(ticks=2)
    stage.cut("n3", "n1")
    stage.cut("n3", "n2")
    stage.settle(ticks=4)
    stage.submit("n1", [b"2"])  # n2 holds it for n3
    stage.settle(ticks=1)
    stage.cut("n1", "n2")
    stage.settle(ticks=6)
    for _ in range(6):
        stage.submit("n1", [b"more"])  # 3 to 8, of which n1 holds 5 to 8
    stage.mend("n1", "n2")
    while 6 not in numbers(stage, N2):  # n2 loses 3 and 4, and gets 5 and 6
        for name in ("n1", "n2"):
            stage.fire(name)
        for parcel in stage.underway("n2", "n1"):
            stage.deliver(parcel)
        for parcel in stage.underway("n1", "n2"):
            if 6 not in numbers(stage, N2):
                stage.deliver(parcel)
    stage.crash("n1")
    while left := stage.underway("n1", "n2"):
        stage.drop(left[0])
    stage.settle(ticks=4)  # n2 sets n1 aside: from now on nothing is let go
    stage.mend("n3", "n2")
    stage.settle(ticks=80)
    assert numbers(stage, N2) == numbers(stage, N3) == [1, 2, 5, 6]
    assert lost(stage, N3) == [3, 4]


def test_events_of_a_member_heard_one_way_are_relayed() -> None:
    stage = formed()
    stage.cut("n3", "n1", one_way=True)
    stage.settle(ticks=12)
    stage.submit("n1", [b"a"])
    stage.settle(ticks=60)
    assert numbers(stage, N2) == numbers(stage, N3) == [1]


def test_events_are_discarded_when_the_last_member_that_lacked_them_returns() -> None:
    stage = formed()
    stage.cut("n1", "n2", one_way=True)
    stage.submit("n1", [b"a"])
    stage.settle(ticks=12)
    stage.mend("n1", "n2")
    stage.settle(ticks=60)
    member: Any = stage.machine("n2")
    assert member.streams.by_origin[N1].held.count == 0


def test_lost_events_of_an_incarnation_that_we_saw_begin_are_reported() -> None:
    stage = formed(window=1, retain=2)
    stage.crash("n2")
    stage.cut("n1", "n2")
    stage.start("n2")
    stage.settle(ticks=8)  # the new n2 and n3 go on; n1 hears n3 alone
    for _ in range(5):
        stage.submit("n2", [b"a"])
        for path in (("n2", "n3"), ("n3", "n2")):  # n3 does not tick, and relays nothing
            for parcel in stage.underway(*path):
                stage.deliver(parcel)
    stage.mend("n1", "n2")
    stage.settle(ticks=30)
    assert len(numbers(stage, N3)) == 5
    assert {*numbers(stage, N1), *lost(stage, N1)} == {*numbers(stage, N3)}


def test_events_that_wait_for_the_first_view_have_a_limit() -> None:
    stage = Stage.of("fifo", "n1 n2 n3", window=4, retain=4)
    stage.cut("n2", "n3")  # n2 goes on forming
    stage.settle(ticks=1)
    for _ in range(50):
        stage.submit("n1", [b"a"])
        stage.settle()
    member: Any = stage.machine("n2")
    assert len(member.early) <= member.options.retain


def test_a_member_is_not_sent_the_events_of_its_old_incarnation_for_ever() -> None:
    stage = formed()
    for name in ("n1", "n2"):
        stage.crash(name)
    stage.start("n2")
    stage.fire("n3")
    stage.settle()
    stage.submit("n3", [b"a"])
    stage.settle(ticks=2)
    stage.crash("n3")
    stage.start("n3")
    stage.start("n1")  # has the old n3's event from n2, and never met the old n3
    stage.settle(ticks=60)
    before = len(stage.log)
    stage.settle(ticks=20)
    said = [what.packet for _, what in stage.log[before:] if isinstance(what, Posted)]
    assert [packet for packet in said if not isinstance(packet, Alive)] == []


FORGED = [
    pytest.param([Data("g", N1, 1, [b"forged"], 6)], id="an event of our own"),
]


@pytest.mark.parametrize("packets", FORGED)
def test_invented_events_are_the_peers_fault(packets: list[Packet]) -> None:
    stage = formed()

    def say_all() -> None:
        for packet in packets:
            stage.inject(N2, "n1", packet)

    with pytest.raises(PeerError):
        say_all()


def test_the_remembered_incarnations_of_a_member_are_bounded() -> None:
    stage = formed()
    for incarnation in range(99):
        stage.inject(N2, "n1", Start("g", NodeId("n3", incarnation), 0))
    member: Any = stage.machine("n1")
    assert len(member.streams.by_origin) <= 3 * INCARNATIONS_REMEMBERED


def test_an_incarnation_is_not_forgotten_because_a_newer_one_has_a_far_greater_number() -> None:
    stage = formed()
    for incarnation in (1 << 19, 1 << 20):
        stage.inject(N2, "n1", Start("g", NodeId("n3", incarnation), 0))
    member: Any = stage.machine("n1")
    known = [one.incarnation for one in member.streams.by_origin if one.name == "n3"]
    assert known == [0, 1 << 19, 1 << 20]


def test_the_remembered_incarnations_in_a_peers_reports_are_bounded() -> None:
    stage = formed()
    for incarnation in range(999):
        stage.inject(N2, "n1", Alive("g", [(NodeId("n3", incarnation), 5)], [N1]))
    member: Any = stage.machine("n1")
    remembered = member.peers.by_name["n2"].received
    assert len(remembered) <= 2 * 3 * (INCARNATIONS_REMEMBERED + 1)
    assert NodeId("n3", 998) in remembered


def test_reports_about_unknown_members_are_the_peers_fault() -> None:
    with pytest.raises(PeerError, match="not in g"):
        formed().inject(N2, "n1", Alive("g", [(NodeId("stranger"), 1)], [N1]))


def test_a_jump_over_a_million_events_is_reported_in_parts() -> None:
    stage = formed()
    far = 1_000_000
    stage.inject(N2, "n1", Start("g", N2, far))
    assert lost(stage, N1) == list(range(1, LOSSES_AT_ONCE + 1))
    stage.inject(N2, "n1", Data("g", N2, far + 1, [b"after"], 5))
    assert numbers(stage, N1) == [far + 1]  # what follows does not wait for it
    stage.fire("n1")
    assert lost(stage, N1) == list(range(1, 2 * LOSSES_AT_ONCE + 1))


def test_endless_jumps_are_rejected() -> None:
    stage = formed()
    far = 1 << 20

    def jump(times: int) -> None:
        stage.inject(N2, "n1", Start("g", N2, times * far))
        stage.inject(N2, "n1", Data("g", N2, times * far + 1, [b"x"], 1))

    for times in range(1, MOST_UNREPORTED + 1):
        jump(times)
    with pytest.raises(PeerError, match="skips more events than n1 can report"):
        jump(MOST_UNREPORTED + 1)


def test_a_full_member_is_not_sent_the_same_events_again() -> None:
    stage = formed()
    stage.throttle("n3", True)
    stage.submit("n1", [b"a"])
    stage.settle(ticks=2)
    before = len(stage.log)
    stage.settle(ticks=40)
    said = [what.packet for _, what in stage.log[before:] if isinstance(what, Posted)]
    assert {type(packet) for packet in said} == {Alive}
    stage.throttle("n3", False)
    stage.settle(ticks=1)
    member: Any = stage.machine("n1")
    assert member.stable_up_to("g") == 1


@pytest.mark.parametrize("size", [0, 1_000_000])
def test_impossible_sizes_do_not_pass_the_codec(size: int) -> None:
    codec = Codec([FAMILY])
    with pytest.raises(PeerError, match="says it carries"):
        codec.decode(codec.encode(Data("g", N1, 1, [b"x" * 100] * 100, size)))


@pytest.mark.parametrize("incarnation", [-7, 1 << 30])
def test_impossible_incarnations_do_not_pass_the_codec(incarnation: int) -> None:
    codec = Codec([FAMILY])
    with pytest.raises(PeerError):
        codec.decode(codec.encode(Start("g", NodeId("n3", incarnation), 0)))


def unchanged_by(stage: Stage, sender: NodeId, packet: Packet) -> bool:
    """Whether a member goes on after a refused packet as one does that never got it."""
    twin = formed()
    with pytest.raises(PeerError):
        stage.inject(sender, "n1", packet)
    for each in (stage, twin):
        each.log.clear()
        each.settle(ticks=1)
    return stage.log == twin.log


class Foreign(Packet, tag="elsewhere.foreign"):
    pass


def test_an_incarnation_whose_first_packet_is_rejected_stays_unknown() -> None:
    assert unchanged_by(formed(), NodeId("n2", 1), Foreign("g"))


def test_an_impossible_acknowledgement_changes_nothing() -> None:
    stage = formed()
    member: Any = stage.machine("n1")
    with pytest.raises(PeerError):
        stage.inject(N2, "n1", Alive("g", [(N1, 7)], []))
    assert member.peers.by_name["n2"].received.get(N1, 0) == 0
