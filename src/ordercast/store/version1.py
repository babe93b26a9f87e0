"""Reads files of records of version 1, which a node of an earlier ordercast has left.

They differ from version 2 (store/log.py) in a shorter header, in what a checksum begins with, and
in a mark without a body instead of a commit. They are never written: who opens one writes all
that counts to a new file.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from zlib import crc32

from ordercast.errors import DiskError
from ordercast.store.log import FORGET, HEAD, STATE, Frame

log = logging.getLogger("ordercast.store")

HEADER = Struct("!16sIII")  # magic, version, salt, checksum
RECORD, SYNCED = b"oREC", b"oSYN"
_CHECKED = Struct("!IQ4sI")  # salt, place, mark, length: what a checksum begins with


def is_version_1(data: bytes, magic: bytes) -> bool:
    return data.startswith(magic + (1).to_bytes(4))


def frames_of_version_1(path: Path, data: bytes) -> Iterator[Frame]:
    """States and what is forgotten. DiskError: damaged; a torn tail is left out with a warning."""
    if len(data) < HEADER.size:
        raise DiskError(f"{path} is damaged: it is cut off in its header")
    _, _, salt, checksum = HEADER.unpack_from(data)
    if crc32(data[: HEADER.size - 4]) != checksum:
        raise DiskError(f"{path} is damaged at byte 0: the checksum of its header is wrong")
    place = HEADER.size
    while (frame := _frame_at(data, place, salt)) is not None:
        if frame.mark != SYNCED:
            yield frame
        place = frame.end
    if HEAD.pack(SYNCED, 0, _checksum(SYNCED, b"", salt, 0)) in data[place:]:
        raise DiskError(
            f"{path} is damaged at byte {place}: the checksum is wrong, and what follows was "
            "written later"
        )
    if len(data) > place:
        log.warning("%s: a torn tail of %d bytes is cut off", path, len(data) - place)


def _frame_at(data: bytes, place: int, salt: int) -> Frame | None:
    """None: there is none, or it is not whole."""
    begin = place + HEAD.size
    if begin > len(data):
        return None
    mark, length, checksum = HEAD.unpack_from(data, place)
    end = begin + length
    if mark not in (RECORD, FORGET, SYNCED) or end > len(data):
        return None
    body = data[begin:end]
    if _checksum(mark, body, salt, 0 if mark == SYNCED else place) != checksum:
        return None
    return Frame(STATE if mark == RECORD else mark, place, end, body)


def _checksum(mark: bytes, body: bytes, salt: int, place: int) -> int:
    return crc32(body, crc32(_CHECKED.pack(salt, place, mark, len(body))))
