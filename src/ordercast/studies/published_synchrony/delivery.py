"""What is delivered when, and the configuration changes: the last parts of Figures 3 and 8.

Amir, Dolev, Kramer, Malki: Membership algorithms for multicast communication groups (Transis,
1992), sections 4 and 5.

Rules.
 1. An FA message of a member, and a JOIN message that was taken up, is a barrier until it is
    delivered, rejected or void: what follows it waits.
 2. A barrier is delivered if it is assented to, follows no other barrier, and everything that
    follows no barrier is delivered. Of several the one with the smallest (height, sender) is first.
 3. FA removes its machines from CCS; the first JOIN of those that were assented to makes CCS
    J \\ F_before. An assented FA message whose machines are out already is no barrier any more.
    After a join only messages that follow one of the assented JOIN messages remain.
 4. `Expected` is the message that follows the last one delivered of each member; after a join, the
    JOIN itself. The identity of a view is CCS and Expected: the paper's membership consent.
 5. Messages wait for their service: causal for nothing; agreed for a message of every member that
    is at least as high; safe also for an acknowledgement of each. Members whose removal was
    assented to are not waited for.
"""

from __future__ import annotations

from typing import NamedTuple

from ordercast.studies.published_synchrony.graph import IdealGraph
from ordercast.studies.published_synchrony.names import Machines, common, within, without
from ordercast.studies.published_synchrony.options import MembershipOptions
from ordercast.studies.published_synchrony.packets import Cast


class Consent(NamedTuple):
    """CCS and Expected: what machines in the paper's membership consent have alike."""

    members: Machines
    expected: tuple[int, ...]


class Changes:
    def __init__(self, graph: IdealGraph, options: MembershipOptions, members: Machines) -> None:
        self._graph = graph
        self._options = options
        self.members = members  # CCS, as the application has it
        # By sender and counter, in the order in which they entered the graph.
        self._pending: dict[tuple[str, int], Cast] = {}
        self._barriers: dict[tuple[str, int], bool] = {}  # JOINs and assented FAs: deliverable?
        self._last: dict[str, int] = {}  # by machine: the last message delivered

    @property
    def pending(self) -> int:
        return len(self._pending)

    def configuration(self) -> Consent:
        expected = tuple(self._last.get(name, 0) + 1 for name in self.members)
        return Consent(self.members, expected)

    # --- what the rules decide ----------------------------------------------------------------

    def add(self, cast: Cast) -> None:
        self._pending[cast.key] = cast

    def drop(self, cast: Cast) -> None:
        """It is of no consequence."""
        del self._pending[cast.key]
        self._barriers.pop(cast.key, None)

    def hold(self, cast: Cast) -> None:
        """A JOIN message that was taken up: non-deliverable for now."""
        if cast.key in self._pending:
            self._barriers.setdefault(cast.key, False)

    def release_faults(self, faulty: Machines, scope: Machines | None) -> None:
        """FA messages of these faults may be delivered. Only machines in `scope` count, if any."""
        for cast in self._of_kind("FA"):
            named = cast.faulty if scope is None else common(cast.faulty, scope)
            if not within(named, faulty):
                continue
            if self._options.changes == "message" or named == faulty:
                self._barriers[cast.key] = True
            else:
                self._done(cast)  # passed over: it counts as delivered, and changes nothing

    def release_joins(self, joining: Machines, before: Machines) -> None:
        self.reject_joins(joining, before)
        for cast in self._of_kind("JOIN"):
            if (cast.joining, cast.before) == (joining, before):
                self._barriers[cast.key] = True

    def reject_joins(self, joining: Machines, before: Machines) -> None:
        for cast in self._of_kind("JOIN"):
            if cast.key in self._barriers and (cast.joining, cast.before) != (joining, before):
                self.drop(cast)

    def _of_kind(self, kind: str) -> list[Cast]:
        return [cast for cast in self._pending.values() if cast.kind == kind]

    # --- what comes next ----------------------------------------------------------------------

    def take_next(self, active: Machines) -> Cast | Consent | None:
        """The next data message, the next configuration, or None: nothing more for now."""
        while True:
            pending = self._pending.values()
            barriers = [cast for cast in pending if self._is_barrier(cast)]
            free = [cast for cast in pending if self._is_free(cast, barriers)]
            regular = [cast for cast in free if not self._is_barrier(cast)]
            if silent := [cast for cast in regular if cast.kind != "data"]:
                for cast in silent:
                    self._done(cast)
                continue
            ready = [cast for cast in free if self._barriers.get(cast.key)]
            if idle := [cast for cast in ready if self._changes_nothing(cast)]:
                for cast in idle:
                    self._done(cast)
                continue
            if regular:
                first = self._first(regular)
                flushes = self._options.flush == "delivers" and bool(ready)
                if flushes or self._may_go(first, active):
                    self._done(first)
                    return first
                return None
            return self._change(min(ready, key=_rank)) if ready else None

    def _is_barrier(self, cast: Cast) -> bool:
        if cast.kind == "FA":
            return cast.sender in self.members
        return cast.kind == "JOIN" and cast.key in self._barriers

    def _is_free(self, cast: Cast, barriers: list[Cast]) -> bool:
        """It belongs to the present configuration and follows no barrier."""
        if cast.sender not in self.members and cast.key not in self._barriers:
            return False
        return not any(self._graph.follows(cast, barrier) for barrier in barriers)

    def _first(self, regular: list[Cast]) -> Cast:
        if self._options.service == "causal":
            return regular[0]
        return min(regular, key=_rank)

    def _may_go(self, cast: Cast, active: Machines) -> bool:
        service = self._options.service
        if service == "causal":
            return True
        for name in active:
            last = self._graph.last(name)
            if last is None or last.height < cast.height:
                return False
            if service == "safe" and not self._graph.covers(name, cast):
                return False
        return True

    def _done(self, cast: Cast) -> None:
        self.drop(cast)
        self._last[cast.sender] = max(cast.counter, self._last.get(cast.sender, 0))

    # --- changes ------------------------------------------------------------------------------

    def _changes_nothing(self, cast: Cast) -> bool:
        """A fault may have many FA messages: only the first one delivered counts."""
        return cast.kind == "FA" and not common(cast.faulty, self.members)

    def _change(self, cast: Cast) -> Consent:
        if cast.kind == "FA":
            self._done(cast)
            self.members = without(self.members, cast.faulty)
            return self.configuration()
        electors = [
            one
            for one in self._of_kind("JOIN")
            if (one.joining, one.before) == (cast.joining, cast.before)
        ]
        self.members = without(cast.joining, cast.before)
        for one in electors:
            self._done(one)
        expected = {one.sender: one.counter - 1 for one in electors}
        configuration = Consent(
            self.members,
            tuple(expected.get(name, self._last.get(name, 0)) + 1 for name in self.members),
        )
        follows = self._graph.follows
        for one in list(self._pending.values()):
            if not any(follows(one, elector) for elector in electors):
                self.drop(one)
        return configuration


def _rank(cast: Cast) -> tuple[int, str]:
    return cast.height, cast.sender
