"""Honest members get together when a liar is gone, whatever it said and whenever that came."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.protocol.transis.liar import CODEC
from tests.protocol.transis.timed_liar import LyingRun

from ordercast.errors import PeerError
from ordercast.kernel.buffers import Limit
from ordercast.kernel.step import DATAGRAM, LINK
from ordercast.protocol.primary.packets import PrimaryAttempt, PrimaryReport
from ordercast.protocol.transis.change import ConfigurationChange
from ordercast.protocol.transis.courting import Courting
from ordercast.protocol.transis.graph import CausalGraph
from ordercast.protocol.transis.options import SynchronyOptions
from ordercast.protocol.transis.packets import (
    ConfigurationId,
    GoneMember,
    Hello,
    Installed,
    Proposal,
    SideKnowledge,
)
from ordercast.protocol.transis.refusals import LARGEST_CLIMB
from ordercast.testing.stage import Stage
from ordercast.types import NodeId
from ordercast.units import SECOND

N1, N2, N3 = (NodeId(name) for name in ("n1", "n2", "n3"))
ALONE1, ALONE2 = ConfigurationId(1, N1, 0), ConfigurationId(1, N2, 0)


# An event that waited for what its origin never told others (31, 70, 85, 122), and a view that one
# member had installed by the liar's word and the other one followed too late (130).
@pytest.mark.parametrize("seed", [31, 70, 85, 122, 130])
def test_the_others_get_together_soon_after_a_liar_is_gone(seed: int) -> None:
    """Within less than a link has that is silent: so nobody waited for what never came."""
    run = LyingRun(seed)
    assert run.are_together
    assert run.took < 2 * SECOND
    assert not run.refused_by_honest


@pytest.mark.long
def test_many_seeds_of_a_liar() -> None:
    for seed in range(300):
        run = LyingRun(seed)
        assert run.took < 2 * SECOND, seed
        assert not run.refused_by_honest, seed


def test_a_proposal_of_a_candidate_counts_once_we_miss_the_same_members() -> None:
    """n2 misses n3 first, and says so once. n1, which is in a view with n3, misses it later."""
    ours = ConfigurationId(2, N1, 1)
    change = ConfigurationChange(N1, ours, (N1, N3), SynchronyOptions())
    joined = ((N1, ours), (N2, ALONE2), (N3, ours))
    assert change.hear(N2, Proposal("g", ALONE2, 1, joined, (N3,), 0, (0,))) == []
    assert not change.is_failed(N3)
    change.grow([(N2, ALONE2)], [N3])
    change.propose("g", 1, CausalGraph((N1, N3), N1, Limit(64, 1 << 20)), 0)
    decision = change.decide()
    assert decision is not None
    assert decision.members == (N1, N2)


def test_a_candidate_that_went_on_to_a_view_of_which_we_know_nothing_is_excluded() -> None:
    stage = Stage.of("synchrony", "n1 n2", formed=False)
    machine: Any = stage.machine("n1")
    stage.inject(N2, "n1", Hello("g", ALONE2, (N1,), (N2,)), DATAGRAM)
    assert N2 in machine.current.change.suggestion.joined
    stage.inject(N2, "n1", Installed("g", ConfigurationId(2, N1, 77), ()), LINK)
    assert machine.current.members == (N1,)
    assert machine.current.cid > ALONE1, "the change went on without n2"


def test_what_a_member_of_another_side_passes_on_is_not_held_against_it() -> None:
    """n2 cannot judge what a liar of n1's side said of that side."""
    stage = Stage.of("synchrony", "n1 n2", formed=False)
    machine: Any = stage.machine("n1")
    joined = ((N1, ALONE1), (N2, ALONE2))
    stage.inject(N2, "n1", Proposal("g", ALONE2, 1, joined, (), 0, (0,)), LINK)
    [decided] = machine.current.change.readied
    known = (GoneMember(N3, (0, 0), 0), GoneMember(N1, (7,), 0))
    stage.inject(N2, "n1", Installed("g", decided, (SideKnowledge(ALONE1, known),)), LINK)
    assert machine.current.cid == decided


def test_a_report_of_an_attempt_far_above_all_others_is_refused() -> None:
    """The next attempt would have the last number that there is, and be the last one for good."""
    stage = Stage.of("synchrony", "n1 n2 n3", quorum="majority")
    stage.settle(ticks=2)
    machine: Any = stage.machine("n1")
    own = machine.franchise.voter.report
    far = replace(own, standing=replace(own.standing, number=own.standing.number + 1 + (1 << 32)))
    with pytest.raises(PeerError, match="far above"):
        stage.inject(N3, "n1", PrimaryReport("g", machine.view.id, far), LINK)
    near = replace(own, standing=replace(own.standing, number=own.standing.number + (1 << 32)))
    stage.inject(N3, "n1", PrimaryReport("g", machine.view.id, near), LINK)


def test_numbers_have_room_for_more_lies_than_anybody_tells() -> None:
    """Each lie lifts a view or an attempt by no more than `LARGEST_CLIMB`, and costs a view."""
    assert LARGEST_CLIMB <= 1 << 32
    for packet in (
        Hello("g", ConfigurationId(1 << 61, N1, 1), (), (N1,)),
        PrimaryAttempt("g", 1, 1 << 61),
    ):
        assert CODEC.decode(CODEC.encode(packet)) == packet


def test_an_excluded_member_leaves_nobody_resting_for_long() -> None:
    """n3 has declined n2 again and again. When it is gone n2 is courted soon."""
    options = SynchronyOptions()
    courting = Courting(N1, options, 0.5)
    for _ in range(12):
        courting.set_back(N2, 0)
    soon = options.suspicion_limit // 3
    assert courting.rests(N2, soon)
    courting.excluded(N3, ALONE1, 0)
    assert not courting.rests(N2, soon)
    courting.set_back(N2, soon)
    assert not courting.rests(N2, 2 * soon), "it begins anew"
