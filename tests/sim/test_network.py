"""What the channels have in common, or do not: one network carries them all."""

from __future__ import annotations

import pytest
from tests.sim.probes import (
    DATAGRAM,
    LINK,
    MILLISECOND,
    SECOND,
    STATUS,
    Stage,
    cut,
    fault,
    first,
    say,
)

from ordercast.kernel.step import LARGEST_DATAGRAM, MULTICAST, Channel
from ordercast.scenario.schema import NetworkSettings
from ordercast.trace.schema import TraceLevel
from ordercast.types import NodeId
from ordercast.units import Rate

DELAY = 2 * MILLISECOND
CHANNELS = [DATAGRAM, LINK, STATUS]


@pytest.mark.parametrize("channel", CHANNELS)
def test_bytes_cost_the_same_time_on_every_channel(channel: Channel) -> None:
    narrow = NetworkSettings(jitter=0.0, bandwidth=Rate(1_000_000))
    stage = Stage(2, network=narrow, level=TraceLevel.WIRE)
    large, small = (
        say(first("n2"), text, channel, padding=size)
        for text, size in (("large", 50_000), ("small", 1000))
    )
    stage.at(SECOND, "n1", large, small, large).run()
    took = [row.size * 1000 for row in stage.rows_of("send", "n1") if row.size is not None]
    assert [heard.at - SECOND - DELAY for heard in stage.heard] == [
        took[0],
        took[0] + took[1],
        took[0] + took[1] + took[2],
    ]


def test_the_channels_of_one_sender_share_its_line() -> None:
    narrow = NetworkSettings(jitter=0.0, bandwidth=Rate(1_000_000))
    stage = Stage(2, network=narrow)
    stage.at(
        SECOND,
        "n1",
        say(first("n2"), "first", LINK, padding=1_000_000),
        say("n2", "second", DATAGRAM),
        say("n2", "third", STATUS, token=1),
    ).run()
    assert stage.texts("n2") == ["first", "second", "third"]
    assert all(heard.at > 2 * SECOND for heard in stage.heard)


@pytest.mark.parametrize("channel", CHANNELS)
def test_packets_that_wait_for_bandwidth_die_with_their_sender(channel: Channel) -> None:
    """The last byte would leave after half a second. By then the next incarnation has its line."""
    narrow = NetworkSettings(jitter=0.0, bandwidth=Rate(100_000))
    restart = fault("restart", SECOND + 100 * MILLISECOND, "n1", 100 * MILLISECOND)
    stage = Stage(2, network=narrow, faults=[restart])
    stage.at(SECOND, "n1", say(first("n2"), "half said", channel, padding=50_000))
    stage.at(SECOND + 250 * MILLISECOND, "n1", say(first("n2"), "said", channel)).run()
    (heard,) = stage.heard
    assert (heard.text, heard.sender) == ("said", NodeId("n1", 1))
    assert heard.at < SECOND + 260 * MILLISECOND


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_slow_process_is_slow_on_every_channel(channel: Channel) -> None:
    stage = Stage(2, faults=[fault("slow", SECOND, "n2", SECOND, factor=10.0)])
    stage.at(SECOND + MILLISECOND, "n1", say(first("n2"), "slow", channel))
    stage.at(3 * SECOND, "n1", say(first("n2"), "quick", channel)).run()
    slow, quick = stage.heard
    assert slow.at == SECOND + MILLISECOND + 10 * DELAY
    assert quick.at == 3 * SECOND + DELAY


@pytest.mark.parametrize(
    ("channel", "arrives"), [(DATAGRAM, None), (LINK, 2 * SECOND + DELAY), (STATUS, None)]
)
def test_packets_sent_into_a_cut_wait_on_links_and_are_lost_elsewhere(
    channel: Channel, arrives: int | None
) -> None:
    stage = Stage(2, faults=[cut(SECOND, "n1 | n2", SECOND)])
    stage.at(SECOND + SECOND // 2, "n1", say(first("n2"), "hello?", channel)).run()
    assert [heard.at for heard in stage.heard] == ([arrives] if arrives else [])


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_packet_to_an_incarnation_reaches_no_other(channel: Channel) -> None:
    stage = Stage(2, faults=[fault("restart", SECOND, "n2", MILLISECOND // 2)])
    for at in (SECOND // 2, SECOND - MILLISECOND, 2 * SECOND):
        stage.at(at, "n1", say(first("n2"), f"old at {at}", channel))
        stage.at(at, "n1", say(NodeId("n2", 1), f"new at {at}", channel))
    stage.run()
    assert [(heard.by.incarnation, heard.text) for heard in stage.heard] == [
        (0, f"old at {SECOND // 2}"),
        (1, f"new at {SECOND - MILLISECOND}"),  # it had begun when the packet arrived
        (1, f"new at {2 * SECOND}"),
    ]


def test_only_datagrams_have_a_size_that_they_must_not_pass() -> None:
    stage = Stage(2, round_trip=True)
    for channel in (LINK, STATUS):
        stage.at(SECOND, "n1", say(first("n2"), "large", channel, padding=LARGEST_DATAGRAM + 1))
    stage.run()
    assert stage.texts("n2") == ["large", "large"]


def test_a_multicast_is_lost_and_late_for_each_receiver_on_its_own() -> None:
    stage = Stage(4, network=NetworkSettings(loss=0.5, jitter=0.5))
    everybody = tuple(map(first, ("n2", "n3", "n4")))
    for number in range(40):
        stage.at(SECOND + number * MILLISECOND, "n1", say(everybody, f"{number}", MULTICAST))
    stage.run()
    got = [frozenset(stage.texts(name)) for name in ("n2", "n3", "n4")]
    assert len(set(got)) == 3
    assert all(5 < len(one) < 35 for one in got)
    trips = {heard.at - SECOND - int(heard.text) * MILLISECOND for heard in stage.heard}
    assert len(trips) > 20


def test_a_multicast_leaves_once_and_does_not_pass_a_cut() -> None:
    narrow = NetworkSettings(jitter=0.0, bandwidth=Rate(1_000_000))
    stage = Stage(4, network=narrow, faults=[cut(0, "n1 | n4", 10 * SECOND)])
    everybody = tuple(map(first, ("n2", "n3", "n4")))
    stage.at(SECOND, "n1", say(everybody, "long", MULTICAST, padding=50_000))
    outcome = stage.run()
    assert {heard.by.name for heard in stage.heard} == {"n2", "n3"}
    assert len({heard.at for heard in stage.heard}) == 1
    assert SECOND + DELAY + 50 * MILLISECOND < stage.heard[0].at < SECOND + DELAY + 51 * MILLISECOND
    assert outcome.packets == 1
