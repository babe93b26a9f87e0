"""What another side delivered apart: who is asked, and what comes together of the answers.

Rules.
 1. Nothing is exchanged before an application asks. It asks about a side of a merge.
 2. The members of that side are asked one after the other, by name. A member tells who delivered
    the same as it did: these are not asked. A side that was itself made of several has members
    with different histories, and one of each is asked.
 3. The common past of two members ends in the last configuration that both were in. We know in
    which of ours the other was to be; it knows whether it was. So we name our last one, and an
    earlier one as long as it says that it was not there.
 4. A member that is gone before it has told everything is not waited for. If another one delivered
    the same nothing is missing; otherwise the answer names it.
 5. Histories come in parts, each of which is asked for: a slow link never has more than one.
 6. An event comes in the order of the configurations, and in one as the member delivered it that
    told of it. If several told of one configuration: by height, which is the order of agreed and
    safe events, and in which no event is before one that it follows.

What it does not do: retain a history, which is `history.py`.
"""

from __future__ import annotations

from ordercast.errors import PeerError
from ordercast.kernel.clocks import Vector, merge
from ordercast.kernel.step import Step
from ordercast.protocol.transis.history import EVENT_BYTES, DeliveryHistory, Passage
from ordercast.protocol.transis.packets import (
    MOST_PASSAGES,
    ConfigurationId,
    PastEvent,
    Recall,
    Recalled,
    Seen,
)
from ordercast.types import Difference, Event, NodeId, event_number


class SideFetch:
    """One side of one merge, until all of it is known."""

    def __init__(self, passage: Passage, side: tuple[NodeId, ...]) -> None:
        self.view = passage.cid
        self.identity = passage.identity
        self.side = side
        self.left = list(side)  # who is still to be asked, the next one first
        self.known: dict[NodeId, None] = {}  # whose history we have
        self.since: ConfigurationId | None = None  # that we named; None: that there is none
        self.after = 0  # what the member that we ask has told already
        self.told: list[PastEvent] = []  # by that member
        self.size = 0  # of it
        self.had: Vector = ()  # what we delivered in that configuration
        self.have: dict[ConfigurationId, Vector] = {}  # what others told
        self.events: dict[ConfigurationId, list[PastEvent]] = {}
        self.tellers: dict[ConfigurationId, int] = {}  # how many told events of it
        self.forgotten = 0
        self.reaches_back = True

    def difference(self, group: str) -> Difference:
        events: list[Event] = []
        for cid in sorted(self.events):
            found = self.events[cid]
            if self.tellers[cid] > 1:
                found = sorted(found, key=lambda event: (event.height, event.origin))
            events.extend(as_delivered(group, event) for event in found)
        unheard = tuple(node for node in self.side if node not in self.known)
        return Difference(
            group,
            self.identity,
            self.side,
            tuple(events),
            self.forgotten,
            unheard,
            self.reaches_back,
        )


class Differences:
    """All that we ask others about."""

    def __init__(self, group: str, me: NodeId, history: DeliveryHistory) -> None:
        self.group = group
        self.me = me
        self.history = history
        # By view and first member of the side. Of one view, a member is in one side.
        self.fetches: dict[tuple[ConfigurationId, NodeId], SideFetch] = {}

    def clear(self) -> None:
        self.fetches.clear()

    # --- inputs ------------------------------------------------------------------------------

    def want(
        self, step: Step, view: int, side: tuple[NodeId, ...], members: tuple[NodeId, ...]
    ) -> None:
        """The application asks. These are the members of our configuration now."""
        for passage in self.history.passages:
            if passage.identity == view and side in passage.sides[1:]:
                if (passage.cid, side[0]) not in self.fetches:
                    fetch = SideFetch(passage, side)
                    self.fetches[passage.cid, side[0]] = fetch
                    self._ask_next(step, fetch, members)
                return
        step.notify(Difference(self.group, view, side, unheard=side, reaches_back=False))

    def receive(
        self, step: Step, sender: NodeId, packet: Recalled, members: tuple[NodeId, ...]
    ) -> None:
        fetch = self._asked(sender, packet)
        if fetch is None:
            return  # it was asked again meanwhile, or is not asked any more
        self._refuse(fetch, sender, packet)
        if packet.outcome == "unknown":
            fetch.left.pop(0)
            self._ask_next(step, fetch, members)
        elif packet.outcome == "never":
            self._begin(step, fetch, fetch.since)
        else:
            fetch.told.extend(packet.events)
            fetch.size += _size(packet)
            if packet.outcome == "more":
                fetch.after = packet.up_to
                self._ask(step, fetch)
            else:
                self._take(fetch, sender, packet)
                self._ask_next(step, fetch, members)

    def installed(
        self, step: Step, came_with: tuple[NodeId, ...], members: tuple[NodeId, ...]
    ) -> None:
        """A view: what was asked of a member that did not come along may be lost, as it may be."""
        for fetch in list(self.fetches.values()):
            if fetch.left[0] not in came_with:
                self._ask_next(step, fetch, members)

    # --- asking ------------------------------------------------------------------------------

    def _ask_next(self, step: Step, fetch: SideFetch, members: tuple[NodeId, ...]) -> None:
        """The next one that is here and whose history we do not have; or it is done."""
        while fetch.left and (fetch.left[0] not in members or fetch.left[0] in fetch.known):
            fetch.left.pop(0)
        fetch.after, fetch.told, fetch.size = 0, [], 0
        if fetch.left:
            self._begin(step, fetch, None)
        else:
            del self.fetches[fetch.view, fetch.side[0]]
            step.notify(fetch.difference(self.group))

    def _begin(self, step: Step, fetch: SideFetch, before: ConfigurationId | None) -> None:
        """With the last configuration, before one, that the other was to be in with us."""
        common: Passage | None = None
        for passage in self.history.before(fetch.view) or ():
            if fetch.left[0] in passage.members and (before is None or passage.cid < before):
                common = passage
        fetch.since, fetch.had = (common.cid, common.seen) if common is not None else (None, ())
        self._ask(step, fetch)

    def _ask(self, step: Step, fetch: SideFetch) -> None:
        since, have = fetch.since, dict(fetch.have)
        if since is not None:
            have[since] = merge(have.get(since, fetch.had), fetch.had)
        path = tuple(Seen(cid, have[cid]) for cid in sorted(have)[-MOST_PASSAGES:])
        floor = self.history.floor
        step.send(fetch.left[0], Recall(self.group, fetch.view, since, path, floor, fetch.after))

    # --- answers -----------------------------------------------------------------------------

    def _asked(self, sender: NodeId, packet: Recalled) -> SideFetch | None:
        for fetch in self.fetches.values():
            if fetch.view == packet.view and fetch.left[0] == sender:
                is_latest = (fetch.since, fetch.after) == (packet.since, packet.after)
                return fetch if is_latest else None
        return None

    def _refuse(self, fetch: SideFetch, sender: NodeId, packet: Recalled) -> None:
        if packet.outcome == "more" and (packet.up_to <= packet.after or not packet.events):
            raise PeerError(f"{sender} recalls a history that does not go on")
        if packet.outcome == "never" and fetch.since is None:
            raise PeerError(f"{sender} was not asked since when it recalls")
        if fetch.size + _size(packet) > self.history.limit:
            raise PeerError(f"{sender} recalls more than the {self.history.limit} bytes of history")
        if packet.outcome == "end":
            # One that has forgotten configurations meanwhile does not count these any more.
            told = len(fetch.told) + len(packet.events)
            if told > packet.needed and packet.reaches_back:
                raise PeerError(f"{sender} recalls more than it says that there was")
            for one in packet.passed:
                if len(one.vector) != len(fetch.have.get(one.cid, one.vector)):
                    raise PeerError(f"{sender} was in {one.cid} with other members")

    def _take(self, fetch: SideFetch, sender: NodeId, packet: Recalled) -> None:
        """All that one member has told."""
        for node in (sender, *packet.alike):
            fetch.known[node] = None
        by_cid: dict[ConfigurationId, list[PastEvent]] = {}
        known = {(event.origin, event.number) for each in fetch.events.values() for event in each}
        for event in fetch.told:
            if (event.origin, event.number) not in known:
                by_cid.setdefault(event.cid, []).append(event)
        for cid, events in by_cid.items():
            fetch.events.setdefault(cid, []).extend(events)
            fetch.tellers[cid] = fetch.tellers.get(cid, 0) + 1
        for one in packet.passed:
            fetch.have[one.cid] = merge(fetch.have.get(one.cid, one.vector), one.vector)
        fetch.forgotten += max(0, packet.needed - len(fetch.told))
        fetch.reaches_back = fetch.reaches_back and packet.reaches_back


def _size(packet: Recalled) -> int:
    return sum(event.size + EVENT_BYTES for event in packet.events)


def as_delivered(group: str, event: PastEvent) -> Event:
    return Event(
        group,
        event.origin,
        event_number(event.origin.incarnation, event.number),
        event.payloads,
        order=event.height if event.service in ("agreed", "safe") else None,
        size=event.size,
        service=event.service,
    )
