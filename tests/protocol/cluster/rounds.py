"""A tiny world of rounds for samplers: pure, seeded, with loss, lateness, crashes and cuts.

In a round every member does its own round and gossips; then what was sent arrives, answers
included, unless it is lost, late by a round, cut off, or for somebody who is not there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

from ordercast.protocol.cluster.sampler import Letter, Roster, Sampler
from ordercast.types import NodeId

Make = Callable[[NodeId, tuple[str, ...], Random], Sampler]


class Post(NamedTuple):
    sender: NodeId
    to: str
    roster: Roster | None  # None: gossip without one
    late: bool = False


class Town:
    """Members by name, and the mail between them."""

    def __init__(
        self, make: Make, seed: int = 1, *, fan_out: int = 4, loss: float = 0, late: float = 0
    ) -> None:
        self.make = make
        self.chance = Random(seed)
        self.fan_out = fan_out
        self.loss = loss
        self.late = late
        self.members: dict[str, Sampler] = {}
        self.nodes: dict[str, NodeId] = {}
        self.sides: dict[str, int] = {}  # while it is cut: who is on which side
        self.mail: list[Post] = []
        self.weigh: Callable[[Roster], int] | None = None
        self.bytes = 0

    def join(self, name: str, contacts: Iterable[str], incarnation: int = 0) -> Sampler:
        me = NodeId(name, incarnation)
        sampler = self.make(me, tuple(contacts), Random(self.chance.random()))
        self.members[name], self.nodes[name] = sampler, me
        self._post(me, sampler.start())
        return sampler

    def found(self, count: int, contacts: int = 3) -> Town:
        """So many members, all told of the first few."""
        names = [f"n{number}" for number in range(count)]
        for name in names:
            self.join(name, names[:contacts])
        return self

    def crash(self, name: str) -> None:
        del self.members[name]

    def leave(self, name: str) -> None:
        self._post(self.nodes[name], self.members.pop(name).leave())

    def cut(self, *sides: Iterable[str]) -> None:
        self.sides = {name: side for side, names in enumerate(sides) for name in names}

    def heal(self) -> None:
        self.sides = {}

    def run(self, rounds: int) -> Town:
        for _ in range(rounds):
            for name, sampler in list(self.members.items()):
                me = self.nodes[name]
                self._post(me, sampler.round())
                roster = sampler.piggyback()
                targets = sampler.sample(self.fan_out)
                self.mail += [Post(me, to, roster) for to in targets]
            self._carry()
        return self

    def run_until(self, done: Callable[[], bool], most: int) -> int:
        """How many rounds it took; the most if it never came."""
        for count in range(most):
            if done():
                return count
            self.run(1)
        return most

    def _post(self, sender: NodeId, letters: list[Letter]) -> None:
        self.mail += [Post(sender, to, roster) for to, roster in letters]

    def _carry(self) -> None:
        kept: list[Post] = []
        while self.mail:
            mail, self.mail = self.mail, []
            self.chance.shuffle(mail)
            for post in mail:
                if not post.late and self.chance.random() < self.late:
                    kept.append(post._replace(late=True))
                    continue
                if self.weigh and post.roster is not None:
                    self.bytes += self.weigh(post.roster)
                if post.to not in self.members or self.chance.random() < self.loss:
                    continue
                if self.sides and self.sides[post.sender.name] != self.sides[post.to]:
                    continue
                sampler = self.members[post.to]
                sampler.heard(post.sender)
                if post.roster is not None:
                    self._post(self.nodes[post.to], sampler.receive(post.sender, post.roster))
        self.mail = kept

    # --- what can be seen of it --------------------------------------------------------------

    def knowers(self, name: str) -> int:
        """How many know this name."""
        return sum(name in sampler.known() for sampler in self.members.values())

    def any_known(self, names: Iterable[str]) -> bool:
        """Whether anybody knows one of these."""
        looked_for = frozenset(names)
        return any(looked_for.intersection(each.known()) for each in self.members.values())

    def in_degrees(self) -> list[int]:
        """By how many each member is known."""
        known = Counter(name for sampler in self.members.values() for name in sampler.known())
        return [known[name] for name in self.members]

    def reached(self, start: str) -> int:
        """How many can be reached over views."""
        seen = {start: None}
        waiting = [start]
        while waiting:
            for name in self.members[waiting.pop()].known():
                if name in self.members and name not in seen:
                    seen[name] = None
                    waiting.append(name)
        return len(seen)

    def connected(self) -> bool:
        """Whether everybody can reach everybody: gossip that starts anywhere can go anywhere."""
        return all(self.reached(name) == len(self.members) for name in self.members)

    def spread(self, start: str, relays: int) -> int:
        """How many a gossip reaches that all who have it relay in each of so many rounds."""
        having = {start: None}
        for _ in range(relays):
            for name in list(having):
                for to in self.members[name].sample(self.fan_out):
                    if to in self.members and self.chance.random() >= self.loss:
                        having[to] = None
            self.run(1)
        return len(having)
