"""A log of a group in memory (`kernel/log.py`): what a simulated disk has of it.

It is what the log in files is, seen from a machine: entries by position, the newest of every state,
what was received of every stream, and what is known of entries that are gone. Entries can rot, so
that tests can look at what becomes of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.kernel.log import (
    Appended,
    At,
    Bad,
    Entry,
    Identity,
    Knowledge,
    Opened,
    Recall,
    Recalled,
    Reference,
    Repaired,
    Stream,
    Trimmed,
    key_of,
)
from ordercast.kernel.packet import Packet
from ordercast.store.slots import Slots


class MemoryLog:
    """The log of one group on one disk: only what is durable."""

    def __init__(self, group: str, identity: Identity) -> None:
        self.group = group
        self.identity = identity
        self.floor = 0
        self.entries: list[Entry | Bad] = []  # from the floor on
        self.states: Slots[Packet] = Slots()
        self.received: dict[Stream, int] = {}
        self.size = 0  # bytes of the payloads that are there
        # By stream: the last number below the floor, and its position.
        self._trimmed: dict[Stream, tuple[int, int]] = {}
        self._places: dict[tuple[str, int, int], int] = {}  # positions of events, by name

    @property
    def tail(self) -> int:
        return self.floor + len(self.entries)

    def take(self, record: Packet) -> None:
        """A record is durable."""
        match record:
            case Appended(entry=entry):
                self._places[(*entry.stream, entry.number)] = self.tail
                self.entries.append(entry)
                self.received[entry.stream] = entry.number
                self.size += entry.size
            case Trimmed(below=below):
                self._trim(below)
            case Repaired(position=position, entry=entry):
                if position >= self.floor and isinstance(self.entries[position - self.floor], Bad):
                    self.entries[position - self.floor] = entry
                    self.size += entry.size
            case _:
                self.states.put(record, record)

    def _trim(self, below: int) -> None:
        count = min(below, self.tail) - self.floor
        for place, entry in enumerate(self.entries[: max(count, 0)], self.floor):
            self._trimmed[entry.stream] = entry.number, place
            del self._places[(*entry.stream, entry.number)]
            self.size -= entry.size if isinstance(entry, Entry) else 0
        if count > 0:
            del self.entries[:count]
            self.floor = below

    def spoil(self, share: float) -> None:
        """The entry at this share of the log cannot be read any more."""
        if self.entries:
            at = min(int(share * len(self.entries)), len(self.entries) - 1)
            entry = self.entries[at]
            if isinstance(entry, Entry) and not entry.is_gap:
                self.entries[at] = Bad(entry.stream, entry.number, entry.prev)
                self.size -= entry.size

    def records(self) -> list[Packet]:
        """What a machine is built with."""
        found = Opened(
            self.group, self.identity, self.tail, self.floor, dict(self.received), self.size
        )
        return [found, *self.states.values()]

    # --- reading -----------------------------------------------------------------------------

    def answer(self, recall: Recall) -> Recalled:
        place = recall.place
        gaps: tuple[Entry, ...] = ()
        if isinstance(place, Reference):
            at = self._places.get((place.origin, place.birth, place.number), -1)
            found = self.entries[at - self.floor : at - self.floor + 1] if at >= 0 else []
            return Recalled(self.group, recall.token, place, max(at, 0), tuple(found))
        first = max(place.position, self.floor) if isinstance(place, At) else self._start(place)
        if isinstance(place, Knowledge):
            gaps = self._gaps(place)
        entries = self._some(first, recall.limit)
        return Recalled(self.group, recall.token, place, first, entries, gaps)

    def _start(self, known: Knowledge) -> int:
        for at, entry in enumerate(self.entries, self.floor):
            if known.lacks(entry.stream, entry.number, at):
                return at
        return self.tail

    def _gaps(self, known: Knowledge) -> tuple[Entry, ...]:
        gaps = []
        for stream, (number, place) in self._trimmed.items():
            if known.lacks(stream, number, place):
                prev = known.numbers.get(key_of(stream), 0)
                name, birth = stream
                gaps.append(Entry(name, birth, number, min(prev, number), is_gap=True))
        return tuple(gaps)

    def _some(self, first: int, limit: int) -> tuple[Entry | Bad, ...]:
        found: list[Entry | Bad] = []
        size = 0
        for entry in self.entries[first - self.floor :]:
            found.append(entry)
            size += 1 + (entry.size if isinstance(entry, Entry) else 0)
            if size >= limit:
                break
        return tuple(found)


def replayed(group: str, identity: Identity, records: Sequence[Packet]) -> MemoryLog:
    """The log that these records of the group make."""
    log = MemoryLog(group, identity)
    for record in records:
        if record.group == group:
            log.take(record)
    return log
