"""Large groups: what a founding, a silent member, a suspicion and an idle second cost."""

from __future__ import annotations

import pytest
from tests.protocol.newtop.forming_table import run, stage_of, view_of, vote_of
from tests.protocol.newtop.table import carry, fall_silent, group, node, staged, suspect, views

from ordercast.protocol.newtop.packets import Null, Refute
from ordercast.scenario.schema import GroupSettings, NetworkSettings, Scenario, WorkloadSettings
from ordercast.sim.world import Simulation
from ordercast.testing.actor import Posted
from ordercast.testing.stage import Stage
from ordercast.types import NodeId, View
from ordercast.units import MILLISECOND, Duration


def posted(stage: Stage, name: str, kind: type) -> int:
    """How often a member has cast a packet of this kind."""
    return sum(
        who == node(name) and isinstance(what, Posted) and isinstance(what.packet, kind)
        for who, what in stage.log
    )


def elapse(stage: Stage, milliseconds: int) -> None:
    """So much time passes: timers run out when they are due, and what is not cut off arrives."""
    end = stage.now + milliseconds * MILLISECOND
    stage.settle()
    while due := [(actor.timers()[0][0], name) for name, actor in stage.actors.items()]:
        at, name = min(due)
        if at > end:
            break
        stage.fire(name)
        stage.settle()
    stage.now = end


def simulated(count: int, milliseconds: int) -> tuple[int, dict[str, list[int]]]:
    """Members that join an open group at once: all packets, and the size of each view of each."""
    names = [f"n{number}" for number in range(1, count + 1)]
    found: dict[str, list[int]] = {}

    def hear(who: NodeId, what: object) -> None:
        if isinstance(what, View):
            found.setdefault(who.name, []).append(len(what.members))

    scenario = Scenario(
        name="large",
        family="total",
        processes=count,
        duration=Duration(milliseconds * MILLISECOND),
        quiet=Duration(MILLISECOND),
        workload=WorkloadSettings(rate=0.001),
        network=NetworkSettings(delay=Duration(MILLISECOND // 5)),
        group=[GroupSettings(name="g", members=names, open=True, anchors=["n1"])],
    )
    outcome = Simulation(scenario, 1, application=hear).run()
    assert outcome.error is None
    return outcome.packets, found


@pytest.mark.parametrize("count", [10, 20, 50])
def test_a_founding_takes_a_few_packets_from_each_to_each(count: int) -> None:
    packets, found = simulated(count, 400)
    assert packets < 5 * count * count
    sizes = [found[f"n{number}"] for number in range(1, count + 1)]
    assert sizes == [[1, count]] + [[count]] * (count - 1)


def test_a_member_of_a_large_group_sends_no_more_heartbeats_than_one_of_a_small_group() -> None:
    def idle(count: int) -> float:
        """Packets of a member in a second."""
        before, _ = simulated(count, 1000)
        return (simulated(count, 4000)[0] - before) / 3 / count

    assert idle(48) < 1.1 * idle(16)


def test_a_large_group_suspects_as_much_later_as_its_members_are_silent_longer() -> None:
    small, large = staged({"g": "a b"}), staged({"g": " ".join(f"m{at:02}" for at in range(48))})
    one, other = group(small, "a"), group(large, "m00")
    assert other.silence_limit == 3 * one.silence_limit == 3 * one.options.silence_limit
    assert other.suspicion_limit == 3 * one.suspicion_limit == 3 * one.options.suspicion_limit


def test_members_that_wait_for_a_silent_one_say_nothing_twice() -> None:
    stage = staged({"g": "n1 n2 n3"})
    fall_silent(stage, "n3")
    stage.submit("n1", [b"a"])
    elapse(stage, 900)
    assert views(stage, "n1") == ["g{n1 n2 n3}"]
    assert posted(stage, "n1", Null) + posted(stage, "n2", Null) <= 10


def test_one_refutation_answers_all_that_suspect_a_member() -> None:
    """Of n members that suspect one and n that do not, each refuted each: n * n * n packets."""
    names = [f"n{at}" for at in range(1, 9)]
    stage = staged({"g": " ".join(names)})
    stage.settle()
    for name in names[1:]:
        stage.cut("n1", name)
    stage.submit("n1", [b"a"])
    for name in names[4:]:
        stage.mend("n1", name)
        carry(stage, "n1", name)
    for name in names[1:4]:
        suspect(stage, name, "n1")
    stage.settle(ticks=2)
    assert [posted(stage, name, Refute) for name in names[4:]] == [1] * 4
    assert [posted(stage, name, Refute) for name in names[1:4]] == [1] * 3
    assert all(not group(stage, name).agreement.suspicions.suspected for name in names)


def test_an_initiator_waits_while_votes_and_starts_arrive() -> None:
    """In a large group each has to be connected with all others, which takes its time."""
    stage = stage_of("n1 n2 n3")
    while vote_of(stage, "n1") is None:
        stage.fire("n1")
        for parcel in stage.underway():
            if vote_of(stage, "n1") is None:
                stage.deliver(parcel)
    for name in ("n2", "n3"):
        stage.cut(name, "n1", one_way=True)
    for name in ("n2", "n3"):
        elapse(stage, 80)  # of a suspicion limit of 100
        stage.mend(name, "n1", one_way=True)
    for name in ("n2", "n3"):
        carry(stage, name, "n1")
        stage.cut(name, "n1", one_way=True)
    for name in ("n2", "n3"):
        elapse(stage, 80)
        stage.mend(name, "n1", one_way=True)
    assert not stage.notes(node("n1"), "suspect")
    run(stage, 4)
    assert {view_of(stage, name) for name in stage.actors} == {("n1.0.1", "n1 n2 n3")}
