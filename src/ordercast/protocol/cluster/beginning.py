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

What is known of others is forgotten after a while, or a newcomer that hears but is not heard would
count all that ever restart.
"""

from __future__ import annotations

from typing import Protocol

from ordercast.protocol.cluster.packets import MOST_JOINING, Ask
from ordercast.types import NodeId

MOST_WAITED_FOR = 16
"""Names of members that we wait for, as the application is told them."""


class Beginning(Protocol):
    """Whether a newcomer that nobody answers may begin the cluster."""

    def heard(self, sender: NodeId, ask: Ask) -> None:
        """Another newcomer asked us."""

    def round(self) -> None:
        """Called once a round."""

    def may_begin(self) -> bool: ...

    def question(self, group: str, state: bool) -> Ask:
        """What we ask others, and tell them with it."""

    def waits_for(self) -> tuple[tuple[str, ...], str]:
        """For whom we wait, and why, in a sentence."""


class Given:
    """There is nothing to wait for."""

    def heard(self, sender: NodeId, ask: Ask) -> None:
        pass

    def round(self) -> None:
        pass

    def may_begin(self) -> bool:
        return True

    def question(self, group: str, state: bool) -> Ask:
        return Ask(group, state)

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

    def _joining(self) -> frozenset[str]:
        return self._ours.union(self._known.names())

    def may_begin(self) -> bool:
        return 2 * len(self._joining()) > len(self._listed)

    def question(self, group: str, state: bool) -> Ask:
        return Ask(group, state, tuple(self._asked.names()[-MOST_JOINING:]))

    def waits_for(self) -> tuple[tuple[str, ...], str]:
        joining = self._joining()
        missing = sorted(self._listed - joining)[:MOST_WAITED_FOR]
        return tuple(missing), (
            f"no member answers, and of {len(self._listed)} that may update only {len(joining)} "
            f"start: {len(self._listed) // 2 + 1} are needed to begin"
        )
