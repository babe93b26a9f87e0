"""A link keeps frames until the peer has them, whatever becomes of the connections below it."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ordercast.errors import PeerError
from ordercast.net.link import Link, LinkFull
from ordercast.types import NodeId

PEER = NodeId("n2")
LIMIT = 40


class TwoEnds(RuleBasedStateMachine):
    """Two links joined by a connection that breaks at will, beside a list of all that was sent.

    The connection is two queues. What is in them when it breaks is gone, frames and
    acknowledgements alike: that is all that a broken connection does to anybody.
    """

    def __init__(self) -> None:
        super().__init__()
        self.near, self.far = Link(PEER, LIMIT), Link(NodeId("n1"), LIMIT)
        self.is_up = False
        self.frames: deque[bytes] = deque()
        self.acknowledgements: deque[int] = deque()
        self.sent: list[bytes] = []  # the model: all of it, for ever
        self.got: list[bytes] = []
        self.told = 0  # the newest count of received frames that reached the near end

    @rule(size=st.integers(0, 15))
    def send(self, size: int) -> None:
        frame = bytes([len(self.sent) % 256]) * size
        if sum(map(len, self.sent[self.told :])) + size > LIMIT:
            with pytest.raises(LinkFull):
                self.near.add(frame)
            return
        self.near.add(frame)
        self.sent.append(frame)
        if self.is_up:
            self.frames.append(frame)

    @precondition(lambda self: self.frames)
    @rule()
    def arrive(self) -> None:
        self.got.append(self.frames.popleft())
        self.far.received += 1

    @precondition(lambda self: self.is_up)
    @rule()
    def acknowledge(self) -> None:
        self.acknowledgements.append(self.far.received)

    @precondition(lambda self: self.acknowledgements)
    @rule()
    def hear(self) -> None:
        received = self.acknowledgements.popleft()
        self.near.acknowledge(received)
        self.told = max(self.told, received)

    @precondition(lambda self: self.is_up)
    @rule()
    def cut(self) -> None:
        self.is_up = False
        self.frames.clear()
        self.acknowledgements.clear()

    @precondition(lambda self: not self.is_up)
    @rule()
    def resume(self) -> None:
        self.is_up = True
        self.frames.extend(self.near.resume(self.far.received))
        self.told = self.far.received

    @invariant()
    def what_came_is_the_beginning_of_what_was_sent(self) -> None:
        assert self.got == self.sent[: len(self.got)]

    @invariant()
    def exactly_what_is_not_acknowledged_is_kept(self) -> None:
        kept = self.sent[self.told :]
        assert self.near.underway == len(kept)
        assert self.near.size == sum(map(len, kept)) <= LIMIT

    def teardown(self) -> None:
        """In the end, with a connection that holds, all of it arrives."""
        if not self.is_up:
            self.resume()
        while self.frames:
            self.arrive()
        assert self.got == self.sent


TestTwoEnds = TwoEnds.TestCase


def link_with(*frames: bytes) -> Link:
    link = Link(PEER, LIMIT)
    for frame in frames:
        link.add(frame)
    return link


def test_a_link_that_is_full_says_so_and_keeps_what_it_has() -> None:
    link = link_with(bytes(LIMIT))
    with pytest.raises(LinkFull, match="n2 has not acknowledged 40 bytes"):
        link.add(b"x")
    assert (link.underway, link.size) == (1, LIMIT)
    link.acknowledge(1)
    link.add(b"x")
    assert (link.underway, link.size) == (1, 1)


@given(sent=st.integers(0, 5), acknowledged=st.integers(6, 1 << 64))
def test_acknowledging_a_frame_that_was_never_sent_is_an_error(
    sent: int, acknowledged: int
) -> None:
    for refuse, why in ((Link.acknowledge, "never sent"), (Link.resume, f"have 0 to {sent}:")):
        link = link_with(*[b"x"] * sent)
        with pytest.raises(PeerError, match=why):
            refuse(link, acknowledged)
        assert link.underway == sent


def test_an_outdated_acknowledgement_changes_nothing() -> None:
    link = link_with(b"a", b"b", b"c")
    link.acknowledge(2)
    link.acknowledge(1)
    assert link.underway == 1


def test_a_peer_that_forgot_acknowledged_frames_is_rejected() -> None:
    link = link_with(b"a", b"b")
    link.acknowledge(2)
    with pytest.raises(
        PeerError,
        match="has 1 frames of ours, and should have 2 to 2",
    ):
        link.resume(1)


def test_resuming_twice_gives_the_same_again() -> None:
    link = link_with(b"a", b"b", b"c")
    assert link.resume(1) == link.resume(1) == [b"b", b"c"]
