"""Storms in which applications ask what other sides delivered, and an observer knows it better.

The observer has what every incarnation was handed. What a member delivered after it parted from
another is what it was handed from the last view that both were in, less what the other was handed
in that view.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

import msgspec
from tests.protocol.transis import storms

from ordercast.kernel.family import Build
from ordercast.kernel.inputs import DifferenceWanted
from ordercast.kernel.step import Heard
from ordercast.protocol.transis import FAMILY
from ordercast.scenario.schema import Scenario
from ordercast.sim.world import Simulation
from ordercast.types import Difference, Event, Merged, NodeId, View
from ordercast.units import MILLISECOND, SECOND, Duration

EventId = tuple[NodeId, int]


class Asked(NamedTuple):
    asker: NodeId
    view: int
    side: tuple[NodeId, ...]


class Answered(NamedTuple):
    asked: Asked
    difference: Difference


class MergeStorm(NamedTuple):
    heard: dict[NodeId, list[Heard]]
    asked: list[Asked]
    answered: list[Answered]
    alive: list[NodeId]  # at the end


def scenario(seed: int, **options: Any) -> Scenario:
    """One of the storms, with these options, and not as quiet in the end."""
    parsed, _, _ = storms.scenario(seed)
    [given] = [parsed.options]
    return msgspec.structs.replace(parsed, options={**given, **options}, quiet=Duration(4 * SECOND))


def run(parsed: Scenario, seed: int, build: Build = FAMILY.build) -> MergeStorm:
    """Each application asks for every side of every merge, some time later."""
    heard: dict[NodeId, list[Heard]] = {}
    asked: list[Asked] = []
    answered: list[Answered] = []
    draw = Random(f"asking {seed}")

    def ask(wanted: Asked) -> None:
        process = world.processes[wanted.asker.name]
        if process.alive and process.node == wanted.asker:
            asked.append(wanted)
            process.give("g", DifferenceWanted("g", wanted.view, wanted.side))

    def application(node: NodeId, item: Heard) -> None:
        heard.setdefault(node, []).append(item)
        if isinstance(item, Merged):
            for side in item.sides[1:]:
                at = world.queue.now + draw.choice((0, 0, 1, 5, 300)) * MILLISECOND
                world.queue.add(at, ask, Asked(node, item.view.id, side))
        elif isinstance(item, Difference):
            answered.append(Answered(Asked(node, item.view, item.side), item))

    families = {"synchrony": FAMILY._replace(build=build)}
    world = Simulation(parsed, seed, application=application, families=families)
    outcome = world.run()
    assert outcome.error is None, outcome.error
    alive = [process.node for process in world.processes.values() if process.alive]
    return MergeStorm(heard, asked, answered, alive)


def delivered_apart(storm: MergeStorm, member: NodeId, asked: Asked) -> list[EventId] | None:
    """What the member delivered after it parted from the asker, until they merged. None: it was
    not in that view."""
    theirs = _passages(storm.heard.get(member, []), asked.view)
    ours = _passages(storm.heard[asked.asker], asked.view)
    if theirs is None or ours is None:
        return None
    common = [view for view in ours if view in theirs]
    views = list(theirs)
    since = views.index(common[-1]) if common else 0
    have = ours[common[-1]] if common else []
    return [event for view in views[since:] for event in theirs[view] if event not in have]


def _passages(items: list[Heard], until: int) -> dict[int, list[EventId]] | None:
    """By view, before one: what was delivered in it."""
    found: dict[int, list[EventId]] = {}
    here: list[EventId] = []
    for item in items:
        if isinstance(item, View) and not item.transitional:
            if item.id == until:
                return found
            here = found[item.id] = []
        elif isinstance(item, Event):
            here.append((item.origin, item.number))
    return None


def faults_of(storm: MergeStorm, answer: Answered) -> list[str]:
    """What is wrong with an answer."""
    asked, difference = answer
    told = [(event.origin, event.number) for event in difference.events]
    known = [node for node in asked.side if node not in difference.unheard]
    apart = {node: delivered_apart(storm, node, asked) for node in known}
    # A member of which another one told may have crashed before it had the view.
    lists = [events for events in apart.values() if events is not None]
    union = {event for events in lists for event in events}
    wrong = []
    if len(set(told)) != len(told):
        wrong.append("an event comes twice")
    if not union.issuperset(told):
        wrong.append(f"the other side did not deliver {set(told) - union}")
    counted = len(told) + difference.forgotten
    if counted > len(union) or (difference.reaches_back and counted != len(union)):
        wrong.append(f"{len(told)} told and {difference.forgotten} forgotten of {len(union)}")
    if known and not lists:
        wrong.append("nobody was there to be heard")
    if all(set(events) == union for events in lists):
        whole = [[event for event in events if event in told] for events in lists]
        if lists and told not in whole:
            wrong.append("nobody delivered it in this order")
    services = {(item.origin, item.number): item.service for item in difference.events}
    ordered = [event for event in told if services[event] in ("agreed", "safe")]
    for events in lists:
        if [one for one in ordered if one in events] != [one for one in events if one in ordered]:
            wrong.append("the order of agreed and safe events is another one")
    return wrong
