"""Every schedule of a small group, up to a bound: what may happen is tried, all of it.

    from ordercast.check.laws import check
    report = explore(setting(fifo.FAMILY, 3), Bounds(submissions=1, crashes=1), check)
    print(report)

Theory of operation. From one state of the group, everything that may happen next is tried on a
copy: a member submits, a packet arrives, a timer runs out, and at most so many faults
(`model.py` has the rules). States that were met before are not tried again. The search is
breadth first, so the first schedule that breaks a law is as short as any that does. The judge is
handed in, and sees the trace of every state whose logs no earlier state had, as a run that was
cut. So the explorer knows no law, and any function of a trace can be one. What must be true of the
members in every state, such as who may do what at this moment, is for an `Invariant`.

  prelude   A family that forms its group first would spend the whole search on that. With
            `prelude` the group starts and forms in a fair run without faults, until every member
            accepts submissions and nothing is underway; the search begins there.
  settling  With `settle`, a fair run follows from every state in which nothing but faults can
            happen, and from those at the depth bound: cuts are mended, applications that are full
            take more again, everything arrives, and
            timers run out in rounds, until nothing changes or for `setting.rounds` rounds. The
            judge sees it as a finished run, so it can say what never happened.
  budgets   A state that was met with no more used of the bounds covers this one: what can
            happen from here can happen from there, and no later. It counts as repeated.

What is left out, beyond the bounds. Times in the trace are the places in the schedule, and a state
that several schedules lead to is judged by the first of them: a law that compares times of
different members is not judged on every order that they could have had. `latest_only` loses older
datagrams for free, which is right for cumulative packets and tries fewer schedules for others. A
fair run is one of many. States are told apart by fingerprints (`fingerprint.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from ordercast.errors import UsageError
from ordercast.kernel.machine import Machine
from ordercast.sim.explore.members import Failure
from ordercast.sim.explore.model import COSTS, FAULTS, Action, Model, SystemState, Usage, free_model
from ordercast.sim.explore.run import begin, fair_run, trace_of
from ordercast.sim.explore.schedule import describe, follow
from ordercast.sim.explore.setting import Bounds, Setting
from ordercast.trace.schema import Ending, Row, Trace
from ordercast.trace.text import format_history
from ordercast.types import NodeId


class LawAnswer(Protocol):
    """What a judge says of one law. `ordercast.check` has the verdicts for it."""

    @property
    def law(self) -> str: ...
    @property
    def answer(self) -> str: ...
    @property
    def witness(self) -> Sequence[Row]: ...
    @property
    def why(self) -> str: ...


Judge: TypeAlias = Callable[[Trace], Sequence[LawAnswer]]


class Present(NamedTuple):
    """One living member in one state. Look, and change nothing."""

    node: NodeId
    machines: Sequence[Machine]
    now: int  # on its own clock
    states: Mapping[str, bytes]  # of its applications, by group


Invariant: TypeAlias = Callable[[Sequence[Present]], str | None]
"""What is wrong with this state, if anything is."""


def anything(present: Sequence[Present]) -> str | None:
    return None


class _Violation(NamedTuple):
    """What an invariant said, as an answer."""

    why: str
    law: str = "the invariant"
    answer: str = "broken"
    witness: Sequence[Row] = ()


class Broken(NamedTuple):
    """A law that does not hold, or a machine that raised, and the schedule that shows it."""

    schedule: tuple[str, ...]
    settled: bool  # a fair run followed the schedule
    verdict: LawAnswer | None
    error: str | None  # what a machine raised, where there is no verdict
    trace: Trace

    def __str__(self) -> str:
        lines = [f"{place:3}  {line}" for place, line in enumerate(self.schedule, 1)]
        if self.settled:
            lines.append("     then everything arrives, and timers run out in rounds")
        if self.verdict is None:
            return "\n".join([f"a machine broke: {self.error}", *lines])
        head = f"{self.verdict.law} is broken: {self.verdict.why}"
        if not self.verdict.witness:
            return "\n".join([head, *lines])
        witness = Trace(self.trace.header, list(self.verdict.witness))
        rows = [f"     {line}" for line in format_history(witness).splitlines()[1:]]
        return "\n".join([head, *lines, "  witness:", *rows])


class Report(NamedTuple):
    """How much was tried, and what broke. The search ends with the first break."""

    states: int
    transitions: int
    repeated: int  # transitions that led to a state that was covered already
    depth: int  # of the deepest state
    unfinished: int  # states at the depth bound from which more could happen
    complete: bool  # every state within the bounds was met
    judged: int  # traces
    settled: int  # fair runs
    member_states: int
    broken: Broken | None

    def __str__(self) -> str:
        end = "cut by max_states: not everything was tried"
        if self.complete:
            end = "complete within the bounds"
        elif self.broken:
            end = "ended at the first break"
        if self.unfinished:
            end += f"; {self.unfinished} states at the depth bound could go on"
        head = (
            f"{self.states} states ({self.member_states} of members), {self.transitions} "
            f"transitions, {self.repeated} to known states, depth {self.depth}, {self.judged} "
            f"traces judged, {self.settled} fair runs; {end}"
        )
        return f"{head}\n{self.broken}" if self.broken else head


class Replayed(NamedTuple):
    trace: Trace
    verdicts: Sequence[LawAnswer]
    error: str | None

    @property
    def broken(self) -> tuple[str, ...]:
        """The laws that do not hold."""
        return tuple(each.law for each in self.verdicts if each.answer == "broken")


def explore(
    where: Setting,
    bounds: Bounds,
    judge: Judge,
    *,
    settle: bool = False,
    after: Sequence[str] = (),
    invariant: Invariant = anything,
) -> Report:
    """Tries every schedule within the bounds, until a law breaks.

    `after` is a schedule to begin with: what lies too deep for a search may lie near its end. It
    uses nothing up of the bounds but the submissions that it makes.
    """
    return _Search(where, bounds, judge, settle, tuple(after), invariant).run()


def replay(
    where: Setting, schedule: Sequence[str], judge: Judge, *, settle: bool = False
) -> Replayed:
    """Follows the lines of a schedule, and a fair run behind them, and has the end judged."""
    model = free_model(where)
    run = begin(model)
    states, error = follow(model, run[-1], schedule)
    run += states[1:]
    if settle and error is None:
        fair = fair_run(model, run[-1], where.rounds)
        run, error = run + fair.states, fair.error
    ending = Ending.FAILED if error else Ending.FINISHED if settle else Ending.CUT
    trace = trace_of(model, run, ending)
    return Replayed(trace, () if error else judge(trace), error)


# --- the search --------------------------------------------------------------------------------


class _Search:
    def __init__(
        self,
        where: Setting,
        bounds: Bounds,
        judge: Judge,
        settle: bool,
        after: tuple[str, ...],
        invariant: Invariant,
    ) -> None:
        self.model = Model(where, bounds, settle)
        self.bounds = bounds
        self.judge = judge
        self.settle = settle
        self.after = after
        self.invariant = invariant
        self.looked_at: dict[tuple[int, ...], None] = {}  # by the invariant: cores of a state
        self.begun = begin(self.model)
        states, error = follow(self._free(), self.begun[-1], after)
        if error is not None:
            raise UsageError(f"the schedule to begin with breaks a machine: {error}")
        self.begun += states[1:]
        root = self.begun[-1]
        # Node by node: the state, what the path to it used, where it came from and how.
        self.states = [root]
        self.used = [Usage()]
        self.parents = [-1]
        self.actions: list[Action] = [()]
        self.covered: dict[SystemState, tuple[Usage, ...]] = {root: (Usage(),)}
        self.judged_logs: dict[tuple[int, ...], None] = {}
        self.judged_ends: dict[tuple[int, ...], None] = {}
        self.rested: dict[SystemState, int] = {}  # rounds that a fair run went on from here
        self.transitions = self.repeated = self.unfinished = self.judged = self.settled = 0
        self.cut = False
        self.broken: Broken | None = None

    def run(self) -> Report:
        depth, first = 0, 0
        self._judge_node(0)
        self._look_at(0)
        while first < len(self.states) and not self._is_over():
            level = range(first, len(self.states))
            for node in level:
                self._expand(node, depth)
                if self._is_over():
                    break
            first = level.stop
            if first < len(self.states):
                depth += 1
        return Report(
            len(self.states),
            self.transitions,
            self.repeated,
            depth,
            self.unfinished,
            not self._is_over(),
            self.judged,
            self.settled,
            len(self.model.members.cores),
            self.broken,
        )

    def _is_over(self) -> bool:
        return self.cut or self.broken is not None

    def _expand(self, node: int, depth: int) -> None:
        model, state, used = self.model, self.states[node], self.used[node]
        choices = model.choices(state, used)
        at_bound = depth >= self.bounds.depth
        if self.settle and (at_bound or all(action[0] in FAULTS for action in choices)):
            self._settle_node(node)
        if at_bound:
            self.unfinished += bool(choices)
            return
        for action in choices:
            if self.broken is not None:
                return
            self.transitions += 1
            after = model.apply(state, action)
            if isinstance(after, Failure):
                self._break(node, action, after.error)
                return
            cost = COSTS.get(action[0])
            now = used if cost is None else _spent(used, cost)
            known = self.covered.get(after)
            if known is not None and any(_covers(earlier, now) for earlier in known):
                self.repeated += 1
                continue
            if len(self.states) >= self.bounds.max_states:
                self.cut = True
                return
            self.covered[after] = (now,) if known is None else (*known, now)
            self.states.append(after)
            self.used.append(now)
            self.parents.append(node)
            self.actions.append(action)
            if after.logs is not state.logs:
                self._judge_node(len(self.states) - 1)
            if after.cores is not state.cores:
                self._look_at(len(self.states) - 1)

    # --- judging -------------------------------------------------------------------------------

    def _judge_node(self, node: int) -> None:
        logs = self.states[node].logs
        if logs not in self.judged_logs:
            self.judged_logs[logs] = None
            self._judge(node, [], Ending.CUT)

    def _look_at(self, node: int) -> None:
        cores = self.states[node].cores
        if self.broken is not None or cores in self.looked_at:
            return
        self.looked_at[cores] = None
        members = self.model.members
        living = [core for core in map(members.cores.__getitem__, cores) if core.alive]
        wrong = self.invariant(
            [
                Present(core.node, core.machines, members.local_time(core), core.states)
                for core in living
            ]
        )
        if wrong is not None:
            trace = trace_of(self.model, self._run_to(node), Ending.CUT)
            self.broken = Broken(self._schedule(node), False, _Violation(wrong), None, trace)

    def _settle_node(self, node: int) -> None:
        def is_rested(state: SystemState, left: int) -> bool:
            return self.rested.get(state, -1) >= left

        rounds = self.model.setting.rounds
        fair = fair_run(self.model, self.states[node], rounds, is_rested)
        self.settled += 1
        if fair.error is not None:
            trace = trace_of(self.model, self._run_to(node) + fair.states, Ending.FAILED)
            self.broken = Broken(self._schedule(node), True, None, fair.error, trace)
            return
        known = is_rested(fair.boundaries[-1], rounds - len(fair.boundaries) + 1)
        for place, state in enumerate(fair.boundaries):
            self.rested[state] = max(rounds - place, self.rested.get(state, 0))
        end = fair.boundaries[-1]
        if not known and end.logs not in self.judged_ends:
            self.judged_ends[end.logs] = None
            self._judge(node, fair.states, Ending.FINISHED)

    def _judge(self, node: int, more: list[SystemState], ending: Ending) -> None:
        self.judged += 1
        trace = trace_of(self.model, self._run_to(node) + more, ending)
        for verdict in self.judge(trace):
            if verdict.answer == "broken":
                settled = ending is Ending.FINISHED
                self.broken = Broken(self._schedule(node), settled, verdict, None, trace)
                return

    def _break(self, node: int, action: Action, error: str) -> None:
        trace = trace_of(self.model, self._run_to(node), Ending.FAILED)
        schedule = (*self._schedule(node), describe(self._free(), self.states[node], action))
        self.broken = Broken(schedule, False, None, error, trace)

    # --- the way to a node ---------------------------------------------------------------------

    def _path(self, node: int) -> list[int]:
        path = []
        while node:
            path.append(node)
            node = self.parents[node]
        return path[::-1]

    def _run_to(self, node: int) -> list[SystemState]:
        return self.begun + [self.states[each] for each in self._path(node)]

    def _schedule(self, node: int) -> tuple[str, ...]:
        free = self._free()
        found = (
            describe(free, self.states[self.parents[each]], self.actions[each])
            for each in self._path(node)
        )
        return (*self.after, *found)

    def _free(self) -> Model:
        """Our members by the rules that a replay has, so that lines mean the same there."""
        free = free_model(self.model.setting)
        free.members, free.logs = self.model.members, self.model.logs
        return free


def _spent(used: Usage, cost: int) -> Usage:
    return Usage._make((*used[:cost], used[cost] + 1, *used[cost + 1 :]))


def _covers(earlier: Usage, now: Usage) -> bool:
    return all(less <= more for less, more in zip(earlier, now, strict=True))
