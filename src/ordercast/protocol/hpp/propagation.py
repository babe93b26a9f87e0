"""Sessions: one log is sent to another in its order, and what it lacks joins the other.

A session begins with what the other has (recovery.py), and then goes through our log, entry by
entry. An entry is left out if the other had it: it said so at the beginning, or we have the entry
from its log. All others are sent. The receiver processes packets in their order and acknowledges
positions when they are durable.

Why this is enough (checked in tests/paper/test_feed_theorems.py). Call a log closed if before each
entry stand all entries that were in its origin's log when it was made, but for gaps. Every log is
always closed, on any graph. An own entry follows all that is in the log. Of an entry that was taken
in a session everything that stands before it in the sender's log was sent before it, or was had by
the receiver when the session began, or was had from the receiver's own log. And no log forgets what
it acknowledged or sent, because what is sent is on disk. So order needs no stamp, no sorting and no
held replies.

Rules.
 1. At most a window of positions is not acknowledged. What is not cached is read from disk, once at
    a time for each session: a slow correspondent costs a cursor and reads, and no memory.
 2. Own entries and others' are sent only when they are durable here: the kernel sees to it.
 3. A gap stalls its session for `patience`, because another correspondent may still have what is
    missing, and later entries may depend on it. Then it is accepted (`OwnLog`, rule 2).
 4. While the disk is strained nothing is processed and nothing acknowledged: windows fill, and the
    neighbours wait.

Adly, Kumar: HPP, 1994, section 4. Sessions are the design's own: docs/feed.md says what they
replace.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ordercast.errors import PeerError
from ordercast.kernel.log import At, Bad, Entry, Recalled, key_of
from ordercast.kernel.step import Step
from ordercast.protocol.hpp.edges import Edge, Edges, Queued
from ordercast.protocol.hpp.options import FeedOptions
from ordercast.protocol.hpp.own_log import OVERHEAD, OwnLog
from ordercast.protocol.hpp.packets import Ack, Entries, Rumour
from ordercast.protocol.hpp.repair import Repair

MOST_QUEUED = 64 << 20
"""Bytes of entries that a correspondent may have under way to us: more than windows allow."""
MOST_ITEMS = 10_000
"""Entries in one packet."""


class Propagation:
    def __init__(self, log: OwnLog, edges: Edges, repair: Repair, options: FeedOptions) -> None:
        self.log = log
        self.edges = edges
        self.repair = repair
        self.options = options
        self.strained = False
        self.grew = False  # entries joined in this step
        self.duplicates = 0
        self.gaps = 0  # that were accepted
        self.stalls = 0
        self.recalls = 0
        self.sent = 0  # entries, a receiver each

    # --- sending -----------------------------------------------------------------------------

    def pump(self, step: Step, edge: Edge) -> None:
        """Sends what the window allows."""
        log, window = self.log, self.options.window
        while (
            edge.is_ready
            and not edge.is_reading
            and edge.bad is None
            and edge.cursor < log.tail
            and edge.cursor - edge.acked < window
        ):
            if edge.cursor < log.first_cached:
                self._recall(step, edge)
                return
            end = min(log.tail, edge.acked + window)
            self._forward(step, edge, log.cached(edge.cursor, end))
        if edge.cursor - edge.said >= window // 2:
            self.send(step, edge, [])

    def _recall(self, step: Step, edge: Edge) -> None:
        edge.is_reading = True
        self.recalls += 1
        step.recall(self.log.group, edge.token, At(edge.cursor), self.options.chunk)

    def recalled(self, step: Step, edge: Edge, given: Recalled) -> None:
        """Entries from the cursor on were read; perhaps they were trimmed meanwhile."""
        edge.is_reading = False
        if isinstance(given.place, At) and given.first > given.place.position:
            edge.failed, edge.forgets = "what it lacks was trimmed", True
            return
        self._forward(step, edge, given.entries)

    def _forward(self, step: Step, edge: Edge, entries: Sequence[Entry | Bad]) -> None:
        """Entries from the cursor on are sent, but for those that the other has."""
        items: list[Entry] = []
        size, chunk = 0, self.options.chunk
        known = edge.known
        for entry in entries:
            if known is not None and edge.cursor >= edge.known_until:
                known = edge.known = None
            if isinstance(entry, Bad) and not entry.stream[0]:
                edge.cursor += 1  # nobody knows what it was: who lacks it will find a hole
                continue
            if isinstance(entry, Bad):
                found = self._instead_of(step, edge, entry)
                if found is None:
                    break
                entry = found
            if entry.via != edge.log and (
                known is None or known.lacks(entry.stream, entry.number, edge.cursor)
            ):
                items.append(entry)
                size += entry.size + OVERHEAD
            edge.cursor += 1
            if size >= chunk:
                self.send(step, edge, items)
                items, size = [], 0
        if items:
            self.send(step, edge, items)

    def _instead_of(self, step: Step, edge: Edge, bad: Bad) -> Entry | None:
        """A rotten entry: what is sent in its place. None: the session waits."""
        known = edge.known
        if known is not None and not known.lacks(bad.stream, bad.number, edge.cursor):
            given_up = True  # the other has it
        else:
            given_up = self.repair.is_given_up(edge.cursor)
        if given_up:
            name, birth = bad.stream
            return Entry(name, birth, bad.number, min(bad.prev, bad.number), is_gap=True)
        edge.bad = edge.cursor
        self.repair.want(step, edge.cursor, bad, self.edges.all())
        return None

    def send(self, step: Step, edge: Edge, items: list[Entry]) -> None:
        edge.said = edge.cursor
        self.sent += len(items)
        packet = Entries(self.log.group, edge.session, edge.cursor, items)
        step.send(edge.peer, packet)

    def send_gaps(self, step: Step, edge: Edge, gaps: tuple[Entry, ...]) -> None:
        """What the other lacks and nobody can read here any more, before all entries."""
        for first in range(0, len(gaps), MOST_ITEMS):
            self.send(step, edge, list(gaps[first : first + MOST_ITEMS]))

    def receive_ack(self, edge: Edge, ack: Ack) -> None:
        if ack.through > edge.cursor:
            raise PeerError(f"{edge.peer} acknowledges position {ack.through} of {edge.cursor}")
        edge.acked = max(edge.acked, ack.through)

    # --- receiving ---------------------------------------------------------------------------

    def receive(self, step: Step, edge: Edge, packet: Entries) -> None:
        """Entries came. PeerError: nothing of the packet counts."""
        self._refuse_invalid(edge, packet)
        for item in packet.items:
            key = key_of(item.stream)
            edge.ahead[key] = max(item.number, edge.ahead.get(key, 0))
            edge.queued_size += item.size + OVERHEAD
        edge.queue.append(Queued(packet, step.now))
        edge.queued = packet.through
        self.drain(step, edge)

    def _refuse_invalid(self, edge: Edge, packet: Entries) -> None:
        peer, log = edge.peer, self.log
        if packet.through < edge.queued:
            raise PeerError(f"{peer} goes back from position {edge.queued} to {packet.through}")
        size = edge.queued_size + sum(item.size + OVERHEAD for item in packet.items)
        if (edge.queue and size > MOST_QUEUED) or len(packet.items) > MOST_ITEMS:
            raise PeerError(f"{peer} sends more than any window allows")
        ahead: dict[int, int] = {}
        for item in packet.items:
            log.refuse_impossible(peer, item)
            key = key_of(item.stream)
            last = ahead.get(key) or max(edge.ahead.get(key, 0), log.vector.get(key))
            if item.number <= last:
                continue
            if not item.is_gap and item.prev != last:
                raise PeerError(
                    f"{peer} sent event {item.number} of {item.origin} after {item.prev}, "
                    f"but the last one was {last}"
                )
            if item.reply is not None:
                original = key_of(item.reply.stream)
                had = max(
                    ahead.get(original, 0), edge.ahead.get(original, 0), log.vector.get(original)
                )
                if had < item.reply.number:
                    raise PeerError(f"{peer} sent a reply before its original")
            ahead[key] = item.number

    def drain(self, step: Step, edge: Edge) -> None:
        """Processes what waits, up to a gap."""
        log, patience = self.log, self.options.patience
        was_stalled, edge.stalled = edge.stalled, False
        while edge.queue and not self.strained and not edge.failed:
            packet, came = edge.queue[0]
            items = packet.items
            while edge.place_in_packet < len(items):
                item = items[edge.place_in_packet]
                last = log.vector.get(key_of(item.stream))
                if item.number <= last:
                    self.duplicates += not item.is_gap
                elif not item.is_gap:
                    if item.prev != last or not (item.reply is None or log.has(item.reply)):
                        edge.failed = f"event {item.number} of {item.origin} does not fit"
                        return
                    log.append(step, msgspec.structs.replace(item, via=edge.log))
                    self.grew = True
                elif step.now - came >= patience:
                    gap = msgspec.structs.replace(item, prev=last, via=edge.log)
                    log.append(step, gap)
                    self.gaps += 1
                    self.grew = True
                else:
                    edge.stalled = True
                    self.stalls += not was_stalled
                    return
                edge.place_in_packet += 1
            edge.queue.popleft()
            edge.place_in_packet = 0
            edge.queued_size -= sum(item.size + OVERHEAD for item in items)
            edge.through = packet.through
            edge.owes_ack = True
        if not edge.queue:
            edge.ahead.clear()

    def acknowledge(self, step: Step, edge: Edge, rumour: Rumour | None = None) -> None:
        edge.owes_ack = False
        step.send(edge.peer, Ack(self.log.group, edge.session, edge.through, rumour))
