"""One packet to all members: events and acknowledgements by the network's own multicast.

Rules (Transis, section 3: the graph shows what is missing).
 1. An event goes to all others by one packet, which each of them may or may not get. Those that
    would not fit into a datagram go by links. What is missing is asked for (`recovery.py`).
 2. The last events, and acknowledgements, are followed by nothing that would show them. So a member
    that knows of others that lack something which it has says again what it has, and asks for
    their acknowledgements: a `Query`, to all at first, at intervals that double from four
    `prompt_after` to `silence_limit`. From the fourth on it goes by links, to those that owe the
    answer. In a large group only the origin of such an event is asked at first: it knows most.
    Where nothing waits for an acknowledgement, which may take a while then, the origin repeats how
    much it has sent, and asks later.
 3. A member that is asked by its link, and has heard none of the queries to all, says so. So does
    one whose answers to all were not heard find that out. If that happens twice in a row the other
    one gets everything by its link for a while, and the host is told (`Unreached`). Then multicast
    is tried again.
 4. Heartbeats go by links. So does, when a member leaves, all that not everybody has: it answers
    nobody afterwards.
 5. A member casts only so many bytes ahead of the acknowledgements as arrive: more with each that
    comes, half as many when one of its own events was asked for (`flow.py`).

What it does not do: order anything, or know addresses. The world knows where a group's multicast
goes, and carries it by links if there is no way.
"""

from __future__ import annotations

from random import Random

from ordercast.errors import PeerError
from ordercast.kernel.clocks import Vector
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import LARGEST_DATAGRAM, LINK, MULTICAST, Step
from ordercast.protocol.transis import refusals
from ordercast.protocol.transis.carrier import NEVER, ByLinks, Carriage, Carrier
from ordercast.protocol.transis.change import ConfigurationChange
from ordercast.protocol.transis.flow import OwnEvents, PacedEvents
from ordercast.protocol.transis.gaps import GappyGraph
from ordercast.protocol.transis.options import SynchronyOptions
from ordercast.protocol.transis.packets import (
    Cast,
    ConfigurationId,
    Fetch,
    Fetched,
    Query,
    Status,
    Summary,
)
from ordercast.protocol.transis.recovery import EventAnswers, EventRequests
from ordercast.types import NodeId, Unreached
from ordercast.units import SECOND

MESSAGE_BYTES = 5
"""That a packet needs for each message, beside its bytes."""
FIRST_QUERY = 4
"""Times `prompt_after`: how long an acknowledgement may take."""
QUERIES_TO_ALL = 5
"""Before those that owe an answer are asked by links."""
UNHEARD_ANSWERS = 3
"""Answers to all that were not heard, before a link asks."""
STRIKES = 2
"""How often in a row a member must not have got our multicast until all goes by its link."""
UNREACHED_FOR = 10 * SECOND


class MulticastCarrier:
    """The carrier of one configuration."""

    graph_type = GappyGraph
    requests_type = EventRequests

    def __init__(
        self,
        group: str,
        options: SynchronyOptions,
        cid: ConfigurationId,
        graph: GappyGraph,
        own: PacedEvents,
        chance: Random,
    ) -> None:
        self.graph = graph
        self.due = NEVER
        self.queries = 0  # sent
        me = graph.me
        self._group, self._cid, self._own = group, cid, own
        self._others = tuple(node for place, node in enumerate(graph.members) if place != me)
        self._gathers = options.gathers(len(graph.members))
        self._requests = self.requests_type(group, cid, graph, options, chance)
        self._answers = EventAnswers(group, graph, options, is_large)
        self._first = FIRST_QUERY * int(options.prompt_after)
        self._most = int(options.silence_limit)
        self._apart = int(options.prompt_after)  # answers to one member
        self._tries = 0  # queries since the last progress
        self._has_repeated = False  # what it has sent, without asking
        self._query_at = NEVER
        self._asked_at: Vector = ()  # what all had at the last look
        self._answered: dict[int, int] = {}  # by place: when it was last answered
        self._unheard: dict[int, int] = {}  # by place: our answers to its queries to all
        self._doubts: dict[int, int] = {}  # by place: when we say that we do not hear it
        self._strikes: dict[int, int] = {}  # by place, in a row
        self._struck: dict[int, None] = {}  # since everybody had everything
        self._unreached: dict[int, int] = {}  # by place: until when all goes by its link

    # --- out ---------------------------------------------------------------------------------

    def send(self, step: Step, packet: Cast | Status | Summary) -> None:
        if not self._others:
            return
        if isinstance(packet, Cast) and is_large(packet):
            step.send(self._others, packet)
            return
        if len(self._unreached) < len(self._others):
            step.send(self._others, packet, MULTICAST)
        if self._unreached:
            members = self.graph.members
            step.send(tuple(members[place] for place in sorted(self._unreached)), packet)

    def leave(self, step: Step) -> None:
        """To each other member, what it has not acknowledged."""
        graph = self.graph
        for place, node in enumerate(graph.members):
            if place != graph.me:
                has = graph.acks[place][graph.me]
                for cast in graph.events(graph.me, has + 1, graph.sent):
                    step.send(node, cast, LINK)

    # --- in ----------------------------------------------------------------------------------

    def refuse_cast(self, graph: object, sender: NodeId, place: int, cast: Cast) -> None:
        refusals.refuse_loose_cast(self.graph, sender, place, cast)
        if cast.seq > self.graph.received[place]:
            self.graph.refuse_misfit(sender, place, cast)

    def refuse_status(self, graph: object, sender: NodeId, place: int, status: Status) -> None:
        refusals.refuse_loose_status(self.graph, sender, place, status)
        if isinstance(status, Query) and status.asks >> len(self.graph.members):
            raise PeerError(f"{sender} asks more members than its view has")

    def refuse_rare(self, change: ConfigurationChange, sender: NodeId, packet: Packet) -> None:
        if isinstance(packet, Fetch):
            refusals.refuse_range(self.graph, sender, packet)
        elif isinstance(packet, Fetched):
            refusals.refuse_fetched(self.graph, sender, packet)
        else:
            refusals.refuse_rare(self.graph, change, sender, packet)

    def answer(self, step: Step, sender: NodeId, fetch: Fetch, time: int) -> None:
        if fetch.origin == self.graph.members[self.graph.me]:
            self._own.slow_down(time)
        self._answers.give(step, sender, fetch, time)

    def expects(self, sender: NodeId, fetched: Fetched) -> bool:
        places = self.graph.places
        return self._requests.expects(places[sender], places[fetched.origin])

    def reach(self, cut: Vector) -> None:
        self.graph.reach(cut)

    # --- what is missing ---------------------------------------------------------------------

    def follow_up(self, step: Step, time: int) -> bool:
        graph = self.graph
        told = bool(graph.queries) and self._answer_queries(step, time)
        self._requests.look(step, time)
        if self._doubts:
            self._judge(step, time)
        if graph.unheard_by:
            for place in graph.unheard_by:
                self._strike(step, place, time)
            graph.unheard_by.clear()
        if self._query_at == NEVER:
            if any(map(int.__ne__, graph.stable(), graph.received)):
                self._await_acks(time)
        elif self._query_at <= time:
            told = self._look(step, time) or told
        self.due = min(self._query_at, self._requests.due, *self._doubts.values())
        return told

    def _await_acks(self, time: int) -> None:
        self._tries, self._has_repeated, self._asked_at = 0, False, self.graph.stable()
        self._query_at = time + self._first

    def _look(self, step: Step, time: int) -> bool:
        """Time to ask again, unless something has moved meanwhile."""
        graph = self.graph
        stable, owing = graph.stable(), graph.owing()
        for place in list(self._unreached):
            if self._unreached[place] <= time:
                del self._unreached[place]  # perhaps it works now: one more failure is enough
                self._strikes[place], self._struck[place] = STRIKES - 1, None
        if not owing:
            self._query_at = NEVER
            self._strikes = {place: self._strikes[place] for place in self._struck}
            self._struck.clear()
            return False
        if stable != self._asked_at:
            self._await_acks(time)
            return False
        if not self._tries and not self._has_repeated and not self._is_urgent(stable):
            return self._repeat(step, time, stable)
        return self._query(step, time, owing)

    def _repeat(self, step: Step, time: int, stable: Vector) -> bool:
        """Acknowledgements of these events may take their time. Their origin says what it has sent,
        and asks later."""
        self._has_repeated, self._query_at = True, time + self._most // 2
        is_own = self.graph.sent > stable[self.graph.me]
        if is_own:
            self.send(step, Status(self._group, self._cid, *self.graph.status()))
        return is_own

    def _is_urgent(self, stable: Vector) -> bool:
        """Whether a delivery may wait for an acknowledgement."""
        return any(
            cast.service in ("agreed", "safe")
            for up_to, store in zip(stable, self.graph.store, strict=True)
            for cast in store.after(up_to)
        )

    def _query(self, step: Step, time: int, owing: list[int]) -> bool:
        graph = self.graph
        by_link = self._tries >= QUERIES_TO_ALL
        asked = self._knowing() if self._gathers and self._tries < QUERIES_TO_ALL else owing
        query = Query(
            self._group, self._cid, *graph.status(), sum(1 << place for place in asked), by_link
        )
        if by_link:
            step.send(tuple(graph.members[place] for place in asked), query)
        else:
            self.send(step, query)
        self.queries += 1
        self._tries += 1
        self._query_at = time + min(self._first << min(self._tries, 16), self._most)
        return not by_link

    def _knowing(self) -> list[int]:
        """The origin of an event that not all have, which gathers acknowledgements of it; if that
        is ourselves, those that owe one."""
        graph, stable = self.graph, self._asked_at
        origins = [
            place
            for place, up_to in enumerate(stable)
            if graph.received[place] > up_to and place not in graph.frozen
        ]
        return origins[:1] if origins and graph.me not in origins else graph.owing()

    def _answer_queries(self, step: Step, time: int) -> bool:
        """Those that lack our acknowledgements get them as they have asked."""
        graph = self.graph
        queries, graph.queries = graph.queries, {}
        told = False
        for place, query in queries.items():
            if time - self._answered.get(place, -self._apart) < self._apart:
                continue
            self._answered[place] = time
            if query.by_link:
                step.send(graph.members[place], self._what_we_have())
                if not graph.overheard.pop(place, 0):  # those may wait in another socket
                    self._doubts[place] = time + self._first
                elif self._unheard.pop(place, 0) >= UNHEARD_ANSWERS:
                    self._strike(step, place, time)
                continue
            self._unheard[place] = self._unheard.get(place, 0) + 1
            if not told:
                self.send(step, self._what_we_have())
                told = True
        return told

    def _what_we_have(self) -> Status | Summary:
        graph = self.graph
        if self._gathers:
            return Summary(self._group, self._cid, *graph.summary())
        return Status(self._group, self._cid, *graph.status())

    # --- who does not get it -----------------------------------------------------------------

    def _judge(self, step: Step, time: int) -> None:
        """Of members that have asked us by link: whether we hear them in no other way."""
        graph = self.graph
        for place, at in list(self._doubts.items()):
            if at > time:
                continue
            del self._doubts[place]
            if not graph.overheard.get(place):
                step.send(
                    graph.members[place], Query(self._group, self._cid, *graph.status(), 0, True)
                )

    def _strike(self, step: Step, place: int, time: int) -> None:
        self._strikes[place] = strikes = self._strikes.get(place, 0) + 1
        self._struck[place] = None
        if strikes < STRIKES or place in self._unreached:
            return
        self._unreached[place] = time + UNREACHED_FOR
        step.notify(Unreached(self._group, (self.graph.members[place],)))

    def counters(self) -> dict[str, int]:
        return {
            "queries": self.queries,
            "requests": self._requests.sent,
            "recovered_for_others": self._answers.given,
            "unreached": len(self._unreached),
        }


def is_large(cast: Cast) -> bool:
    """Whether an event may not fit into a datagram."""
    messages, size, others = cast.carries()
    return size + MESSAGE_BYTES * messages + others > LARGEST_DATAGRAM


class ByMulticast:
    def __init__(self, chance: Random, kind: type[MulticastCarrier] = MulticastCarrier) -> None:
        self._chance, self._kind = chance, kind

    def own_events(self, options: SynchronyOptions) -> OwnEvents:
        return PacedEvents(options)

    def open(
        self,
        me: NodeId,
        group: str,
        options: SynchronyOptions,
        cid: ConfigurationId,
        members: tuple[NodeId, ...],
        own: OwnEvents,
    ) -> Carrier:
        assert isinstance(own, PacedEvents)
        graph = self._kind.graph_type(members, me, own.limit)
        return self._kind(group, options, cid, graph, own, self._chance)


def carriage_of(options: SynchronyOptions, chance: Random) -> Carriage:
    return ByMulticast(chance) if options.multicast else ByLinks()
