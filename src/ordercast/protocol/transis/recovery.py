"""How a member gets what it lacks, and what it gives to others that lack something.

Rules.
 1. What is missing is asked for after a random wait, so that not all ask at the same time, and what
    is only late comes meanwhile. First of the member that showed it; then of its origin and of any
    other that has acknowledged it, in turn, at intervals that double.
 2. An event that a member passes on counts only if it was asked for it.
 3. Whoever has an event gives it, by link, unless the other has acknowledged it. Each member may
    have so many events and bytes in a time, and a burst: asking again and again does not help it.
 4. A large event goes by link anyway (`multicast.py`). It is given a second time only to a member
    that goes on asking for it, or when its origin does not come along.

What it does not do: notice that nobody shows us anything. Whoever has it asks us what we have.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ordercast.kernel.step import Step
from ordercast.protocol.transis.gaps import GappyGraph
from ordercast.protocol.transis.options import SynchronyOptions
from ordercast.protocol.transis.packets import Cast, ConfigurationId, Fetch, Fetched
from ordercast.types import NodeId

NEVER = 1 << 62
"""Nanoseconds of patient time."""
MOST_ASKED = 64
"""Events that are asked for at a time, of one origin."""
MOST_RANGES = 4
"""And the packets in which they are."""
TRIPS = 4
"""Times `prompt_after`: how long an answer may take before another member is asked."""
COST_OF_EVENT = 16
"""An event given costs the asker that part of `prompt_after`,"""
COST_OF_BYTE = 50
"""and each byte so many nanoseconds."""
AHEAD = 256
"""Events that a member may be given at once."""


class _OpenRequest:
    """What we lack of one member."""

    __slots__ = ("asked", "at", "first", "pause", "tries", "turn")

    def __init__(self, first: int, at: int, pause: int, turn: int) -> None:
        self.first = first  # the first event that is missing
        self.at = at  # when somebody is asked next
        self.pause = pause  # and how long that one has
        self.tries = 0
        self.turn = turn  # who is the first of the holders
        self.asked: dict[int, None] = {}  # places


class EventRequests:
    def __init__(
        self,
        group: str,
        cid: ConfigurationId,
        graph: GappyGraph,
        options: SynchronyOptions,
        chance: Random,
    ) -> None:
        self.due = NEVER
        self.sent = 0
        self._group, self._cid, self._graph, self._chance = group, cid, graph, chance
        self._wait = int(options.prompt_after)
        self._least, self._most = TRIPS * self._wait, int(options.silence_limit)
        self._open: dict[int, _OpenRequest] = {}  # by place

    def look(self, step: Step, time: int) -> None:
        """Asks for what is missing, and whose time has come."""
        graph = self._graph
        if not graph.is_behind:
            if self._open:
                self._open.clear()
            self.due = NEVER
            return
        due = NEVER
        for place in range(len(graph.members)):
            missing = self._missing(place)
            if not missing:
                self._open.pop(place, None)
                continue
            request = self._open.get(place)
            first = missing[0][0]
            if request is None:
                at = time + 1 + int(self._chance.random() * self._wait)
                turn = int(self._chance.random() * len(graph.members))
                request = self._open[place] = _OpenRequest(first, at, self._least, turn)
            elif first > request.first:  # it goes on
                request.first, request.tries, request.pause = first, 0, self._least
            if request.at <= time:
                self._ask(step, time, place, request, missing)
            due = min(due, request.at)
        self.due = due

    def _missing(self, place: int) -> list[tuple[int, int]]:
        graph = self._graph
        if place == graph.me or place in graph.frozen:  # the change asks for those
            return []
        return graph.missing(place) if graph.told[place] > graph.received[place] else []

    def _ask(
        self,
        step: Step,
        time: int,
        place: int,
        request: _OpenRequest,
        missing: list[tuple[int, int]],
    ) -> None:
        graph = self._graph
        holder = self._holder(place, request)
        request.at, request.pause = time + request.pause, min(2 * request.pause, self._most)
        request.tries += 1
        if holder is None:
            return
        request.asked[holder] = None
        left = MOST_ASKED
        for first, last in missing[:MOST_RANGES]:
            last = min(last, first + left - 1)
            origin = graph.members[place]
            step.send(graph.members[holder], Fetch(self._group, self._cid, origin, first, last))
            self.sent += 1
            left -= last - first + 1
            if left <= 0:
                return

    def _holder(self, place: int, request: _OpenRequest) -> int | None:
        """Whom to ask. None: all that may have it do not come along."""
        graph, shower = self._graph, self._graph.shown_by[place]
        able = [
            one
            for one, acks in enumerate(graph.acks)
            if one not in (graph.me, *graph.frozen)
            and (one == place or acks[place] >= request.first)
        ]
        if not request.tries and shower != graph.me and shower not in graph.frozen:
            return shower
        return able[(request.turn + request.tries) % len(able)] if able else None

    def expects(self, holder: int, place: int) -> bool:
        """Whether this member was asked for events of that one."""
        request = self._open.get(place)
        return place in self._graph.frozen or (request is not None and holder in request.asked)


class EventAnswers:
    def __init__(
        self,
        group: str,
        graph: GappyGraph,
        options: SynchronyOptions,
        is_large: Callable[[Cast], bool],
    ) -> None:
        self.given = 0  # events
        self._group, self._graph, self._is_large = group, graph, is_large
        self._cost = max(1, int(options.prompt_after) // COST_OF_EVENT)
        self._patience = int(options.silence_limit)
        self._spent: dict[int, int] = {}  # by asker: until when what it got has cost it time
        # By asker and origin: the first large event that it asks for, and since when.
        self._large: dict[tuple[int, int], tuple[int, int]] = {}

    def give(self, step: Step, asker: NodeId, fetch: Fetch, time: int) -> None:
        graph = self._graph
        place, to = graph.places[fetch.origin], graph.places[asker]
        has = graph.acks[to][place]
        spent = max(time, self._spent.get(to, 0))
        for cast in graph.events(place, max(fetch.first, has + 1), fetch.last):
            if spent > time + AHEAD * self._cost:
                break
            if self._is_large(cast) and not self._is_wanted(to, place, cast.seq, time):
                continue
            step.send(asker, Fetched(self._group, fetch.origin, cast))
            self.given += 1
            spent += self._cost + COST_OF_BYTE * cast.size
        self._spent[to] = spent

    def _is_wanted(self, to: int, place: int, seq: int, time: int) -> bool:
        """Of a large event, which its origin has sent by link."""
        if place in self._graph.frozen:
            return True
        first, since = self._large.get((to, place), (0, 0))
        if first != seq:
            if first < seq:
                self._large[to, place] = seq, time
            return False
        return time - since >= self._patience
