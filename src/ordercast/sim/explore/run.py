"""One run of the explorer's world: how it begins, how it comes to rest, and the trace of it.

A run is the list of its states. Beginning and settling are fair runs: nothing is lost or doubled,
no member fails, no application is full, everything arrives before timers run out, and timers run
out in rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ordercast.errors import UsageError
from ordercast.kernel.family import services_in
from ordercast.kernel.step import Note
from ordercast.sim.explore.members import Failure, Submitted
from ordercast.sim.explore.model import Action, Model, SystemState
from ordercast.trace.journal import TraceJournal
from ordercast.trace.schema import Ending, Header, Row, Trace
from ordercast.types import Event, View
from ordercast.units import MILLISECOND

MOST_DELIVERIES = 10_000
"""A fair run in which more than so many packets arrive between two rounds never comes to rest."""


class FairRun(NamedTuple):
    states: list[SystemState]  # after the one that it began with
    error: str | None
    boundaries: list[SystemState]  # at the end of each round


def fair_run(
    model: Model,
    state: SystemState,
    rounds: int,
    enough: Callable[[SystemState, int], bool] = lambda state, left: False,
) -> FairRun:
    """Everything arrives, then all timers run out once, and so on, until nothing changes."""
    states: list[SystemState] = []
    boundaries: list[SystemState] = []
    try:
        for pair in state.cuts:
            states.append(state := _done(model, state, ("mend", pair)))
        for who, number in enumerate(state.cores):
            for group in model.members.cores[number].full:
                states.append(state := _done(model, state, ("read", who, group)))
        for left in range(rounds, -1, -1):
            state = _drain(model, state, states)
            known = bool(boundaries) and state == boundaries[-1]
            boundaries.append(state)
            if known or not left or enough(state, left):
                break
            for who, number in enumerate(state.cores):
                for machine, timer, _ in model.members.cores[number].timers:
                    now = model.members.cores[state.cores[who]].timers
                    if any(each[:2] == (machine, timer) for each in now):
                        action = ("timer", who, machine, timer)
                        states.append(state := _done(model, state, action))
    except _MachineBroke as broke:
        return FairRun(states, str(broke), boundaries)
    return FairRun(states, None, boundaries)


class _MachineBroke(Exception):
    """Ends a fair run."""


def _done(model: Model, state: SystemState, action: Action) -> SystemState:
    after = model.apply(state, action)
    if isinstance(after, Failure):
        raise _MachineBroke(after.error)
    return after


def _drain(model: Model, state: SystemState, states: list[SystemState]) -> SystemState:
    for _ in range(MOST_DELIVERIES):
        possible = model.deliveries(state)
        if not possible:
            return state
        states.append(state := _done(model, state, possible[0]))
    raise _MachineBroke(f"no rest: {MOST_DELIVERIES} packets arrived and more are underway")


def begin(model: Model) -> list[SystemState]:
    """All members start; with a prelude they form their groups in peace."""
    states = [model.unborn()]
    names = model.setting.names
    for who in range(len(names)):
        after = model.apply(states[-1], ("restart", who))
        if isinstance(after, Failure):
            raise UsageError(f"{names[who]} cannot start: {after.error}")
        states.append(after)
    if model.setting.prelude:
        fair = fair_run(
            model, states[-1], model.setting.rounds, lambda state, left: _all_accept(model, state)
        )
        states += fair.states
        if fair.error or not _all_accept(model, states[-1]):
            why = fair.error or f"somebody accepts nothing after {model.setting.rounds} rounds"
            raise UsageError(f"the prelude failed: {why}")
    return states


def _all_accept(model: Model, state: SystemState) -> bool:
    """Everybody who may send at all."""
    cores = [model.members.cores[number] for number in state.cores]
    return all(
        plan.group in core.accepting
        for core in cores
        for family, plans in model.setting.parts
        for plan in plans
        if core.node.name in plan.members
        and plan.group not in model.setting.joins.get(core.node.name, ())
        and family.may_send(plan, core.node.name)
    )


# --- traces ------------------------------------------------------------------------------------


def trace_of(model: Model, run: Sequence[SystemState], ending: Ending) -> Trace:
    """What the members wrote on this run. A step takes a millisecond, unless clocks tell."""
    rows: list[Row] = []
    journals: dict[int, TraceJournal] = {}
    before = run[0].logs
    for place, state in enumerate(run):
        if state.logs is before:
            continue
        for who, log in enumerate(state.logs):
            if log != before[who]:
                _write(model, journals, who, log, place * MILLISECOND, rows)
        before = state.logs
    end = len(run) * MILLISECOND
    if model.setting.timed:
        end = max(model.members.cores[number].clock for number in run[-1].cores)
    if ending is Ending.FINISHED:
        for who, number in enumerate(run[-1].cores):
            if model.members.cores[number].alive:
                journals[who].row(end, "stop")
    header = Header(
        run="explored",
        family=model.setting.family,
        seed=model.setting.seed,
        start=0,
        end=end,
        ending=ending,
        services=services_in(family for family, _ in model.setting.parts),
    )
    return Trace(header, rows)


def _write(
    model: Model, journals: dict[int, TraceJournal], who: int, log: int, at: int, rows: list[Row]
) -> None:
    entry = model.members.entries[model.logs.last[log]]
    assert entry is not None
    if model.setting.timed:
        at = entry.at
    for item in entry.items:
        if isinstance(item, Submitted):
            journals[who].submit(at, item.event)
        elif isinstance(item, Event):
            journals[who].deliver(at, item)
        elif isinstance(item, Note):
            if item.kind == "start":
                journals[who] = TraceJournal(entry.node, rows.append)
            journals[who].row(at, item.kind, **item.columns)
        elif isinstance(item, View):
            journals[who].view(at, item)
