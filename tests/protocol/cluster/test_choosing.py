"""Which one of several begins an open cluster: never two, whatever the network and restarts do."""

from __future__ import annotations

from random import Random

import pytest

from ordercast.kernel.family import FoundingRule
from ordercast.protocol.cluster.beginning import Votes
from ordercast.protocol.cluster.choosing import MOST_BALLOTS, Election
from ordercast.protocol.cluster.packets import Ask, Promise, PromiseRecord
from ordercast.protocol.tickets.packets import Ballot
from ordercast.types import NodeId

N1, N2, N3 = NodeId("n1"), NodeId("n2"), NodeId("n3")
FIRST, SECOND = Ballot(1, N1), Ballot(1, N2)
PATIENCE = 4


def always(others: list[str]) -> bool:
    return True


def test_who_has_promised_a_ballot_accepts_nothing_in_a_lower_one() -> None:
    choice = Election(N3)
    choice.heard(Promise(SECOND))
    choice.heard(Promise(FIRST, FIRST, "n1"))
    assert choice.promise == Promise(SECOND)
    choice.heard(Promise(SECOND, SECOND, "n2"))
    assert choice.promise == Promise(SECOND, SECOND, "n2")


def test_a_ballot_is_for_one() -> None:
    choice = Election(N3)
    choice.heard(Promise(FIRST, FIRST, "n1"))
    choice.heard(Promise(FIRST, FIRST, "n2"))
    assert choice.chosen == "n1"


def test_a_later_ballot_is_for_whom_others_accepted_last() -> None:
    choice = Election(N3)
    choice.heard(Promise(SECOND))
    choice.lead({}, always, accept=True)
    ours = Ballot(2, N3)
    assert choice.promise == Promise(ours)
    told = {"n1": Promise(ours, FIRST, "n1"), "n2": Promise(ours, SECOND, "n2")}
    choice.lead(told, always, accept=True)
    assert choice.promise == Promise(ours, ours, "n2")
    assert not choice.is_ours(told, always)


def test_only_promises_of_this_very_ballot_count() -> None:
    choice = Election(N1)
    choice.lead({}, always, accept=True)
    seen: list[list[str]] = []

    def never(others: list[str]) -> bool:
        seen.append(others)
        return False

    told = {"n2": Promise(FIRST), "n3": Promise(Ballot(2, N3))}
    choice.lead(told, never, accept=False)
    choice.lead(told, never, accept=True)
    assert seen == [["n2"]]
    assert choice.promise == Promise(FIRST)


def test_a_restart_keeps_what_was_promised_and_opens_another_ballot() -> None:
    choice = Election(N1, 2)
    choice.lead({}, always, accept=True)
    choice.lead({}, always, accept=True)
    record = choice.record("g")
    assert record == PromiseRecord("g", 2, Promise(FIRST, FIRST, "n1"))
    assert choice.record("g") is None
    again = Election(NodeId("n1", 1), 2, [record])
    assert again.record("g") is None
    assert again.is_ours({}, always)
    again.lead({}, always, accept=True)
    assert again.promise == Promise(Ballot(2, NodeId("n1", 1)), FIRST, "n1")
    assert Election(N1, 3, [record]).promise is None


def test_a_ballot_beyond_all_is_not_believed() -> None:
    choice = Election(N2)
    choice.heard(Promise(Ballot(MOST_BALLOTS, N1)))
    assert choice.promise is None


# --- storms ---------------------------------------------------------------------------------------


class Storm:
    """Nodes that begin a cluster, while packets are lost, late and double, and nodes restart."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        count = self.chance.randint(3, 6)
        self.expect = count // 2 + 1
        self.names = [f"n{number}" for number in range(1, count + 1)]
        self.lives = dict.fromkeys(self.names, 0)
        self.disks: dict[str, list[PromiseRecord]] = {name: [] for name in self.names}
        self.joining: dict[str, tuple[Votes, Election]] = {}
        self.began: list[str] = []
        self.underway: list[tuple[int, str, NodeId, Ask]] = []
        self.loss = self.chance.random() * 0.5
        self.latest = self.chance.choice((1, 5, 40))
        self.sides = dict.fromkeys(self.names, 0)
        for name in self.names:
            self.start(name)

    def start(self, name: str) -> None:
        me = NodeId(name, self.lives[name])
        choice = Election(me, self.expect, self.disks[name])
        votes = Votes(me, FoundingRule(expect=self.expect), PATIENCE, choice)
        self.joining[name] = votes, choice

    def round(self, now: int, *, calm: bool) -> None:
        chance = self.chance
        if calm:
            self.sides = dict.fromkeys(self.names, 0)
        elif chance.random() < 0.1:
            self.sides = {name: chance.randint(0, 1) for name in self.names}
        for name in list(self.joining):
            if not calm and chance.random() < 0.02:
                self.lives[name] += 1
                self.start(name)
            if chance.random() < 0.9:
                self.ask(name, now, calm=calm)
        for packet in [one for one in self.underway if one[0] <= now]:
            self.underway.remove(packet)
            _, name, sender, ask = packet
            if name in self.joining:
                self.joining[name][0].heard(sender, ask)
            elif calm:  # it is in the cluster, and answers
                self.joining.pop(sender.name, None)

    def ask(self, name: str, now: int, *, calm: bool) -> None:
        votes, choice = self.joining[name]
        votes.round()
        record = choice.record("g")
        if record is not None:
            self.disks[name] = [record]
        if votes.may_begin():
            self.began.append(name)
            del self.joining[name]
            return
        others = [other for other in self.names if other != name]
        for other in {self.chance.choice(others), *votes.favourite()}:
            for _ in range(1 + (self.chance.random() < 0.1)):
                if self.sides[other] == self.sides[name] and self.chance.random() > self.loss:
                    late = now + (0 if calm else self.chance.randint(0, self.latest))
                    ask = votes.question("g", False)
                    self.underway.append((late, other, NodeId(name, self.lives[name]), ask))


@pytest.mark.parametrize("seed", range(60))
def test_in_a_storm_never_two_begin_and_afterwards_one_has(seed: int) -> None:
    storm = Storm(seed)
    for now in range(400):
        storm.round(now, calm=now >= 200)
        assert len(storm.began) <= 1
    assert len(storm.began) == 1
    assert not storm.joining
