"""Frames lie one after the other, and come out the same however the bytes arrive."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.errors import PeerError
from ordercast.wire.framing import HEADER, FrameKind, FrameReader, frame

FRAMES = st.lists(st.tuples(st.sampled_from(FrameKind), st.binary(max_size=40)), max_size=8)


def fed(reader: FrameReader, data: bytes, cuts: list[int]) -> list[tuple[int, bytes]]:
    """What a reader makes of data that arrives in pieces."""
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [
        (kind, bytes(body))
        for begin, end in pairwise(places)
        for kind, body in reader.feed(data[begin:end])
    ]


@given(FRAMES, st.lists(st.integers(0, 400), max_size=20))
def test_any_cutting_gives_the_same_frames(
    frames: list[tuple[FrameKind, bytes]], cuts: list[int]
) -> None:
    data = b"".join(frame(kind, body) for kind, body in frames)
    assert fed(FrameReader(), data, cuts) == frames


@given(FRAMES)
def test_byte_by_byte_gives_the_same_frames(frames: list[tuple[FrameKind, bytes]]) -> None:
    data = b"".join(frame(kind, body) for kind, body in frames)
    assert fed(FrameReader(), data, list(range(len(data)))) == frames


@given(FRAMES, st.binary(min_size=1, max_size=30), st.integers(0, 60))
def test_a_frame_that_is_not_complete_is_not_there_yet(
    frames: list[tuple[FrameKind, bytes]], last: bytes, missing: int
) -> None:
    whole = b"".join(frame(kind, body) for kind, body in frames)
    part = frame(FrameKind.DATA, last)
    part = part[: max(0, len(part) - 1 - missing)]
    assert fed(FrameReader(), whole + part, []) == frames


def test_a_frame_may_be_empty() -> None:
    assert (
        fed(FrameReader(limit=0), frame(FrameKind.PING, b"") * 2, []) == [(FrameKind.PING, b"")] * 2
    )


def test_the_limit_is_the_longest_body() -> None:
    assert fed(FrameReader(limit=10), frame(FrameKind.DATA, bytes(10)), []) == [
        (FrameKind.DATA, bytes(10))
    ]
    with pytest.raises(PeerError, match="a frame of 11 bytes; 10 are allowed"):
        fed(FrameReader(limit=10), frame(FrameKind.DATA, bytes(11)), [])


def test_a_frame_that_is_too_long_is_refused_by_its_header_alone() -> None:
    reader = FrameReader(limit=100)
    with pytest.raises(PeerError):
        list(reader.feed(HEADER.pack((1 << 32) - 1, FrameKind.DATA)))


def test_what_a_peer_claims_is_not_allocated() -> None:
    tracemalloc.start()
    try:
        reader = FrameReader(limit=1 << 30)
        list(reader.feed(HEADER.pack(1 << 30, FrameKind.DATA) + bytes(1000)))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_good_frames_before_a_bad_one_come_out() -> None:
    got = []
    with pytest.raises(PeerError):
        for kind, body in FrameReader().feed(frame(FrameKind.PING, b"a") + b"\xff" * 5):
            got.append((kind, bytes(body)))
    assert got == [(FrameKind.PING, b"a")]


def test_a_limit_that_is_lifted_counts_from_the_next_frame_on() -> None:
    reader = FrameReader(limit=5)
    lengths = []
    for kind, body in reader.feed(
        frame(FrameKind.RESUME, bytes(5)) + frame(FrameKind.DATA, bytes(50))
    ):
        lengths.append(len(body))
        if kind == FrameKind.RESUME:
            reader.limit = 50
    assert lengths == [5, 50]


def test_a_large_frame_in_small_pieces_is_copied_a_few_times_at_the_most() -> None:
    """Not once a piece, which would take minutes for the largest packet."""
    size = 16 << 20
    reader = FrameReader(limit=size)
    data = frame(FrameKind.DATA, bytes(size))
    got = fed(reader, data, list(range(0, len(data), 1 << 10)))
    assert [(kind, len(body)) for kind, body in got] == [(FrameKind.DATA, size)]
