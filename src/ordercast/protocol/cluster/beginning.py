"""Who may begin a cluster: which members are joining too, and whether they are enough.

A newcomer that nobody answers is cut off, or there is no cluster yet. Patience cannot tell these
apart; other newcomers can. A member that asks where the cluster is says with it that it knows of
none, and names others that asked it lately. So a few rounds show a member who else is joining, in
large groups too.

  given    The cluster is there from the beginning, made of first incarnations. Only a simulation
           can start so: nobody else need be there.
  closed   A majority of those that may update is joining: the named updaters, or all members
           where tickets change hands. Then no cluster runs, but for members that are cut off and
           fewer. An only updater begins by itself: what others could have is its own.
  open     Nobody lists members. One that may found by itself does so at once. Those that may found
           together, because a number is expected (kernel/founding.py), favour one of them, the
           first by name that they hear of; one that lost its folder comes after all others. When
           enough of them favour it, it asks them to choose it (choosing.py), and begins when they
           have. A member that favours one favours no other until that one favours another
           itself, is replaced by its next incarnation, or is silent for long.
           Favours only decide who asks: two that ask at once are not both chosen. Members that
           were in the cluster before are another matter (returning.py).

What is known of others is forgotten after a while, or a newcomer that hears but is not heard would
count all that ever restart.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ordercast.kernel.family import FoundingRule
from ordercast.kernel.founding import founders_of, lacking, suffices, too_few
from ordercast.protocol.cluster.choosing import Election
from ordercast.protocol.cluster.packets import MOST_JOINING, Ask, Promise
from ordercast.types import NodeId

BINDING = 3
"""How many times longer than it counts a vote binds who gave it."""
ASKED_IN_TURN = 4
"""Others that one that may be favoured asks in a round: they must hear that it is there."""
MOST_NEWCOMERS = 1024
"""Newcomers that one remembers: a peer may invent names."""
MOST_WAITED_FOR = 16
"""Names of members that we wait for, as the application is notified of them."""


class Beginning(Protocol):
    """Whether a newcomer that nobody answers may begin the cluster."""

    def heard(self, sender: NodeId, ask: Ask) -> None:
        """Another newcomer asked us."""

    def round(self) -> None:
        """Called once a round."""

    def stalled(self) -> None:
        """We did not run for a while: what we know of others is old."""

    def may_begin(self) -> bool: ...

    def question(self, group: str, state: bool) -> Ask:
        """What we ask others, and tell them with it."""

    def favourite(self) -> tuple[str, ...]:
        """Who else is asked in this round: whom we favour, or who may favour us."""

    def waits_for(self) -> tuple[tuple[str, ...], str]:
        """For whom we wait, and why, in a sentence."""


class Given:
    """There is nothing to wait for."""

    def heard(self, sender: NodeId, ask: Ask) -> None:
        pass

    def round(self) -> None:
        pass

    def stalled(self) -> None:
        pass

    def may_begin(self) -> bool:
        return True

    def question(self, group: str, state: bool) -> Ask:
        return Ask(group, state)

    def favourite(self) -> tuple[str, ...]:
        return ()

    def waits_for(self) -> tuple[tuple[str, ...], str]:
        return (), ""


class Recently:
    """Names, each until it has not been added again for so many rounds."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self._now = 0
        self._added: dict[str, int] = {}  # in which round; the earliest first

    def add(self, name: str) -> None:
        self._added.pop(name, None)
        self._added[name] = self._now

    def round(self) -> None:
        self._now += 1
        while self._added:
            name, added = next(iter(self._added.items()))
            if added > self._now - self._rounds:
                break
            del self._added[name]

    def names(self) -> list[str]:
        """The latest last."""
        return list(self._added)


class Majority:
    """Of listed names."""

    def __init__(self, me: str, listed: tuple[str, ...], rounds: int) -> None:
        """`rounds`: for how long a member that asked counts as joining."""
        self._listed = frozenset(listed)
        self._ours = self._listed & {me}
        self._asked = Recently(rounds)  # these asked us, and are named to others
        self._known = Recently(rounds)  # and those that they named

    def heard(self, sender: NodeId, ask: Ask) -> None:
        if sender.name in self._listed:
            self._asked.add(sender.name)
        for name in (sender.name, *ask.joining):
            if name in self._listed:
                self._known.add(name)

    def round(self) -> None:
        self._asked.round()
        self._known.round()

    def stalled(self) -> None:
        pass

    def _joining(self) -> frozenset[str]:
        return self._ours.union(self._known.names())

    def may_begin(self) -> bool:
        return 2 * len(self._joining()) > len(self._listed)

    def question(self, group: str, state: bool) -> Ask:
        return Ask(group, state, tuple(self._asked.names()[-MOST_JOINING:]))

    def favourite(self) -> tuple[str, ...]:
        return ()

    def waits_for(self) -> tuple[tuple[str, ...], str]:
        joining = self._joining()
        missing = sorted(self._listed - joining)[:MOST_WAITED_FOR]
        return tuple(missing), (
            f"no member answers, and of {len(self._listed)} that may update only {len(joining)} "
            f"start: {len(self._listed) // 2 + 1} are needed to begin"
        )


class _Newcomer(NamedTuple):
    """What another one said last, and when."""

    node: NodeId
    favours: NodeId | None
    entry: (
        FoundingRule  # with how many it would found the group, and whether it may have been in it
    )
    promise: Promise | None
    at: int  # round of ours


class Votes:
    """Of those that may found an open group together, or wait for those that may."""

    def __init__(self, me: NodeId, entry: FoundingRule, patience: int, choice: Election) -> None:
        """`patience`: rounds for which a vote counts."""
        self._me = me
        self._entry = entry
        self._choice = choice
        self._patience = patience
        self._rounds = BINDING * patience
        self._now = 0
        self._newcomers: dict[str, _Newcomer] = {}  # by name, who spoke last comes last
        self.favours: NodeId | None = me if entry.expect else None
        self._favoured_at = 0  # the round in which it spoke last, or became our favourite

    def heard(self, sender: NodeId, ask: Ask) -> None:
        known = self._newcomers.pop(sender.name, None)
        if known is not None and known.node.incarnation > sender.incarnation:
            self._newcomers[sender.name] = known
            return
        entry = FoundingRule(expect=ask.expect, of=ask.of, lost=ask.lost)
        newcomer = _Newcomer(sender, ask.favours, entry, ask.promise, self._now)
        self._newcomers[sender.name] = newcomer
        if len(self._newcomers) > MOST_NEWCOMERS:
            del self._newcomers[next(iter(self._newcomers))]
        if self.favours is None:
            return
        if ask.promise is not None and self._is_alike(newcomer):
            self._choice.heard(ask.promise)
        if sender.name == self.favours.name:
            self._favoured_at = self._now
            if sender != self.favours:
                self.favours = self._me  # it restarted, and knows of no votes
            elif ask.favours is not None and ask.favours != sender:
                self._favour(ask.favours)
        is_before = (ask.lost, sender.name) < (self._entry.lost, self._me.name)
        if self.favours == self._me and is_before and self._is_alike(newcomer):
            self._favour(sender)

    def _favour(self, node: NodeId) -> None:
        if node.name != self._me.name or node == self._me:
            self.favours, self._favoured_at = node, self._now

    def _is_alike(self, other: _Newcomer) -> bool:
        """Whether it may found the group with us."""
        return other.favours is not None and other.entry.expect == self._entry.expect

    def round(self) -> None:
        self._now += 1
        while self._newcomers:
            name, newcomer = next(iter(self._newcomers.items()))
            if newcomer.at > self._now - self._rounds:
                break
            del self._newcomers[name]
        if self.favours is not None and self._favoured_at <= self._now - self._rounds:
            self.favours, self._favoured_at = self._me, self._now
        if self.favours == self._me and self._is_enough(self._supporters()):
            self._choice.lead(self._promises(), self._is_enough, accept=self._now >= self._patience)

    def stalled(self) -> None:
        """The votes may have gone to another."""
        self._newcomers.clear()

    def _supporters(self) -> list[str]:
        since = self._now - self._patience
        them = self._newcomers.items()
        return [name for name, one in them if one.favours == self._me and one.at > since]

    def _promises(self) -> dict[str, Promise]:
        them = self._newcomers.items()
        return {name: one.promise for name, one in them if one.promise is not None}

    def _is_enough(self, others: list[str]) -> bool:
        them = (self._newcomers[name] for name in others)
        entries = {one.node.name: one.entry for one in them if self._is_alike(one)}
        entries[self._me.name] = self._entry
        lost = [name for name, entry in entries.items() if entry.lost]
        return self._me.name in founders_of(
            entries, lambda one, some: suffices(entries[one], some, lost)
        )

    def may_begin(self) -> bool:
        return self._entry.founds or self._choice.is_ours(self._promises(), self._is_enough)

    def question(self, group: str, state: bool) -> Ask:
        promise, entry = self._choice.promise, self._entry
        return Ask(group, state, (), self.favours, entry.expect, (), promise, entry.of, entry.lost)

    def favourite(self) -> tuple[str, ...]:
        if self.favours is None:
            return ()
        chosen = (self._choice.chosen,) if self._choice.chosen not in ("", self._me.name) else ()
        if self.favours != self._me:
            return (self.favours.name, *chosen)
        names = list(self._newcomers)
        first = self._now * ASKED_IN_TURN % max(1, len(names))
        return (*names[first : first + ASKED_IN_TURN], *chosen)

    def waits_for(self) -> tuple[tuple[str, ...], str]:
        entry, here = self._entry, tuple(sorted(self._newcomers))[:MOST_WAITED_FOR]
        chosen = self._choice.chosen
        if chosen not in ("", self._me.name):
            silent = "" if chosen in self._newcomers else ", and does not answer"
            return (chosen,), f"{chosen} was chosen to begin the group{silent}"
        if entry.expect:
            equal = [one for one in self._newcomers.values() if self._is_alike(one)]
            names = [self._me.name, *(one.node.name for one in equal)]
            lost = [one.node.name for one in equal if one.entry.lost]
            lost += [self._me.name] if entry.lost else []
            if len(names) >= entry.expect and not suffices(entry, names, lost):
                return here, f"nobody here is in the group: {lacking(entry, names, lost)}"
            return (), too_few(entry.expect, names)
        if entry.lost:
            return here, f"nobody here is in the group: {lacking(entry, here)}"
        if entry.founder:
            return (entry.founder,), f"{entry.founder} founds the group, and does not answer"
        if here:
            return here, (
                "nobody known here is in the group: give one of these nodes no seeds, name a "
                "founder, or expect a number"
            )
        return (), "no member of the group is known"
