"""Whom gossip is sent to: everybody, or a few whom chance keeps changing.

`Sampler` is what the rest of a cluster knows of it, `Roster` what members tell each other for it.
`Everybody` knows all names and says nothing. `Lpbcast` knows a bounded part, its view, and lets
knowledge of members travel with the gossip (Eugster, Guerraoui, Handurukande, Kouznetsov and
Kermarrec: Lightweight probabilistic broadcast, 2003).

Rules.
 1. Every gossip message names its sender, some members worth knowing (paper: subs) and who left
    (unsubs). Who receives it takes those he does not know into his view. Where the view is too
    long, chance takes out as many, and these are named to others next. Where too many are to be
    named, the youngest are: names that only copies keep alive would crowd out others.
 2. A name travels with an age: how many rounds ago its bearer last spoke for himself. Ages grow
    by one a round wherever they are kept, and by one on the way, or words that are always underway
    would stay young. An older one never replaces a younger one. Nobody speaks for the dead, so
    what is older than `expiry` is dropped: a crashed member is forgotten everywhere after that
    many rounds, though no datagram is ever answered, if none takes longer than a round. Not in
    the paper.
 3. Who left is remembered for longer than any word of him can be: a name that still travels does
    not bring him back (of more than forty who left within that time, the first may return for what
    is left of it). What leaves and comes is a life, so the next life of a name is welcome.
 4. Three failed sends to a member, with no younger word of him in between, take him out. Only a
    word that is younger than the last failure brings him back.
 5. Contacts are never forgotten. Who hears nothing subscribes again. And once in a while everybody
    greets a contact that is not in his view: so two halves that forgot each other meet again.

What it does not do: it does not promise that all know of a member at one time, and it believes
what members say. A liar can keep a dead name alive; he cannot make a buffer grow.

Ours, not the paper's: a gossip message that has room names members of the view too, so that in a
small group, where nobody is evicted, ages stay young. And naming the youngest: with 300 members
and views of 20, by how many a member is known deviates by 23% from the mean, by 48% where chance
chooses. The paper's choice by frequency gained nothing on top of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from random import Random
from typing import Annotated, Protocol, TypeAlias

import msgspec
from msgspec import Meta

from ordercast.errors import PeerError
from ordercast.types import NodeId

MOST_NAMED = 40
"""Lives in one list of a roster. With names of a hundred letters both lists take 9 KB."""
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
    WALK = 4  # somebody wants to be known; the age counts how often it was passed on
    WELCOME = 5  # names for who subscribed
    FAREWELL = 6  # its sender leaves


class Roster(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """What members tell each other about who is there."""

    kind: Annotated[int, Meta(ge=0, le=int(max(Kind)))]
    here: Annotated[list[tuple[NodeId, Age]], Meta(max_length=MOST_NAMED)]  # ages in rounds
    gone: Annotated[list[tuple[NodeId, Age]], Meta(max_length=MOST_NAMED)]  # lives that left


Letter: TypeAlias = tuple[str, Roster]
"""To whom, by name, and what."""


class Sampler(Protocol):
    """Knows to whom gossip can be sent."""

    def start(self) -> list[Letter]:
        """What is said at first."""

    def round(self) -> list[Letter]:
        """Called once a round, before `sample` and `piggyback`."""

    def sample(self, count: int) -> tuple[str, ...]:
        """Up to so many different names, never ours, chosen by chance."""

    def piggyback(self) -> Roster | None:
        """What goes with the gossip of this round; if there is one, gossip goes in every round."""

    def receive(self, sender: NodeId, roster: Roster) -> list[Letter]:
        """A roster came. PeerError, before anything changed: nobody sends such a one."""

    def heard(self, sender: NodeId) -> None:
        """Any packet came from this life."""

    def failed(self, name: str) -> None:
        """A send to this name was not answered."""

    def leave(self) -> list[Letter]:
        """We go: what is said at last."""

    def known(self) -> tuple[str, ...]:
        """Whom we know, sorted: for people and tests."""


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
        raise PeerError(f"{sender} tells of members where everybody knows all")

    def heard(self, sender: NodeId) -> None:
        pass

    def failed(self, name: str) -> None:
        pass

    def leave(self) -> list[Letter]:
        return []

    def known(self) -> tuple[str, ...]:
        return tuple(name for name in self._names if name != self._me)


def check_roster(me: NodeId, sender: NodeId, roster: Roster, kinds: Sequence[Kind]) -> Kind:
    """PeerError if nobody sends such a roster; bytes were checked by the codec, values were not."""
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
    here = [life for life, _ in roster.here]
    if kind is Kind.SUBSCRIBE and here != [sender]:
        raise PeerError(f"{sender} subscribes for somebody else")
    if kind is Kind.SHUFFLE and sender not in here:
        raise PeerError(f"{sender} shuffles without naming itself")
    if kind is Kind.WALK and len(here) != 1:
        raise PeerError(f"{sender} passes on {len(here)} subscriptions in one")
    if kind is Kind.FAREWELL and (here or [life for life, _ in roster.gone] != [sender]):
        raise PeerError(f"{sender} says farewell for somebody else")
    return kind


class Lives:
    """One life a name, each with the round, of our own, in which its bearer spoke for himself.

    That round instead of an age, because it need not be counted up. It may lie before our first.
    """

    __slots__ = ("_spoke",)

    def __init__(self) -> None:
        self._spoke: dict[str, tuple[NodeId, int]] = {}

    def admit(self, life: NodeId, spoke: int) -> bool:
        """Takes a word of a life, if it is later than what is known. True if the name is new."""
        known = self._spoke.get(life.name)
        if known is None or (life.incarnation, spoke) > (known[0].incarnation, known[1]):
            self._spoke[life.name] = (life, spoke)
        return known is None

    def get(self, name: str) -> tuple[NodeId, int] | None:
        return self._spoke.get(name)

    def pop(self, name: str) -> tuple[NodeId, int] | None:
        return self._spoke.pop(name, None)

    def expire(self, before: int) -> None:
        """Lets go of all who did not speak since."""
        for name in [name for name, (_, spoke) in self._spoke.items() if spoke < before]:
            del self._spoke[name]

    def oldest_of(self, names: Iterable[str]) -> list[str]:
        """These names, who did not speak for the longest first; equals as they come."""
        return sorted(names, key=lambda name: self._spoke[name][1])

    def names(self) -> list[str]:
        return list(self._spoke)

    def aged(self, now: int, names: Iterable[str] | None = None) -> list[tuple[NodeId, int]]:
        """These lives, or all, with their ages."""
        wanted = self._spoke.values() if names is None else [self._spoke[name] for name in names]
        return [(life, now - spoke) for life, spoke in wanted]

    def __contains__(self, name: str) -> bool:
        return name in self._spoke

    def __len__(self) -> int:
        return len(self._spoke)


class Absent:
    """Whom not to take back: lives that left (rule 3), and those that failed (rule 4)."""

    __slots__ = ("_capacity", "_failed", "left")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.left = Lives()
        self._failed: dict[str, tuple[NodeId, int, int]] = {}  # life, last failure, how many

    def refuses(self, life: NodeId, spoke: int) -> bool:
        """Whether this word of a life does not count. A later one than the failures ends them."""
        left = self.left.get(life.name)
        if left is not None and life.incarnation <= left[0].incarnation:
            return True
        failure = self._failed.get(life.name)
        if failure is None:
            return False
        if (life.incarnation, spoke) > (failure[0].incarnation, failure[1]):
            del self._failed[life.name]
            return False
        return failure[2] >= FAILURES

    def leaves(self, life: NodeId, since: int) -> None:
        self.left.admit(life, since)
        if len(self.left) > self._capacity:
            self.left.pop(self.left.oldest_of(self.left.names())[0])

    def fails(self, life: NodeId, now: int) -> bool:
        """Counts a failed send. True if the life is to be taken for dead."""
        _, _, before = self._failed.pop(life.name, (life, now, 0))
        self._failed[life.name] = (life, now, before + 1)
        if len(self._failed) > self._capacity:
            del self._failed[next(iter(self._failed))]
        return before + 1 >= FAILURES

    def answers(self, life: NodeId) -> None:
        self._failed.pop(life.name, None)

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

    def silence(self, view: Lives) -> list[str]:
        """Called once a round. Whom to subscribe to, because nobody has been heard for a while."""
        self._silent += 1
        # Who knows nobody has nothing to wait for but the answer.
        return [] if self._silent % (self._patience if view else 2) else self.choose()

    def strangers(self, view: Lives) -> list[str]:
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
        expiry: int = 20,  # rounds after which a member that nobody heard is forgotten
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
        self._view = Lives()
        self._advertised = Lives()  # paper: subs; who is new to us, and who was evicted
        self._absent = Absent(MOST_NAMED)  # paper: unsubs
        self._now = 0  # own rounds

    def start(self) -> list[Letter]:
        return self._subscribe(self._contacts.choose())

    def round(self) -> list[Letter]:
        self._now += 1
        self._view.expire(self._now - self._expiry)
        self._advertised.expire(self._now - self._expiry)
        # Longer than any word of a life is kept, or the last word would bring it back. Twice,
        # because this news may have come a longer way than the word.
        self._absent.expire(self._now - 2 * self._expiry)
        turned_to = self._contacts.silence(self._view) or self._contacts.strangers(self._view)
        return self._subscribe(turned_to)

    def sample(self, count: int) -> tuple[str, ...]:
        # Who knows nobody tries those he was told of: gossip may be the first word they hear.
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
        for life, age in roster.gone:
            self._depart(life, self._now - age - 1)
        for life, age in roster.here:
            self._admit(life, self._now - age - 1)
        self._shrink()
        return self._welcome(sender) if kind is Kind.SUBSCRIBE else []

    def heard(self, sender: NodeId) -> None:
        self._contacts.heard()
        self._absent.answers(sender)
        # To be heard is to speak for oneself; but being heard is no reason to be known.
        if sender.name in self._view:
            self._admit(sender, self._now - 1)

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

    def _depart(self, life: NodeId, since: int) -> None:
        if life.name == self._me.name or since < self._now - 2 * self._expiry:
            return
        self._absent.leaves(life, since)
        for lives in (self._view, self._advertised):
            known = lives.get(life.name)
            if known is not None and known[0].incarnation <= life.incarnation:
                lives.pop(life.name)

    def _admit(self, life: NodeId, spoke: int) -> None:
        if life.name == self._me.name or spoke < self._now - self._expiry:
            return
        if self._absent.refuses(life, spoke):
            return
        if self._view.admit(life, spoke) or life.name in self._advertised:
            self._advertised.admit(life, spoke)

    def _shrink(self) -> None:
        """Back to the limits. Whom the view loses is named to others (rule 1)."""
        names = self._view.names()
        for name in self._chance.sample(names, max(0, len(names) - self._view_size)):
            evicted = self._view.pop(name)
            assert evicted is not None
            self._advertised.admit(*evicted)
        excess = len(self._advertised) - self._named
        if excess > 0:
            names = self._advertised.names()
            self._chance.shuffle(names)  # so that chance decides between equals
            for name in self._advertised.oldest_of(names)[:excess]:
                self._advertised.pop(name)
