"""A partial view: the bounded part of a group that a member knows, and how names come and go.

What `Lpbcast` and `Cyclon` have in common. They differ in how names move between views.

Rules.
 1. A name travels with an age: how many rounds ago the member itself last sent. Ages grow by one a
    round wherever they are stored. A name older than `expiry` is dropped: no message comes from a
    crashed member, so it is forgotten everywhere.
 2. A member that left is remembered for longer than its name can travel, so its name does not bring
    it back (of more than forty that left within that time, the first may return for the rest of
    it). This is about one incarnation: the next incarnation of a name is welcome.
 3. Three failed sends to a member, with no younger age of it in between, evict it. Only an age that
    is younger than the last failure brings it back.
 4. Contacts are never forgotten; where members are not listed contacts are learned, and the latest
    of them count. A member that hears nothing subscribes again. Once in a while each member greets
    a contact that is not in its view: so halves that forgot each other meet again.

What it does not do: it does not promise that all know of a member at one time, and it believes
what members send. A liar can keep a dead name alive; it cannot make a buffer grow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from ordercast.protocol.cluster.sampler import MOST_NAMED, OLDEST, Letter, Roster, RosterKind
from ordercast.types import NodeId

MOST_CONTACTS = 64
FAILURES = 3
"""Failed sends in a row after which a member is taken for dead."""


class Incarnations(dict[str, tuple[NodeId, int]]):
    """One incarnation a name, each with the round, of our own, in which it last sent itself.

    That round instead of an age, because it need not be counted up. It may lie before our first.
    A dict by name, because it is asked several times a packet.
    """

    __slots__ = ()

    def learn(self, node: NodeId, spoke: int) -> bool:
        """Records when a member sent, if that is later than what is known. True: a new name."""
        known = self.get(node.name)
        if known is None:
            self[node.name] = (node, spoke)
            return True
        if (node.incarnation, spoke) > (known[0].incarnation, known[1]):
            self[node.name] = (node, spoke)
        return False

    def expire(self, before: int) -> None:
        """Drops all members that did not send since."""
        for name in [name for name, (_, spoke) in self.items() if spoke < before]:
            del self[name]

    def oldest_of(self, names: Iterable[str]) -> list[str]:
        """These names, the longest silent first; equals as they come."""
        return sorted(names, key=lambda name: self[name][1])

    def oldest(self) -> str | None:
        """The first of those."""
        return min(self, key=lambda name: self[name][1], default=None)

    def names(self) -> list[str]:
        return list(self)

    def aged(self, now: int, names: Iterable[str] | None = None) -> list[tuple[NodeId, int]]:
        """These members, or all, with their ages."""
        wanted = self.values() if names is None else [self[name] for name in names]
        return [(node, now - spoke) for node, spoke in wanted]


class FormerMembers:
    """Members not to take back: those that left (rule 3), and those that failed (rule 4)."""

    __slots__ = ("_capacity", "_failed", "left")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.left = Incarnations()
        self._failed: dict[str, tuple[NodeId, int, int]] = {}  # incarnation, last failure, how many

    def __bool__(self) -> bool:
        return bool(self._failed) or bool(self.left)

    def refuses(self, node: NodeId, spoke: int) -> bool:
        """Whether this age of a member does not count. A later one than the failures ends them."""
        left = self.left.get(node.name)
        if left is not None and node.incarnation <= left[0].incarnation:
            return True
        failure = self._failed.get(node.name)
        if failure is None:
            return False
        if (node.incarnation, spoke) > (failure[0].incarnation, failure[1]):
            del self._failed[node.name]
            return False
        return failure[2] >= FAILURES

    def leaves(self, node: NodeId, since: int) -> None:
        self.left.learn(node, since)
        if len(self.left) > self._capacity:
            self.left.pop(self.left.oldest_of(self.left.names())[0])

    def fails(self, node: NodeId, now: int) -> bool:
        """Counts a failed send. True if the member is to be taken for dead."""
        _, _, before = self._failed.pop(node.name, (node, now, 0))
        self._failed[node.name] = (node, now, before + 1)
        if len(self._failed) > self._capacity:
            del self._failed[next(iter(self._failed))]
        return before + 1 >= FAILURES

    def answers(self, node: NodeId) -> None:
        self._failed.pop(node.name, None)

    def expire(self, before: int) -> None:
        if self.left:
            self.left.expire(before)
        for name in [name for name, (_, last, _) in self._failed.items() if last < before]:
            del self._failed[name]


class SeedContacts:
    """The names that a member was given, which it never forgets, and when to turn to them."""

    __slots__ = ("_chance", "_greeting", "_me", "_patience", "_silent", "names")

    def __init__(
        self, me: NodeId, names: Iterable[str], chance: Random, patience: int, greeting: int
    ) -> None:
        assert patience > 0 and greeting > 0, "rounds to wait"
        self._me = me.name
        self.names = tuple(sorted({*names} - {me.name}))
        self._chance = chance
        self._patience = patience
        self._greeting = greeting
        self._silent = 0  # rounds since we heard anybody

    def add(self, names: Iterable[str]) -> list[str]:
        """Those of them that are new."""
        new = [name for name in dict.fromkeys(names) if name not in self.names and name != self._me]
        self.names = (*self.names, *new)[-MOST_CONTACTS:]
        return new

    def heard(self) -> None:
        self._silent = 0

    def choose(self) -> list[str]:
        """One of them, by chance; none if there are none."""
        return [self._chance.choice(self.names)] if self.names else []

    def silence(self, view: Incarnations) -> list[str]:
        """Called once a round. A contact to subscribe to, after a while without any message."""
        self._silent += 1
        # A member that knows no other has nothing to wait for but the answer.
        return [] if self._silent % (self._patience if view else 2) else self.choose()

    def strangers(self, view: Incarnations) -> list[str]:
        """Called once a round. Now and then, a contact that is not in the view."""
        if self._chance.random() * self._greeting >= 1:
            return []
        unknown = [name for name in self.names if name not in view]
        return [self._chance.choice(unknown)] if unknown else []


class PartialView:
    __slots__ = ("_absent", "_chance", "_contacts", "_expiry", "_me", "_now", "_view", "_view_size")

    def __init__(
        self,
        me: NodeId,
        contacts: Iterable[str],
        chance: Random,
        view_size: int,
        *,
        expiry: int,  # rounds after which a silent member is forgotten
        patience: int,  # rounds of silence after which we subscribe again
        greeting: int,  # rounds, on average, between greetings to contacts not in the view
    ) -> None:
        assert view_size > 0 and 0 < expiry < OLDEST
        self._me = me
        self._chance = chance
        self._view_size = view_size
        self._expiry = expiry
        self._contacts = SeedContacts(me, contacts, chance, patience, greeting)
        self._view = Incarnations()
        self._absent = FormerMembers(MOST_NAMED)
        self._now = 0  # own rounds

    def start(self) -> list[Letter]:
        return self._subscribe(self._contacts.choose())

    def acquainted(self, names: Iterable[str]) -> list[Letter]:
        new = self._contacts.add(names)
        # One of them, though it may not answer: each may send a hundred messages to make us known,
        # and where many come at once all would turn to the first. Others get their turn soon.
        return self._subscribe([self._chance.choice(new)]) if new and not self._view else []

    def sample(self, count: int) -> tuple[str, ...]:
        # A member that knows no other tries its contacts: gossip may be the first that they hear.
        names: Sequence[str] = self._view.names() or self._contacts.names
        return tuple(self._chance.sample(names, min(count, len(names))))

    def failed(self, name: str) -> None:
        known = self._view.get(name)
        if known is not None and self._absent.fails(known[0], self._now):
            del self._view[name]

    def leave(self) -> list[Letter]:
        farewell = Roster(RosterKind.FAREWELL, [], [(self._me, 0)])
        return [(name, farewell) for name in self.sample(MOST_NAMED)]

    def known(self) -> tuple[str, ...]:
        return tuple(sorted(self._view.names()))

    def _subscribe(self, names: list[str]) -> list[Letter]:
        return [(name, Roster(RosterKind.SUBSCRIBE, [(self._me, 0)], [])) for name in names]

    def _roster(self, kind: RosterKind, here: list[tuple[NodeId, int]]) -> Roster:
        """With the members that left, which every roster names."""
        return Roster(kind, here, self._absent.left.aged(self._now))

    def _refuses(self, node: NodeId, spoke: int) -> bool:
        return (
            node.name == self._me.name
            or spoke < self._now - self._expiry
            or (bool(self._absent) and self._absent.refuses(node, spoke))
        )
