"""What a member delivered, configuration by configuration, for those who were elsewhere.

Rules.
 1. A member remembers which configurations it passed through and how many events of each member it
    delivered there, for the last `MOST_PASSAGES` of them. The events themselves it retains up to
    `history` bytes, the newest ones.
 2. When a configuration is over, what was delivered there is so many events of each member. So what
    one member delivered and another did not is told apart by two vectors.
 3. A member recalls, for one that asks, what it delivered before a view: from the last
    configuration that both were in (of that one, what the other lacks), and all after it.
 4. It says how many events these were, so that the other knows how many are forgotten, and whether
    it still knows the place where the two parted.
 5. It also says who came along with it from there on: these delivered the same and need not be
    asked.

A recall keeps no state: the asker says from which event on. Deliveries are counted over all
configurations, so a place in the history is one number.

What it does not do: ask anybody. `merging.py` does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ordercast.errors import PeerError
from ordercast.kernel.clocks import Vector
from ordercast.protocol.transis.packets import (
    MOST_PASSAGES,
    Cast,
    ConfigurationId,
    PastEvent,
    Recall,
    Recalled,
    Seen,
)
from ordercast.types import NodeId

EVENT_BYTES = 1 << 10
"""What an event counts besides its messages: so there is a limit on small ones too."""
PART_BYTES = 1 << 18
"""Of a history, in one packet; at least one event is in it."""

Sides = tuple[tuple[NodeId, ...], ...]


class Passage:
    """One configuration that we were in."""

    __slots__ = (
        *("cid", "count", "events", "identity", "members", "seen", "sides", "start"),
        "together",
    )

    def __init__(
        self,
        cid: ConfigurationId,
        members: tuple[NodeId, ...],
        identity: int,
        sides: Sides,
        start: int,
    ) -> None:
        self.cid = cid
        self.members = members
        self.identity = identity  # of its view
        self.sides = sides  # that it was made of, our own first
        self.start = start  # events that were delivered before it
        self.count = 0  # events that were delivered in it
        self.events: deque[tuple[int, Cast]] = deque()  # the last of them, with their places
        # Once it is over: events of each member that were delivered, and who went on with us.
        self.seen: Vector = ()
        self.together: tuple[NodeId, ...] = ()

    def retained(self) -> Iterator[tuple[int, int, Cast]]:
        """With their numbers in the history."""
        first = self.start + self.count - len(self.events)
        for number, (place, cast) in enumerate(self.events, first):
            yield number, place, cast


class DeliveryHistory:
    def __init__(self, limit: int) -> None:
        self.limit = limit  # bytes
        self.clear()

    def clear(self) -> None:
        """We left, and come again without a past."""
        self.size = 0
        self.passages: deque[Passage] = deque()
        self.floor = 0  # we were in configurations below this height that we do not remember
        self._delivered = 0  # before the last passage
        self._full: deque[Passage] = deque()  # those that retain events

    # --- what happens here -------------------------------------------------------------------

    def enter(
        self, cid: ConfigurationId, members: tuple[NodeId, ...], identity: int, sides: Sides
    ) -> None:
        """A configuration begins."""
        if self.passages:
            self._delivered += self.passages[-1].count
        passage = Passage(cid, members, identity, sides, self._delivered)
        self.passages.append(passage)
        self._full.append(passage)
        if len(self.passages) > MOST_PASSAGES:
            self._forget_passage()

    def add(self, place: int, cast: Cast) -> None:
        """An event is delivered."""
        passage = self.passages[-1]
        passage.events.append((place, cast))
        passage.count += 1
        self.size += cast.size + EVENT_BYTES
        while self.size > self.limit:
            self._forget_event()

    def leave(self, seen: Vector, together: tuple[NodeId, ...]) -> None:
        """The configuration is over, and these go on together."""
        self.passages[-1].seen, self.passages[-1].together = seen, together

    def _forget_event(self) -> None:
        while not self._full[0].events:
            self._full.popleft()
        _, cast = self._full[0].events.popleft()
        self.size -= cast.size + EVENT_BYTES

    def _forget_passage(self) -> None:
        oldest = self.passages.popleft()
        self.floor = self.passages[0].cid.height
        if self._full[0] is oldest:
            self._full.popleft()
            self.size -= sum(cast.size + EVENT_BYTES for _, cast in oldest.events)

    # --- what others ask ---------------------------------------------------------------------

    def before(self, view: ConfigurationId) -> list[Passage] | None:
        """Those before this one; None: we do not know that we were in it."""
        found: list[Passage] = []
        for passage in self.passages:
            if passage.cid == view:
                return found
            found.append(passage)
        return None

    def find(self, view: ConfigurationId) -> Passage | None:
        return next((passage for passage in self.passages if passage.cid == view), None)

    def refuse(self, sender: NodeId, ask: Recall) -> None:
        """A member that was not in a view has nothing to ask about it."""
        view = self.find(ask.view)
        if view is not None and sender not in view.members:
            raise PeerError(f"{sender} asks about the view {ask.view}, which it was not in")
        for one in ask.have:
            passage = self.find(one.cid)
            if passage is not None and len(passage.members) != len(one.vector):
                raise PeerError(f"{sender} was in {one.cid} with other members")

    def recall(self, ask: Recall) -> Recalled:
        """The next part of what the sender of this lacks."""
        passages = self.before(ask.view)
        if passages is None:
            return Recalled(ask.group, ask.view, ask.since, ask.after, "unknown")
        reaches_back = True
        if ask.since is not None:
            begin = [place for place, one in enumerate(passages) if one.cid == ask.since]
            if begin:
                passages = passages[begin[0] :]
            elif ask.since.height >= self.floor:
                return Recalled(ask.group, ask.view, ask.since, ask.after, "never")
            else:
                reaches_back = False
        else:
            known = [one for one in passages if one.cid.height >= ask.floor]
            reaches_back = not self.floor and len(known) == len(passages)
            passages = known
        return _recalled(ask, passages, reaches_back)


def _recalled(ask: Recall, passages: list[Passage], reaches_back: bool) -> Recalled:
    have = {one.cid: one.vector for one in ask.have}
    events: list[PastEvent] = []
    size = needed = 0
    for passage in passages:
        seen = have.get(passage.cid, (0,) * len(passage.members))
        needed += sum(max(0, done - had) for done, had in zip(passage.seen, seen, strict=True))
        if passage.start + passage.count <= ask.after:
            continue
        for number, place, cast in passage.retained():
            if number < ask.after or cast.seq <= seen[place]:
                continue
            if events and size + cast.size + EVENT_BYTES > PART_BYTES:
                part = tuple(events)
                return Recalled(ask.group, ask.view, ask.since, ask.after, "more", part, number)
            size += cast.size + EVENT_BYTES
            events.append(_past_event(passage, place, cast))
    alike: list[NodeId] = []
    if reaches_back and passages:
        alike = [
            node for node in passages[0].together if all(node in each.together for each in passages)
        ]
    return Recalled(
        ask.group,
        ask.view,
        ask.since,
        ask.after,
        "end",
        tuple(events),
        needed=needed,
        passed=tuple(Seen(one.cid, one.seen) for one in passages),
        alike=tuple(alike),
        reaches_back=reaches_back,
    )


def _past_event(passage: Passage, place: int, cast: Cast) -> PastEvent:
    origin = passage.members[place]
    return PastEvent(
        cast.cid, origin, cast.height, cast.number, cast.service, cast.payloads, cast.size
    )
