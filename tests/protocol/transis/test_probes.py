"""Signs of life by datagram: a link that loses packets makes nobody fail, a link that is cut does.

And what else a slow link brings about: proposals that are here before the view that they are about.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.protocol.transis.test_lies import CID, N1, N2, N3, OLD, STRANGER, proposal, staged, tell

from ordercast.errors import PeerError
from ordercast.kernel.step import DATAGRAM, LINK
from ordercast.protocol.transis.packets import (
    ConfigurationId,
    Hello,
    Installed,
    Probe,
    Proposal,
)
from ordercast.testing.stage import Stage
from ordercast.types import NodeId
from ordercast.units import MILLISECOND, SECOND

BACK = NodeId("n3", 1)
QUICK = {"suspicion_limit": "300ms", "silence_limit": "100ms", "stage_limit": "200ms"}


def pair() -> Stage:
    stage = Stage.of("synchrony", "n1 n2", **QUICK)
    stage.settle(ticks=2)
    return stage


def wait(stage: Stage, until: int, *stuck: object) -> None:
    """Time passes, and all arrives but what n2 sends to n1 by these channels."""
    while stage.now < until:
        for name in ("n1", "n2"):
            stage.fire(name)
        for message in stage.underway():
            if message.path != ("n2", "n1") or message.channel not in stuck:
                stage.deliver(message)
            elif message.channel == DATAGRAM:
                stage.drop(message)


def suspects(stage: Stage) -> int:
    return len(stage.notes(stage.node("n1"), "suspect"))


def test_a_member_that_answers_probes_may_have_a_silent_link_for_three_seconds() -> None:
    stage = pair()
    wait(stage, 2800 * MILLISECOND, LINK)
    assert suspects(stage) == 0
    stage.settle()  # the link has sent it all again
    wait(stage, 5 * SECOND)
    assert suspects(stage) == 0


def test_a_link_that_stays_silent_is_taken_for_cut() -> None:
    stage = pair()
    wait(stage, 3600 * MILLISECOND, LINK)
    assert suspects(stage) == 1


def test_a_member_that_does_not_answer_is_suspected_within_the_limit() -> None:
    stage = pair()
    heard_at = stage.now
    wait(stage, heard_at + 310 * MILLISECOND, LINK, DATAGRAM)
    assert suspects(stage) == 1


def test_nobody_is_probed_while_heartbeats_come() -> None:
    stage = pair()
    wait(stage, 5 * SECOND)
    kinds = {type(what.packet) for _, what in stage.log if hasattr(what, "packet")}
    assert Probe not in kinds


def test_a_change_waits_for_a_member_that_answers_probes() -> None:
    """n3 does not come along, and n1 waits for what n2 says to that."""
    stage = Stage.of("synchrony", "n1 n2 n3", **QUICK)
    stage.settle(ticks=2)
    stage.crash("n3")
    machine: Any = stage.machine("n1")
    wait(stage, stage.now + 150 * MILLISECOND)
    wait(stage, stage.now + 2500 * MILLISECOND, LINK)
    assert machine.current.change.is_failed(N3)
    assert not machine.current.change.is_failed(N2)
    stage.settle()
    assert machine.current.members == (N1, N2)


@pytest.mark.parametrize(
    ("members", "waits"),
    [((N2, BACK), False), ((BACK,), True)],
    ids=["with one that left us", "alone"],
)
def test_a_candidate_that_answers_probes_is_not_waited_for_if_it_has_gone_with_others(
    members: tuple[NodeId, ...], waits: bool
) -> None:
    """n2 proposes a candidate to n1 and goes with it alone. The candidate is there, and does not
    take up what n1 proposes then, for it would be a view without n2."""
    stage = Stage.of("synchrony", "n1 n2 n3", **QUICK)
    stage.settle(ticks=2)
    stage.crash("n3")
    wait(stage, stage.now + SECOND)
    stage.crash("n2")
    machine: Any = stage.machine("n1")
    cid, now = machine.current.cid, ConfigurationId(9, members[0], 2)
    joined = ((N1, cid), (N2, cid), (BACK, ConfigurationId(1, BACK, 0)))
    for serial, failed in ((11, ()), (12, (N1,))):
        stage.inject(N2, "n1", Proposal("g", cid, serial, joined, failed, 0, (0, 0)), LINK)
    stage.inject(BACK, "n1", Hello("g", now, (N1,), members), DATAGRAM)
    for _ in range(12):
        until = stage.now + 30 * MILLISECOND
        stage.inject(BACK, "n1", Probe("g", now, False), DATAGRAM)
        while stage.now < until:
            stage.fire("n1")
    assert (machine.current.members == (N1,)) != waits


@pytest.mark.parametrize(
    ("cid", "counts"),
    [(CID, True), (OLD, False), (ConfigurationId(3, N2, 7), False)],
    ids=["here", "in a former view", "elsewhere"],
)
def test_a_sign_of_life_counts_where_its_sender_should_be(
    cid: ConfigurationId, counts: bool
) -> None:
    machine: Any = staged().machine("n1")
    step = tell(machine, N2, Probe("g", cid, True))
    assert (N2 in machine.current.patience.answered) == counts
    assert [sent[1] for sent in step.sent] == [Probe("g", CID, False)]  # it is answered in any case


def test_a_stranger_is_not_answered() -> None:
    machine: Any = staged().machine("n1")
    with pytest.raises(PeerError, match="not a member"):
        tell(machine, STRANGER, Probe("g", CID, True))


def test_a_member_that_is_behind_and_one_that_is_ahead_are_there() -> None:
    stage, decided = ready_for_two()
    machine: Any = stage.machine("n1")
    tell(machine, N2, Probe("g", decided, False))  # it has installed what n1 is ready for
    assert N2 in machine.current.patience.answered
    install(stage, decided)
    assert machine.current.cid == decided
    tell(machine, N2, Probe("g", CID, False))  # it has not
    assert N2 in machine.current.patience.answered


# --- proposals that come early ---------------------------------------------------------------


def ready_for_two() -> tuple[Stage, ConfigurationId]:
    """n1 is ready for a view with n2 alone, which it has not installed."""
    stage = staged()
    stage.inject(N2, "n1", proposal(serial=4), LINK)
    machine: Any = stage.machine("n1")
    [decided] = machine.current.change.readied
    return stage, decided


def install(stage: Stage, decided: ConfigurationId) -> None:
    stage.inject(N2, "n1", Installed("g", decided, ()), LINK)


def test_a_proposal_that_names_us_where_we_are_about_to_be_counts_there() -> None:
    """n2 has installed the view and met n3 in it, and n3 proposes to both. Its proposal is here
    before the word of n2, and comes only once."""
    stage, decided = ready_for_two()
    machine: Any = stage.machine("n1")
    theirs = ConfigurationId(3, N3, 1)
    joined = ((N1, decided), (N2, decided), (N3, theirs))
    early = Proposal("g", theirs, 9, joined, (), 0, (0,))
    stage.inject(N3, "n1", early, LINK)
    assert machine.current.change.proposals.get(N3) != early
    install(stage, decided)
    change = machine.current.change
    assert machine.current.cid == decided
    assert change.proposals[N3] == early
    assert change.proposals[N1].joined == joined


def test_an_announcement_of_a_member_that_failed_does_not_delay_the_change() -> None:
    stage, _ = ready_for_two()
    machine: Any = stage.machine("n1")
    before = machine.serial
    stage.inject(N3, "n1", Hello("g", ConfigurationId(3, N3, 1), (N1, N2), (N3,)), DATAGRAM)
    stage.fire("n1")
    assert machine.serial == before
