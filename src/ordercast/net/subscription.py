"""A reader of a feed: it goes through the log of its node at its own pace.

Rules.
 1. It reads the log on disk, so it slows nobody, however slow it is; and what it hands out is
    durable here.
 2. Messages come in the order of the log. In front of what is there it says what is not there any
    more (`Gap`), also when the log is trimmed while it reads.
 3. A message that was handed out is done with when the next one is asked for. `mark` is where the
    next one is.
 4. Events that the log has and this node did not deliver, because a newer stream of their sender
    had come, are not handed out: the application was told of them as lost where they came.
 5. An entry that the disk has lost is waited for while the machine asks others for it; the reader
    is told so (`Waiting`). If nobody has it, it is a `Gap`; without a name if nobody knows which
    one it was.
 6. From a vector on, what the vector has is left out, wherever it is in this log. A mark cannot say
    that: so there is none before this log has all that the vector has, and the reader is level.

A `Gap` after 0 may begin anywhere: a mark says nothing about the numbers of streams.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Literal, Protocol, TypeAlias

import msgspec

from ordercast.errors import UsageError
from ordercast.kernel.log import At, Bad, Entry, Knowledge, Place, Unreadable, event_of
from ordercast.kernel.step import Heard
from ordercast.net.condition import Condition
from ordercast.net.marks import NO_MARK, Mark, Post, Vector
from ordercast.net.message import GroupClosed
from ordercast.net.stream import hand_out
from ordercast.store.group_log.streams import StreamKeys
from ordercast.store.group_log.view import Reading
from ordercast.types import COUNTER_BITS, Gap, NodeId, Waiting

CHUNK = 256 << 10
"""Bytes that are read at once."""
MOST_NEWS = 100
"""Items that are no messages and wait for the reader; of more the oldest are dropped."""
LOST = "its disk has lost an entry, and other nodes are asked for it"

Since: TypeAlias = Mark | Vector | Literal["earliest", "latest"]


class ReadGroup(Protocol):
    """What a subscription uses of its group."""

    name: str
    changed: Condition  # a step took effect, or the group has ended

    @property
    def ended(self) -> Exception | None: ...

    @property
    def log(self) -> int:
        """The identity of its log."""

    @property
    def tail(self) -> int: ...

    @property
    def floor(self) -> int: ...

    async def read(self, place: Place, limit: int) -> Reading: ...

    async def vector(self, mark: Mark) -> Vector: ...

    def ask_for(self, lost: Unreadable) -> None:
        """An entry cannot be read."""

    def awaits(self, position: int) -> bool:
        """Whether others are asked for the entry here."""

    async def settled(self) -> None:
        """Returns when all that the machine has decided has taken effect."""

    async def leave(self) -> None: ...


class Subscription:
    """Made by `feed.since`: an async iterator, which ends when the group was left."""

    def __init__(self, group: ReadGroup, since: Since) -> None:
        self._group = group
        self._vector: Vector | None = None  # from which it began, while a mark does not say as much
        self._place = 0  # of the next message in its batch
        self._next = self._begin(since)  # the position that is read next
        self._found: deque[Entry | Bad | Gap] = deque()  # read: at the positions before `_next`
        self._at = self._next  # the position of what comes next
        # Before the gaps that come next, where more than one does.
        self._before_gaps: tuple[int, int] | None = None
        self._entry: Entry | None = None  # that is being handed out, at `_at`
        self._news: deque[Heard] = deque(maxlen=MOST_NEWS)
        self._key = StreamKeys()
        self._looked_at = -1  # a position at which the log had not all that the vector has
        self._asked_for = -1  # a position that the disk has lost, and of which the reader knows
        self._is_read = False  # by somebody, right now

    def _begin(self, since: Since) -> int:
        group = self._group
        if isinstance(since, Mark):
            since.check(group.name, group.log, group.tail)
            self._place = since.index
            return since.position
        if isinstance(since, Vector):
            self._vector = since
            return -1
        if since == "latest":
            return group.tail
        if since == "earliest":
            return group.floor
        raise UsageError(f"since takes a Mark, a Vector, 'earliest' or 'latest', not {since!r}")

    # --- where it is -------------------------------------------------------------------------

    @property
    def mark(self) -> Mark:
        """The place of the next message: a reader that begins there goes on where this one is."""
        if self._vector is not None:
            raise UsageError(NO_MARK)
        if self._before_gaps is not None:
            return Mark(self._group.log, *self._before_gaps)
        return Mark(self._group.log, *self._following)

    @property
    def _following(self) -> tuple[int, int]:
        """The position of the next message, and its index there."""
        if self._entry is not None and self._place >= len(self._entry.payloads):
            return self._at + 1, 0
        return self._at, self._place

    @property
    def is_level(self) -> bool:
        """Whether it has marks: the log has all that the vector has from which it began."""
        return self._vector is None

    async def vector(self) -> Vector:
        """What it has read, for a reader at any node."""
        if self._at < 0:
            assert self._vector is not None
            return self._vector
        vector = await self._group.vector(Mark(self._group.log, *self._following))
        return vector if self._vector is None else vector.joined(self._vector)

    @property
    def behind(self) -> int:
        """How many positions of the log have something that was not handed out."""
        return self._group.tail - max(self._following[0], self._group.floor)

    def tell(self, item: Heard) -> None:
        """The group has something to say that is in no log."""
        self._news.append(item)

    # --- reading -----------------------------------------------------------------------------

    def __aiter__(self) -> Subscription:
        return self

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._found.clear()
        self._entry = None

    async def __anext__(self) -> Heard:
        entry, place = self._entry, self._place
        if entry is not None and place < len(entry.payloads):  # the usual case
            self._place = place + 1
            return self._post(entry, place)
        try:
            item = await self._alone(self._advance)
        except GroupClosed:
            raise StopAsyncIteration from None
        if isinstance(item, Entry):
            place, self._place = self._place, self._place + 1
            return self._post(item, place)
        return item

    async def next_batch(self) -> Heard:
        """The next whole event, or what is left of it, or what comes in between."""
        entry = self._entry
        if entry is None or self._place >= len(entry.payloads):
            item = await self._alone(self._advance)
            if not isinstance(item, Entry):
                return item
            entry = item
        place, self._place = self._place, len(entry.payloads)
        event = event_of(self._group.name, entry, self._at)
        return msgspec.structs.replace(event, payloads=entry.payloads[place:]) if place else event

    async def run(self, handler: Callable[[Heard], Awaitable[None] | None]) -> None:
        """Reads until the group is left: one item at a time, the next when `handler` returned.

        If it raises, this member leaves the group, and the error is raised here.
        """
        await hand_out(self, handler, self._group.leave)

    def _post(self, entry: Entry, place: int) -> Post:
        return Post(
            sender=NodeId(entry.origin, entry.number >> COUNTER_BITS),
            data=entry.payloads[place],
            group=self._group.name,
            number=entry.number,
            log=self._group.log if self._vector is None else -1,
            position=self._at,
            index=place,
            count=len(entry.payloads),
            birth=entry.birth,
            at=entry.at,
            reply_to=entry.reply,
        )

    async def _alone(self, act: Callable[[], Awaitable[Entry | Heard]]) -> Entry | Heard:
        if self._is_read:
            raise UsageError("this subscription is read by another task: take one for each")
        self._is_read = True
        try:
            return await act()
        finally:
            self._is_read = False

    async def _advance(self) -> Entry | Heard:
        """The next event with a message that was not handed out, or what comes before it."""
        if self._entry is not None:
            self._entry, self._place, self._at = None, 0, self._at + 1
        while True:
            if self._news:
                return self._news.popleft()
            if not self._found:
                await self._read_on()
                continue
            item = self._found[0]
            if isinstance(item, Bad):
                if (told := await self._lost(item)) is not None:
                    return told
                continue
            self._found.popleft()
            if isinstance(item, Gap):  # of what was trimmed: it has no position
                if not (self._found and isinstance(self._found[0], Gap)):
                    self._before_gaps = None
                return item
            if (handed := self._handed(item)) is not None:
                return handed
            self._place, self._at = 0, self._at + 1

    def _handed(self, entry: Entry) -> Entry | Gap | None:
        """What the reader gets of an entry. None: nothing."""
        key = self._key(entry.stream)
        if self._vector is not None and entry.number <= self._vector.numbers.get(key, 0):
            return None
        if entry.is_gap:
            self._place, self._at = 0, self._at + 1
            return Gap(self._group.name, entry.origin, entry.birth, entry.prev, entry.number)
        if entry.is_late:
            return None
        part = self._vector.part if self._vector is not None else None
        if part is not None and part[:2] == (key, entry.number):
            self._place = part[2]
        if self._place >= len(entry.payloads):
            return None
        self._entry = entry
        return entry

    # --- the log -----------------------------------------------------------------------------

    async def _read_on(self) -> None:
        """More of the log, once there is more."""
        group = self._group
        if group.ended is not None:
            raise group.ended
        if self._next < 0:
            assert self._vector is not None
            self._take(await group.read(self._vector.knowledge(), CHUNK))
        elif self._next < group.floor:  # what was trimmed, by streams
            reading = await group.read(Knowledge({}, self._next, frozenset()), CHUNK)
            self._take(reading, max(reading.first, self._next))
        elif self._next < group.tail:
            reading = await group.read(At(self._next), CHUNK)
            if reading.first == self._next:  # or it was trimmed meanwhile
                self._take(reading)
        elif self._vector is not None and await self._is_level(self._vector):
            self._vector = None
        elif self._next == group.tail and not self._news:
            await group.changed.wait()

    async def _is_level(self, vector: Vector) -> bool:
        """Whether the log has all that the vector has before what comes next."""
        if self._looked_at == self._next:
            return False
        self._looked_at = self._next
        have = (await self._group.vector(Mark(self._group.log, self._next))).numbers
        wanted = [*vector.numbers.items(), *([vector.part[:2]] if vector.part else [])]
        return all(have.get(key, 0) >= number for key, number in wanted)

    def _take(self, reading: Reading, begin: int = 0) -> None:
        name, known = self._group.name, self._vector.numbers if self._vector is not None else {}
        before = self._at, self._place
        for gap in reading.gaps:  # what a vector has of it is no gap
            after = max(known.get(self._key(gap.stream), 0), gap.prev)
            if gap.number > after:
                self._found.append(Gap(name, gap.origin, gap.birth, after, gap.number))
        self._before_gaps = before if self._found else None
        self._at = max(reading.first, begin)
        if self._at != before[0]:
            self._place = 0
        entries = reading.entries[self._at - reading.first :]
        self._found += entries
        self._next = self._at + len(entries)

    async def _lost(self, bad: Bad) -> Heard | None:
        """The disk has lost the entry at `_at`."""
        group = self._group
        if group.ended is not None:
            raise group.ended
        if self._asked_for != self._at:
            self._asked_for = self._at
            group.ask_for(Unreadable(group.name, self._at, bad))
            if group.awaits(self._at):
                return Waiting(group.name, (), LOST, time.monotonic_ns())
        elif group.awaits(self._at):
            await group.changed.wait()
            return None
        await group.settled()  # it may be put back, and not be on the disk yet
        reading = await group.read(At(self._at), 1)
        if reading.first == self._at and reading.entries and isinstance(reading.entries[0], Entry):
            self._found[0] = reading.entries[0]
            return None
        self._found.popleft()
        self._place, self._at = 0, self._at + 1
        return Gap(group.name, *bad.stream, bad.prev, bad.number)
