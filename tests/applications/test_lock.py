"""examples/lock.py: one history of writes, each by the holder at its place, and no token twice."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.applications.driven import Driven, crashes, example, stormy

from ordercast import NodeId
from ordercast.units import MILLISECOND

lock = example("lock")
MEMBERS = 5
SEEDS = range(1, 41)


def use(member: Any, draw: Random) -> list[bytes]:
    """It wants the lock, writes while it has it, and releases it now and then."""
    if member.open:
        return []
    if not member.is_held:
        return member.want()
    if draw.random() < 0.1:
        return member.release()
    return member.write(f"by {member.me}")


class Room:
    """One run, and who believed when to hold the lock."""

    def __init__(self, member: type[Any], service: str, seed: int) -> None:
        scenario = stormy(MEMBERS, *crashes(seed, MEMBERS, back=1, for_good=1))

        def make(me: NodeId, voters: tuple[NodeId, ...], journal: bytes) -> Any:
            return member(me, voters)

        self.seed = seed
        self.holders: dict[int, set[str]] = {}  # by token: all who were holders by it
        self.believing: set[NodeId] = set()  # who believes now that it holds the lock
        self.at_once = 0  # most members that believed it at one time
        self.run = Driven(make, scenario, seed, service)
        self.run.watch = self._watch
        self.run.act(60 * MILLISECOND, use)
        self.run.go()

    def _watch(self, member: Any) -> None:
        if member.holder is not None:
            self.holders.setdefault(member.state["token"], set()).add(member.holder)
        self.believing.discard(member.me)
        if member.is_held:
            self.believing.add(member.me)
            self.at_once = max(self.at_once, len(self.believing))

    def history(self) -> list[tuple[str, int]]:
        """All final writes in their order: by whom, with which token."""
        twice = {token: names for token, names in self.holders.items() if len(names) > 1}
        assert not twice, f"seed {self.seed}: two holders with one token: {twice}"
        found: dict[tuple[int, ...], tuple[str, int]] = {}
        for member in self.run.cores.values():
            for rank, who, token, _ in member.final:
                known = found.setdefault(tuple(rank), (who, token))
                assert known == (who, token), f"seed {self.seed}: two histories at {rank}"
                assert self.holders[token] == {who}, f"seed {self.seed}: {who} was no holder"
        writes = [found[rank] for rank in sorted(found)]
        tokens = [token for _, token in writes]
        assert tokens == sorted(tokens), f"seed {self.seed}: an earlier holder wrote after a later"
        return writes


def count_all(member: type[Any], service: str = "safe") -> tuple[int, int, int]:
    """Writes, holders, and how many believed at once to hold the lock. Every run is judged."""
    writes = holders = at_once = 0
    for seed in SEEDS:
        room = Room(member, service, seed)
        writes += len(room.history())
        holders += len(room.holders)
        at_once = max(at_once, room.at_once)
        alive = room.run.alive()
        assert len(alive) == MEMBERS - 1
        assert len({one.holder for one in alive}) == 1, f"seed {seed}: they do not agree"
        assert alive[0].holder is not None, f"seed {seed}: nobody holds the lock"
    return writes, holders, at_once


def test_there_is_one_history_of_holders_and_writes() -> None:
    writes, holders, at_once = count_all(lock.Lock)
    assert writes > 500
    assert holders > 200
    assert at_once > 1  # a holder that is cut off does not know it yet: its writes do not count


class HoldsOnEverySide(lock.Lock):
    is_primary = True


class ForgetsTheToken(lock.Lock):
    def _may_write(self, name: str, token: int, number: int) -> bool:
        return number > self.state["numbers"].get(name, 0)


class TakesItsOwnState(lock.Lock):
    """It does not take the newest state when views change."""

    def _take_report(self, sender: NodeId, report: dict[str, Any]) -> list[bytes]:
        state, rank = self.state, self.rank
        messages = super()._take_report(sender, report)
        self.state, self.rank = state, rank
        return messages


class IsAlwaysFinal(lock.Lock):
    """It takes what comes after a transitional view for final."""

    is_final = property(lambda self: True, lambda self, value: None)


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (IsAlwaysFinal, "two holders"),
        (HoldsOnEverySide, "two holders"),
        (ForgetsTheToken, "wrote after a later"),
        (TakesItsOwnState, "two holders"),
    ],
)
def test_a_member_that_breaks_a_rule_is_found(broken: type[Any], why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        count_all(broken)
