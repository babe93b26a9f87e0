"""Frames: how packets lie one after the other in a connection.

A frame is four bytes of length, one byte of kind, and a body of that length. A reader has a limit
that is checked before anything is allocated: small until the peer has proven who it is, then
that of the largest packet. Data frames carry no number: a connection keeps them in order, and
both ends count, so a resumed connection needs to name a count only once.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct

from ordercast.errors import PeerError

HEADER = Struct("!IB")
LARGEST_GREETING = 16 << 10
"""Bytes of a frame from a peer that has not proven who it is."""


class FrameKind(IntEnum):
    HELLO = 1
    RESUME = 2
    REFUSE = 3
    DATA = 4  # a packet of a link
    ACK = 5  # how many data frames arrived
    STATUS = 6  # a packet that wants an answer
    ANSWER = 7
    PING = 8
    KEY = 9  # a new key for datagrams
    GROUPS = 10  # what is new about the sender's groups
    BYE = 11  # its sender does not need the connection
    NAMES = 12  # what is new about the nodes that its sender hears
    GROUP_KEY = 13  # with which its sender seals what it multicasts


def frame(kind: FrameKind, body: bytes) -> bytes:
    return HEADER.pack(len(body), kind) + body


class FrameReader:
    """Cuts the bytes of one connection into frames, however they arrive."""

    __slots__ = ("_needed", "_rest", "limit")

    def __init__(self, limit: int = LARGEST_GREETING) -> None:
        self.limit = limit
        self._rest = bytearray()  # the beginning of a frame that is not complete
        self._needed = HEADER.size  # bytes of `_rest` before it is worth a look

    @property
    def is_within(self) -> bool:
        """Whether a frame has begun and is not complete."""
        return bool(self._rest)

    @property
    def held(self) -> int:
        """Bytes of that frame."""
        return len(self._rest)

    def feed(self, data: bytes) -> Iterator[tuple[int, memoryview]]:
        """The frames that are complete now. Bodies are views, valid until the next call."""
        if self._rest:
            # A large frame comes in many pieces: each is appended, and all are copied once.
            self._rest += data
            if len(self._rest) < self._needed:
                return
            data = bytes(self._rest)
            self._rest = bytearray()
        view = memoryview(data)
        place, end, needed = 0, len(data), HEADER.size
        while end - place >= HEADER.size:
            length, kind = HEADER.unpack_from(data, place)
            if length > self.limit:
                raise PeerError(f"a frame of {length} bytes; {self.limit} are allowed")
            begin = place + HEADER.size
            if begin + length > end:
                needed = HEADER.size + length
                break
            place = begin + length
            yield kind, view[begin:place]
        self._rest += view[place:]
        self._needed = needed
