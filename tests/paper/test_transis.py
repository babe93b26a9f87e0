"""What the Transis paper proves, restated for our protocol and looked for in storms.

Amir, Dolev, Kramer, Malki: Membership algorithms for multicast communication groups, 1992;
sections 4 (faults) and 5 (joins). The laws of `ordercast check` say some of it about traces; here
each theorem is looked for by itself, with what the machines proposed and decided. Then each is
broken in a record on purpose, to see that it would be noticed. Numbers of theorems are the paper's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise, permutations
from random import Random
from typing import NamedTuple

import pytest
from tests.protocol.transis.storms import Installation, Storm, recorded

from ordercast.protocol.transis.packets import ConfigurationId, Joined
from ordercast.types import Event, Merged, NodeId, View
from ordercast.units import SECOND

SEEDS = range(70_001, 70_049)
Key = tuple[NodeId, int]
"""Origin and number of an event."""


class Stay:
    """What an incarnation delivered in one view, up to its next one."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.sides: frozenset[tuple[NodeId, ...]] = frozenset()
        self.regular: list[Key] = []
        self.together: tuple[NodeId, ...] | None = None  # members of the transitional view
        self.rest: list[Key] = []  # delivered in it
        self.ordered: list[Key] = []  # the agreed and safe ones of both

    @property
    def parts(self) -> tuple[object, ...]:
        return set(self.regular), set(self.rest), self.together, self.ordered


class Record(NamedTuple):
    storm: Storm
    stays: dict[NodeId, list[Stay]]


def record_of(storm: Storm) -> Record:
    stays: dict[NodeId, list[Stay]] = {}
    for node, items in storm.heard.items():
        own = stays.setdefault(node, [])
        for item in items:
            match item:
                case View(transitional=True):
                    own[-1].together = item.members
                case View():
                    own.append(Stay(item))
                case Merged():
                    own[-1].sides = frozenset(item.sides)
                case Event():
                    key = item.origin, item.number
                    part = own[-1].regular if own[-1].together is None else own[-1].rest
                    part.append(key)
                    if item.order is not None:
                        own[-1].ordered.append(key)
    return Record(storm, stays)


@cache
def storm(seed: int) -> Storm:
    found = recorded(seed)
    assert found.error is None
    return found


def steps(record: Record) -> Iterator[tuple[str, Stay, Stay, Stay, Stay]]:
    """Any two incarnations that were in one view, and count each other as those that came along
    from it: the view and the next one of both. Those that crash later too."""
    for (one, ours), (other, theirs) in permutations(record.stays.items(), 2):
        for mine, after in pairwise(ours):
            for its, then in pairwise(theirs):
                same = mine.view.id == its.view.id
                if same and other in after.view.came_with and one in then.view.came_with:
                    yield f"{one} and {other} from {mine.view.id}", mine, after, its, then


# --- section 4: faults ---------------------------------------------------------------------------


def theorem_4_3(record: Record) -> str | None:
    """Two that lose members and go on together delivered the same before, the same part of it
    after the transitional view, and begin the next view alike."""
    for who, mine, after, its, then in steps(record):
        is_split = mine.together is not None or its.together is not None
        alike = mine.parts == its.parts and after.view.members == then.view.members
        if is_split and not alike:
            return who
    return None


# --- section 5: joins ----------------------------------------------------------------------------


def counted(step: Installation, node: NodeId) -> ConfigurationId | None:
    """The configuration that a step has a node come from; None: it does not come along."""
    return next((cid for cid, side in step.decision.sides if node in side), None)


def both_ways(record: Record) -> Iterator[tuple[NodeId, Installation, NodeId, Installation]]:
    """Steps of two machines of which each counts on the other, where the other is."""
    logs = record.storm.machines
    for one, other in permutations(logs, 2):
        for step in logs[one].installed:
            for its in logs[other].installed:
                if counted(step, other) == its.former and counted(its, one) == step.former:
                    yield one, step, other, its


def property_1(record: Record) -> str | None:
    """In one configuration a machine's proposals only grow: those who should come along, the
    configurations that they come from, and those that failed."""
    for node, log in record.storm.machines.items():
        for (_, before), (_, now) in zip(log.proposed, log.proposed[1:], strict=False):
            if now.serial <= before.serial:
                return f"{node} counts {now.serial} after {before.serial}"
            grown = set(before.failed) <= set(now.failed) and grows(before.joined, now.joined)
            if now.cid == before.cid and not grown:
                return f"{node} in {now.cid}"
    return None


def grows(before: Joined, now: Joined) -> bool:
    later = dict(now)
    return all(node in later and cid <= later[node] for node, cid in before)


def property_2(record: Record) -> str | None:
    """A machine that is ready for a decision has proposed exactly that before."""
    for node, log in record.storm.machines.items():
        for decision, proposal in log.readied:
            wanted = [one for one, _ in proposal.joined if one not in proposal.failed]
            if list(decision.members) != wanted:
                return f"{node}: {decision.id}"
        for step in log.installed:
            wants = [
                [one for one, _ in proposal.joined if one not in proposal.failed]
                for proposal in step.proposed
            ]
            if list(step.decision.members) not in wants:
                return f"{node} installed {step.decision.id}, which it did not propose"
    return None


def theorem_5_5(record: Record) -> str | None:
    """If a machine installs a decision that counts on another one, that one installs the same
    from where it is, or nothing that counts on the first."""
    for one, step, other, its in both_ways(record):
        if step.decision.id != its.decision.id:
            return f"{one} installed {step.decision.id}, {other} {its.decision.id}"
    return None


def theorem_5_8(record: Record) -> str | None:
    """Also across sides: they have the same members and the same sides, by the machines and by
    what the applications see; one id never means two member sets; and heights grow."""
    found: dict[ConfigurationId, tuple[object, ...]] = {}
    for node, log in record.storm.machines.items():
        for step in log.installed:
            what = step.decision.members, frozenset(step.decision.sides)
            if found.setdefault(step.decision.id, what) != what:
                return f"{step.decision.id} at {node}"
            if step.decision.id.height <= step.former.height:
                return f"{node} went from {step.former} to {step.decision.id}"
    seen: dict[int, tuple[object, ...]] = {}
    for node, stays in record.stays.items():
        for stay in stays:
            sides = stay.sides or frozenset([stay.view.came_with])
            if node not in stay.view.came_with or stay.view.came_with not in sides:
                return f"{node} did not come along to {stay.view.id}"
            what = stay.view.members, sides
            if seen.setdefault(stay.view.id, what)[0] != what[0]:
                return f"view {stay.view.id} at {node}"
            if stay.sides and seen[stay.view.id] != what:
                return f"sides of view {stay.view.id} at {node}"
    return None


def theorem_5_9(record: Record) -> str | None:
    """Two that stay together through any sequence of changes go through the same views, and
    deliver the same in each, the agreed and safe events in the same order."""
    for who, mine, after, its, then in steps(record):
        if after.view.id != then.view.id:
            return f"{who} to different views"
        if mine.parts != its.parts:
            return f"{who} with different events"
    return None


# --- section 5.4: it ends ------------------------------------------------------------------------

MOST_STAGE_LIMITS = 6
"""The rules allow so many for each member that fails in a change. In 366 storms the longest change
took 4.2 of them once the faults were over."""
MOST_SUSPICION_LIMITS = 12
"""Until all are in one view. The longest in the same storms took 7.2."""


def unended(record: Record) -> Iterator[tuple[NodeId, int]]:
    """Changes that go on after the faults: by machine, how long, from the last fault on."""
    end = record.storm.faults_end
    for node, log in record.storm.machines.items():
        for step in log.installed:
            begun = [at for at, one in log.proposed if one.cid == step.former]
            if begun and step.at > end:
                yield node, step.at - max(end, begun[0])


def theorem_5_11(record: Record) -> str | None:
    """When the faults are over, every change ends within six stage limits, everybody who is there
    is in one view of all within twelve suspicion limits, and nobody is left in a change."""
    storm = record.storm
    for node, lasted in unended(record):
        if lasted > MOST_STAGE_LIMITS * storm.stage_limit:
            return f"{node} took {lasted / storm.stage_limit:.1f} stage limits"
    crashed = {NodeId(row.process, row.incarnation) for row in storm.rows if row.kind == "crash"}
    present = sorted(node for node in record.stays if node not in crashed)
    for node in present:
        last = record.stays[node][-1].view
        if list(last.members) != present or storm.machines[node].stage:
            return f"{node} is left in a view of {last.members}"
    late = storm.faults_end + MOST_SUSPICION_LIMITS * storm.suspicion_limit
    stopped = min((row.at for row in storm.rows if row.kind == "stop"), default=0)
    for row in storm.rows:
        if row.kind == "view" and late < row.at < stopped:
            return f"{row.process} changes its view long after"
    return None


PROPERTIES: dict[str, Callable[[Record], str | None]] = {
    "Theorem 4.3": theorem_4_3,
    "Property 1": property_1,
    "Property 2": property_2,
    "Theorem 5.5": theorem_5_5,
    "Theorem 5.8": theorem_5_8,
    "Theorem 5.9": theorem_5_9,
    "Theorem 5.11": theorem_5_11,
}


def broken_theorems(seed: int, record: Record) -> list[str]:
    found = {name: theorem(record) for name, theorem in PROPERTIES.items()}
    return [f"seed {seed}: {name}: {why}" for name, why in found.items() if why is not None]


def test_the_theorems_of_the_paper_hold_whatever_fails() -> None:
    """One test for all theorems: the storms take longer than the theorems."""
    records = {seed: record_of(storm(seed)) for seed in SEEDS}
    broken = [why for seed, record in records.items() for why in broken_theorems(seed, record)]
    assert broken == []
    contain_what_the_theorems_are_about(list(records.values()))


@pytest.mark.long
def test_the_theorems_hold_in_many_more_storms() -> None:
    for seed in range(71_001, 71_601):
        record = record_of(recorded(seed))
        assert record.storm.error is None, f"seed {seed}: {record.storm.error}"
        assert broken_theorems(seed, record) == []


def contain_what_the_theorems_are_about(records: list[Record]) -> None:
    """Failures, merges of several sides, and changes that the end of the faults finds under way: or
    the above says little."""
    all_stays = [stay for record in records for own in record.stays.values() for stay in own]
    assert sum(stay.together is not None for stay in all_stays) > 100
    assert sum(bool(stay.rest) for stay in all_stays) > 10
    assert sum(len(stay.sides) > 1 for stay in all_stays) > 100
    assert sum(len(stay.sides) > 2 for stay in all_stays) > 20
    assert sum(1 for record in records for _ in unended(record)) > 100


# --- each can be broken --------------------------------------------------------------------------


def without_a_delivery(record: Record, draw: Random) -> None:
    stays = [stay for own in record.stays.values() for stay in own[:-1] if stay.regular]
    changed = [stay for stay in stays if stay.together is not None]
    stay = draw.choice(changed or stays)
    stay.regular.pop(draw.randrange(len(stay.regular)))


def one_less_failed(record: Record, draw: Random) -> None:
    for log in record.storm.machines.values():
        for place, (_at, one) in enumerate(log.proposed):
            if place and one.failed and log.proposed[place - 1].proposal.cid == one.cid:
                without = type(one)(
                    one.group, one.cid, one.serial, one.joined, (), one.sent, one.received
                )
                log.proposed[place] = log.proposed[place]._replace(proposal=without)


def of_others(record: Record, draw: Random) -> None:
    """A decision without its last member."""
    logs = [log for log in record.storm.machines.values() if len(log.readied) > 1]
    if not logs:
        return  # a storm that changes every view in one step has nothing to compare
    log = draw.choice(logs)
    decision, proposal = log.readied[-1]
    log.readied[-1] = decision._replace(members=decision.members[:-1]), proposal


def another_id(record: Record, draw: Random) -> None:
    logs = [log for log in record.storm.machines.values() if log.installed]
    log = draw.choice(logs)
    place = draw.randrange(len(log.installed))
    step = log.installed[place]
    cid = step.decision.id
    other = ConfigurationId(cid.height, cid.rep, cid.serial + 100)
    log.installed[place] = step._replace(decision=step.decision._replace(id=other))


def another_member(record: Record, draw: Random) -> None:
    logs = [log for log in record.storm.machines.values() if log.installed]
    log = draw.choice(logs)
    step = log.installed[-1]
    fewer = step.decision._replace(members=step.decision.members[1:])
    log.installed[-1] = step._replace(decision=fewer)


def slower(record: Record, draw: Random) -> None:
    log = draw.choice([log for log in record.storm.machines.values() if log.installed])
    log.installed[-1] = log.installed[-1]._replace(at=record.storm.faults_end + 12 * SECOND)


WAYS: dict[str, Callable[[Record, Random], None]] = {
    "Theorem 4.3": without_a_delivery,
    "Property 1": one_less_failed,
    "Property 2": of_others,
    "Theorem 5.5": another_id,
    "Theorem 5.8": another_member,
    "Theorem 5.9": without_a_delivery,
    "Theorem 5.11": slower,
}


def test_a_record_with_a_planted_mistake_breaks_its_theorem() -> None:
    for name in PROPERTIES:
        draw, noticed = Random(1), 0
        for seed in list(SEEDS)[:8]:
            whole = storm(seed)
            spoilt = record_of(whole._replace(machines=copy.deepcopy(whole.machines)))
            for _ in range(3):
                WAYS[name](spoilt, draw)
            noticed += PROPERTIES[name](spoilt) is not None
        assert noticed >= 3, name
