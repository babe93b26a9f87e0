"""Which members are alive: who is pinged in a tick, and who has answered lately.

A member that has or wants a ticket pings the replica set that it knows of; every member pings a
random one. Lease replicas ping each other, members that they know to be alive, and others in turn
around the ring, so that a replacement for a failed replica is always known, however large the
cluster is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random

from ordercast.protocol.tickets.packets import Pong
from ordercast.types import NodeId

CANDIDATES = 16
"""Live members that a lease replica pings, beside the replica set."""
TRIED = 4
"""And others, in turn around the ring. A member that knows of no cluster asks as many at random."""
LEASES_TO_FORGET = 8


class Liveness:
    def __init__(
        self, me: NodeId, lease: int, known: Callable[[], Sequence[str]], chance: Random
    ) -> None:
        self._me = me.name
        self._lease = lease
        self._known = known
        self._chance = chance
        # By name: when we sent the ping that was answered last, the answer, and the incarnation.
        self._answers: dict[str, tuple[int, Pong, int]] = {}
        self._turn = 0  # how far we have pinged around the ring

    def everybody(self) -> tuple[str, ...]:
        """All other members that we can reach."""
        return tuple(name for name in self._known() if name != self._me)

    def choose(self, first: Iterable[str], *, serves: bool, in_cluster: bool) -> tuple[str, ...]:
        """The members to ping: these, and those that a member like us pings beside them."""
        names = dict.fromkeys(first)
        everybody = self.everybody()
        if serves:
            names |= dict.fromkeys(list(self._answers)[:CANDIDATES])
            for _ in range(min(TRIED, len(everybody))):
                self._turn = (self._turn + 1) % len(everybody)
                names[everybody[self._turn]] = None
        elif everybody:
            for _ in range(1 if in_cluster else TRIED):
                names[self._chance.choice(everybody)] = None
        names.pop(self._me, None)
        return tuple(names)

    def answered(self, sender: NodeId, pong: Pong) -> bool:
        """Whether we did not know that it is alive, or knew it as another lease replica."""
        known = self._answers.get(sender.name)
        if known is not None and known[0] > pong.sent:
            return False
        self._answers[sender.name] = (pong.sent, pong, sender.incarnation)
        return known is None or known[1].replica != pong.replica

    def knows(self, node: NodeId) -> bool:
        """Whether this incarnation was the last to answer, and is not forgotten."""
        known = self._answers.get(node.name)
        return known is not None and known[2] == node.incarnation

    def forget_the_dead(self, now: int) -> None:
        patience = LEASES_TO_FORGET * self._lease
        gone = [name for name, (sent, _, _) in self._answers.items() if now - sent > patience]
        for name in gone:
            del self._answers[name]

    def answers_of(self, names: Iterable[str]) -> list[Pong]:
        """The last answers of those of these that are not forgotten."""
        return [self._answers[name][1] for name in names if name in self._answers]

    def reached(self, now: int) -> dict[str, Pong]:
        """Members that answered a ping of the last lease, with their answers."""
        return {
            name: pong
            for name, (sent, pong, _) in self._answers.items()
            if now - sent <= self._lease
        }
