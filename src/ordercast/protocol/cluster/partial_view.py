"""Which members gossip is sent to: all, or a few that change at random.

`Sampler` is what the rest of a cluster sees of it, `Roster` what members send each other for it.
`Everybody` knows all names and sends nothing. `Lpbcast` knows a bounded part, its view, and lets
knowledge of members travel with the gossip (Eugster, Guerraoui, Handurukande, Kouznetsov and
Kermarrec: Lightweight probabilistic broadcast, 2003).

Rules.
 1. Every gossip message names its sender, some members worth knowing (paper: subs) and members that
    left (unsubs). The receiver adds those that it does not know to its view. From a view that is
    too long random members are evicted, and these are named to others next. Where too many are to
    be named, the youngest are: names that only copies keep alive would crowd out others.
 2. A name travels with an age: how many rounds ago the member itself last sent. Ages grow by one a
    round wherever they are stored, and by one on the way, or names that are always underway would
    stay young. An older age never replaces a younger one. No message comes from a crashed member,
    so what is older than `expiry` is dropped: a crashed member is forgotten everywhere after that
    many rounds, though no datagram is ever answered, if none takes longer than a round. Not in
    the paper.
 3. A member that left is remembered for longer than its name can travel, so its name does not bring
    it back (of more than forty that left within that time, the first may return for the rest of
    it). This is about one incarnation: the next incarnation of a name is welcome.
 4. Three failed sends to a member, with no younger age of it in between, evict it. Only an age that
    is younger than the last failure brings it back.
 5. Contacts are never forgotten. A member that hears nothing subscribes again. Once in a while each
    member greets a contact that is not in its view: so halves that forgot each other meet again.

What it does not do: it does not promise that all know of a member at one time, and it believes
what members send. A liar can keep a dead name alive; it cannot make a buffer grow.

Ours, not the paper's: a gossip message that has room names members of the view too, so that in a
small group, where no member is evicted, ages stay young. And naming the youngest: with 300 members
and views of 20, by how many a member is known deviates by 23% from the mean, by 48% where chance
chooses. The paper's choice by frequency gained nothing on top of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from random import Random
from typing import Annotated, Protocol, TypeAlias

from msgspec import Meta

from ordercast.errors import PeerError
from ordercast.kernel.packet import Value
from ordercast.types import NodeId

MOST_NAMED = 40
"""Members in one list of a roster. With names of a hundred letters both lists take 9 KB."""
OLDEST = 1 << 20
FAILURES = 3
"""Failed sends in a row after which a member is taken for dead."""

Age = Annotated[int, Meta(ge=0, le=OLDEST)]


class Kind(IntEnum):
    """What a roster is about."""

    GOSSIP = 0  # goes with a gossip message
    SHUFFLE = 1  # half of an exchange
    ANSWER = 2  # the other half
    SUBSCRIBE = 3  # its sender wants to be known
    WALK = 4  # a member wants to be known; the age counts how often it was passed on
    WELCOME = 5  # names for a member that subscribed
    FAREWELL = 6  # its sender leaves


class Roster(Value, frozen=True):
    """What members send each other about who is there."""

    kind: Annotated[int, Meta(ge=0, le=int(max(Kind)))]
    here: Annotated[list[tuple[NodeId, Age]], Meta(max_length=MOST_NAMED)]  # ages in rounds
    gone: Annotated[list[tuple[NodeId, Age]], Meta(max_length=MOST_NAMED)]  # that left


Letter: TypeAlias = tuple[str, Roster]
"""To whom, by name, and what."""


class Sampler(Protocol):
    """Knows to whom gossip can be sent."""

    def start(self) -> list[Letter]:
        """What is sent first."""

    def round(self) -> list[Letter]:
        """Called once a round, before `sample` and `piggyback`."""

    def sample(self, count: int) -> tuple[str, ...]:
        """Up to so many different names, never ours, chosen by chance."""

    def piggyback(self) -> Roster | None:
        """What goes with the gossip of this round; if there is one, gossip goes in every round."""

    def receive(self, sender: NodeId, roster: Roster) -> list[Letter]:
        """A roster came. PeerError, before anything changed, if it breaks the rules."""

    def heard(self, sender: NodeId) -> None:
        """Any packet came from this member."""

    def failed(self, name: str) -> None:
        """A send to this name was not answered."""

    def leave(self) -> list[Letter]:
        """We leave: what is sent last."""

    def known(self) -> tuple[str, ...]:
        """The members that we know, sorted: for people and tests."""


class Everybody:
    """Full knowledge of a list that does not change."""

    __slots__ = ("_chance", "_me", "_names")

    def __init__(self, me: NodeId, names: Iterable[str], chance: Random) -> None:
        self._me = me.name
        # The tuple itself, ourselves included: in a simulated group of thousands it is shared.
        self._names = names if isinstance(names, tuple) else tuple(sorted({*names}))
        self._chance = chance

    def start(self) -> list[Letter]:
        return []

    def round(self) -> list[Letter]:
        return []

    def sample(self, count: int) -> tuple[str, ...]:
        chosen = self._chance.sample(self._names, min(count + 1, len(self._names)))
        return tuple([name for name in chosen if name != self._me][:count])

    def piggyback(self) -> Roster | None:
        return None

    def receive(self, sender: NodeId, roster: Roster) -> list[Letter]:
        raise PeerError(f"{sender} sent a roster, but here every member knows all others")

    def heard(self, sender: NodeId) -> None:
        pass

    def failed(self, name: str) -> None:
        pass

    def leave(self) -> list[Letter]:
        return []

    def known(self) -> tuple[str, ...]:
        return tuple(name for name in self._names if name != self._me)


def check_roster(me: NodeId, sender: NodeId, roster: Roster, kinds: Sequence[Kind]) -> Kind:
    """PeerError if a roster breaks the rules; bytes were checked by the codec, values were not."""
    if sender.name == me.name:
        raise PeerError(f"{sender} bears our name")
    if roster.kind not in kinds:
        raise PeerError(f"{sender} sent a roster of kind {roster.kind}, which is not used here")
    kind = Kind(roster.kind)
    for listed in (roster.here, roster.gone):
        if len(listed) > MOST_NAMED:
            raise PeerError(f"{sender} names {len(listed)} members; {MOST_NAMED} are the most")
        for _, age in listed:
            if not 0 <= age <= OLDEST:
                raise PeerError(f"{sender} sent an age that no member has")
    if kind in (Kind.GOSSIP, Kind.ANSWER, Kind.WELCOME):
        return kind
    here = [node for node, _ in roster.here]
    if kind is Kind.SUBSCRIBE and here != [sender]:
        raise PeerError(f"{sender} subscribes for another member")
    if kind is Kind.SHUFFLE and sender not in here:
        raise PeerError(f"{sender} shuffles without naming itself")
    if kind is Kind.WALK and len(here) != 1:
        raise PeerError(f"{sender} passes on {len(here)} subscriptions in one")
    if kind is Kind.FAREWELL and (here or [node for node, _ in roster.gone] != [sender]):
        raise PeerError(f"{sender} says farewell for another member")
    return kind


class Incarnations:
    """One incarnation a name, each with the round, of our own, in which it last sent itself.

    That round instead of an age, because it need not be counted up. It may lie before our first.
    """

    __slots__ = ("_spoke",)

    def __init__(self) -> None:
        self._spoke: dict[str, tuple[NodeId, int]] = {}

    def learn(self, node: NodeId, spoke: int) -> bool:
        """Records when a member sent, if that is later than what is known. True: a new name."""
        known = self._spoke.get(node.name)
        if known is None or (node.incarnation, spoke) > (known[0].incarnation, known[1]):
            self._spoke[node.name] = (node, spoke)
        return known is None

    def get(self, name: str) -> tuple[NodeId, int] | None:
        return self._spoke.get(name)

    def pop(self, name: str) -> tuple[NodeId, int] | None:
        return self._spoke.pop(name, None)

    def expire(self, before: int) -> None:
        """Drops all members that did not send since."""
        for name in [name for name, (_, spoke) in self._spoke.items() if spoke < before]:
            del self._spoke[name]

    def oldest_of(self, names: Iterable[str]) -> list[str]:
        """These names, the longest silent first; equals as they come."""
        return sorted(names, key=lambda name: self._spoke[name][1])

    def names(self) -> list[str]:
        return list(self._spoke)

    def aged(self, now: int, names: Iterable[str] | None = None) -> list[tuple[NodeId, int]]:
        """These members, or all, with their ages."""
        wanted = self._spoke.values() if names is None else [self._spoke[name] for name in names]
        return [(node, now - spoke) for node, spoke in wanted]

    def __contains__(self, name: str) -> bool:
        return name in self._spoke

    def __len__(self) -> int:
        return len(self._spoke)


class Absent:
    """Members not to take back: those that left (rule 3), and those that failed (rule 4)."""

    __slots__ = ("_capacity", "_failed", "left")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.left = Incarnations()
        self._failed: dict[str, tuple[NodeId, int, int]] = {}  # incarnation, last failure, how many

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
        self.left.expire(before)
        for name in [name for name, (_, last, _) in self._failed.items() if last < before]:
            del self._failed[name]


class Contacts:
    """The names that a member was given, which it never forgets, and when to turn to them."""

    __slots__ = ("_chance", "_greeting", "_patience", "_silent", "names")

    def __init__(
        self, me: NodeId, names: Iterable[str], chance: Random, patience: int, greeting: int
    ) -> None:
        assert patience > 0 and greeting > 0, "rounds to wait"
        self.names = tuple(sorted({*names} - {me.name}))
        self._chance = chance
        self._patience = patience
        self._greeting = greeting
        self._silent = 0  # rounds since we heard anybody

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


class Lpbcast:
    """A bounded view, which changes with every gossip message that comes."""

    __slots__ = (
        "_absent",
        "_advertised",
        "_chance",
        "_contacts",
        "_expiry",
        "_me",
        "_named",
        "_now",
        "_view",
        "_view_size",
    )

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
        assert view_size > 0 and 0 < named < MOST_NAMED and 0 < expiry < OLDEST
        self._me = me
        self._chance = chance
        self._view_size = view_size
        self._named = named
        self._expiry = expiry
        self._contacts = Contacts(me, contacts, chance, patience, greeting)
        self._view = Incarnations()
        self._advertised = Incarnations()  # paper: subs; new to us, or evicted
        self._absent = Absent(MOST_NAMED)  # paper: unsubs
        self._now = 0  # own rounds

    def start(self) -> list[Letter]:
        return self._subscribe(self._contacts.choose())

    def round(self) -> list[Letter]:
        self._now += 1
        self._view.expire(self._now - self._expiry)
        self._advertised.expire(self._now - self._expiry)
        # Longer than any age of it is stored, or the last one would bring it back. Twice, because
        # this news may have come a longer way than the age.
        self._absent.expire(self._now - 2 * self._expiry)
        turned_to = self._contacts.silence(self._view) or self._contacts.strangers(self._view)
        return self._subscribe(turned_to)

    def sample(self, count: int) -> tuple[str, ...]:
        # A member that knows no other tries its contacts: gossip may be the first that they hear.
        names: Sequence[str] = self._view.names() or self._contacts.names
        return tuple(self._chance.sample(names, min(count, len(names))))

    def piggyback(self) -> Roster | None:
        here = self._advertised.aged(self._now)
        spare = [name for name in self._view.names() if name not in self._advertised]
        room = min(self._named - len(here), len(spare))
        if room > 0:
            here += self._view.aged(self._now, self._chance.sample(spare, room))
        return Roster(Kind.GOSSIP, [(self._me, 0), *here], self._absent.left.aged(self._now))

    def receive(self, sender: NodeId, roster: Roster) -> list[Letter]:
        kinds = (Kind.GOSSIP, Kind.SUBSCRIBE, Kind.WELCOME, Kind.FAREWELL)
        kind = check_roster(self._me, sender, roster, kinds)
        self.heard(sender)
        for node, age in roster.gone:
            self._depart(node, self._now - age - 1)
        for node, age in roster.here:
            self._learn(node, self._now - age - 1)
        self._shrink()
        return self._welcome(sender) if kind is Kind.SUBSCRIBE else []

    def heard(self, sender: NodeId) -> None:
        self._contacts.heard()
        self._absent.answers(sender)
        # To be heard is to speak for oneself; but being heard is no reason to be known.
        if sender.name in self._view:
            self._learn(sender, self._now - 1)

    def failed(self, name: str) -> None:
        known = self._view.get(name)
        if known is not None and self._absent.fails(known[0], self._now):
            self._view.pop(name)
            self._advertised.pop(name)

    def leave(self) -> list[Letter]:
        farewell = Roster(Kind.FAREWELL, [], [(self._me, 0)])
        return [(name, farewell) for name in self.sample(MOST_NAMED)]

    def known(self) -> tuple[str, ...]:
        return tuple(sorted(self._view.names()))

    def _subscribe(self, names: list[str]) -> list[Letter]:
        return [(name, Roster(Kind.SUBSCRIBE, [(self._me, 0)], [])) for name in names]

    def _welcome(self, sender: NodeId) -> list[Letter]:
        names = [name for name in self._view.names() if name != sender.name]
        chosen = self._chance.sample(names, min(self._named, len(names)))
        here = self._view.aged(self._now, chosen)
        # A contact of many that named itself to each of them would soon be in all views.
        if len(self._view) < self._view_size:
            here.append((self._me, 0))
        return [(sender.name, Roster(Kind.WELCOME, here, self._absent.left.aged(self._now)))]

    def _depart(self, node: NodeId, since: int) -> None:
        if node.name == self._me.name or since < self._now - 2 * self._expiry:
            return
        self._absent.leaves(node, since)
        for known_nodes in (self._view, self._advertised):
            known = known_nodes.get(node.name)
            if known is not None and known[0].incarnation <= node.incarnation:
                known_nodes.pop(node.name)

    def _learn(self, node: NodeId, spoke: int) -> None:
        if node.name == self._me.name or spoke < self._now - self._expiry:
            return
        if self._absent.refuses(node, spoke):
            return
        if self._view.learn(node, spoke) or node.name in self._advertised:
            self._advertised.learn(node, spoke)

    def _shrink(self) -> None:
        """Back to the limits. Members that the view loses are named to others (rule 1)."""
        names = self._view.names()
        for name in self._chance.sample(names, max(0, len(names) - self._view_size)):
            evicted = self._view.pop(name)
            assert evicted is not None
            self._advertised.learn(*evicted)
        excess = len(self._advertised) - self._named
        if excess > 0:
            names = self._advertised.names()
            self._chance.shuffle(names)  # so that chance decides between equals
            for name in self._advertised.oldest_of(names)[:excess]:
                self._advertised.pop(name)
