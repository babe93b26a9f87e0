"""The application's state when sides merge: all members of a view go on from the same one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from tests.protocol.transis import merge_storms, state_storms
from tests.protocol.transis.state_storms import faults_of

from ordercast.check.laws import check
from ordercast.errors import PeerError
from ordercast.kernel.family import machine_per_group
from ordercast.kernel.inputs import LARGEST_STATE
from ordercast.kernel.step import LINK
from ordercast.protocol.transis import FAMILY, states
from ordercast.protocol.transis.member import SynchronyMember
from ordercast.protocol.transis.options import SynchronyOptions
from ordercast.protocol.transis.packets import (
    STATE_BYTES,
    ConfigurationId,
    Ready,
    State,
    StatePart,
)
from ordercast.protocol.transis.states import StateExchange, StateSource
from ordercast.testing.stage import Stage
from ordercast.types import Event, NodeId, SideStates, StateGiven, StateLost, StateWanted, View

# Seed 93 with "all" once waited for ever: those that were asked for their states still waited for
# an earlier one, whose giver had crashed.
# In seed 454 a member that is left alone courts one that has crashed for as long as it counts as
# heard, three suspicion limits.
STORMS = [("largest", range(7)), ("all", (*range(5), 454)), ("all", range(93, 94))]


@pytest.mark.parametrize(("rule", "seeds"), STORMS)
def test_storms_leave_all_members_of_a_view_with_one_state(rule: str, seeds: Iterable[int]) -> None:
    given = 0
    for seed in seeds:
        storm = state_storms.run(state_storms.scenario(seed, rule), seed)
        assert faults_of(storm, rule) == [], seed
        assert FAMILY.promises is not None
        for verdict in check(storm.trace, FAMILY.promises.laws):
            assert verdict.answer == "holds", (seed, verdict.law, verdict.why)
        given += storm.given
    assert given > 5


class _Smallest(StateExchange):
    """Takes the state of the smallest side."""

    def choose(self, sources: list[StateSource], inheritance: Any) -> tuple[StateSource, ...]:
        return (max(sources, key=lambda one: (one.blank, -len(one.side), one.side[0])),)


class _Hasty(StateExchange):
    """Does not hold back what follows the view."""

    is_waiting = False  # type: ignore[assignment]

    def put(self, step: Any, output: Any) -> None:
        step.outputs.append(output)


class _Keeps(StateExchange):
    """Everybody says that it has the state of its view."""

    def installed(self, step: Any, decision: Any, joint: Any, time: int) -> None:
        super().installed(step, decision, joint, time)
        self.lineage = states.Lineage(decision.id, self.lineage.blank)


@pytest.mark.parametrize(
    ("broken", "seeds"), [(_Smallest, range(10)), (_Hasty, range(10)), (_Keeps, range(159, 160))]
)
def test_storms_find_broken_exchanges(broken: type[StateExchange], seeds: Iterable[int]) -> None:
    class Broken(SynchronyMember):
        states_type = broken

    for seed in seeds:
        parsed = merge_storms.scenario(seed, merge="largest")
        storm = state_storms.run(parsed, seed, machine_per_group(Broken))
        if faults_of(storm, "largest"):
            return
    pytest.fail("no storm found it")


# --- on a stage ------------------------------------------------------------------------------


OVERTAKEN = f"lost: {states.OVERTAKEN}"


def heard(stage: Stage, name: str) -> list[str]:
    """What an application hears, in order: messages, sizes of views, states."""
    found = []
    for who, what in stage.log:
        if who == stage.node(name):
            match what:
                case Event():
                    found.append(what.payloads[0].decode())
                case View(transitional=False):
                    found.append(f"view of {len(what.members)}")
                case StateWanted():
                    found.append("asked")
                case StateGiven(state=state, failure=failure):
                    found.append(f"given {failure or (state or b'nothing').decode()[:9]}")
                case SideStates():
                    told = [(one.state or one.failure.encode()).decode() for one in what.states]
                    found.append(f"given {' and '.join(told)}")
                case StateLost():
                    found.append(f"lost: {what.why}")
    return found


def parted(rule: str, *sides: str) -> Stage:
    """These sides are apart and merge. Each member has sent its name to its side."""
    names = " ".join(sorted(" ".join(sides).split()))
    stage = Stage.of("synchrony", names, merge=rule)
    for here in sides:
        for there in sides:
            for one in here.split():
                for other in there.split():
                    if here != there:
                        stage.cut(one, other)
    stage.settle(ticks=40)
    for name in names.split():
        stage.submit(name, [name.encode()])
    stage.settle(ticks=2)
    stage.cuts.clear()
    stage.settle(ticks=40)
    return stage


def test_the_smaller_side_goes_on_from_the_state_of_the_larger() -> None:
    stage = parted("largest", "n1", "n2 n3")
    stage.submit("n2", [b"early"])
    stage.settle()
    assert heard(stage, "n2")[-1] == "asked"  # n1 does not admit it yet, so it is not agreed
    assert heard(stage, "n1")[-2:] == ["n1", "view of 3"]
    assert stage.accepts("n1")
    stage.submit("n1", [b"waits"])
    stage.provide("n2", b"state")
    stage.settle(ticks=2)
    assert heard(stage, "n1")[-4:] == ["view of 3", "given state", "early", "waits"]
    assert heard(stage, "n3")[-3:] == ["view of 3", "early", "waits"]


def test_the_next_member_gives_the_state_if_the_first_is_gone() -> None:
    stage = parted("largest", "n1 n4", "n2 n3 n5")
    stage.submit("n3", [b"early"])
    stage.settle()
    stage.crash("n2")
    stage.settle(ticks=40)
    stage.provide("n3", b"later")
    stage.settle(ticks=2)
    assert heard(stage, "n3")[-3:] == ["early", "view of 4", "asked"]
    told = ["view of 5", OVERTAKEN, "early", "view of 4", "given later"]
    assert heard(stage, "n1")[-5:] == told
    assert heard(stage, "n4")[-5:] == heard(stage, "n1")[-5:]


def test_a_state_that_comes_late_counts_if_the_next_one_is_not_there() -> None:
    stage = parted("largest", "n1", "n2 n3")
    stage.crash("n3")
    stage.start("n3")
    stage.settle(ticks=40)
    stage.provide("n2", b"first")
    stage.settle()
    assert heard(stage, "n1")[-2:] == ["given first", "view of 2"]
    stage.provide("n2", b"second")
    stage.provide("n2", b"third")
    stage.settle()
    assert heard(stage, "n1")[-3:] == ["given second", "view of 3", "given third"]
    assert heard(stage, "n3")[-2:] == ["view of 3", "given third"]


def test_newcomers_do_not_overrule_a_member() -> None:
    """n2 and n3 have met, and nothing was ever delivered to them."""
    stage = Stage.of("synchrony", "n1 n2 n3", merge="largest", formed=False)
    stage.cut("n1", "n2")
    stage.cut("n1", "n3")
    stage.submit("n1", [b"old"])
    stage.settle(ticks=40)
    stage.provide("n2", b"empty")
    stage.settle()
    assert heard(stage, "n3")[-2:] == ["view of 2", "given empty"]
    stage.cuts.clear()
    stage.settle(ticks=40)
    stage.provide("n1", b"state")
    stage.settle()
    for name in ("n2", "n3"):
        assert heard(stage, name)[-2:] == ["view of 3", "given state"]


def test_all_members_are_given_the_states_of_all_sides() -> None:
    stage = parted("all", "n1", "n2 n3")
    stage.provide("n1", b"one")
    stage.settle()
    assert heard(stage, "n3")[-1] == "view of 3"
    stage.provide("n2", b"two")
    stage.settle()
    for name in ("n1", "n2", "n3"):
        assert heard(stage, name)[-1] == "given one and two"


def test_a_large_state_comes_in_parts() -> None:
    stage = parted("largest", "n1", "n2 n3")
    state = bytes(range(256)) * (STATE_BYTES // 100)
    stage.provide("n2", state)
    stage.settle()
    [given] = [what for _, what in stage.log if isinstance(what, StateGiven)]
    assert given.state == state


# --- applications that do not answer ----------------------------------------------------------


def wait_for_state(stage: Stage) -> None:
    """The state limit passes, and what follows from it."""
    until = stage.now + SynchronyOptions().state_limit
    while stage.now < until:
        stage.settle(ticks=1)
    stage.settle(ticks=4)


def test_the_next_member_is_asked_if_an_application_does_not_answer() -> None:
    stage = parted("largest", "n1 n2", "n3")
    stage.submit("n2", [b"early"], service="causal")
    stage.settle()
    assert heard(stage, "n1")[-2:] == ["asked", "early"]
    wait_for_state(stage)
    assert heard(stage, "n2")[-3:] == ["early", "view of 3", "asked"]
    stage.submit("n1", [b"waits"])
    stage.settle(ticks=2)
    assert heard(stage, "n3")[-1] == "view of 3"
    stage.provide("n2", b"state")
    stage.settle(ticks=4)
    told = ["view of 3", OVERTAKEN, "early", "view of 3", "given state", "waits"]
    assert heard(stage, "n3")[-6:] == told
    for asked, name in enumerate(("n2", "n1")):  # n1 is asked again when it has answered
        stage.crash("n3")
        stage.settle(ticks=40)
        stage.start("n3")
        stage.settle(ticks=40)
        assert heard(stage, name)[-2:] == ["view of 3", "asked"]
        if not asked:
            stage.provide("n2", b"later")
            stage.provide("n1", b"at last")
            stage.settle(ticks=4)


def test_a_giver_that_neither_gives_its_state_nor_says_so_is_excluded() -> None:
    """n1 lies: its machine never says that its application does not answer."""
    stage = parted("largest", "n1 n2", "n3")
    liar: Any = stage.machine("n1")
    assert heard(stage, "n1")[-1] == "asked"
    liar.states.due_at = None
    wait_for_state(stage)
    assert heard(stage, "n3")[-1] == "view of 3"
    stage.submit("n2", [b"meanwhile"])
    wait_for_state(stage)
    assert "asked" in heard(stage, "n2")
    stage.provide("n2", b"state")
    stage.settle(ticks=4)
    assert "given state" in heard(stage, "n3")


def test_a_state_that_comes_in_parts_may_take_its_time() -> None:
    """Each part is a sign that the giver has not forgotten those who wait."""
    stage = parted("largest", "n1 n2", "n3")
    giver: Any = stage.machine("n1")
    giver.states.due_at = None
    for _ in range(3):
        stage.inject(NodeId("n1"), "n3", StatePart("g", giver.current.cid, b"x"), LINK)
        wait_for_state(stage)
        wait_for_state(stage)
    taker: Any = stage.machine("n3")
    assert len(taker.current.members) == 3
    assert taker.states.is_waiting


def test_a_side_whose_applications_do_not_answer_has_no_state() -> None:
    stage = parted("largest", "n1", "n2 n3")
    wait_for_state(stage)
    wait_for_state(stage)
    stage.submit("n1", [b"goes on"])
    stage.settle(ticks=4)
    told = ["view of 3", OVERTAKEN, "view of 3", f"lost: {states.LATE}", "goes on"]
    assert heard(stage, "n1")[-5:] == told
    assert heard(stage, "n3")[-3:] == ["view of 3", "asked", "goes on"]
    stage.provide("n3", b"too late")
    stage.settle(ticks=4)
    assert heard(stage, "n1")[-1] == "goes on"
    # n1 still lacks the state, and gets it as soon as there is a view and somebody answers.
    stage.crash("n2")
    stage.settle(ticks=40)
    stage.provide("n3", b"state")
    stage.settle(ticks=4)
    assert heard(stage, "n1")[-2:] == ["view of 2", "given state"]


def test_of_all_sides_one_that_does_not_answer_has_no_state() -> None:
    stage = parted("all", "n1", "n2 n3")
    stage.provide("n2", b"two")
    wait_for_state(stage)
    for name in ("n1", "n2", "n3"):
        assert heard(stage, name)[-1] == f"given {states.LATE} and two"


def test_a_member_that_was_ready_takes_no_state_before_the_view() -> None:
    """n1 and n4 wait for the state of n2, which is gone. It comes to n1 alone, when both have said
    that they lack it: then theirs counts, and that of n2 does not."""
    stage = parted("largest", "n1 n4", "n2 n3 n5")
    for gone in ("n2", "n3", "n5"):
        for left in ("n1", "n4"):
            stage.cut(gone, left)
    stage.provide("n2", b"state")
    members: list[Any] = [stage.machine(name) for name in ("n1", "n4")]
    while not all(member.current.change.readied for member in members):
        for message in stage.underway():
            is_between = {message.sender.name, message.target} == {"n1", "n4"}
            if is_between and not isinstance(message.packet, Ready):
                stage.deliver(message)
                break
        else:
            stage.fire("n1")
            stage.fire("n4")
    [state] = [one for one in stage.underway("n2", "n1") if isinstance(one.packet, State)]
    stage.mend("n2", "n1")
    for message in stage.underway("n2", "n1"):
        if message.channel.in_order and message.number <= state.number:
            stage.deliver(message)
    stage.cut("n2", "n1")
    stage.settle(ticks=4)
    for name in ("n1", "n4"):
        assert heard(stage, name)[-3:] == ["view of 5", f"lost: {states.OURS_COUNTS}", "view of 2"]


# --- lies ------------------------------------------------------------------------------------


def test_states_that_nobody_would_send_are_refused() -> None:
    stage = parted("largest", "n1", "n2 n3")
    view = stage.machine("n1").current.cid  # type: ignore[attr-defined]
    two, three = NodeId("n2"), NodeId("n3")
    with pytest.raises(PeerError, match="in 3 parts, of which 0 have come"):
        stage.inject(two, "n1", State("g", view, None, parts=3))
    stage.inject(three, "n1", State("g", view, b"not its turn"))
    stage.inject(two, "n1", State("g", ConfigurationId(9, two, 1), b"of another view"))
    assert heard(stage, "n1")[-1] == "view of 3"
    part = StatePart("g", view, b"x" * STATE_BYTES)
    for _ in range(LARGEST_STATE // STATE_BYTES):
        stage.inject(two, "n1", part)
    with pytest.raises(PeerError, match="more than"):
        stage.inject(two, "n1", part)
