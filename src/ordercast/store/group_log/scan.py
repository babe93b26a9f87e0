"""Reads a whole segment, and says of each position whether its entry is there, and what it was.

Rules, besides those of the form (store/log.py).
 1. A bad frame that no commit follows is a torn tail, and so is all behind it. Nobody was told of
    it. In a segment that another one follows there is no torn tail: everything was committed.
 2. A commit is right about the entries since the commit before it: an entry whose frame is bad is
    lost, and its record says what it was. Its position remains.
 3. If a commit is bad too, its entries count where as many were found as positions are missing.
    Otherwise nothing is known of any of them.
 4. A state whose frame is bad is lost: the one before it in its slot stands, or none.
 5. A damaged header is no matter if the index has the copy of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from ordercast.errors import DiskError
from ordercast.kernel.log import Stream, key_of
from ordercast.store.group_log.entries import IndexRecord, number_before, unpack_entry
from ordercast.store.group_log.form import LOGGED, RECORD, UNKNOWN, Commit, unpack_commit
from ordercast.store.group_log.streams import StreamTable
from ordercast.store.log import (
    COMMIT,
    ENTRY,
    FORGET,
    HEAD,
    HEAD_SIZE,
    HEADER,
    STATE,
    SUMMARY,
    SegmentHeader,
    checks_of,
)

NAMES = {
    ENTRY: "an entry",
    STATE: "a state",
    FORGET: "a state",
    SUMMARY: "the summary",
    COMMIT: "a commit",
}


class Damage(NamedTuple):
    """Bytes of a segment that are not as they were written."""

    place: int
    end: int
    what: str


class _Found(NamedTuple):
    mark: bytes
    place: int
    begin: int  # of its body
    end: int


class Scan:
    """`place` is where the whole frames end, `position` the one that comes next. `committed` and
    `confirmed` are the same for the last commit."""

    def __init__(self, path: Path, header: SegmentHeader, end: int | None) -> None:
        """`end`: the first position of the next segment. DiskError: the file cannot be read."""
        self.path = path
        self.header = header
        self.records = bytearray()  # an index record for each position
        self.streams = StreamTable(2)  # the number before the first entry of it here, and the last
        self.states: list[tuple[bytes, bytes]] = []  # marks and bodies; the summary too
        self.damage: list[Damage] = []
        self.lost: list[int] = []  # positions
        self.position = header.first
        self.place = self.committed = HEADER.size
        self.size = 0
        self._checks = checks_of(LOGGED, header)
        self._named: dict[int, Stream] = {}  # by key, until there is a row of it
        # Since the last commit: whole frames, entries that may be bad, and what was bad.
        self._frames: list[_Found] = []
        self._bad: list[Damage] = []
        self._bad_entries: list[_Found] = []
        try:
            self._data = memoryview(path.read_bytes())
        except OSError as error:
            raise DiskError(f"{path} cannot be read: {error.strerror or error}") from error
        self.size = len(self._data)
        self._walk()
        self.confirmed = self.position
        if end is None:
            self._end_newest()
        else:
            self._end_sealed(end)
        self.uncommitted = bytes(self._data[self.committed : self.place])
        self.torn = self._length_of_rest()
        del self._data, self._named, self._frames, self._bad, self._bad_entries

    # --- frames ------------------------------------------------------------------------------

    def _walk(self) -> None:
        place = self.place
        while place < self.size:
            found = self._frame_at(place)
            if found is None:
                behind = self._behind_bad(place)
                if behind is None:
                    break
                place = behind
                continue
            if found.mark == COMMIT:
                self._confirm(found)
            else:
                self._frames.append(found)
            place = found.end
        self.place = place

    def _frame_at(self, place: int) -> _Found | None:
        """The frame that begins there, if it is whole."""
        data, begin = self._data, place + HEAD_SIZE
        if begin > len(data):
            return None
        mark, length, checksum = HEAD.unpack_from(data, place)
        check, end = self._checks.get(mark), begin + length
        if check is None or length > LOGGED.largest or end > len(data):
            return None
        if crc32(data[begin:end], check[0] ^ (place & check[1])) != checksum:
            return None
        return _Found(mark, place, begin, end)

    def _behind_bad(self, place: int) -> int | None:
        """Where to go on behind a bad frame. None: no commit follows."""
        begin = place + HEAD_SIZE
        if begin <= self.size:
            mark, length, _ = HEAD.unpack_from(self._data, place)
            end: int = begin + length
            if mark in NAMES and length <= LOGGED.largest and self._frame_at(end):
                self._bad.append(Damage(place, end, NAMES[mark]))
                if mark == ENTRY:
                    self._bad_entries.append(_Found(mark, place, begin, end))
                return end
        for witness, commit in self._commits_behind(place):
            for record in map(IndexRecord._make, RECORD.iter_unpack(commit.records)):
                at = record.place
                whole = self._frame_at(at) if at > place else None
                if whole and whole.mark == ENTRY and whole.end - whole.begin == record.length:
                    self._bad.append(Damage(place, at, "what is there"))
                    return at
            self._bad.append(Damage(place, witness, "what is there"))
            return witness
        return None

    def _commits_behind(self, place: int) -> Iterator[tuple[int, Commit]]:
        data = bytes(self._data[place:])
        at = 0
        while (at := data.find(COMMIT, at + 1)) >= 0:
            found = self._frame_at(place + at)
            if found is not None:
                commit = unpack_commit(bytes(self._data[found.begin : found.end]))
                if commit is not None and commit.next >= self.position:
                    yield place + at, commit

    # --- what a commit says ------------------------------------------------------------------

    def _confirm(self, found: _Found) -> None:
        commit = unpack_commit(bytes(self._data[found.begin : found.end]))
        if commit is None:
            raise DiskError(
                f"{self.path} has at byte {found.place} a commit that this ordercast cannot read"
            )
        missing = commit.first - self.position
        if missing < 0:
            self._bad.append(Damage(found.place, found.end, "a commit of what was there before"))
            return
        first = IndexRecord.of(commit.records).place if commit.records else found.place
        early = [frame for frame in self._entries() if frame.place < first]
        if missing:
            self._take_unconfirmed(early, missing)
        self._named = {key_of(stream): stream for stream in commit.streams}
        places = {frame.place: frame.end - frame.begin for frame in self._frames}
        for values in RECORD.iter_unpack(commit.records):
            record = IndexRecord._make(values)
            if places.get(record.place) != record.length:
                self._note_lost(record)
            self._take(record)
        self._take_states()
        self.damage += self._bad
        self._bad, self._bad_entries = [], []
        self.committed = found.end

    def _entries(self) -> list[_Found]:
        """Since the last commit, in order; bad ones too."""
        found = [frame for frame in self._frames if frame.mark == ENTRY]
        return sorted(found + self._bad_entries, key=lambda frame: frame.place)

    def _take_unconfirmed(self, entries: list[_Found], missing: int) -> None:
        """So many positions whose commit is bad."""
        if len(entries) != missing:
            for _ in range(missing):
                self._take_unknown()
            return
        for frame in entries:
            if frame in self._bad_entries:
                self._take_unknown()
            else:
                self._take_found(frame)

    def _take_found(self, frame: _Found) -> None:
        try:
            entry = unpack_entry(self._data[frame.begin : frame.end])
        except DiskError as error:
            raise DiskError(f"{self.path} has at byte {frame.place} {error}") from error
        key, length = key_of(entry.stream), frame.end - frame.begin
        self._named[key] = entry.stream
        self._take(IndexRecord(key, entry.number, number_before(entry), frame.place, length))

    def _take_unknown(self) -> None:
        self.lost.append(self.position)
        self.records += UNKNOWN
        self.position += 1

    def _note_lost(self, record: IndexRecord) -> None:
        self.lost.append(self.position)
        end = record.place + HEAD_SIZE + record.length
        if not any(bad.place <= record.place < bad.end for bad in self._bad):
            self._bad.append(Damage(record.place, end, NAMES[ENTRY]))

    def _take(self, record: IndexRecord) -> None:
        self.records += RECORD.pack(*record)
        self.position += 1
        row = self.streams.of_key(record.key)
        if row is not None:
            numbers = row.numbers[0], record.number
            self.streams.put(row.stream, numbers, record.key)
        elif (stream := self._stream_of(record)) is not None:
            self.streams.put(stream, (record.prev, record.number), record.key)

    def _stream_of(self, record: IndexRecord) -> Stream | None:
        """None: the commit that named it is bad, and so is the entry."""
        stream = self._named.pop(record.key, None)
        if stream is None and (frame := self._frame_at(record.place)) and frame.mark == ENTRY:
            return unpack_entry(self._data[frame.begin : frame.end]).stream
        return stream

    def _take_states(self) -> None:
        for frame in self._frames:
            if frame.mark != ENTRY:
                self.states.append((frame.mark, bytes(self._data[frame.begin : frame.end])))
        self._frames = []

    # --- the end -----------------------------------------------------------------------------

    def _end_newest(self) -> None:
        """What was written and not committed is kept up to the first bad frame."""
        if self._bad:
            self.place = self._bad[0].place
            self._frames = [frame for frame in self._frames if frame.place < self.place]
        for frame in self._frames:
            if frame.mark == ENTRY:
                self._take_found(frame)
        self._take_states()

    def _end_sealed(self, end: int) -> None:
        if end > self.position:
            self._take_unconfirmed(self._entries(), end - self.position)
        self._take_states()
        self.damage += self._bad
        # The last commit may be what is damaged.
        if self._data[self.place :].tobytes().strip(b"\0"):
            self.damage.append(Damage(self.place, self.size, "what is there"))
        if end < self.position:
            raise DiskError(
                f"{self.path} has entries up to {self.position}, and the next segment begins with "
                f"{end}: one of them is of another log, or was renamed"
            )

    def _length_of_rest(self) -> int:
        """Bytes behind the whole frames, without zeros: what lies there was written and is torn."""
        return len(self._data[self.place :].tobytes().rstrip(b"\0"))
