"""Algorithm 1, for reliable links without failures: what section 4.1 claims, and where it is wrong.

Gidenstam, Koldehofe, Papatriantafilou, Tsigas: Scalable group communication supporting
configurable levels of consistency (2011). Every packet takes a millisecond unless said otherwise.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.studies.published_ring.rings import Run, run

from ordercast.check.verdict import Answer
from ordercast.errors import PeerError
from ordercast.kernel.step import Step
from ordercast.studies.published_ring.failure_free import MOST_QUEUED, FailureFree
from ordercast.studies.published_ring.packets import Ackcjoin, Alive, Cleave, Newsucc, RingSeat
from ordercast.studies.published_ring.ring import coordinated
from ordercast.trace.schema import TraceLevel
from ordercast.types import NodeId

BY_HAND: dict[str, Any] = {"algorithm": "failure-free", "tickets": 6, "ticking": False}
PATIENT = {"answer_within": "60s"}


def ring(wants: dict[str, list[int]], preferred: dict[str, int], **more: Any) -> Run:
    """Laid out by hand. n1 begins with all tickets and is whom everybody asks."""
    names = sorted(wants)
    options = {
        **BY_HAND,
        "wants": {name: wants.get(name, []) for name in ("n1", *names)} | {"n1": [0]},
        "preferred": preferred,
        "contacts": {name: ["n1"] for name in names} | more.pop("contacts", {}),
        "late": more.pop("late", False),
    }
    network = {**PATIENT, **more.pop("network", {})}
    return run(len(names) + 1, options, network=network, **{"duration": "3s", **more})


def ranges(found: Run) -> dict[str, tuple[int, ...]]:
    """S_p of every coordinator."""
    return {
        name: coordinated(part.tickets, part.ticket, part.successor.ticket)
        for name, part in found.parts.items()
        if part.ticket is not None
    }


def assert_every_ticket_has_one_coordinator(found: Run) -> None:
    tickets = [ticket for own in ranges(found).values() for ticket in own]
    assert sorted(tickets) == list(range(len(tickets))) == list(range(6)), ranges(found)


# --- joining -------------------------------------------------------------------------------------


def test_a_single_member_coordinates_all_tickets_from_its_own_downwards() -> None:
    """Section 4.1, the definition of S_p."""
    assert ranges(ring({}, {"n1": 2})) == {"n1": (2, 1, 0, 5, 4, 3)}


def test_a_newcomer_coordinates_the_tickets_between_its_own_and_the_next() -> None:
    """Section 4.1: whoever grants a ticket has the newcomer as its successor."""
    found = ring({"n2": [10], "n3": [20]}, {"n1": 5, "n2": 2, "n3": 4})
    assert ranges(found) == {"n1": (5,), "n3": (4, 3), "n2": (2, 1, 0)}
    assert found.parts["n3"].predecessor == "n1"
    assert found.parts["n2"].predecessor == "n3"


def test_a_newcomer_owns_its_ticket_once_its_successor_knows_it() -> None:
    """Section 4.1: NEWSUCC is answered before it performs. Asking and joining take four packets,
    which takes it to 14; another two."""
    found = ring({"n2": [10], "n3": [30]}, {"n2": 2, "n3": 4})
    assert found.timeline() == ["0 n1 acquired 0", "16 n2 acquired 2", "36 n3 acquired 4"]


def test_a_coordinator_without_a_free_ticket_says_so_and_the_newcomer_asks_again() -> None:
    options = {**BY_HAND, "tickets": 2, "ticking": True, "wants": {"n2": [10], "n3": [20]}}
    found = run(3, options, network=PATIENT, duration="2s")
    assert found.count("acquired") == 2
    assert found.parts["n1"].counters()["rejected"] + found.parts["n2"].counters()["rejected"] > 3


# --- leaving -------------------------------------------------------------------------------------


def test_a_member_that_leaves_hands_its_tickets_to_its_predecessor() -> None:
    """Section 4.1: CLEAVE names its successor, whom the predecessor then tells (NEWSUCC)."""
    found = ring({"n2": [10, 100], "n3": [20]}, {"n1": 5, "n2": 4, "n3": 2})
    assert ranges(found) == {"n1": (5, 4, 3), "n3": (2, 1, 0)}
    assert found.parts["n3"].predecessor == "n1"
    assert found.parts["n2"].state == "idle"


def test_neighbours_that_leave_together_are_served_one_after_the_other() -> None:
    """Section 4.1: who leaves answers NEWSUCC with CLEAVE, so a new predecessor takes over too."""
    found = ring(
        {"n2": [10, 100], "n3": [20, 100], "n4": [30]},
        {"n1": 5, "n2": 4, "n3": 2, "n4": 1},
        contacts={"n3": ["n2"], "n4": ["n3"]},
    )
    assert ranges(found) == {"n1": (5, 4, 3, 2), "n4": (1, 0)}
    assert found.parts["n1"].counters()["served"] == 2


def test_a_leave_that_meets_a_join_is_served_by_the_newcomer() -> None:
    """Section 4.1, Lemma 4.2: n3 joins between n1 and n2, which has just asked n1 to let it go."""
    found = ring({"n2": [10, 100], "n3": [97]}, {"n1": 5, "n2": 2, "n3": 4})
    assert found.parts["n3"].counters()["served"] == 1
    assert ranges(found) == {"n1": (5,), "n3": (4, 3, 2, 1, 0)}


def test_the_last_member_cannot_leave() -> None:
    """Section 4.1, Theorem 4.1 asks for it: it has nobody to leave its tickets to."""
    found = ring({"n2": [10, 100]}, {"n1": 5, "n2": 2})
    assert found.parts["n1"].may_go()
    alone = found.parts["n1"]
    alone.seek(Step(0), False, 0, ())
    assert alone.state == "coordinator"


# --- many of both --------------------------------------------------------------------------------


def times(draw: Random) -> list[int]:
    """Milliseconds at which a process begins and stops to want a ticket, up to eight seconds."""
    return sorted(draw.sample(range(8000), draw.randint(0, 10)))


@pytest.mark.parametrize("first", range(1, 161, 40))
def test_interleaved_joins_and_leaves_leave_every_ticket_one_coordinator(first: int) -> None:
    """Section 4.1, Theorem 4.1, where a leaver makes no more events. Delays vary by a third."""
    joined = 0
    for seed in range(first, first + 40):
        draw = Random(seed)
        wants = {f"n{number}": times(draw) for number in range(2, 7)} | {"n1": [0]}
        options = {**BY_HAND, "ticking": True, "wants": wants}
        network = {**PATIENT, "delay": "10ms", "jitter": 0.3}
        found = run(6, options, seed=seed, network=network)
        assert found.error is None, (seed, found.error)
        assert found.verdict.answer is Answer.HOLDS, (seed, found.verdict.why)
        assert_every_ticket_has_one_coordinator(found)
        joined += found.count("acquired")
    assert joined > 400, "or this shows nothing"


# --- what is wrong with it -----------------------------------------------------------------------

SLOW = {"kind": "slow", "nodes": ["n2"], "for": "1ms"}


@pytest.mark.parametrize("late", [True, False])
def test_a_member_that_uses_its_ticket_until_it_has_left_shares_it(late: bool) -> None:
    """The pseudocode of CLEAVE takes the ticket away with ACKCLEAVE only, but whoever sent that may
    have given the ticket away already. Here ACKCLEAVE takes a tenth of a second. It is right only
    if a leaver makes no more events."""
    found = ring(
        {"n2": [50, 100], "n3": [10], "n4": [110]},
        {"n1": 5, "n2": 2, "n3": 0, "n4": 2},
        late=late,
        faults=[{"at": "100500us", "factor": 100, **SLOW}],
    )
    assert (found.verdict.answer is Answer.BROKEN) is late
    if late:
        assert found.verdict.why == "n4 acquired ticket 2 of g while n2 still owned it"
        assert found.timeline(since=60) == ["116 n4 acquired 2", "201 n2 released 2"]


def stale_cleave(factor: float, level: TraceLevel = TraceLevel.APP) -> Run:
    """n2's CLEAVE to n1 takes so many milliseconds; all else takes one."""
    return ring(
        {"n2": [50, 100, 200], "n3": [10], "n4": [110, 300], "n5": [1200]},
        {"n1": 5, "n2": 2, "n3": 0, "n4": 4, "n5": 2},
        contacts={"n2": ["n1", "n4"]},
        faults=[{"at": "99500us", "factor": factor, **SLOW}],
        level=level,
    )


def test_a_late_cleave_takes_the_ticket_of_a_member_that_came_back() -> None:
    """Theorem 4.1 is wrong: nothing fails, nothing is lost, and links are FIFO. n2 wants to leave.
    Its CLEAVE to n1 is slow; n4, which has come between them, serves another. n2 joins again, n4
    leaves, so n1's successor is n2: and now the first CLEAVE arrives. It has no number."""
    found = stale_cleave(1000)
    assert found.verdict.why == "n5 acquired ticket 2 of g while n2 still owned it"
    assert found.timeline(since=60) == [
        "100 n2 released 2",
        "118 n4 acquired 4",
        "206 n2 acquired 2",
        "300 n4 released 4",
        "1206 n5 acquired 2",
    ]
    assert [found.parts[name].ticket for name in ("n2", "n5")] == [2, 2]


def test_the_same_cleave_in_time_does_no_harm() -> None:
    found = stale_cleave(1)
    assert found.verdict.answer is Answer.HOLDS
    assert found.parts["n2"].ticket == 2


def churn(seed: int) -> Run:
    options = {"algorithm": "failure-free", "tickets": 3, "fickle": 0.1}
    network = {**PATIENT, "shape": "lognormal", "delay": "5ms", "jitter": 2.0}
    return run(6, options, seed=seed, duration="30s", network=network)


@pytest.mark.parametrize("seed", [31, 150])
def test_seeds_with_widely_varying_delays_find_it_too(seed: int) -> None:
    """Two of the first 218."""
    assert churn(seed).verdict.answer is Answer.BROKEN


# --- what is refused -----------------------------------------------------------------------------

SOMEBODY = NodeId("somebody")


def member(**more: Any) -> FailureFree:
    return FailureFree(NodeId("n1"), "g", 6, 1000, lambda: ["n2"], Random(1), **more)


def test_a_ticket_that_nobody_asked_for_is_refused() -> None:
    with pytest.raises(PeerError, match="a ticket that we did not ask for"):
        member().receive(Step(0), SOMEBODY, Ackcjoin("g", 1, RingSeat(0, "n2"), (), 1))


def test_a_ticket_that_does_not_exist_is_refused() -> None:
    with pytest.raises(PeerError, match="a ticket that does not exist"):
        member().receive(Step(0), SOMEBODY, Newsucc("g", 6))


def test_packets_of_the_other_algorithm_are_rejected() -> None:
    with pytest.raises(PeerError, match="sent Alive, which this ring does not know"):
        member().receive(Step(0), SOMEBODY, Alive("g"))


@pytest.mark.parametrize("packet", [Newsucc("g", 1), Cleave("g", RingSeat(0, "n2"))])
def test_queues_are_bounded(packet: Any) -> None:
    """A newcomer keeps what it cannot use yet, and an owner what it cannot serve yet."""
    part = member(founder=isinstance(packet, Cleave))
    part.start(Step(0))
    part.seek(Step(0), True, 0, ())
    part.awaited = RingSeat(3, "n3")
    for _ in range(MOST_QUEUED):
        part.receive(Step(0), SOMEBODY, packet)
    with pytest.raises(PeerError, match="more than a coordinator can serve"):
        part.receive(Step(0), SOMEBODY, packet)
