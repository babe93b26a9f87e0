"""The explorer: it tries everything within its bounds, finds planted bugs, and says how much."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from ordercast.check.laws import check
from ordercast.check.verdict import Verdict
from ordercast.errors import UsageError
from ordercast.kernel.family import Family, machine_per_group
from ordercast.kernel.step import DATAGRAM, Step
from ordercast.protocol import fifo
from ordercast.protocol.fifo.member import FifoMember
from ordercast.protocol.fifo.options import FifoOptions
from ordercast.protocol.fifo.packets import Alive, Data
from ordercast.protocol.fifo.peers import PRESENT, Peer
from ordercast.scenario.schema import GroupSettings, Scenario
from ordercast.sim.explore import Bounds, Setting, explore, replay, setting, setting_of
from ordercast.sim.explore.members import Failure
from ordercast.sim.explore.model import COSTS, Model, SystemState, Usage, free_model
from ordercast.sim.explore.run import begin, trace_of
from ordercast.sim.explore.schedule import describe
from ordercast.trace.schema import Ending, Trace
from ordercast.types import Event, Payloads
from ordercast.units import MILLISECOND, Duration

FEW_TICKS = FifoOptions(
    heartbeat=Duration(50 * MILLISECOND), suspicion_limit=Duration(200 * MILLISECOND)
)
TWO_TICKS = FifoOptions(
    heartbeat=Duration(50 * MILLISECOND), suspicion_limit=Duration(100 * MILLISECOND)
)


def fifo_setting(members: int, options: FifoOptions = FEW_TICKS, **rules: Any) -> Setting:
    return setting(fifo.FAMILY, members, options, latest_only=True, **rules)


def family_of(member: type[FifoMember]) -> Family:
    return fifo.FAMILY._replace(build=machine_per_group(member))


def no_judge(trace: Trace) -> list[Verdict]:
    return []


# --- fifo keeps its laws -----------------------------------------------------------------------

N1_TWICE = {"n1": 2}


@pytest.mark.parametrize(
    ("members", "settle", "bounds", "states"),
    [
        (2, True, Bounds(submissions=1), 10),
        (2, True, Bounds(submissions=2, crashes=1), 400),
        (2, False, Bounds(submissions=2, crashes=1, timers=2), 20_000),
        (2, True, Bounds(submissions=1, crashes=1, timers=2), 1_000),
        (2, True, Bounds(submissions=1, crashes=1, restarts=1, timers=2), 3_000),
        (2, True, Bounds(submissions=1, cuts=1, timers=2), 1_000),
        (2, True, Bounds(submissions=1, losses=1, duplicates=1, timers=2), 1_000),
        (3, False, Bounds(submissions=1, crashes=1), 4_000),
        (3, True, Bounds(submissions=N1_TWICE, crashes=1), 50),
        (3, True, Bounds(submissions=N1_TWICE, crashes=1, timers=1), 1_000),
        (3, True, Bounds(submissions={"n1": 1, "n2": 1}, crashes=2), 400),
    ],
)
def test_fifo_breaks_no_law(members: int, settle: bool, bounds: Bounds, states: int) -> None:
    report = explore(fifo_setting(members), bounds, check, settle=settle)
    assert report.broken is None, report
    assert report.complete
    assert report.unfinished == 0
    assert report.states > states, report
    # Every transition but those that found a new state led to a known one.
    assert report.transitions == report.repeated + report.states - 1
    assert (report.settled > 0) == settle


def test_fifo_forms_in_any_way_without_a_prelude() -> None:
    where = fifo_setting(2, TWO_TICKS, prelude=False)
    report = explore(where, Bounds(submissions=1, timers=3), check, settle=True)
    assert report.broken is None, report
    assert report.complete
    assert report.states > 1_000


def test_a_report_is_one_sentence() -> None:
    report = explore(fifo_setting(2), Bounds(submissions=1), check)
    assert str(report).startswith(f"{report.states} states (")
    assert str(report).endswith("complete within the bounds")


# --- planted bugs ------------------------------------------------------------------------------


class AnyOrder(FifoMember):
    """Sends its events by datagram, and delivers what comes as it comes."""

    def submit(self, step: Step, group: str, payloads: Payloads, size: int) -> Event:
        event = super().submit(step, group, payloads, size)
        step.sent = [(to, packet, DATAGRAM, (None,) * len(to)) for to, packet, _, _ in step.sent]
        return event

    def _receive_data(self, step: Step, peer: Peer, data: Data) -> None:
        self.streams.by_origin[data.origin].append(data)
        step.deliver(self._event(data))


class Uncounted(FifoMember):
    """Delivers what comes by link without a look at its number."""

    def _receive_data(self, step: Step, peer: Peer, data: Data) -> None:
        if peer.standing is not PRESENT:
            self._connect(step, peer)
        self.streams.by_origin[data.origin].append(data)
        step.deliver(self._event(data))


class NeverRelays(FifoMember):
    def _relay(self, step: Step) -> None:
        pass


class LetsGo(FifoMember):
    """Takes every event for stable as soon as it has it itself."""

    def _receive_data(self, step: Step, peer: Peer, data: Data) -> None:
        super()._receive_data(step, peer, data)
        for stream in self.streams.by_origin.values():
            stream.held.discard_up_to(stream.received_up_to)


class AcknowledgesEarly(FifoMember):
    """Says that it has of every stream what the one that is furthest has."""

    def report(self, step: Step) -> None:
        super().report(step)
        to, alive, channel, token = step.sent.pop()
        assert isinstance(alive, Alive)
        peers = list(self.peers)
        received = [
            (origin, max([up_to, *(peer.received.get(origin, 0) for peer in peers)]))
            for origin, up_to in alive.received
        ]
        step.sent.append((to, Alive(self.group, received, alive.hears), channel, token))


class Fragile(FifoMember):
    """Falls over when it has set somebody aside."""

    def _set_aside(self, step: Step, peer: Peer) -> None:
        raise AssertionError(f"{peer.name} should not be silent")


VANISHED = {"n1 submits", "n1 → n2: fifo.data n1:1", "n1 crashes"}
MUTANTS: list[tuple[type[FifoMember], Setting, Bounds, str, int]] = [
    (AnyOrder, fifo_setting(2), Bounds(submissions=N1_TWICE), "fifo", 4),
    (AnyOrder, fifo_setting(2), Bounds(submissions=1, duplicates=1), "no-duplication", 3),
    (
        Uncounted,
        fifo_setting(2, TWO_TICKS),
        Bounds(submissions={"n1": 1}, timers=3),
        "no-duplication",
        8,
    ),
    (NeverRelays, fifo_setting(3), Bounds(submissions={"n1": 1}, crashes=1), "agreement", 4),
    (LetsGo, fifo_setting(3), Bounds(submissions={"n1": 1}, crashes=1), "agreement", 4),
    (AcknowledgesEarly, fifo_setting(3), Bounds(submissions={"n1": 1}, crashes=1), "agreement", 4),
]


def with_mutant(where: Setting, member: type[FifoMember]) -> Setting:
    ((_, plans),) = where.parts
    return Setting(
        where.names,
        ((family_of(member), plans),),
        latest_only=where.latest_only and member is not AnyOrder,
    )


@pytest.mark.parametrize(
    ("member", "where", "bounds", "law", "length"),
    MUTANTS,
    ids=[f"{member.__name__}-{law}" for member, _, _, law, _ in MUTANTS],
)
def test_a_planted_bug_is_found_by_the_shortest_schedule(
    member: type[FifoMember], where: Setting, bounds: Bounds, law: str, length: int
) -> None:
    settle = law == "agreement"  # what is missing shows only when all has come to rest
    assert explore(where, bounds, check, settle=settle).broken is None  # fifo as it is
    where = with_mutant(where, member)
    report = explore(where, bounds, check, settle=settle)
    broken = report.broken
    assert broken is not None, report
    assert not report.complete
    assert broken.verdict is not None
    assert broken.verdict.law == law
    assert len(broken.schedule) == length, broken
    assert broken.settled == settle
    assert all(line in str(broken) for line in broken.schedule)
    assert broken.verdict.why in str(report)
    # The schedule is all that is needed to see it again.
    again = replay(where, broken.schedule, check, settle=broken.settled)
    assert broken.verdict in again.verdicts
    assert again.trace == broken.trace
    assert law in again.broken
    # And without the mutant the same way, where it exists, breaks nothing.
    if law == "agreement":
        assert set(broken.schedule) > VANISHED
        healthy = replay(fifo_setting(3), broken.schedule, check, settle=settle)
        assert healthy.broken == ()
    # Nothing shorter does it, unless it is a fair run that was not due before.
    else:
        shorter = Bounds(**{**as_dict(bounds), "depth": length - 1})
        cut = explore(where, shorter, check)
        assert cut.broken is None
        assert cut.complete
        assert cut.unfinished > 0
        assert "could go on" in str(cut)


def as_dict(bounds: Bounds) -> dict[str, Any]:
    return {name: getattr(bounds, name) for name in bounds.__struct_fields__}


def test_the_lines_of_a_schedule_can_be_read() -> None:
    where = with_mutant(fifo_setting(2, TWO_TICKS), Uncounted)
    report = explore(where, Bounds(submissions={"n1": 1}, timers=3), check)
    assert report.broken is not None
    assert sorted(report.broken.schedule) == [
        "n1 submits",
        "n1 timer tick",
        "n1 timer tick",
        "n1 → n2: fifo.data n1:1",
        "n1 → n2: fifo.data n1:1",
        "n1 → n2: fifo.start n1",
        "n2 timer tick",
        "n2 → n1: fifo.alive",
    ]
    head, *lines = str(report.broken).splitlines()
    assert head.startswith("no-duplication is broken: ")
    assert lines[:8] == [f"{n:3}  {line}" for n, line in enumerate(report.broken.schedule, 1)]
    assert lines[8] == "  witness:"
    assert [line.split()[:3] for line in lines[9:]] == [["n2", "deliver", "n1:1"]] * 2


def test_a_machine_that_raises_is_a_break_with_a_schedule() -> None:
    where = with_mutant(fifo_setting(2, TWO_TICKS), Fragile)
    report = explore(where, Bounds(submissions=0, timers=2), check)
    assert report.broken is not None
    assert report.broken.schedule == ("n1 timer tick", "n1 timer tick")
    assert report.broken.error is not None
    assert report.broken.error.startswith("AssertionError at test_explore.py:")
    assert report.broken.error.endswith("n2 should not be silent")
    assert report.broken.trace.header.ending is Ending.FAILED
    assert "a machine broke: AssertionError" in str(report)
    again = replay(where, report.broken.schedule, check)
    assert again.error == report.broken.error
    assert again.trace == report.broken.trace


def test_a_machine_that_raises_while_a_run_settles_is_a_break_too() -> None:
    where = with_mutant(fifo_setting(2, TWO_TICKS), Fragile)
    report = explore(where, Bounds(submissions=0, crashes=1), check, settle=True)
    assert report.broken is not None
    assert report.broken.settled
    assert report.broken.schedule == ("n1 crashes",)
    again = replay(where, report.broken.schedule, check, settle=True)
    assert again.error == report.broken.error


def test_a_search_can_begin_behind_a_schedule() -> None:
    where = with_mutant(fifo_setting(2, TWO_TICKS), Uncounted)
    after = ["n1 submits", "n1 timer tick", "n1 timer tick", "n2 timer tick"]
    report = explore(where, Bounds(submissions={"n1": 1}), check, after=after)
    assert report.broken is not None
    assert list(report.broken.schedule[:4]) == after
    assert (report.depth, len(report.broken.schedule)) == (4, 8)
    assert "no-duplication" in replay(where, report.broken.schedule, check).broken
    with pytest.raises(UsageError, match="breaks a machine: AssertionError"):
        explore(with_mutant(where, Fragile), Bounds(), check, after=after)


def test_a_line_that_cannot_happen_is_refused() -> None:
    with pytest.raises(UsageError, match=r"line 2, 'n1 → n2: fifo.data n1:2', cannot .* n1 → n2"):
        replay(fifo_setting(2), ["n1 submits", "n1 → n2: fifo.data n1:2"], check)


# --- what is tried, compared with trying it without any memory ---------------------------------


def every_path(where: Setting, bounds: Bounds) -> Iterator[str]:
    """What the members wrote at each point of each path; nothing is recognised."""
    model = Model(where, bounds, settles=False)
    begun = begin(model)
    todo: list[tuple[list[SystemState], Usage]] = [(begun, Usage())]
    while todo:
        run, used = todo.pop()
        yield written(trace_of(model, run, Ending.CUT))
        if len(run) - len(begun) == bounds.depth:
            continue
        for action in model.choices(run[-1], used):
            spent = list(used)
            if action[0] in COSTS:
                spent[COSTS[action[0]]] += 1
            after = model.apply(run[-1], action)
            assert not isinstance(after, Failure)
            todo.append(([*run, after], Usage(*spent)))


def written(trace: Trace) -> str:
    """Each member's log without the times, which a schedule has and a state has not."""
    rows = sorted(trace.rows, key=lambda row: (row.process, row.incarnation, row.step))
    return "\n".join(str(msgspec.structs.replace(row, at=0)) for row in rows)


@pytest.mark.parametrize(
    "bounds",
    [
        Bounds(submissions=1, crashes=1),
        Bounds(submissions=2, depth=8),
        Bounds(submissions=1, crashes=1, restarts=1, depth=6),
        Bounds(submissions={"n1": 1}, timers=3, depth=7),
        Bounds(submissions={"n1": 2}, cuts=1, timers=1, depth=6),
    ],
)
def test_recognising_states_hides_nothing(bounds: Bounds) -> None:
    seen: set[str] = set()

    def judge(trace: Trace) -> list[Verdict]:
        assert trace.header.ending is Ending.CUT
        seen.add(written(trace))
        return []

    where = fifo_setting(2, TWO_TICKS)
    assert explore(where, bounds, judge).complete
    assert seen == set(every_path(where, bounds))


def test_reactions_that_are_remembered_are_those_of_a_fresh_machine() -> None:
    """Random walks in one model, each repeated by its lines in a model that remembers nothing."""
    where = fifo_setting(3, TWO_TICKS)
    bounds = Bounds(submissions=2, crashes=1, restarts=1, timers=6, duplicates=2, cuts=1)
    model, chance = Model(where, bounds, settles=True), Random(1)
    begun = begin(model)
    for _ in range(40):
        run, lines = list(begun), []
        for _ in range(chance.randrange(25)):
            action = chance.choice(model.choices(run[-1], Usage()))
            lines.append(describe(free(model), run[-1], action))
            after = model.apply(run[-1], action)
            assert not isinstance(after, Failure)
            run.append(after)
        assert replay(where, lines, no_judge).trace == trace_of(model, run, Ending.CUT)


def free(model: Model) -> Model:
    other = free_model(model.setting)
    other.members, other.logs = model.members, model.logs
    return other


def test_a_report_does_not_depend_on_the_hash_seed() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import test_explore as t\n"
        "s = t.fifo_setting(2)\n"
        "r = t.explore(s, t.Bounds(submissions=2, crashes=1), t.check, settle=True)\n"
        "m = t.with_mutant(t.fifo_setting(3), t.LetsGo)\n"
        "b = t.explore(m, t.Bounds(submissions={'n1': 1}, crashes=1), t.check, settle=True)\n"
        "print(r, b, b.broken.trace)\n"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code, str(Path(__file__).parent)],
            env={
                **os.environ,
                "PYTHONHASHSEED": seed,
                "PYTHONIOENCODING": "utf-8",
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            },
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "77")
    }
    assert len(said) == 1
    assert b"agreement is broken" in said.pop()


# --- bounds ------------------------------------------------------------------------------------


def test_no_path_goes_beyond_its_bounds() -> None:
    most: Counter[str] = Counter()

    def judge(trace: Trace) -> list[Verdict]:
        kinds = Counter(row.kind for row in trace.rows)
        kinds["submit n1"] = sum(r.kind == "submit" and r.process == "n1" for r in trace.rows)
        most.update({kind: max(0, count - most[kind]) for kind, count in kinds.items()})
        return []

    bounds = Bounds(submissions={"n1": 2, "n2": 1}, crashes=2, restarts=1)
    report = explore(fifo_setting(2), bounds, judge)
    assert report.complete
    found = {kind: most[kind] for kind in ("submit", "submit n1", "crash", "start")}
    # A member that restarts still has the submissions left that it did not make before.
    assert found == {"submit": 3, "submit n1": 2, "crash": 2, "start": 3}


def test_a_truncated_search_says_so() -> None:
    bounds = Bounds(submissions=2, crashes=1, max_states=100)
    report = explore(fifo_setting(2), bounds, check)
    assert report.states == 100
    assert not report.complete
    assert report.broken is None
    assert "cut by max_states" in str(report)


def test_the_depth_bound_is_kept_and_its_states_are_settled() -> None:
    bounds = Bounds(submissions={"n1": 1}, timers=4, depth=3)
    report = explore(fifo_setting(2), bounds, check, settle=True)
    assert report.depth == 3
    assert report.complete
    assert report.unfinished > 0
    assert report.settled >= report.unfinished
    assert report.broken is None


def test_a_prelude_that_forms_no_group_is_refused() -> None:
    with pytest.raises(UsageError, match="somebody accepts nothing after 0 rounds"):
        explore(fifo_setting(2, rounds=0), Bounds(), check)


def test_a_scenario_can_be_explored() -> None:
    scenario = Scenario(
        name="two groups",
        processes=3,
        group=[
            GroupSettings(name="a", members=["n1", "n2"]),
            GroupSettings(name="b", members=["n2", "n3"]),
        ],
    )
    where = setting_of(scenario, latest_only=True)
    assert where.groups == ("a", "b")
    report = explore(where, Bounds(submissions={"n2": 1}), check, settle=True)
    assert report.complete
    assert report.broken is None
    again = replay(where, ["n2 submits to b", "n2 → n3: fifo.data n2:1"], check)
    assert [row.group for row in again.trace.rows if row.kind == "deliver"] == ["b", "b"]
    with pytest.raises(UsageError, match="unknown family 'fifo'"):
        setting_of(scenario, families={})
    opened = msgspec.structs.replace(scenario.group[0], open=True, anchors=["n1"])
    with pytest.raises(UsageError, match="open groups cannot be explored"):
        setting_of(msgspec.structs.replace(scenario, group=[opened]))
