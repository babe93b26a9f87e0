"""How long entries are held: for those that lack them, for a while, or by size.

Rules.
 1. An entry goes when every correspondent has acknowledged it, those that are away and held for
    included, and `keep_for` has passed since then. An own entry that no other log has acknowledged
    stays.
 2. If the log is larger than `keep_bytes`, its oldest entries go in any case. A node that
    lacks them is told of a gap.
 3. A child that is silent is held for: its place counts for `hold_for`, also over restarts of this
    node, when the time begins again. So does the place of a parent that is gone, until another one
    has taken its place. A node that leaves, or goes to another parent, is not held for.

What it does not do: cut inside a segment. The log on disk gives back whole segments (store/).

Adly, Kumar: HPP, 1994, section 4.4: messages are discarded a time T after all children have
acknowledged them.
"""

from __future__ import annotations

from collections import deque

from ordercast.kernel.step import Step
from ordercast.protocol.hpp.edges import Edges
from ordercast.protocol.hpp.options import FeedOptions
from ordercast.protocol.hpp.own_log import OwnLog

MARKS = 64
"""Places in the log that are remembered, by time and by size."""


class Retention:
    def __init__(self, log: OwnLog, edges: Edges, options: FeedOptions) -> None:
        self.log = log
        self.edges = edges
        self.options = options
        # Positions, and when all that is below was acknowledged by everybody.
        self._acknowledged: deque[tuple[int, int]] = deque()
        # Positions, and the bytes from the floor to there.
        self._sizes: deque[tuple[int, int]] = deque([(log.tail, log.size)])
        self._appended = log.size  # bytes from the first floor on
        self._last_size = log.size
        self._trimmed = 0
        # Own events that no other log has: positions and numbers.
        self.unstable: deque[tuple[int, int]] = deque()
        self.stable = 0  # the number of the last one that another log has
        self.trims = 0
        self.forced = 0  # trims by size, of what somebody lacked

    def made(self, position: int, number: int) -> None:
        self.unstable.append((position, number))

    def acknowledged(self, position: int) -> None:
        """Another log has all that is below: our parent's, or at the root any child's."""
        while self.unstable and self.unstable[0][0] < position:
            self.stable = self.unstable.popleft()[1]

    def frontier(self) -> int:
        """What is below may go, as far as others need it."""
        if not self.edges.places:
            return self.log.floor  # nobody was ever there
        positions = [self.log.tail, *(edge.acked for edge in self.edges.by_name.values())]
        positions += [place.acked for place in self.edges.places if place.held_until is not None]
        if self.unstable:
            positions.append(self.unstable[0][0])
        return min(positions)

    def beat(self, step: Step) -> None:
        self.edges.expire(step, step.now)
        self._note_time(step.now)
        below = self.log.floor
        while self._acknowledged and self._acknowledged[0][1] + self.options.keep_for <= step.now:
            below = self._acknowledged.popleft()[0]
        self._trim(step, below)

    def _note_time(self, now: int) -> None:
        frontier, marks = self.frontier(), self._acknowledged
        if frontier <= (marks[-1][0] if marks else self.log.floor):
            return
        if len(marks) > 1 and now - marks[-2][1] < self.options.keep_for // MARKS:
            marks.pop()  # the newest mark moves on, in position and in time
        marks.append((frontier, now))

    # --- by size -----------------------------------------------------------------------------

    def grew(self, step: Step) -> None:
        """Entries joined."""
        log, limit = self.log, self.options.keep_bytes
        if not limit:
            return
        self._appended += log.size - self._last_size
        self._last_size = log.size
        if not self._sizes or self._appended - self._sizes[-1][1] >= limit // MARKS:
            self._sizes.append((log.tail, self._appended))
        if log.size <= limit:
            return
        below = log.floor
        while self._sizes and self._appended - self._trimmed > limit * 3 // 4:
            below, self._trimmed = self._sizes.popleft()
        self.forced += below > self.frontier()
        self._trim(step, min(below, log.tail))

    def _trim(self, step: Step, below: int) -> None:
        log = self.log
        if below <= log.floor:
            return
        while self._sizes and self._sizes[0][0] <= below:
            self._trimmed = self._sizes.popleft()[1]
        left = self._appended - self._trimmed if self.options.keep_bytes else 0
        log.trim(step, below, max(left, 0))
        self._last_size = log.size
        self.trims += 1
