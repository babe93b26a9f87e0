"""The active set: to how many members gossip goes by connection."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest

from ordercast.kernel.family import FoundingRule, Plan
from ordercast.kernel.inputs import StatusResult
from ordercast.kernel.step import STATUS, Step
from ordercast.protocol.cluster.active_set import RENEWAL, ActiveSet
from ordercast.protocol.cluster.cyclon import Cyclon
from ordercast.protocol.cluster.member import GossipMember
from ordercast.protocol.cluster.options import Gossip
from ordercast.protocol.cluster.sampler import Everybody
from ordercast.types import NodeId

ME = NodeId("me")
NAMES = tuple(sorted(["me", *(f"n{number:02}" for number in range(19))]))


def listed(limit: int) -> ActiveSet:
    return ActiveSet(Everybody(ME, NAMES, Random(1)), limit, Random(2))


def test_the_same_few_members_are_chosen_again_and_again() -> None:
    chosen = listed(3)
    few = {name for _ in range(100) for name in chosen.instead_of(("n00", "n01"))}
    assert len(few) == 3
    assert "me" not in few


def test_a_member_that_knows_no_more_is_not_bounded() -> None:
    assert listed(19).instead_of(("n00", "n01")) == ("n00", "n01")


def test_every_so_many_rounds_one_of_them_gives_way() -> None:
    chosen = listed(3)
    sample = ("n00", "n01", "n02")
    before = {*chosen.instead_of(sample)}
    for _ in range(RENEWAL):
        chosen.round()
    after = {*chosen.instead_of(sample)}
    assert len(after) == 3
    assert len(before & after) >= 2


def test_one_that_did_not_answer_gives_way_at_once() -> None:
    chosen = listed(3)
    sample = ("n00", "n01", "n02")
    first, *_ = chosen.instead_of(sample)
    for _ in range(10):
        chosen.failed(first)
        chosen.instead_of(sample)
    chosen.failed("nobody")
    assert len({*chosen.instead_of(sample)}) == 3


def test_the_set_stays_while_the_view_moves_on() -> None:
    sampler = Cyclon(ME, NAMES, Random(1), view_size=4)
    chosen = ActiveSet(sampler, 3, Random(2))
    few = set()
    for number in range(100):
        sampler._view.learn(NodeId(f"m{number}"), number)
        for name in sampler._view.names()[:-4]:
            sampler._view.pop(name)
        few.update(chosen.instead_of(("a", "b", "c")))
    assert len(few) == 3


@pytest.mark.parametrize("is_open", [True, False])
def test_a_member_sends_by_connection_to_few_at_a_time(is_open: bool) -> None:
    """Of twenty, with links=3: by status to three, and one more while one is replaced."""
    level = Gossip(transport="status", fan_out=2, links=3, hops=100)
    plan = Plan("g", NAMES, level)
    if is_open:
        plan = Plan("g", ("me",), level, entry=FoundingRule(founds=True))
    member = GossipMember(ME, plan, Random(3))
    step = Step(0)
    member.start(step)
    if is_open:
        for name in NAMES:
            member.sampler._view.learn(NodeId(name), 0)  # type: ignore[attr-defined]
    member.submit(step, "g", [b"event"], 5)
    lately: deque[set[str]] = deque(maxlen=RENEWAL)
    seen: set[str] = set()
    for number in range(2000):
        if is_open:  # others name themselves anew, so none of them expires
            for name in NAMES:
                member.sampler._view.learn(NodeId(name), number)  # type: ignore[attr-defined]
        step = Step(number)
        if not number % 90:
            member.submit(step, "g", [b"event"], 5)
        member.expire(step, "round")
        sent = [to for to, _, channel, _ in step.sent if channel is STATUS]
        targets = {str(name) for to in sent for name in to}
        lately.append(targets)
        assert len(set().union(*lately)) <= 3 + 1
        seen |= targets
    assert len(seen) > 10, "and to all of them in the course of time"
    lost, *_ = sorted(seen)
    member.on(Step(2000), StatusResult(lost, False))
    assert lost not in member.active_set._names
