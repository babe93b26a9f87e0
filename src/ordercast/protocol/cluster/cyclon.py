"""Which members gossip is sent to, by exchange: each round two members swap a few that they know.

The algorithm is Cyclon (Voulgaris, Gavidia and van Steen: CYCLON: Inexpensive membership management
for unstructured P2P overlays, 2005).

Rules.
 1. A view holds names with ages. In each round all grow a round older; the oldest is taken out of
    the view and asked to shuffle. It is sent a few others by chance, and ourselves with age 0.
 2. The asked member answers with as many of its own. Both put what they received first where there
    is room and then in place of what they sent. So names move, they are not copied, and every
    member is known to about as many: each gives out its own name once a round, and one is used up.
 3. A member that does not answer is out of the view already. Only a member itself renews its name,
    so the dead become the oldest and are asked; what is older than `expiry` is dropped unasked.
 4. A member that subscribes is made known by random walks, one from each in the view of its
    contact, up to forty. Where a walk ends it takes the place of another, whose name it gets for
    its view.
 5. Members that left, failed sends, contacts and greetings are as in partial_view.py.
    In the paper a member that leaves just stops. A greeting is a shuffle: it favours none.

What it does not do: it sends nothing with the gossip itself, and needs none. It believes what
members send, as lpbcast does. A lost shuffle costs the asked member a place in one view, and that
is made up for where there is room: under heavy loss views are shorter than they may be.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from ordercast.protocol.cluster.partial_view import PartialView
from ordercast.protocol.cluster.sampler import MOST_NAMED, Letter, Roster, RosterKind, check_roster
from ordercast.types import NodeId

WALK = 5
"""How often a subscription is passed on. The paper: about as far as members are from each other."""
WALKS_FOR = 4
"""Subscriptions a round that walks are sent out for; what comes beyond is only answered."""
WAITING = 3
"""Rounds for which an answer is awaited."""
KINDS = (
    RosterKind.SHUFFLE,
    RosterKind.ANSWER,
    RosterKind.SUBSCRIBE,
    RosterKind.WALK,
    RosterKind.WELCOME,
    RosterKind.FAREWELL,
)


class Cyclon(PartialView):
    """A bounded view, of which each round exchanges a part with the oldest in it."""

    __slots__ = ("_asked", "_shuffle", "_walks_left")

    def __init__(
        self,
        me: NodeId,
        contacts: Iterable[str],
        chance: Random,
        view_size: int = 20,
        shuffle: int = 5,  # names that are exchanged, our own included
        *,
        expiry: int | None = None,  # rounds; None: three times the view
        patience: int = 5,  # rounds of silence after which we subscribe again
        greeting: int = 50,  # rounds, on average, between greetings to contacts not in the view
    ) -> None:
        super().__init__(
            me,
            contacts,
            chance,
            view_size,
            expiry=3 * view_size if expiry is None else expiry,
            patience=patience,
            greeting=greeting,
        )
        assert 0 < shuffle <= MOST_NAMED
        self._shuffle = min(shuffle, view_size)
        # By asked member: since when, what it was sent, how many places wait for the answer.
        self._asked: dict[str, tuple[int, list[str], int]] = {}
        self._walks_left = WALKS_FOR

    def round(self) -> list[Letter]:
        self._now += 1
        self._walks_left = WALKS_FOR
        self._view.expire(self._now - self._expiry)
        self._absent.expire(self._now - self._expiry - 1)
        for name in [name for name, (at, _, _) in self._asked.items() if at <= self._now - WAITING]:
            del self._asked[name]
        letters = self._subscribe(self._contacts.silence(self._view))
        oldest = self._view.oldest()
        if oldest is not None:
            del self._view[oldest]
            letters += self._ask(oldest, 1)
        for name in self._contacts.strangers(self._view):
            if name not in self._asked:
                letters += self._ask(name, 0)
        return letters

    def piggyback(self) -> Roster | None:
        return None

    def receive(self, sender: NodeId, roster: Roster) -> list[Letter]:
        kind = check_roster(self._me, sender, roster, KINDS)
        self.heard(sender)
        for node, age in roster.gone:
            self._depart(node, self._now - age - 1)
        if kind is RosterKind.SHUFFLE:
            return self._answer(sender, roster)
        if kind is RosterKind.ANSWER:
            # An answer that comes too late replaces nothing, but may find room.
            _, sent, _ = self._asked.pop(sender.name, (0, [], 0))
            self._take(roster.here, sent)
            if not self._full():  # a small group: a member that answered need not go
                self._learn(sender, self._now)
        elif kind is RosterKind.WELCOME:
            self._take(roster.here, [])
        elif kind is RosterKind.SUBSCRIBE:
            return self._welcome(sender)
        elif kind is RosterKind.WALK:
            return self._pass_on(*roster.here[0])
        return []

    def heard(self, sender: NodeId) -> None:
        self._contacts.heard()
        self._absent.answers(sender)
        known = self._view.get(sender.name)
        # Its age stays: it says when the name was given out, and the oldest is asked next. But
        # a member that knows no other takes any.
        if known is not None:
            if known[0] is not sender:  # else nothing is new about it
                self._learn(sender, known[1])
        elif not self._view:
            self._learn(sender, self._now)

    # --- shuffling ---------------------------------------------------------------------------

    def _ask(self, name: str, places: int) -> list[Letter]:
        sent = self._some(self._shuffle - 1, name)
        self._asked[name] = (self._now, sent, places)
        here = [(self._me, 0), *self._view.aged(self._now, sent)]
        return [(name, self._roster(RosterKind.SHUFFLE, here))]

    def _answer(self, sender: NodeId, roster: Roster) -> list[Letter]:
        sent = self._some(len(roster.here), sender.name)
        answer = self._roster(RosterKind.ANSWER, self._view.aged(self._now, sent))
        self._take(roster.here, sent)
        return [(sender.name, answer)]

    def _some(self, count: int, but: str) -> list[str]:
        """Up to so many names of the view by chance, and never more than we shuffle ourselves.

        Names sent to a member that has not answered come last. A name given away twice is copied,
        and another name finds no room: well-known members would become better known.
        """
        promised = {name for _, sent, _ in self._asked.values() for name in sent}
        names = [name for name in self._view.names() if name != but]
        free = [name for name in names if name not in promised]
        count = min(count, self._shuffle, len(names))
        some = self._chance.sample(free, min(count, len(free)))
        if len(some) < count:
            rest = [name for name in names if name in promised]
            some += self._chance.sample(rest, count - len(some))
        return some

    def _take(self, here: list[tuple[NodeId, int]], sent: list[str]) -> None:
        """Puts names into the view: first where there is room, then in place of what was sent."""
        view, now, limit = self._view, self._now, self._places()
        replaceable = [name for name in sent if name in view]
        for node, age in here:
            if node.name in view:
                self._learn(node, now - age)
            elif replaceable or len(view) < limit:
                given_up = view.pop(replaceable[-1]) if len(view) >= limit else None
                if self._learn(node, now - age):
                    if given_up is not None:
                        replaceable.pop()
                elif given_up is not None:
                    view.learn(*given_up)

    # --- coming and going --------------------------------------------------------------------

    def _welcome(self, sender: NodeId) -> list[Letter]:
        """Answers a subscription with a few names, and sends it on its walks."""
        some = self._view.aged(self._now, self._some(self._shuffle - 1, sender.name))
        if not self._full() or sender.name in self._view:
            # A small group, or a member that heard nothing for a while: we are enough.
            self._learn(sender, self._now)
            return [(sender.name, self._roster(RosterKind.WELCOME, [*some, (self._me, 0)]))]
        letters = [(sender.name, self._roster(RosterKind.WELCOME, some))]
        if self._walks_left:
            self._walks_left -= 1
            walk = Roster(RosterKind.WALK, [(sender, 1)], [])
            letters += [(name, walk) for name in self.sample(MOST_NAMED)]
        return letters

    def _pass_on(self, node: NodeId, passed: int) -> list[Letter]:
        """One step of a walk, or its end."""
        names = [name for name in self._view.names() if name != node.name]
        if passed < WALK and names:
            return [(self._chance.choice(names), Roster(RosterKind.WALK, [(node, passed + 1)], []))]
        given_up = []
        if node.name in self._view or self._refuses(node, self._now):
            return []
        if self._full() and names:
            name = self._chance.choice(names)
            given_up = self._view.aged(self._now, [name])
            del self._view[name]
        self._learn(node, self._now)
        return [(node.name, self._roster(RosterKind.WELCOME, given_up))] if given_up else []

    def _depart(self, node: NodeId, since: int) -> None:
        if node.name == self._me.name or since < self._now - self._expiry:
            return
        self._absent.leaves(node, since)
        known = self._view.get(node.name)
        if known is not None and known[0].incarnation <= node.incarnation:
            del self._view[node.name]

    # --- the view ----------------------------------------------------------------------------

    def _full(self) -> bool:
        """Whether there is no room."""
        return len(self._view) >= self._places()

    def _places(self) -> int:
        """How many the view may hold now. The places of asked members wait for their answers."""
        return self._view_size - sum([places for _, _, places in self._asked.values()])

    def _learn(self, node: NodeId, spoke: int) -> bool:
        """Takes a name in, or learns more of it. True if it is new in the view."""
        return not self._refuses(node, spoke) and self._view.learn(node, spoke)
