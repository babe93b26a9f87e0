"""What the feed rests on, as small models of their own: sessions on any graph, and beats.

Adly, Kumar: HPP, 1994, states three theorems: causal order without failures and moves, causal order
while nodes move, no loss while nodes move and one fails. Here the first two follow from one that
needs no tree at all (A: logs are closed), and the third from that and from trees that mend
themselves (B: parents form no circle). The models below know nothing of the code; scenarios and
laws check the code.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from ordercast.check.laws import check
from ordercast.scenario.file import load_scenario
from ordercast.testing import simulate

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"

# --- theorem A: sessions ---------------------------------------------------------------------

Message = tuple[int, int]
"""Origin, and its count there."""


class Walk:
    """Logs, and sessions between any two of them that begin, deliver and end at random."""

    def __init__(self, seed: int, nodes: int = 5, digest: bool = True, skips: bool = False) -> None:
        self.draw = Random(seed)
        self.logs: list[list[Message]] = [[] for _ in range(nodes)]
        self.past: dict[Message, set[Message]] = {}
        self.via: list[dict[Message, int]] = [{} for _ in range(nodes)]
        # From whom to whom: the place in the sender's log, and what the receiver had.
        self.sessions: dict[tuple[int, int], tuple[int, set[Message]]] = {}
        self.stale: dict[tuple[int, int], set[Message]] = {}  # digests that were told before
        self.digest = digest
        self.skips = skips

    def step(self) -> None:
        draw, nodes = self.draw, range(len(self.logs))
        act = draw.random()
        one, two = draw.sample(nodes, 2)
        if act < 0.25:
            message = one, sum(origin == one for origin, _ in self.logs[one])
            self.past[message] = set(self.logs[one])
            self.logs[one].append(message)
        elif act < 0.35:
            self.stale[one, two] = set(self.logs[two])
        elif act < 0.45:  # a digest may be old: the receiver has more by now, never less
            had = self.stale.get((one, two), set(self.logs[two]))
            self.sessions[one, two] = 0, had if self.digest else set(self.logs[one])
        elif act < 0.5:
            self.sessions.pop((one, two), None)
        elif (one, two) in self.sessions:
            self._deliver(one, two)

    def _deliver(self, one: int, two: int) -> None:
        place, had = self.sessions[one, two]
        if place == len(self.logs[one]):
            return
        message = self.logs[one][place]
        self.sessions[one, two] = place + 1, had
        skipped = self.skips and self.draw.random() < 0.05
        if message in had or self.via[one].get(message) == two or skipped:
            return
        if message not in self.logs[two]:
            self.logs[two].append(message)
            self.via[two][message] = one

    def holes(self) -> int:
        """Messages that are in a log before something of their causal past."""
        found = 0
        for log in self.logs:
            seen: set[Message] = set()
            for message in log:
                found += not self.past[message] <= seen
                seen.add(message)
        return found


def walks(count: int, **rules: bool) -> Iterator[int]:
    for seed in range(count):
        walk = Walk(seed, **rules)
        for _ in range(300):
            walk.step()
        yield walk.holes()


def test_every_log_is_closed_on_any_graph() -> None:
    assert sum(walks(300)) == 0


def test_without_a_digest_or_with_entries_skipped_logs_are_not_closed() -> None:
    assert sum(map(bool, walks(100, digest=False))) > 50
    assert sum(map(bool, walks(100, skips=True))) > 30


# --- theorem B: beats ------------------------------------------------------------------------


class Beats:
    """Nodes that change their parent at random, by a rule for beats; some of them are roots."""

    def __init__(self, seed: int, rule: str, nodes: int = 6) -> None:
        self.draw = Random(seed)
        self.rule = rule
        self.beats = [(0, node, 0) for node in range(nodes)]
        self.parents: list[int | None] = [None] * nodes
        self.offers: list[tuple[int, int, tuple[int, int, int]]] = []  # to whom, of whom, which

    def step(self) -> None:
        draw, nodes = self.draw, range(len(self.beats))
        act, one = draw.random(), draw.randrange(len(self.beats))
        if act < 0.25 and self.parents[one] is None:
            epoch, root, count = self.beats[one]
            self.beats[one] = epoch, root, count + 1
        elif act < 0.3 and self.parents[one] is None:
            self.beats[one] = max(epoch for epoch, _, _ in self.beats) + 1, one, 0
        elif act < 0.6 and (parent := self.parents[one]) is not None:
            self.beats[one] = max(self.beats[one], self.beats[parent])
        elif act < 0.7:
            self.parents[one] = None  # an orphan keeps its beat
        elif act < 0.85:
            other = draw.choice([each for each in nodes if each != one])
            self.offers.append((one, other, self.beats[other]))
        elif self.offers:
            self._take(*self.offers.pop(draw.randrange(len(self.offers))))

    def _take(self, one: int, other: int, beat: tuple[int, int, int]) -> None:
        """An offer is taken, perhaps long after it was made."""
        own = self.beats[one]
        if (
            (self.rule == ">" and beat > own)
            or (self.rule == ">=" and beat >= own)
            or not self.rule
        ):
            self.parents[one] = other
            self.beats[one] = max(own, beat)

    def has_circle(self) -> bool:
        for node in range(len(self.beats)):
            at: int | None = node
            for _ in self.beats:
                at = None if at is None else self.parents[at]
            if at is not None:
                return True
        return False


def circles(count: int, rule: str) -> int:
    found = 0
    for seed in range(count):
        walk = Beats(seed, rule)
        for _ in range(300):
            walk.step()
            if walk.has_circle():
                found += 1
                break
    return found


def test_parents_never_form_a_circle() -> None:
    assert circles(300, ">") == 0


@pytest.mark.parametrize("rule", [">=", ""])
def test_with_another_rule_they_do(rule: str) -> None:
    assert circles(100, rule) > 30


# --- the theorems of the paper, for the code -------------------------------------------------

THEOREMS = {
    "feed-calm": ("causal", "completeness"),  # 1: no failures, no moves
    "feed-moves": ("causal", "completeness"),  # 2: while nodes move
    "feed-crash": ("causal", "durable"),  # 3: while nodes move, and more than one fails
}


@pytest.mark.parametrize("name", THEOREMS)
def test_the_theorems_of_the_paper_hold(name: str) -> None:
    scenario = load_scenario(SCENARIOS / f"{name}.toml")
    for seed in (1,):
        verdicts = check(simulate(scenario, seed).trace, THEOREMS[name])
        assert [each.answer for each in verdicts] == ["holds"] * 2, verdicts
