"""What a peer may not do to a member of a causal cluster: bad input leaves no mark.

And what is no nonsense at first sight, but a lie: it may cost time, never the member.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.protocol.cluster.test_causal_rules import (
    N1,
    N2,
    cluster,
    gossip,
    hush,
    rounds,
    said,
    state,
    update,
)
from tests.protocol.fifo.test_properties import Foreign

from ordercast.errors import PeerError
from ordercast.kernel.packet import Packet
from ordercast.protocol.cluster import CAUSAL
from ordercast.protocol.cluster.packets import (
    Ask,
    Digest,
    Recover,
    Recovered,
    Thin,
    ThinUpdates,
    Update,
    Updates,
    Welcome,
)
from ordercast.protocol.tickets.entries import SEQUENCE_BITS
from ordercast.testing.stage import Stage
from ordercast.types import NodeId
from ordercast.wire.codec import Codec

CODEC = Codec([CAUSAL])
LARGEST = (1 << 54) - 1
LIFETIME = 12
"""Rounds after which nothing waits, was asked for or is spread any more."""

# --- nonsense ---------------------------------------------------------------------------------

WRONG = {
    "a packet of another family": Foreign("g"),
    "a stamp that is too short": Updates("g", [(Update(0, (1,), N1, 1, [], 0), 1)]),
    "something good and something bad": Updates(
        "g", [(update(0, 1, 0), 1), (Update(1, (0, 1), N1, 1, [], 0), 1)]
    ),
    "an event of no age": Updates("g", [(update(0, 1, 0), 0)]),
    "an event that is too old": Updates("g", [(update(0, 1, 0), 3)]),
    "a recovered event of another's ticket": Recovered("g", [(Update(1, (0, 1), N1, 1, [], 0), 0)]),
    "something good recovered, and bad": Recovered(
        "g", [(update(0, 1, 0), 0), (Update(0, (1,), N1, 1, [], 0), 0)]
    ),
    "a request backwards": Recover("g", [(0, 1, 2), (0, 2, 1)]),
    "a request for a ticket that is not there": Recover("g", [(0, 1, 1), (2, 1, 1)]),
    "a clock that is too long": Digest("g", (0, 0, 0)),
    "a welcome beyond its own clock": Welcome("g", (2, 0), (1, 5)),
    "a welcome whose state does not fit": Welcome("g", (0, 0), (1, 0), b"state"),
    "a welcome that is too short": Welcome("g", (0,), (0, 0)),
}


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("name", WRONG)
def test_an_invalid_packet_is_the_peers_fault_and_changes_nothing(name: str, joined: bool) -> None:
    stage = cluster(joined=joined)
    before = state(stage, "n3")
    with pytest.raises(PeerError):
        stage.inject(N2, "n3", WRONG[name])
    assert state(stage, "n3") == before


def test_events_that_we_have_not_made_may_neither_be_asked_for_nor_spread() -> None:
    stage = cluster()
    stage.submit("n1", [b"a"])
    before = state(stage, "n1")
    for packet in (
        Recover("g", [(0, 1, 2)]),
        Updates("g", [(update(0, 2, 0), 1)]),
        Recovered("g", [(update(0, 2, 0), 0)]),
    ):
        with pytest.raises(PeerError):
            stage.inject(N2, "n1", packet)
        assert state(stage, "n1") == before


# --- lies -------------------------------------------------------------------------------------


def test_a_copy_that_differs_is_not_spread_by_a_member_that_has_the_original() -> None:
    """Only what is new is looked at closely. Who relayed the lie would be taken for the liar."""
    stage = cluster(hops=4)
    gossip(stage, "n3", update(0, 1, 0), sender=N1, age=3)
    forged = Update(0, (1,), NodeId("n1"), 1, [b"forged"], 6)
    stage.inject(N2, "n3", Updates("g", [(msgspec.structs.replace(forged, stamp=(1, 7)), 1)]))
    hush(stage)
    stage.fire("n3")
    spread = [one for packet in said(stage, Updates, "n3") for one, _ in packet.updates]
    assert spread
    assert all(one == update(0, 1, 0) for one in spread)


def test_an_event_with_an_absurd_stamp_costs_one_request_and_is_then_delivered() -> None:
    stage = cluster(waiting=100)
    gossip(stage, "n3", update(1, 1 << 31, 1))
    rounds(stage, "n3", 3)
    assert said(stage, Recover) == [Recover("g", [(0, (1 << 31) - 99, 1 << 31)])] * 2
    rounds(stage, "n3", 3)
    assert [event.index for event in stage.deliveries(stage.node("n3"))] == [1]
    assert len(stage.notes(stage.node("n3"), "lose")) <= 2000


def test_a_peer_that_claims_to_have_seen_more_than_we_made_does_not_stop_us() -> None:
    stage = cluster()
    with suppress(PeerError):
        gossip(stage, "n1", update(1, 9, 1))
    rounds(stage, "n1", LIFETIME)
    assert stage.submit("n1", [b"a"]) is not None


@pytest.mark.parametrize("entry", [9, 5 << SEQUENCE_BITS | 1])
def test_a_welcome_beyond_our_own_events_does_not_stop_us(entry: int) -> None:
    stage = cluster(joined=False)
    with suppress(PeerError):
        stage.inject(N2, "n1", Welcome("g", (entry, 0), (entry, 0)))
    rounds(stage, "n1", LIFETIME)
    assert stage.submit("n1", [b"a"]) is not None


def test_entries_that_become_too_large_where_they_are_added_do_not_stop_us() -> None:
    stage = cluster()
    thin = Thin(1, [0, LARGEST], NodeId("n2"), 1, [b"x"], 1, 0, 1)
    data = msgspec.msgpack.encode(ThinUpdates("g", (LARGEST, 1), [thin]))
    with suppress(PeerError):
        stage.inject(N2, "n3", CODEC.decode(data))
    rounds(stage, "n3", LIFETIME)
    for parcel in stage.underway("n3"):
        CODEC.decode(CODEC.encode(parcel.packet))


# --- anything at all --------------------------------------------------------------------------

entries = st.sampled_from(
    [0, 1, 2, 3, 7, 1 << SEQUENCE_BITS, 1 << SEQUENCE_BITS | 1, 2 << SEQUENCE_BITS | 5, LARGEST]
)
stamps = st.one_of(
    st.tuples(entries, entries), st.lists(entries, min_size=1, max_size=3).map(tuple)
)
origins = st.builds(NodeId, st.sampled_from(["n1", "n2", "n3", "stranger"]), st.integers(0, 2))
bases = st.one_of(st.just(0), st.just(0), entries)


@st.composite
def updates(draw: st.DrawFn) -> Update:
    stamp = draw(stamps)
    index = draw(st.integers(0, len(stamp) - 1))
    if draw(st.booleans()):
        return update(index, *stamp, base=draw(bases))
    number, base = draw(st.integers(0, 9)), draw(bases)
    return Update(index, stamp, draw(origins), number, [b"x"], 1, base)


aged = st.lists(st.tuples(updates(), st.integers(0, 4)), max_size=4)
ranges = st.lists(st.tuples(st.integers(0, 3), entries, entries), max_size=4)
packets = st.one_of(
    st.builds(Updates, st.just("g"), aged),
    st.builds(Recovered, st.just("g"), aged),
    st.builds(Recover, st.just("g"), ranges),
    st.builds(Digest, st.just("g"), stamps, st.booleans()),
    st.builds(Welcome, st.just("g"), stamps, stamps, st.sampled_from([None, b"state"])),
    st.builds(Ask, st.just("g"), st.booleans()),
    st.just(Foreign("g")),
)
conversations = st.lists(st.tuples(packets, st.integers(0, 4), st.booleans()), max_size=8)


def offer(stage: Stage, to: str, packet: Packet) -> None:
    """The member takes what n2 sends, or rejects it without effect."""
    before = state(stage, to)
    try:
        stage.inject(N2, to, packet)
    except PeerError:
        assert state(stage, to) == before


@settings(derandomize=True, max_examples=200, phases=[Phase.generate])
@given(conversations, st.booleans(), st.sampled_from(["any-2", "originator"]))
def test_any_packet_is_taken_or_rejected_without_effect(
    conversation: list[tuple[Packet, int, bool]], joined: bool, recovery: str
) -> None:
    """And whatever was taken, the reader goes on."""
    stage = cluster(joined=joined, digests=True, recovery=recovery, waiting=50)
    for packet, ticks, slow in conversation:
        offer(stage, "n3", packet)
        stage.throttle("n3", slow and joined)
        rounds(stage, "n3", ticks)
    rounds(stage, "n3", LIFETIME)
    for parcel in stage.underway("n3"):
        if not isinstance(parcel.packet, Foreign):
            CODEC.decode(CODEC.encode(parcel.packet))


@settings(derandomize=True, max_examples=200, phases=[Phase.generate])
@given(conversations)
def test_whatever_a_peer_sends_the_owner_of_a_ticket_can_still_use_it(
    conversation: list[tuple[Packet, int, bool]],
) -> None:
    stage = cluster(digests=True, waiting=50)
    for packet, ticks, _ in conversation:
        offer(stage, "n1", packet)
        rounds(stage, "n1", 2 * ticks)
        assert stage.submit("n1", [b"a"]) is not None
        rounds(stage, "n1", 1)
