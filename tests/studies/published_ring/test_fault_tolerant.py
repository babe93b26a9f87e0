"""Algorithms 2 to 4: what section 4.2 says of rounds, exclusion and disconnection.

Gidenstam, Koldehofe, Papatriantafilou, Tsigas: Scalable group communication supporting
configurable levels of consistency (2011). A ring of n1, n2 and so on, whose tickets go down; rounds
of a second, δ is 50 milliseconds, every packet takes one.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from tests.studies.published_ring.rings import Run, run

from ordercast.check.verdict import Answer
from ordercast.errors import PeerError
from ordercast.kernel.step import Step
from ordercast.studies.published_ring.fault_tolerant import FaultTolerant
from ordercast.studies.published_ring.packets import (
    Ackcjoin,
    Ackcoord,
    Cleave,
    Exclude,
    Gone,
    Reqcoord,
    RingSeat,
    Update,
    View,
)
from ordercast.studies.published_ring.rules import RingRules
from ordercast.trace.schema import TraceLevel
from ordercast.types import NodeId
from ordercast.units import MILLISECOND, SECOND


def ring(
    members: int, *faults: dict[str, Any], late: dict[str, list[int]] | None = None, **more: Any
) -> Run:
    """n1 has the highest ticket, and each is granted its own by the one before. Whoever comes
    late asks n3."""
    late = late or {}
    names = [f"n{number}" for number in range(1, members + 1)]
    options = {
        "tickets": more.pop("tickets", members),
        "k": more.pop("k", 1),
        "wants": {name: [50 * place] for place, name in enumerate(names)} | late,
        "preferred": {name: members - 1 - place for place, name in enumerate(names)},
        "contacts": {name: [names[max(0, place - 1)]] for place, name in enumerate(names)},
    }
    options["contacts"] |= {name: ["n3"] for name in late}
    options |= more.pop("options", {})
    return run(members + len(late), options, faults, **more)


def sent(found: Run, message: str, since: int, until: int) -> list[tuple[str, str]]:
    """Who sent it to whom, in a span of milliseconds."""
    return [
        (row.process, row.peer or "")
        for row in found.rows
        if (row.kind, row.message) == ("send", message) and since <= row.at // MILLISECOND < until
    ]


def owners(found: Run) -> dict[int, str]:
    return {part.ticket: name for name, part in found.parts.items() if part.ticket is not None}


# --- rounds --------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2])
def test_in_every_round_a_coordinator_sends_alive_to_its_2k_plus_1_closest_successors(
    k: int,
) -> None:
    """Section 4.2, Algorithm 2; section 4.4: so many messages a round are its whole overhead."""
    found = ring(8, k=k, level=TraceLevel.WIRE)
    told = Counter(sent(found, "Alive", 10_000, 11_000))
    expected = {
        (f"n{place + 1}", f"n{(place + step) % 8 + 1}")
        for place in range(8)
        for step in range(1, 2 * k + 2)
    }
    assert told == Counter(expected)


def test_in_every_round_a_coordinator_sends_its_predecessors_to_its_successor() -> None:
    """Section 4.2, Algorithm 2: UPDATE carries R, which is L of who receives it."""
    found = ring(6, level=TraceLevel.WIRE)
    updates = Counter(sent(found, "Update", 10_000, 11_000))
    assert updates == Counter((f"n{place + 1}", f"n{(place + 1) % 6 + 1}") for place in range(6))
    part = found.parts["n4"]
    assert [seat.name for seat in part.known_before] == ["n3", "n2", "n1"]
    assert [seat.name for seat in part.sent_next] == ["n4", "n3", "n2"]


def test_the_successors_of_a_newcomer_learn_of_it_one_from_the_other() -> None:
    """Section 4.2: with UPDATE, which everybody sends in a round of its own. n8 comes between n3
    and n4, and tells n4 in its first round; n4 tells n5 in its next, and that n6 right after."""
    seats = {"n1": 7, "n2": 6, "n3": 5, "n4": 3, "n5": 2, "n6": 1, "n7": 0, "n8": 4}
    known = []
    for until in ("8s", "9s", "10s", "11s"):
        late = {"n8": [7600]}
        found = ring(7, late=late, tickets=8, options={"preferred": seats}, duration=until)
        known.append([name for name, part in sorted(found.parts.items()) if knows(part, "n8")])
    assert known == [[], ["n4"], ["n4", "n5", "n6"], ["n4", "n5", "n6"]]


def knows(part: FaultTolerant, name: str) -> bool:
    return any(seat.name == name for seat in part.known_before)


def test_a_coordinator_that_hears_too_few_predecessors_stops() -> None:
    """Section 4.2: fewer than k + 1 ALIVE of those in L in a round. n4 hears n1 alone."""
    cut = {"at": "6500ms", "kind": "one-way", "sides": [["n2", "n3"], ["n4"]]}
    found = ring(6, cut, duration="8s")
    assert "7175 n4 disconnected 2" in found.timeline(since=6000)


def test_a_coordinator_that_hears_just_enough_predecessors_continues() -> None:
    """Section 4.2, the first invariant: k of those before it may fail. The cut is that of ALIVE
    and not of UPDATE, which n3 sends."""
    cut = {"at": "6500ms", "kind": "one-way", "sides": [["n2"], ["n4"]]}
    found = ring(6, cut)
    assert len(owners(found)) == 6
    assert found.count("disconnected") == 0


# --- exclusion -----------------------------------------------------------------------------------

DEAD = {"at": "6500ms", "kind": "crash", "nodes": ["n4"]}


def test_the_ticket_of_a_crashed_owner_is_reclaimed_and_given_again() -> None:
    """Section 4.2, the second invariant. n3 finds in its round that n4 does not answer, asks n5 for
    L and n2 for leave, waits 2δ; and waits dist(n3, n5) - 1 = 1 round before it gives ticket 2."""
    found = ring(6, DEAD, late={"n7": [8200]}, duration="10s")
    assert found.timeline(since=6000) == ["7300 n3 excludes n4", "8204 n7 acquired 2"]
    assert owners(found)[2] == "n7"
    assert found.verdict.answer is Answer.HOLDS


def test_an_exclusion_asks_the_members_that_both_neighbours_of_the_gap_know() -> None:
    """Section 4.2, Algorithm 4: L_q and R_p; n3 need not ask itself."""
    found = ring(6, DEAD, level=TraceLevel.WIRE, duration="8s")
    assert sent(found, "Exclude", 7000, 8000) == [("n3", "n5")]
    assert sent(found, "Ackexclude", 7000, 8000) == [("n5", "n3")]
    assert sent(found, "Reqcoord", 7000, 8000) == [("n3", "n2")]
    assert sent(found, "Ackcoord", 7000, 8000) == [("n2", "n3")]


def test_a_member_that_agreed_forgets_the_excluded_ones() -> None:
    """Section 4.2: and does not take them up again for dist(p, q) rounds."""
    found = ring(6, DEAD, duration="8s")
    assert [found.parts[name].view.owner(2) for name in ("n2", "n3")] == [None, None]
    assert found.parts["n6"].view.owner(2) == "n4"  # was not asked


def test_with_fewer_than_k_plus_1_agreements_the_initiator_stops() -> None:
    """Section 4.2, Algorithm 4: n3 agrees with itself, and does not reach n2."""
    cut = {"at": "7010ms", "kind": "one-way", "sides": [["n3"], ["n2"]]}
    found = ring(6, DEAD, cut, duration="7900ms")
    assert [line for line in found.timeline(since=7000) if "n3" in line] == [
        "7300 n3 disconnected 3"
    ]


def test_with_several_silent_successors_the_next_that_answers_is_found() -> None:
    """Section 4.2, Algorithm 4: EXCLUDE goes from one to the next. With k = 2 two may be silent."""
    dead = {"at": "9500ms", "kind": "crash", "nodes": ["n4", "n5"]}
    found = ring(8, dead, k=2, duration="14s", level=TraceLevel.WIRE)
    excluded = [(row.process, row.peer) for row in found.rows if row.kind == "exclude"]
    assert excluded == [("n3", "n4"), ("n3", "n5")]
    assert sent(found, "Exclude", 10_000, 11_000) == [("n3", "n5"), ("n3", "n6")]
    assert sorted(owners(found).values()) == ["n1", "n2", "n3", "n6", "n7", "n8"]


def test_a_temporary_coordinator_gives_no_tickets_and_sends_its_successor_nothing() -> None:
    """Section 4.2: for dist - 1 of its rounds. It still says that it lives."""
    found = ring(6, DEAD, late={"n7": [7400]}, level=TraceLevel.WIRE)
    assert ("n3", "n7") in sent(found, "Reject", 7400, 8100)
    assert [one for one in sent(found, "Alive", 7300, 8200) if one[0] == "n3"]
    assert not [one for one in sent(found, "Update", 7300, 8200) if one[0] == "n3"]
    assert [one for one in sent(found, "Update", 9000, 9900) if one[0] == "n3"]


def test_of_two_coordinators_neither_outlives_the_other() -> None:
    """Section 4.2, Algorithm 4: the loop ends before it comes round to the one who excludes, so
    the survivor thinks that it has failed. Nobody owns anything any more, for ever."""
    found = ring(2, {"at": "5s", "kind": "crash", "nodes": ["n2"]})
    assert "n1 disconnected 1" in found.timeline(since=5000)[-1]
    assert owners(found) == {}


def test_an_excluded_member_asks_for_a_ticket_again() -> None:
    cut = {"at": "6500ms", "kind": "partition", "sides": [["n4"], ["n1", "n2", "n3"]], "for": "2s"}
    found = ring(6, cut, options={"contacts": {"n4": ["n3"]}, "ticking": True}, duration="14s")
    assert found.count("disconnected") >= 1
    assert any("n4 acquired" in line for line in found.timeline(since=7000))


def test_without_failures_joins_alone_never_share_a_ticket() -> None:
    """Section 4.3, Lemma 4.3."""
    for seed in range(1, 41):
        draw = Random(seed)
        wants = {f"n{place}": [draw.randrange(6000)] for place in range(2, 9)}
        found = run(8, {"tickets": 8, "wants": wants}, seed=seed, network={"jitter": 0.9})
        assert found.error is None, (seed, found.error)
        assert found.verdict.answer is Answer.HOLDS, (seed, found.verdict.why)


# --- what is refused, and what is not ------------------------------------------------------------

SOMEBODY = NodeId("somebody")


def member(**more: Any) -> FaultTolerant:
    rules = RingRules(6, 1, SECOND, 50 * MILLISECOND)
    return FaultTolerant(NodeId("n1"), "g", rules, lambda: ["n2"], Random(1), **more)


def owner() -> FaultTolerant:
    """Owns ticket 0, and all others are free."""
    part = member(founder=True)
    part.start(Step(0))
    return part


def answers(part: FaultTolerant, packet: Any) -> list[Any]:
    step = Step(0)
    part.receive(step, SOMEBODY, packet)
    return [found for _, found, _, _ in step.sent]


@pytest.mark.parametrize(
    "packet",
    [
        Update("g", 6, ()),
        Update("g", 0, (RingSeat(6, "x"),)),
        Exclude("g", 6),
        Reqcoord("g", 0, 6),
        View("g", (RingSeat(9, "x"),)),
        Ackcjoin("g", 1, RingSeat(7, "x"), (), 1),
    ],
    ids=lambda packet: type(packet).__name__,
)
def test_a_ticket_that_does_not_exist_is_refused(packet: Any) -> None:
    with pytest.raises(PeerError, match="a ticket that does not exist"):
        owner().receive(Step(0), SOMEBODY, packet)


def test_packets_of_the_other_algorithm_are_rejected() -> None:
    with pytest.raises(PeerError, match="sent Cleave, which this ring does not know"):
        owner().receive(Step(0), SOMEBODY, Cleave("g", RingSeat(0, "x")))


def test_a_ticket_that_nobody_asked_for_is_sent_back() -> None:
    assert answers(owner(), Ackcjoin("g", 3, RingSeat(0, "x"), (), 1)) == [Gone("g", "ackcjoin")]


@pytest.mark.parametrize(
    ("packet", "answer"),
    [(Update("g", 2, ()), Gone("g", "update")), (Exclude("g", 2), Gone("g", "exclude"))],
)
def test_a_member_that_does_not_own_the_ticket_answers_that_its_owner_is_gone(
    packet: Any, answer: Any
) -> None:
    assert answers(owner(), packet) == [answer]


def test_a_member_agrees_to_every_request_that_does_not_concern_itself() -> None:
    """Section 4.2, Algorithm 4: neither the state of who is asked nor who asks matters. So a
    process agrees that owns nothing, and to a rival's request as well."""
    outside = member()
    assert answers(outside, Reqcoord("g", 5, 2)) == [Ackcoord("g")]
    assert answers(outside, Reqcoord("g", 4, 1)) == [Ackcoord("g")]


def test_a_member_does_not_agree_to_its_own_exclusion() -> None:
    assert answers(owner(), Reqcoord("g", 1, 5)) == []


def test_an_update_is_taken_from_any_sender() -> None:
    """Section 4.2, Algorithm 3: the sender is not compared with the predecessor."""
    part = owner()
    part.receive(Step(0), SOMEBODY, Update("g", 0, (RingSeat(3, "x"),)))
    assert part.known_before == (RingSeat(3, "x"),)
