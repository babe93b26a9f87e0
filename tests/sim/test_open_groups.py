"""Open groups in the simulator: how members may come in, whom they know, what is remembered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from tests.sim.probes import DATAGRAM, GROUP, MILLISECOND, SECOND, Probe, Stage, cut, fault, say

from ordercast.kernel.family import FoundingRule, Plan
from ordercast.kernel.inputs import Acquainted, Input, StatusResult
from ordercast.kernel.step import Step
from ordercast.scenario.faults.fault import Fault
from ordercast.scenario.schema import GroupSettings
from ordercast.types import Joined, Left, NodeId, View

LOST = FoundingRule(lost=True)


class Joiner(Probe):
    """Logs how it may come in, and whom it is told of."""

    takes: tuple[type[Input], ...] = (StatusResult, Acquainted)
    log: ClassVar[list[tuple[NodeId, FoundingRule | tuple[str, ...]]]] = []

    def __init__(self, stage: Stage, me: NodeId, plan: Plan, records: Any) -> None:
        super().__init__(stage, me, plan, records)
        assert plan.entry is not None
        assert plan.members == (me.name,)
        assert not plan.formed
        self.log.append((me, plan.entry))

    def on(self, step: Step, given: Input) -> None:
        if isinstance(given, Acquainted):
            self.log.append((self.me, given.names))
        else:
            super().on(step, given)


def stage_of(faults: Iterable[Fault] = (), seed: int = 1, **group: Any) -> Stage:
    """Three processes that run one open group."""
    Joiner.log.clear()
    given: dict[str, Any] = {"open": True, "anchors": ["n1"], **group}
    settings = GroupSettings(name=GROUP, members=["n1", "n2", "n3"], **given)
    return Stage(3, probe=Joiner, faults=faults, seed=seed, scenario={"group": [settings]})


def logged(name: str) -> list[FoundingRule | tuple[str, ...]]:
    return [what for me, what in Joiner.log if me.name == name]


def entries(name: str) -> list[FoundingRule]:
    return [what for what in logged(name) if isinstance(what, FoundingRule)]


def known(name: str) -> list[tuple[str, ...]]:
    return [what for what in logged(name) if not isinstance(what, FoundingRule)]


def view(*names: str) -> Any:
    members = tuple(map(NodeId, names))
    return lambda step: step.install(View(GROUP, 1, members))


def notify(news: Any) -> Any:
    return lambda step: step.notify(news)


# --- how they may come in ------------------------------------------------------------------------


def test_the_anchor_founds_and_the_others_wait_for_it() -> None:
    stage_of().run()
    assert logged("n1") == [FoundingRule(founds=True), ()]
    assert logged("n2") == logged("n3") == [FoundingRule(), ("n1",)]


def test_the_number_that_is_expected_and_the_founder_are_in_the_entry() -> None:
    stage_of(anchors=["n1", "n2"], expect=2).run()
    assert entries("n1") == entries("n3") == [FoundingRule(expect=2)]
    assert [known(name)[0] for name in ("n1", "n2", "n3")] == [("n2",), ("n1",), ("n1", "n2")]
    stage_of(founder="n3").run()
    assert entries("n1") == [FoundingRule(founder="n3")]
    assert entries("n3") == [FoundingRule(founds=True, founder="n3")]


def test_a_member_that_joins_later_is_acquainted_then() -> None:
    stage_of([fault("join", 2 * SECOND, "n1 n3", group=GROUP)]).run()
    assert Joiner.log[:2] == [(NodeId("n2"), FoundingRule()), (NodeId("n2"), ("n1",))]
    assert logged("n1") == [FoundingRule(founds=True), ("n2",)], "n2 has it as a seed, and dials it"
    assert logged("n3") == [FoundingRule(), ("n1",)]


# --- what is remembered --------------------------------------------------------------------------


def test_the_folder_remembers_the_last_view() -> None:
    stage = stage_of([fault("restart", 3 * SECOND, "n1 n2")])
    stage.at(SECOND, "n1", view("n1")).at(SECOND, "n2", view("n2"))
    stage.at(2 * SECOND, "n2", view("n2", "n1")).run()
    assert entries("n1")[1] == FoundingRule(founds=True, last=("n1",), asks=True)
    assert entries("n2")[1] == FoundingRule(last=("n1", "n2"))


def test_without_views_it_remembers_who_joined_and_did_not_leave() -> None:
    stage = stage_of([fault("restart", 3 * SECOND, "n1")])
    for name in ("n1", "n2", "n3"):
        stage.at(SECOND, "n1", notify(Joined(GROUP, NodeId(name))))
    stage.at(2 * SECOND, "n1", notify(Left(GROUP, NodeId("n2"), "left")))
    stage.at(2 * SECOND, "n1", notify(Left(GROUP, NodeId("n3"), "silent"))).run()
    assert entries("n1")[1] == FoundingRule(last=("n1", "n3"))


def test_a_lost_folder_remembers_nothing_and_who_was_known_never_founds() -> None:
    """Nor does its next incarnation, which has a folder again."""
    faults = [fault("restart", 3 * SECOND, "n1", disk="lost"), fault("restart", 5 * SECOND, "n1")]
    stage = stage_of(faults)
    stage.at(SECOND, "n1", view("n1")).at(2 * SECOND, "n1", say("n2", "here", DATAGRAM)).run()
    assert entries("n1") == [FoundingRule(founds=True), LOST, LOST]
    assert known("n1") == [(), ("n2", "n3"), ("n2", "n3")], "they have it as a seed"


def test_whoever_met_a_member_dials_it_when_it_is_back() -> None:
    stage = stage_of([fault("restart", 3 * SECOND, "n2", disk="lost")])
    stage.at(2 * SECOND, "n2", say("n3", "here", DATAGRAM)).run()
    assert known("n2") == [("n1",), ("n1", "n3")]


def founded_while_cut_off(*more: Fault, seed: int = 1) -> Stage:
    """The anchor loses its folder while it is cut off, and the others knew it before."""
    faults = [
        cut(2 * SECOND, "n1 | n2 n3", SECOND),
        fault("restart", 2 * SECOND + 9, "n1", disk="lost"),
    ]
    stage = stage_of([*faults, *more], seed=seed)
    for at in (1, 4, 7, 9):
        stage.at(at * SECOND, "n1", say(("n2", "n3"), "here", DATAGRAM))
    return stage


def test_an_anchor_that_founded_again_abandons_itself_when_it_meets_who_knew_it() -> None:
    """Cut off, it could not know better; what it founded ends with its incarnation."""
    stage = founded_while_cut_off()
    stage.run()
    assert entries("n1") == [FoundingRule(founds=True), FoundingRule(founds=True), LOST]
    assert [row.cause for row in stage.rows_of("crash")] == [None, "abandoned"]
    assert {heard.sender.incarnation for heard in stage.heard} == {
        0,
        stage.rows_of("start", "n1")[-1].incarnation,
    }


def test_it_does_so_after_a_restart_with_its_folder_too() -> None:
    stage = founded_while_cut_off(
        cut(3 * SECOND, "n1 | n2 n3", 2 * SECOND), fault("restart", 5 * SECOND, "n1")
    )
    stage.at(2500 * MILLISECOND, "n1", view("n1")).run()
    assert entries("n1")[2] == FoundingRule(founds=True, last=("n1",), asks=True)
    assert entries("n1")[3] == LOST
    assert [row.cause for row in stage.rows_of("crash")] == [None, None, "abandoned"]


def test_it_is_not_heard_while_it_cannot_be_told() -> None:
    stage = founded_while_cut_off(cut(3 * SECOND, "n2 n3 | n1", 5 * SECOND, "one-way"))
    stage.run()
    assert [heard.at // SECOND for heard in stage.heard if heard.by.name == "n2"] == [1]
    assert entries("n1")[-1] == LOST, "at 9 s it is told"


def test_a_founder_that_restarts_stays_the_founder_for_who_knew_its_last_incarnation() -> None:
    stage = stage_of(
        [
            fault("restart", 2 * SECOND, "n1", disk="lost"),
            fault("restart", 4 * SECOND, "n1"),
        ]
    )
    for at in (3, 5):
        stage.at(at * SECOND, "n1", say("n2", "here", DATAGRAM))
    stage.at(3 * SECOND, "n1", view("n1")).run()
    assert entries("n1") == [
        FoundingRule(founds=True),
        FoundingRule(founds=True),  # nobody has met it yet
        FoundingRule(founds=True, last=("n1",), asks=True),
    ]
    assert "abandoned" not in {row.cause for row in stage.rows}
