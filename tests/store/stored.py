"""Records for the tests of stores, and a program that keeps them until it is killed.

`python -m tests.store.stored FOLDER` appends and syncs without end, and says each number on its
output once it is kept.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Hashable
from pathlib import Path

from ordercast.kernel.packet import Packet
from ordercast.protocol import fifo
from ordercast.protocol.tickets.packets import RECORDS
from ordercast.store.file import FileStore
from ordercast.store.log import HEAD_SIZE, POSITION
from ordercast.wire.codec import Codec

COMMIT_SIZE = HEAD_SIZE + POSITION.size
SMALL = 300
"""Bytes of garbage from which on these tests let a file be written anew."""


class Counted(Packet, frozen=True, tag="test.counted"):
    """Each one counts."""

    number: int
    data: bytes = b""


class Latest(Packet, frozen=True, tag="test.latest"):
    """The newest of its name counts."""

    name: str
    number: int

    def slot(self) -> Hashable:
        return self.name


class Foreign(Packet, frozen=True, tag="test.foreign"):
    """Of a family that the codec of these tests does not know."""


class Breaking:
    """The system's call, but for one time at which it fails."""

    def __init__(self, call: Callable[..., object], at: int, number: int) -> None:
        self.call = call
        self.left = at
        self.number = number

    def __call__(self, *arguments: object) -> object:
        self.left -= 1
        if self.left == -1:
            raise OSError(self.number, os.strerror(self.number))
        return self.call(*arguments)


def codec_of(*kinds: type[Packet]) -> Codec:
    return Codec([fifo.FAMILY._replace(packets=kinds)])


CODEC = codec_of(Counted, Latest, *RECORDS)


def counted(*numbers: int) -> list[Packet]:
    return [Counted("g", number) for number in numbers]


def opened(folder: Path, **limits: int) -> FileStore:
    return FileStore(folder, CODEC, **limits)


def persist(store: FileStore, records: list[Packet]) -> None:
    store.append(records)
    store.sync()


def persist_newer_and_newer(store: FileStore, kept: list[int]) -> None:
    """Until it raises; `kept` has the numbers that were acknowledged."""
    while len(kept) < 1000:
        persist(store, [Latest("g", "a", len(kept))])
        kept.append(len(kept))


def found_in(folder: Path) -> list[Packet]:
    """What a restarted process finds."""
    store = opened(folder)
    try:
        return store.records()
    finally:
        store.close()


def persist_until_killed(folder: Path) -> None:
    store = opened(folder, least_garbage=SMALL)
    number = 0
    while True:
        number += 1
        names = [Latest("g", f"n{number % 3}", number), Latest("g", "all", number)]
        persist(store, [*names, *(counted(number) if number % 10 == 0 else [])])
        print(number, flush=True)


if __name__ == "__main__":
    persist_until_killed(Path(sys.argv[1]))
