"""Suggestions are a lattice, and decisions are functions of proposals."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings

from ordercast.protocol.transis.packets import ConfigurationId, GoneMember, Lineage, Proposal, Ready
from ordercast.protocol.transis.suggestion import Suggestion, decide, joint_knowledge
from ordercast.types import NodeId

A, B, C, D = (NodeId(name) for name in "abcd")
CID = ConfigurationId(2, A, 0)
OTHER = ConfigurationId(5, D, 3)
NEXT = ConfigurationId(6, A, 1)

nodes = st.builds(NodeId, st.sampled_from("abcd"), st.integers(0, 2))
cids = st.builds(ConfigurationId, st.integers(1, 3), nodes, st.integers(0, 2))
parts = st.lists(
    st.tuples(st.lists(st.tuples(nodes, cids), max_size=4), st.lists(nodes, max_size=3)),
    max_size=5,
)


def grown(order: list) -> Suggestion:
    suggestion = Suggestion(A, CID, (A, B))
    for joined, failed in order:
        suggestion.grow(joined, failed)
    return suggestion


def test_a_candidate_that_is_dropped_has_not_failed() -> None:
    """It was the older of two incarnations that were courted."""
    suggestion = grown([([(D, OTHER)], []), ([(NodeId("d", 1), OTHER)], [])])
    assert suggestion.as_proposed()[1] == (D,)
    suggestion.drop(D)
    joined, failed = suggestion.as_proposed()
    assert D not in dict(joined)
    assert failed == ()


@given(parts)
@settings(deadline=None, max_examples=200)
def test_the_order_in_which_suggestions_come_does_not_matter(order: list) -> None:
    there, back = grown(order), grown(order[::-1])
    assert there.as_proposed() == back.as_proposed()
    joined, failed = there.as_proposed()
    assert there.grow(joined, failed) == (False, [])
    assert A in there.accepted  # nobody excludes itself
    names = [node.name for node in there.accepted if node.name != "a"]
    assert len(names) == len(set(names))  # of two incarnations the newer


def proposal(
    cid: ConfigurationId,
    serial: int,
    suggestion: Suggestion,
    sent: int = 0,
    received: tuple[int, ...] = (0, 0, 0),
) -> Proposal:
    return Proposal("g", cid, serial, *suggestion.as_proposed(), sent, received)


def test_a_decision_takes_equal_proposals_of_all_who_come_along() -> None:
    suggestion = Suggestion(A, CID, (A, B, C))
    suggestion.grow([(D, OTHER)], [C])
    own = proposal(CID, 7, suggestion, 4, (4, 1, 2))
    proposals = {A: own, B: proposal(CID, 3, suggestion, 2, (4, 2, 5))}
    assert decide(CID, (A, B, C), own, proposals) is None
    proposals[D] = proposal(OTHER, 9, suggestion, 0, (0,))
    decision = decide(CID, (A, B, C), own, proposals)
    assert decision is not None
    assert decision.id == ConfigurationId(6, A, 7)  # above both sides, the serial of its first
    assert decision.members == (A, B, D)
    assert decision.came_with == (A, B)
    assert decision.sides == ((CID, (A, B)), (OTHER, (D,)))
    assert decision.cut == (4, 2, 5)  # sent by those who come along; of c what b has
    other = decide(OTHER, (D,), proposals[D], proposals)
    assert other is not None
    assert (other.id, other.members) == (decision.id, decision.members)
    assert other.sides == ((OTHER, (D,)), (CID, (A, B)))


def test_a_proposal_of_a_former_configuration_decides_nothing() -> None:
    suggestion = Suggestion(A, CID, (A, B))
    suggestion.grow([(D, OTHER)], [])
    own = proposal(CID, 1, suggestion)
    proposals = {A: own, B: own, D: proposal(ConfigurationId(1, D, 0), 1, suggestion)}
    assert decide(CID, (A, B), own, proposals) is None


def test_an_older_incarnation_that_is_dropped_has_not_failed() -> None:
    """Else a proposal would name a failed member that nobody wanted, and be refused."""
    again = NodeId("b", 1)
    suggestion = Suggestion(A, CID, (A, again))
    suggestion.grow([(B, OTHER)], ())
    suggestion.drop(B)
    assert suggestion.as_proposed() == (((A, CID), (again, CID)), ())


def test_joint_knowledge_is_the_most_that_anybody_knows() -> None:
    readies = {
        A: Ready("g", CID, NEXT, (GoneMember(C, (1, 5, 0), 3),), Lineage(CID, False)),
        B: Ready("g", CID, NEXT, (GoneMember(C, (2, 4, 0), 4),)),
        D: Ready("g", OTHER, NEXT, ()),
    }
    joint = joint_knowledge(((CID, (A, B)), (OTHER, (D,))), readies)
    assert [side.side for side in joint] == [CID, OTHER]
    assert joint[0].known == (GoneMember(C, (2, 5, 0), 4),)
    assert joint[1].known == ()
    assert joint[0].lineages == ((A, Lineage(CID, False)),)
