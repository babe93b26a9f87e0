"""Lies in the middle of a view and of a change: refused whole, and old packets dropped quietly.

`test_lies.py` has the plain ones. Here the machine is compared as a whole, by the fingerprint that
the explorer knows states by: a refused packet leaves no trace in it, not even in its clock.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.protocol.transis.liar import RandomPackets
from tests.protocol.transis.test_lies import (
    CID,
    LIES,
    N1,
    N2,
    N3,
    OF_FORMER_VIEWS,
    OLD,
    STRANGER,
    cast,
    proposal,
    staged,
    tell,
)

from ordercast.errors import PeerError
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import LINK, Note
from ordercast.protocol.fifo.packets import Leave as FifoLeave
from ordercast.protocol.transis.packets import (
    PACKETS,
    ConfigurationId,
    Court,
    Fetch,
    Fetched,
    GoneMember,
    Hello,
    Installed,
    Proposal,
    Ready,
    SideKnowledge,
    Status,
    Summary,
)
from ordercast.sim.explore.fingerprint import fingerprint
from ordercast.testing.stage import Stage
from ordercast.types import Event, NodeId

FAR = (1 << 40) - 1
FAR_ABOVE = ConfigurationId(FAR, N2, 0)
LATER_N2 = NodeId("n2", 1)


def changing() -> Stage:
    """n2 has proposed a view without n3, and n1 has too; nothing is decided between them."""
    stage = staged()
    stage.inject(N2, "n1", proposal(serial=4), LINK)
    machine: Any = stage.machine("n1")
    assert machine.current.change.stage == 2
    assert machine.current.graph.frozen == {2: 0}
    return stage


def refused(stage: Stage, sender: NodeId, packet: Packet, why: str | None = None) -> None:
    machine: Any = stage.machine("n1")
    before = fingerprint(machine)
    with pytest.raises(PeerError, match=why):
        tell(machine, sender, packet)
    assert fingerprint(machine) == before


# --- in a view -------------------------------------------------------------------------------

MORE_LIES: dict[str, Packet] = {
    "an event after what no third member can have sent": cast(vector=(0, 2, 129)),
    "an acknowledgement of what no third member can have sent": Status("g", CID, 1, 1, (0, 1, 129)),
    "a proposal with what no third member can have sent": proposal(received=(0, 1, 129)),
    "a proposal that takes events back": proposal(sent=0, received=(0, 0, 0)),
    "a proposal that excludes a member twice": proposal(failed=(N3, N3)),
    "a proposal that excludes whom nobody wanted": proposal(failed=(LATER_N2, N3)),
    "a proposal that excludes a stranger": proposal(failed=(N3, STRANGER)),
    "a proposal with a member from far above": proposal(
        joined=((N1, CID), (N2, CID), (N3, FAR_ABOVE))
    ),
    "candidates from far above": Court("g", CID, ((N3, FAR_ABOVE),)),
    "an announcement from far above": Hello("g", FAR_ABOVE, (), (N2,)),
    "an announcement that is not sorted": Hello("g", OLD, (), (N3, N2)),
    "an announcement with a member twice": Hello("g", OLD, (), (N2, N2)),
    "an announcement of another's view": Hello("g", CID, (), (N2, N3)),
    "an event that a member which is there did not send": Fetched(
        "g", N3, cast(seq=1, vector=(0, 0, 1), number=1)
    ),
    "a packet of another family": FifoLeave("g"),
}


@pytest.mark.parametrize("what", [*LIES, *MORE_LIES])
def test_a_lie_leaves_no_trace(what: str) -> None:
    refused(staged(), N2, {**LIES, **MORE_LIES}[what])


SUMMARIES: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = {
    "does not fit": ((0, 1), (0, 0), (0, 1)),
    "never sent": ((1, 1, 0, 0, 0), (0, 1, 0, 0, 0), (0, 1, 0, 0, 0)),
    "none of them has height 2": ((0, 1, 0, 0, 0), (0, 1, 2, 0, 0), (0, 1, 0, 0, 0)),
    "more than it can have sent": ((0, 1, 129, 0, 0), (0, 1, 1, 0, 0), (0, 1, 0, 0, 0)),
    "says that all have": ((0, 1, 1, 0, 0), (0, 1, 1, 0, 0), (0, 1, 1, 0, 0)),
}


@pytest.mark.parametrize("why", SUMMARIES)
def test_a_false_summary_leaves_no_trace(why: str) -> None:
    stage = Stage.of("synchrony", "n1 n2 n3 n4 n5")
    stage.submit("n2", [b"a"])
    stage.settle(ticks=2)
    refused(stage, N2, Summary("g", CID, *SUMMARIES[why]), why)
    true = (0, 1, 0, 0, 0)
    stage.inject(N2, "n1", Summary("g", CID, true, true, true), LINK)


def test_a_packet_is_refused_for_what_it_says_and_not_for_its_neighbours() -> None:
    """The same packets without the lie are taken: or the tests above would show nothing."""
    honest: list[Packet] = [
        cast(),
        cast(vector=(0, 2, 128)),
        Status("g", CID, 1, 1, (0, 1, 128)),
        proposal(),
        Court("g", CID, ((N3, CID),)),
        Hello("g", OLD, (), (N2,)),
    ]
    for packet in honest:
        machine: Any = staged().machine("n1")
        before = fingerprint(machine)
        tell(machine, N2, packet)
        assert fingerprint(machine) != before, packet


def test_an_event_is_not_below_the_clock_that_its_sender_told() -> None:
    """Others have delivered up to that clock: an event below it would come out of order."""
    stage = staged()
    stage.inject(N2, "n1", Status("g", CID, 1, 9, (0, 1, 8)), LINK)
    refused(stage, N2, cast(height=9, vector=(0, 2, 8)), "height 9 after 9")
    refused(stage, N2, Status("g", CID, 1, 8, (0, 1, 8)), "less")
    stage.inject(N2, "n1", cast(height=10, vector=(0, 2, 8)), LINK)


def test_no_height_is_above_the_number_of_events() -> None:
    """So a liar cannot lift one honest member to heights that another one refuses."""
    for packet in (cast(height=3), Status("g", CID, 1, 2, (0, 1, 0))):
        refused(staged(), N2, packet, "events, and none of them has height")
    refused(changing(), N2, Fetched("g", N3, cast(seq=1, vector=(0, 1, 1), height=3)), "none of")


def test_an_event_is_higher_than_what_it_follows() -> None:
    """What follows an event of ours is above it. What n2 told us of its own height it may have told
    n3 otherwise: that is not held against n3."""
    stage = staged()
    stage.inject(N2, "n1", cast(height=2), LINK)
    stage.submit("n1", [b"ours"])
    low = cast(seq=1, number=1, height=2, vector=(1, 1, 1))
    refused(stage, N3, low, "height 2 that follows 3")
    stage.inject(N3, "n1", cast(seq=1, number=1, height=2, vector=(0, 2, 1)), LINK)
    stage.inject(N3, "n1", cast(seq=2, number=2, height=4, vector=(1, 2, 2)), LINK)


def test_a_former_incarnation_of_a_member_and_a_later_one_are_no_members_of_its_view() -> None:
    for packet in (cast(), Status("g", CID, 1, 1, (0, 1, 0))):
        refused(staged(), LATER_N2, packet, "not a member of view")


# --- in a change -----------------------------------------------------------------------------

LIES_IN_A_CHANGE: dict[str, Packet] = {
    "the same proposal again": proposal(serial=4),
    "a proposal before the last one": proposal(serial=3),
    "a proposal that takes a failure back": proposal(serial=5, failed=()),
    "a proposal without one whom it had": proposal(
        serial=5, joined=((N2, CID), (N3, CID)), failed=(N3,)
    ),
    "a proposal that puts a member back": proposal(
        serial=5, joined=((N1, CID), (N2, CID), (N3, OLD)), failed=(N3,)
    ),
    "readiness for a view of a stranger": Ready("g", CID, ConfigurationId(3, STRANGER, 1), ()),
    "readiness with knowledge of a stranger": Ready(
        "g", CID, ConfigurationId(3, N1, 1), (GoneMember(STRANGER, (0, 0, 0), 0),)
    ),
    "readiness with knowledge of another length": Ready(
        "g", CID, ConfigurationId(3, N1, 1), (GoneMember(N3, (0,), 0),)
    ),
    "a fetch of more than was offered": Fetch("g", CID, N2, 1, 2),
    "a fetch that ends before it begins": Fetch("g", CID, N2, 2, 1),
    "an event of ours that another passes on": Fetched("g", N1, cast(seq=1, vector=(1, 1, 0))),
    "an event that one which comes along sent": Fetched("g", N2, cast()),
    "a passed on event with a wrong vector": Fetched("g", N3, cast(seq=1, vector=(0, 1, 2))),
    "a passed on event of no height": Fetched(
        "g", N3, cast(seq=1, vector=(0, 1, 1), height=1 << 50)
    ),
    "a passed on event after too much": Fetched("g", N3, cast(seq=1, vector=(0, 300, 1))),
}


@pytest.mark.parametrize("what", LIES_IN_A_CHANGE)
def test_a_lie_in_a_change_leaves_no_trace(what: str) -> None:
    refused(changing(), N2, LIES_IN_A_CHANGE[what])


def test_an_installation_that_knows_of_strangers_is_refused() -> None:
    stage = changing()
    machine: Any = stage.machine("n1")
    stage.inject(N2, "n1", proposal(serial=5), LINK)
    [decided] = machine.current.change.readied
    for known in (GoneMember(STRANGER, (0, 0, 0), 0), GoneMember(N3, (0,), 0)):
        refused(stage, N2, Installed("g", decided, (SideKnowledge(CID, (known,)),)), "another view")
    stage.inject(N2, "n1", Installed("g", decided, ()), LINK)
    assert machine.current.cid == decided


def test_a_proposal_does_not_take_back_what_was_received() -> None:
    """The cut would be below what we have of a member that is gone."""
    stage = staged()
    stage.inject(N2, "n1", proposal(serial=4, received=(0, 1, 2)), LINK)
    refused(stage, N2, proposal(serial=5, received=(0, 1, 1)), "takes back")
    stage.inject(N2, "n1", proposal(serial=5, received=(0, 1, 2)), LINK)


def test_a_member_that_is_ready_has_sent_no_more_than_it_proposed() -> None:
    stage = changing()
    machine: Any = stage.machine("n1")
    [decided] = machine.current.change.readied
    stage.inject(N2, "n1", cast(), LINK)
    refused(stage, N2, Ready("g", CID, decided, ()), "more than it proposed")


def test_what_is_beyond_the_end_of_a_view_is_lost() -> None:
    """n2 goes on sending in a view that it has agreed to end. Nobody else has to have that."""
    stage = changing()
    machine: Any = stage.machine("n1")
    [decided] = machine.current.change.readied
    stage.inject(N2, "n1", cast(service="basic"), LINK)
    stage.inject(N2, "n1", cast(seq=3, number=3, height=3, vector=(0, 3, 0), service="safe"), LINK)
    began = len(stage.log)
    stage.inject(N2, "n1", Installed("g", decided, ()), LINK)
    assert machine.current.cid == decided
    outputs = [what for who, what in stage.log[began:] if who == N1]
    assert not [one for one in outputs if isinstance(one, Event)]
    lost = [one.columns["number"] for one in outputs if isinstance(one, Note)]
    assert lost == [2, 3]


@pytest.mark.parametrize(
    "cid", [ConfigurationId(9, STRANGER, 1), ConfigurationId(3, N1, 77)], ids=str
)
def test_a_member_that_went_on_to_a_view_of_which_we_know_nothing_is_excluded(
    cid: ConfigurationId,
) -> None:
    """What it sends there we miss. If a liar then made us ready for that view, and we followed, its
    next event would come after a gap: one honest member would refuse another."""
    stage = changing()
    machine: Any = stage.machine("n1")
    tell(machine, N2, Installed("g", cid, ()))
    assert machine.current.members == (N1,)


FORGED: list[Packet] = [
    Installed("g", CID, ()),
    Installed("g", OLD, ()),
    Ready("g", OLD, ConfigurationId(3, N1, 1), ()),
]


# A link brings an older proposal before a newer one.
OLDER = [packet for packet in OF_FORMER_VIEWS if not isinstance(packet, Proposal)]


@pytest.mark.parametrize("packet", [*OLDER, *FORGED], ids=lambda packet: type(packet).__name__)
def test_what_a_backlog_can_bring_is_dropped_in_a_change_too(packet: Packet) -> None:
    """What is below our configuration we have left, or it went on without us."""
    stage = changing()
    machine: Any = stage.machine("n1")
    cid, state = machine.current.cid, machine.current.change.proposals.copy()
    step = tell(machine, N2, packet)
    assert not [one for one in step.outputs if not isinstance(one, str)]
    assert machine.current.cid == cid
    assert machine.current.change.proposals == state


def test_what_an_excluded_member_still_sends_is_dropped_quietly() -> None:
    stage = changing()
    machine: Any = stage.machine("n1")
    for packet in (
        cast(seq=1, number=1, height=2, vector=(0, 1, 1)),
        cast(seq=7, number=7, height=9, vector=(0, 1, 7)),  # we may have missed some
        Status("g", CID, 1, 2, (0, 1, 1)),
        Ready("g", CID, ConfigurationId(3, N1, 1), ()),
    ):
        tell(machine, N3, packet)
    assert machine.current.graph.received == [0, 1, 0]
    assert machine.current.graph.held == 0
    assert N3 not in machine.current.change.readies


# --- anything --------------------------------------------------------------------------------


# By the options of the group. What these seeds found, with a liar that agrees as far as it can:
# knowledge of members that are not gone (6, 8, 12, 27, 31, 42, 45), an installation for which
# nobody else was ready (44), heights that one honest member believed and another one refused (59),
# and, in groups with a quorum, a vote that was refused after time had passed (5, 7, 10, 19, 22).
ATTACKS: list[tuple[dict[str, str], tuple[int, ...]]] = [
    ({}, (*range(8), 59)),
    ({"merge": "largest"}, (6, 8, 12, 44, 59)),
    ({"merge": "all"}, (27, 31, 45)),
    ({"quorum": "majority"}, (5, 10, 19, 22)),
    ({"quorum": "majority", "merge": "all"}, (7, 42)),
]


@pytest.mark.parametrize(("options", "seeds"), ATTACKS, ids=str)
def test_no_packet_breaks_a_member_and_the_others_go_on(
    options: dict[str, str], seeds: tuple[int, ...]
) -> None:
    """n3 says anything, to n1 and to n2 apart, while they work; then it stops. Whatever it said is
    refused without a trace or believed, and in the end n1 and n2 are together and work. What they
    sent themselves has one order."""
    counted = {"refused": 0, "taken": 0}
    for seed in seeds:
        stage = Stage.of("synchrony", "n1 n2 n3", **options)
        stage.settle(ticks=2)
        stage.submit("n2", [b"a"])
        stage.settle(ticks=2)
        stage.crash("n3")  # what follows is said in its name
        attack(stage, Random(seed), counted)
        stage.settle(ticks=300)
        machines: list[Any] = [stage.machine(name) for name in ("n1", "n2")]
        views = {machine.current.cid: machine.current.members for machine in machines}
        assert list(views.values()) == [(N1, N2)], f"seed {seed}: {views}"
        last = stage.submit("n1", [b"last"], service="safe")
        assert last is not None, f"seed {seed}"
        stage.settle(ticks=4)
        first, second = (honest_events(stage, node) for node in (N1, N2))
        assert first[-1] == second[-1] == (N1, last.number), f"seed {seed}"
        assert [one for one in first if one in second] == [one for one in second if one in first]
        assert len(set(first)) == len(first)
        assert len(set(second)) == len(second)
    assert counted["refused"] > 20 * len(seeds) < counted["taken"]


def honest_events(stage: Stage, node: NodeId) -> list[tuple[NodeId, int]]:
    """What a member delivered of those that do not lie."""
    events = [what for who, what in stage.log if who == node and isinstance(what, Event)]
    return [(one.origin, one.number) for one in events if one.origin != N3]


def attack(stage: Stage, draw: Random, counted: dict[str, int]) -> None:
    liar = RandomPackets(draw, N3, ("n1", "n2", "n3"))
    for _ in range(80):
        name = draw.choice(["n1", "n2"])
        machine: Any = stage.machine(name)
        packet = liar.packet(machine)
        before = fingerprint(machine)
        try:
            stage.inject(N3, name, packet, LINK)
            counted["taken"] += 1
        except PeerError:
            counted["refused"] += 1
            assert fingerprint(machine) == before, packet
        if draw.random() < 0.2:
            stage.submit(draw.choice(["n1", "n2"]), [b"meanwhile"])
            stage.settle(ticks=draw.randrange(3))


def test_the_liar_draws_every_packet() -> None:
    machine: Any = staged().machine("n1")
    liar = RandomPackets(Random(1), N3, ("n1", "n2", "n3"))
    kinds = {type(liar.packet(machine)) for _ in range(400)}
    assert kinds == set(PACKETS)


# --- groups that it is not in ----------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_a_liar_changes_nothing_in_groups_that_it_is_not_in(seed: int) -> None:
    """n3 lies in its own group, and says anything to the other one, which has only n1 and n2."""
    ours, theirs = staged(), Stage.of("synchrony", "n1 n2")
    ours.crash("n3")
    theirs.submit("n2", [b"a"])
    theirs.settle(ticks=2)
    machine: Any = theirs.machine("n1")
    before = fingerprint(machine)
    draw, counted = Random(seed), {"refused": 0, "taken": 0}
    attack(ours, draw, counted)
    liar = RandomPackets(draw, N3, ("n1", "n2", "n3"))
    dropped = 0
    for _ in range(300):
        try:
            theirs.inject(N3, "n1", liar.packet(machine), LINK)
            dropped += 1  # of another view than this one
        except PeerError:
            counted["refused"] += 1
        assert fingerprint(machine) == before
    assert counted["refused"] > 10 * dropped
