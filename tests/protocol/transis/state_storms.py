"""Storms in which applications have a state: the events that it contains, some of them in order.

The observer notes with which state each application began each view, and with which it ended the
one before. Of one view all of these states are the same, and with `merge = "largest"` they are that
of the largest side.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import msgspec
from tests.protocol.transis import merge_storms

from ordercast.kernel.family import Build
from ordercast.kernel.step import Heard
from ordercast.protocol.transis import FAMILY
from ordercast.protocol.transis.options import SynchronyOptions
from ordercast.scenario.file import options_for
from ordercast.scenario.schema import Scenario
from ordercast.sim.world import Simulation
from ordercast.trace.schema import Trace
from ordercast.trace.sinks import MemorySink
from ordercast.types import (
    Event,
    Merged,
    NodeId,
    SideStates,
    StateGiven,
    StateLost,
    StateWanted,
    View,
    Waiting,
)
from ordercast.units import Duration

State = tuple[tuple[str, ...], tuple[str, ...]]
"""All events that it contains, sorted; and those with an order, in that order."""
EMPTY: State = ((), ())


class Replica:
    """The application of one incarnation."""

    def __init__(self) -> None:
        self.state = EMPTY
        self.view: View | None = None
        self.has_state = True  # that of the view
        self.doubled = False  # an event came that the state had already

    def take(self, item: Heard) -> bytes | None:
        match item:
            case Event():
                name = f"{item.origin}:{item.number}"
                everything, ordered = self.state
                self.doubled |= name in everything
                more = (name,) if item.service in ("agreed", "safe") else ()
                self.state = tuple(sorted((*everything, name))), (*ordered, *more)
            case StateWanted():
                return json.dumps(self.state).encode()
            case StateGiven(state=state):
                assert state is not None
                self.state, self.has_state = read(state), True
            case SideStates(states=states):
                self.state, self.has_state = (
                    merged([read(one.state or b"") for one in states]),
                    True,
                )
            case Waiting():
                self.has_state = False
        return None


def read(state: bytes) -> State:
    everything, ordered = json.loads(state)
    return tuple(everything), tuple(ordered)


def merged(states: list[State]) -> State:
    """What one has after the other, each event once."""
    everything = sorted({name for state in states for name in state[0]})
    ordered = dict.fromkeys(name for state in states for name in state[1])
    return tuple(everything), tuple(ordered)


def scenario(seed: int, rule: str) -> Scenario:
    """One of the storms, and quiet for as long as the options say that members may need.

    The rest of a member that fails in several changes doubles each time, up to `rest_limit`. So
    when the faults end one may rest for as long as they lasted. Then it is merged with, and
    somebody may be noticed as gone, or courted in vain, within a few suspicion limits. The law
    `rest` looks at the second half.
    """
    parsed = merge_storms.scenario(seed, merge=rule)
    options = options_for(FAMILY, dict(parsed.options))
    assert isinstance(options, SynchronyOptions)
    needed = min(options.rest_limit, parsed.duration) + 4 * options.suspicion_limit
    return msgspec.structs.replace(parsed, quiet=Duration(2 * needed))


class Merge(NamedTuple):
    node: NodeId
    sides: tuple[tuple[NodeId, ...], ...]


class StateStorm(NamedTuple):
    began: dict[int, dict[NodeId, State]]  # by view: those that began it with its state
    ended: dict[int, dict[NodeId, tuple[State, bool]]]  # the same before: whether it was the view's
    merges: dict[int, Merge]
    last: dict[NodeId, Replica]  # of those that are alive at the end
    given: int  # states
    lost: int
    trace: Trace


def run(parsed: Scenario, seed: int, build: Build = FAMILY.build) -> StateStorm:
    replicas: dict[NodeId, Replica] = {}
    storm = StateStorm({}, {}, {}, {}, 0, 0, Trace(None, []))  # type: ignore[arg-type]
    counts = {StateGiven: 0, SideStates: 0, StateLost: 0}

    def application(node: NodeId, item: Heard) -> bytes | None:
        replica = replicas.setdefault(node, Replica())
        if isinstance(item, View) and not item.transitional:
            storm.ended.setdefault(item.id, {})[node] = replica.state, replica.has_state
            replica.view, replica.has_state = item, True
        answer = replica.take(item)
        if isinstance(item, Merged):
            storm.merges[item.view.id] = Merge(node, item.sides)
        for kind in counts:
            counts[kind] += isinstance(item, kind)
        is_end = isinstance(item, View) and item.transitional
        if isinstance(item, View | Waiting | StateGiven | SideStates) and not is_end:
            assert replica.view is not None
            began = storm.began.setdefault(replica.view.id, {})
            began.pop(node, None)
            if replica.has_state:
                began[node] = replica.state
        return answer

    sink = MemorySink()
    families = {"synchrony": FAMILY._replace(build=build)}
    world = Simulation(parsed, seed, sink=sink, application=application, families=families)
    outcome = world.run()
    assert outcome.error is None, outcome.error
    alive = [process.node for process in world.processes.values() if process.alive]
    return storm._replace(
        last={node: replicas[node] for node in alive},
        given=counts[StateGiven] + counts[SideStates],
        lost=counts[StateLost],
        trace=Trace(outcome.header, sink.rows),
    )


def faults_of(storm: StateStorm, rule: str) -> list[str]:
    wrong = [f"{node} has an event twice" for node, one in storm.last.items() if one.doubled]
    for view, states in storm.began.items():
        if len(set(states.values())) > 1:
            wrong.append(f"view {view} begins with different states at {sorted(map(str, states))}")
    for view, merge in storm.merges.items():
        expected = _expected(storm, view, merge, rule)
        for node, state in storm.began.get(view, {}).items():
            if expected is not None and state != expected:
                wrong.append(f"view {view} does not begin with the state of {rule} at {node}")
                break
    views = {replica.view.id: replica for replica in storm.last.values() if replica.view}
    if len(views) == 1 and len({replica.state for replica in storm.last.values()}) > 1:
        wrong.append("in the end the states differ")
    if not all(replica.has_state for replica in storm.last.values()):
        wrong.append("in the end a state is missing")
    return wrong


def _expected(storm: StateStorm, view: int, merge: Merge, rule: str) -> State | None:
    """With which state a view should begin; None: not all that it depends on was seen."""
    found: list[tuple[bool, int, NodeId, State]] = []
    for side in merge.sides:
        states = [storm.ended[view][node] for node in side if node in storm.ended[view]]
        has = [state for state, has_state in states if has_state]
        if len(states) < len(side) or not has:
            return None
        found.append((has[0] == EMPTY, -len(side), side[0], has[0]))
    if rule == "largest":
        return min(found)[3]
    everything, ordered = merged([each[3] for each in found])
    began: dict[NodeId, State] = storm.began.get(view, {})
    some: Any = next(iter(began.values()), None)
    if some is None or some[0] != everything or sorted(some[1]) != sorted(ordered):
        return everything, ordered
    return some  # the order of the sides is their own
