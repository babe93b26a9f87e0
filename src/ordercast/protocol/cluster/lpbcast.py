"""Which members gossip is sent to, by lpbcast: knowledge of members travels with the gossip.

The algorithm is that of Eugster, Guerraoui, Handurukande, Kouznetsov and Kermarrec: Lightweight
probabilistic broadcast, 2003.

Rules, beside those of partial_view.py.
 1. Every gossip message names its sender, some members worth knowing (paper: subs) and members that
    left (unsubs). The receiver adds those that it does not know to its view. From a view that is
    too long random members are evicted, and these are named to others next. Where too many are to
    be named, the youngest are: names that only copies keep alive would crowd out others.
 2. Ages grow by one on the way too, or names that are always underway would stay young. An older
    age never replaces a younger one. So a crashed member is forgotten everywhere after `expiry`
    rounds, though no datagram is ever answered, if none takes longer than a round. Not in the
    paper.

Ours, not the paper's: a gossip message that has room names members of the view too, so that in a
small group, where no member is evicted, ages stay young. And naming the youngest: with 300 members
and views of 20, by how many a member is known deviates by 23% from the mean, by 48% where chance
chooses. The paper's choice by frequency gained nothing on top of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from ordercast.protocol.cluster.partial_view import Incarnations, PartialView
from ordercast.protocol.cluster.sampler import MOST_NAMED, Letter, Roster, RosterKind, check_roster
from ordercast.types import NodeId


class Lpbcast(PartialView):
    """A bounded view, which changes with every gossip message that comes."""

    __slots__ = ("_advertised", "_named")

    def __init__(
        self,
        me: NodeId,
        contacts: Iterable[str],
        chance: Random,
        view_size: int = 20,
        *,
        named: int = 8,  # members that a gossip message names beside its sender; paper: |subs|
        expiry: int = 20,  # rounds after which a silent member is forgotten
        patience: int = 5,  # rounds of silence after which we subscribe again
        greeting: int = 50,  # rounds, on average, between greetings to contacts not in the view
    ) -> None:
        super().__init__(
            me, contacts, chance, view_size, expiry=expiry, patience=patience, greeting=greeting
        )
        assert 0 < named < MOST_NAMED
        self._named = named
        self._advertised = Incarnations()  # paper: subs; new to us, or evicted

    def round(self) -> list[Letter]:
        self._now += 1
        self._view.expire(self._now - self._expiry)
        self._advertised.expire(self._now - self._expiry)
        # Longer than any age of it is stored, or the last one would bring it back. Twice, because
        # this news may have come a longer way than the age.
        self._absent.expire(self._now - 2 * self._expiry)
        turned_to = self._contacts.silence(self._view) or self._contacts.strangers(self._view)
        return self._subscribe(turned_to)

    def piggyback(self) -> Roster | None:
        here = self._advertised.aged(self._now)
        spare = [name for name in self._view.names() if name not in self._advertised]
        room = min(self._named - len(here), len(spare))
        if room > 0:
            here += self._view.aged(self._now, self._chance.sample(spare, room))
        return self._roster(RosterKind.GOSSIP, [(self._me, 0), *here])

    def receive(self, sender: NodeId, roster: Roster) -> list[Letter]:
        kinds = (RosterKind.GOSSIP, RosterKind.SUBSCRIBE, RosterKind.WELCOME, RosterKind.FAREWELL)
        kind = check_roster(self._me, sender, roster, kinds)
        self.heard(sender)
        for node, age in roster.gone:
            self._depart(node, self._now - age - 1)
        for node, age in roster.here:
            self._learn(node, self._now - age - 1)
        self._shrink()
        return self._welcome(sender) if kind is RosterKind.SUBSCRIBE else []

    def heard(self, sender: NodeId) -> None:
        self._contacts.heard()
        self._absent.answers(sender)
        # To be heard is to speak for oneself; but being heard is no reason to be known.
        if sender.name in self._view:
            self._learn(sender, self._now - 1)

    def failed(self, name: str) -> None:
        was_known = name in self._view
        super().failed(name)
        if was_known and name not in self._view:
            self._advertised.pop(name, None)

    def _welcome(self, sender: NodeId) -> list[Letter]:
        names = [name for name in self._view.names() if name != sender.name]
        chosen = self._chance.sample(names, min(self._named, len(names)))
        here = self._view.aged(self._now, chosen)
        # A contact of many that named itself to each of them would soon be in all views.
        if len(self._view) < self._view_size:
            here.append((self._me, 0))
        return [(sender.name, self._roster(RosterKind.WELCOME, here))]

    def _depart(self, node: NodeId, since: int) -> None:
        if node.name == self._me.name or since < self._now - 2 * self._expiry:
            return
        self._absent.leaves(node, since)
        for known_nodes in (self._view, self._advertised):
            known = known_nodes.get(node.name)
            if known is not None and known[0].incarnation <= node.incarnation:
                known_nodes.pop(node.name)

    def _learn(self, node: NodeId, spoke: int) -> None:
        if self._refuses(node, spoke):
            return
        if self._view.learn(node, spoke) or node.name in self._advertised:
            self._advertised.learn(node, spoke)

    def _shrink(self) -> None:
        """Back to the limits. Members that the view loses are named to others (rule 1)."""
        names = self._view.names()
        for name in self._chance.sample(names, max(0, len(names) - self._view_size)):
            self._advertised.learn(*self._view.pop(name))
        excess = len(self._advertised) - self._named
        if excess > 0:
            names = self._advertised.names()
            self._chance.shuffle(names)  # so that chance decides between equals
            for name in self._advertised.oldest_of(names)[:excess]:
                self._advertised.pop(name)
