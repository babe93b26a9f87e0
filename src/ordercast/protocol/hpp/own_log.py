"""The log of this node as its machine sees it: where it ends, what is in it, how it grows.

Rules.
 1. An entry joins the log only as the next one of its stream: its `prev` is the last number that we
    have of it. A reply joins only after what it replies to. Both follow from the rules of sessions
    (propagation.py), so a peer that makes them untrue is at fault.
 2. What joins is delivered in the same step, in the order of the log, once in all incarnations
    that have this log. A gap is delivered as a gap, and is a `lose` row.
 3. Of one name the streams are delivered one after the other. A node that lost its disk begins
    another stream. Entries of the former one that still turn up join the log and are forwarded, but
    are not delivered: they are lost as `obsolete`.
 4. The last entries are cached for those that are nearly level. All older ones are read from disk.

What it does not do: know entries again by their content. The node that relays an entry is trusted.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

import msgspec

from ordercast.errors import PeerError
from ordercast.kernel.log import Entry, Opened, Reference, event_of, key_of
from ordercast.kernel.step import Step
from ordercast.protocol.hpp.options import FeedOptions
from ordercast.protocol.hpp.received import HashTree, LastNumbers
from ordercast.types import COUNTER_BITS, Event, Gap, NodeId, Payloads, event_number

OVERHEAD = 100
"""Bytes that an entry counts beside its payloads, in caches and limits."""


def _of_name(name: str) -> int:
    """The key of all streams of a name together. No log has the identity 0."""
    return key_of((name, 0))


class OwnLog:
    def __init__(self, me: NodeId, group: str, options: FeedOptions, opened: Opened) -> None:
        self.me = me
        self.group = group
        self.options = options
        self.identity = opened.identity
        self.tail = opened.tail  # the position of the next entry
        self.floor = opened.floor
        self.size = opened.size  # bytes from the floor on
        self.clock = opened.clock
        self.stream = (me.name, opened.identity)
        received, count = opened.received, len(opened.received)
        streams = ((key_of(stream), last) for stream, last in received.items())
        self.vector = LastNumbers.of(streams, count)
        self.tree: HashTree | None = None  # where there are too many streams to list
        # By name: the highest number that was delivered or lost.
        names = ((_of_name(name), last) for (name, _), last in received.items())
        self._newest = LastNumbers.of(names, count)
        self._made = 0  # own events of this incarnation
        self._cache: deque[Entry] = deque()  # the last entries, up to the tail
        self._cached = 0  # their bytes
        self.delivered = 0
        self.lost = 0  # rows of losses

    def received(self, stream: tuple[str, int]) -> int:
        return self.vector.get(key_of(stream))

    @property
    def is_outdated(self) -> bool:
        """Whether events came of a newer incarnation of this node, which lost that one's disk.

        What it made now would come before those, and nobody could deliver it. Its world will find
        out when it meets somebody who knew that incarnation (`kernel/identity.py`).
        """
        return self._newest.get(_of_name(self.me.name)) >> COUNTER_BITS > self.me.incarnation

    def has(self, reply: Reference) -> bool:
        return self.received(reply.stream) >= reply.number

    @property
    def is_large(self) -> bool:
        """Whether it takes hashes to say what we have."""
        return len(self.vector) > self.options.digest_whole

    def hashes(self) -> HashTree:
        if self.tree is None:
            fan_out, levels = self.options.digest_fan_out, self.options.digest_levels
            self.tree = HashTree(fan_out, levels, self.vector.items())
        return self.tree

    # --- growing -----------------------------------------------------------------------------

    def make(self, step: Step, payloads: Payloads, size: int, reply: Reference | None) -> Event:
        """An event of our own."""
        self._made += 1
        number = event_number(self.me.incarnation, self._made)
        name, birth = self.stream
        prev, at = self.received(self.stream), self.clock + step.now
        entry = Entry(name, birth, number, prev, 0, False, reply, payloads, size, max(at, 0))
        event = self.append(step, entry)
        assert event is not None, "an outdated incarnation accepts nothing"
        return event

    def append(self, step: Step, entry: Entry) -> Event | None:
        """An entry joins the log. Returns what was delivered."""
        key, of_name = key_of(entry.stream), _of_name(entry.origin)
        before, newest = self.vector.get(key), self._newest.get(of_name)
        assert entry.number > before and (entry.is_gap or entry.prev == before), "a hole"
        is_late = entry.number < newest and not entry.is_gap
        if entry.is_late is not is_late:  # it was so where it comes from
            entry = msgspec.structs.replace(entry, is_late=is_late)
        if entry.number > newest:
            self._newest.put(of_name, entry.number)
        self.vector.put(key, entry.number)
        if self.tree is not None:
            self.tree.change(key, before, entry.number)
        step.append(self.group, entry)
        self.tail += 1
        self.size += entry.size
        self._cache.append(entry)
        self._cached += entry.size + OVERHEAD
        options = self.options
        while len(self._cache) > options.cached or self._cached > options.cached_size > 0:
            self._cached -= self._cache.popleft().size + OVERHEAD
        return self._deliver(step, entry, before)

    def _deliver(self, step: Step, entry: Entry, before: int) -> Event | None:
        group = self.group
        if entry.is_gap:
            self.lost += 1
            columns = {"after": before, "cause": "obsolete"}
            step.note("lose", group=group, origin=entry.origin, number=entry.number, **columns)
            step.notify(Gap(group, entry.origin, entry.birth, before, entry.number))
            return None
        if entry.is_late:
            self.lost += 1
            columns = {"cause": "obsolete"}
            step.note("lose", group=group, origin=entry.origin, number=entry.number, **columns)
            return None
        event = event_of(group, entry, self.tail - 1)
        step.deliver(event)
        self.delivered += 1
        return event

    def trim(self, step: Step, below: int, left: int) -> None:
        """Entries below a position are given up; so many bytes are left, as far as we know."""
        step.trim(self.group, below)
        self.floor, self.size = below, left

    # --- reading -----------------------------------------------------------------------------

    @property
    def first_cached(self) -> int:
        return self.tail - len(self._cache)

    def cached(self, first: int, end: int) -> list[Entry]:
        """The entries at these positions, all of them cached."""
        start = first - self.first_cached
        assert start >= 0
        back = end - first
        if start > len(self._cache) // 2:  # a deque is slow to reach in its middle
            last = islice(reversed(self._cache), self.tail - end, self.tail - first)
            return list(last)[::-1]
        return list(islice(self._cache, start, start + back))

    # --- what peers say ------------------------------------------------------------------------

    def refuse_impossible(self, sender: NodeId, entry: Entry) -> None:
        """What no log can have."""
        size = sum(map(len, entry.payloads))
        if entry.size != size or (entry.is_gap and (entry.payloads or entry.reply)):
            raise PeerError(f"{sender} sent an entry of {size} bytes that says {entry.size}")
        if entry.number <= entry.prev and not entry.is_gap:
            raise PeerError(f"{sender} sent event {entry.number} after event {entry.prev}")
        if not entry.birth or not entry.number:
            raise PeerError(f"{sender} sent an entry of no stream")
        if entry.stream == self.stream and entry.number > self.received(self.stream):
            raise PeerError(
                f"{sender} has event {entry.number} of {self.me.name}, which this log has not: "
                "it is an older copy of itself; give the node a new name and an empty folder"
            )
        if entry.size > self.options.largest_event:
            raise PeerError(f"{sender} sent an event of {entry.size} bytes")
