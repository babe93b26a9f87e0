"""Entries to bytes and back, and to the records of an index."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ordercast.errors import DiskError
from ordercast.kernel.log import Bad, Entry, Stream
from ordercast.store.group_log.form import LARGEST, RECORD

_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(Entry).decode


class IndexRecord(NamedTuple):
    """What an index says of one entry. All zeros: nothing is known of it."""

    key: int  # of its stream
    number: int
    prev: int
    place: int  # of its frame in the segment; 0: it was never found there
    length: int  # of its body

    @classmethod
    def of(cls, data: bytes | bytearray, at: int = 0) -> IndexRecord:
        return cls._make(RECORD.unpack_from(data, at))

    @property
    def is_unknown(self) -> bool:
        return self.number == 0

    def describes(self, entry: Entry, key: int) -> bool:
        return self.number == entry.number and self.prev == number_before(entry) and self.key == key

    def lost(self, stream: Stream | None) -> Bad:
        return Bad(stream or ("", 0), self.number, self.prev)


def pack_entry(entry: Entry) -> bytes:
    """DiskError: nobody could read it back."""
    body = _ENCODE(entry)
    if len(body) > LARGEST:
        raise DiskError(f"an entry of {len(body)} bytes: the limit is {LARGEST}")
    try:
        read_back = _DECODE(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DiskError(f"an entry that could not be read back: {error}") from error
    if not read_back.number or (read_back.number <= read_back.prev and not read_back.is_gap):
        raise DiskError(f"an entry with number {entry.number} after {entry.prev} of its stream")
    return body


def number_before(entry: Entry) -> int:
    """The number before it in this log, as an index has it.

    Of a gap that is not known: it may give up what the log has. The nearest that it can be makes
    a search go on to older entries of the stream.
    """
    return entry.number - 1 if entry.is_gap else entry.prev


def unpack_entry(body: bytes | memoryview) -> Entry:
    """DiskError: another version wrote it, since its checksum is right."""
    try:
        return _DECODE(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DiskError(f"an entry that this ordercast cannot read: {error}") from error
