"""What is refused: packets from members that may not send them, and contradictions.

Whoever refuses is afterwards as it was before, but for what it counts, and says nothing.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.protocol.tickets.holders import FAMILY

from ordercast.errors import PeerError, UsageError
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step
from ordercast.protocol.families import FAMILIES
from ordercast.protocol.tickets.leased import Leased
from ordercast.protocol.tickets.packets import (
    About,
    Ballot,
    BallotVote,
    Claim,
    Configuration,
    Current,
    Grant,
    Install,
    Installed,
    List,
    Listed,
    Next,
    Offer,
    Outbid,
    Ping,
    Pong,
    Propose,
    Ready,
    Refusal,
    Release,
    ReplicaRecord,
    Seal,
    Sealed,
    TicketState,
    Voted,
)
from ordercast.protocol.tickets.rules import Rules
from ordercast.scenario.file import options_for
from ordercast.sim.explore.fingerprint import encode
from ordercast.types import INCARNATION_BITS, NodeId
from ordercast.wire.codec import Codec

A, B, C, D = (NodeId(name) for name in "abcd")
NAMES = ("a", "b", "c", "d")
CLUSTER = 7
LAST = (1 << INCARNATION_BITS) - 1
REPLICAS = Configuration(1, (A, B, C))
TABLE = (TicketState(), TicketState(1, D, "held", 1 << 32 | 5))
RULES = Rules(tickets=2, lease=1000, drift=0.1, guards=3)
G: tuple[Any, ...] = ("g", CLUSTER)


def names() -> tuple[str, ...]:
    return NAMES


def member(me: NodeId = A, replicas: Configuration = REPLICAS) -> Leased:
    """A replica that has restarted with its disk; or a member that has heard of the replica set."""
    if me not in replicas.replicas:
        found = Leased(me, "g", RULES, names, Random(1))
        found.receive(Step(0), A, Pong(*G, 0, replicas, A, 1))
        return found
    record = ReplicaRecord(*G, me, replicas, TABLE, None, None, False)
    found = Leased(me, "g", RULES, names, Random(1), persisted=(record,))
    found.start(Step(0))
    return found


def assert_refused(who: Leased, sender: NodeId, packet: Packet, why: str, now: int = 10) -> None:
    before, step = encode(who), Step(now)
    with pytest.raises(PeerError, match=why):
        who.receive(step, sender, packet)
    assert encode(who) == before
    assert not step.sent
    assert not step.records


def answers(step: Step) -> list[Packet]:
    """What was sent, but for the ping to a lease replica that has not answered yet."""
    return [packet for _, packet, *_ in step.sent if not isinstance(packet, Ping)]


def sets(number: int, *replicas: NodeId) -> Configuration:
    return Configuration(number, replicas)


BALLOT = Ballot(1, B)
NEXT = Next(sets(2, A, B, D), TABLE)


@pytest.mark.parametrize(
    ("sender", "packet", "why"),
    [
        (B, Claim(*G, 1, 0, 1, D, 0, 1), "claims a ticket for d"),
        (NodeId("d", 1), Claim(*G, 1, 1, 1, D, 0, 1), "claims a ticket for d"),
        (D, Claim(*G, 1, 2, 1, D, 0, 1), "claims ticket 2"),
        (D, Claim(*G, 1, 0, 0, D, 0, 1), "epoch 0"),
        (B, Release(*G, 1, 1, 1, D, 0), "claims a ticket for d"),
        (D, Release(*G, 1, 7, 1, D, 0), "claims ticket 7"),
        (D, Release(*G, 1, 1, 1, D, 0, (1, 2, 3)), "a clock of 3 entries, not 2"),
        (B, Grant(*G, 1, 0, (1,)), "a clock of 1 entries, not 2"),
        (B, Listed(*G, 1, [(2, 0)]), "a ticket that does not exist"),
        (D, Listed(*G, 1, [(0, 0)]), "speaks for a replica set that it is not in"),
        (D, Seal(*G, 1, Ballot(1, D)), "would replace the replica set, but is not in it"),
        (C, Seal(*G, 1, BALLOT), "uses a ballot of b"),
        (NodeId("b", 3), Seal(*G, 1, BALLOT), "uses a ballot of b"),
        (C, Offer(*G, 1, BALLOT), "uses a ballot of b"),
        (D, Offer(*G, 1, Ballot(1, D)), "speaks for a replica set that it is not in"),
        (D, Outbid(*G, 1, Ballot(9, D)), "speaks for a replica set that it is not in"),
        (D, Propose(*G, 1, Ballot(1, D), NEXT), "would replace the replica set"),
        (C, Propose(*G, 1, BALLOT, NEXT), "uses a ballot of b"),
        (B, Propose(*G, 1, BALLOT, Next(sets(2, A), TABLE[:1])), "a table of 1 tickets"),
        (B, Propose(*G, 1, BALLOT, Next(sets(3, A), TABLE)), "names a replica set 3"),
        (B, Propose(*G, 1, BALLOT, Next(sets(2, A, B), TABLE)), "cannot be"),
        (
            B,
            Propose(*G, 1, BALLOT, Next(sets(2, A, B, NodeId("b", 1)), TABLE)),
            "cannot be",
        ),
        (D, Install(*G, Next(sets(2, A), TABLE)), "speaks for a replica set that it is not in"),
        (B, Install(*G, Next(sets(1, A), TABLE)), "another replica set 1 than there is"),
        (B, Install(*G, Next(REPLICAS, TABLE[::-1])), "installs another replica set 1"),
        (B, Install(*G, Next(sets(2, A, B), TABLE)), "cannot be"),
        (B, Install(*G, Next(sets(2, A), (*TABLE, TicketState()))), "a table of 3 tickets"),
        (B, Sealed(*G, 1, BALLOT, C, None, TABLE, []), "answers for c"),
        (B, Sealed(*G, 1, BALLOT, B, None, TABLE[:1], []), "a table of 1 tickets, not 2"),
        (B, Voted(*G, 1, BALLOT, C), "answers for c"),
        (B, Ready(*G, 1, BALLOT, C), "answers for c"),
        (B, Installed(*G, 1, C), "answers for c"),
        (B, Pong(*G, 0, REPLICAS, C, 1), "answers for c"),
        (B, Pong(*G, 11, REPLICAS, B, 1), "from the future"),
        (B, Pong(*G, 0, sets(1, B), B, 1), "another replica set 1 than there is"),
        (B, Pong(*G, 0, sets(2, B, C), B, 1), "cannot be"),
        (B, Current(*G, sets(1, B, C, D)), "another replica set 1 than there is"),
        (B, Current(*G, sets(2)), "cannot be"),
        (B, Current(*G, sets(0, B)), "cannot be"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, About) else "",
)
def test_a_lease_replica_rejects_invalid_packets(sender: NodeId, packet: About, why: str) -> None:
    assert_refused(member(), sender, packet, why)


def test_a_ballot_is_for_one_proposal() -> None:
    replica = member()
    replica.receive(Step(5), B, Propose(*G, 1, BALLOT, NEXT))
    other = Propose(*G, 1, BALLOT, Next(sets(2, B), TABLE))
    assert_refused(replica, B, other, "two replica sets in one ballot")
    again = Step(6)
    replica.receive(again, B, Propose(*G, 1, BALLOT, NEXT))
    assert [type(packet) for packet in answers(again)] == [Voted]


def claiming(me: NodeId = D) -> tuple[Leased, int]:
    """Somebody that has claimed ticket 0, and the nonce of that."""
    who, step = member(me), Step(1)
    who.seek(step, True, 0, ())
    who.receive(step, B, Listed(*G, 1, [(0, 0)]))
    (claim,) = [packet for _, packet, *_ in step.sent if isinstance(packet, Claim)]
    return who, claim.nonce


def test_a_claimant_counts_answers_of_lease_replicas_alone_and_each_once() -> None:
    who, nonce = claiming()
    stranger = NodeId("e")
    assert_refused(who, stranger, Grant(*G, nonce, 0), "answers a claim, but is no lease replica")
    refusal = Refusal(*G, nonce, False, 5, A, True)
    assert_refused(who, stranger, refusal, "answers a claim, but is no lease replica")
    for _ in range(3):
        who.receive(Step(2), B, Grant(*G, nonce, 0))
    assert who.ticket is None
    assert not who.may_create(2)
    assert who.receive(Step(3), C, Grant(*G, nonce, 0)).acquired
    assert (who.ticket, who.epoch) == (0, 1)


def test_no_two_incarnations_share_the_nonce_of_a_claim() -> None:
    incarnations = [NodeId("d", number) for number in (0, 1, 1 << 16, (1 << 16) + 1, LAST)]
    nonces = {claiming(each)[1] for each in incarnations}
    assert len(nonces) == len(incarnations)
    codec = Codec(FAMILIES.values())
    for nonce in nonces:
        grant = Grant(*G, nonce, 0)
        assert codec.decode(codec.encode(grant)) == grant
    who, nonce = claiming(incarnations[3])
    for sender in (B, C):  # late answers to an incarnation that is over
        who.receive(Step(2), sender, Grant(*G, nonce - (1 << 40), 0))
    assert (who.ticket, who.owner.stale) == (None, 2)


def test_a_replayed_grant_does_not_extend_the_lease() -> None:
    who, nonce = claiming()
    for sender in (B, C):
        who.receive(Step(2), sender, Grant(*G, nonce, 0))
    until = who.valid_until()
    assert until == 1 + RULES.lease
    for sender in (A, B, C):
        who.receive(Step(900), sender, Grant(*G, nonce, 0))
    assert who.valid_until() == until
    assert not who.may_create(until)
    who.receive(Step(901), B, Grant(*G, nonce + 1, 0))  # to a claim that was never made
    assert (who.valid_until(), who.owner.stale) == (until, 1)


def test_stale_epochs_and_other_owners_are_rejected_with_the_reason() -> None:
    replica = member()
    table = replica.replica.register.table()
    for claim in (
        Claim(*G, 1, 1, 1, B, 0, 1),  # another's epoch
        Claim(*G, 1, 1, 2, B, 0, 2),  # a higher one, while the lease lasts
    ):
        step = Step(10)
        replica.receive(step, B, claim)
        (answer,) = answers(step)
        assert answer == Refusal(*G, claim.nonce, False, 1, D, True)
    before = Step(10)
    replica.receive(before, B, Release(*G, 1, 1, 1, B, 0))  # was never its own
    assert replica.replica.register.table() == table
    for number in (0, 5):
        replica.receive(Step(10), D, Claim(*G, number, 1, 1, D, 0, 3))
    assert replica.replica.stale == 2
    assert replica.replica.register.table() == table


def test_a_claim_that_is_replayed_after_the_release_is_refused() -> None:
    replica = member()
    claim = Claim(*G, 1, 1, 1, D, 5, 1)
    replica.receive(Step(10), D, claim)
    replica.receive(Step(20), D, Release(*G, 1, 1, 1, D, 1 << 32 | 9))
    step = Step(30)
    replica.receive(step, D, claim)
    assert [type(packet) for _, packet, *_ in step.sent] == [Refusal]
    assert replica.replica.register.entries[1].mode == "free"
    assert replica.replica.register.entries[1].last == 1 << 32 | 9


def test_packets_of_other_clusters_are_counted_and_not_answered() -> None:
    replica = member()
    table, step = replica.replica.register.table(), Step(10)
    other = CLUSTER + 1
    for packet in (
        Claim("g", other, 1, 1, 2, B, 0, 1),
        Seal("g", other, 1, BALLOT),
        Install("g", other, Next(sets(2, A), TABLE)),
        List("g", other),
    ):
        replica.receive(step, B, packet)
    assert not step.sent
    assert replica.counters()["of_other_clusters"] == 4
    assert replica.replica.register.table() == table
    assert not replica.replica.sealed


def test_a_leader_refuses_votes_of_outsiders_and_before_it_proposes() -> None:
    leader = member()
    step = Step(10)
    leader.leader._begin(step, REPLICAS, (A,))
    assert leader.leader.change is not None
    ballot = leader.leader.change.ballot
    assert_refused(leader, D, Voted(*G, 1, ballot, D), "leader, but is no lease replica")
    assert_refused(leader, B, Voted(*G, 1, ballot, B), "votes for what was not proposed")
    late = BallotVote(Ballot(99, C), NEXT)
    sealed = Sealed(*G, 1, ballot, B, late, TABLE, [])
    assert_refused(leader, B, sealed, "has voted after what it promises")
    sealed = Sealed(*G, 1, ballot, B, None, TABLE, [5])
    assert_refused(leader, B, sealed, "holds a ticket that does not exist")
    sealed = Sealed(*G, 1, ballot, D, None, TABLE, [])
    assert_refused(leader, D, sealed, "leader, but is no lease replica")


def test_a_member_that_agreed_to_become_a_replica_stays_until_that_is_decided() -> None:
    newcomer = member(D)
    newcomer.receive(Step(5), B, Offer(*G, 1, BALLOT))
    newcomer.retire(Step(6))
    assert not newcomer.may_go()
    newcomer.receive(Step(7), B, Current(*G, sets(2, A, B, D)))
    assert not newcomer.may_go()  # it was taken
    newcomer.receive(Step(8), B, Current(*G, sets(3, A, B, C)))
    assert newcomer.may_go()


def test_a_member_that_agreed_leaves_when_the_proposal_fails() -> None:
    newcomer = member(D)
    newcomer.receive(Step(5), B, Offer(*G, 1, BALLOT))
    newcomer.retire(Step(6))
    ticks = 0
    while not newcomer.may_go():
        ticks += 1
        newcomer.tick(Step(6 + ticks * RULES.tick), 0)
    assert ticks == 24


def test_a_replica_does_not_start_with_another_number_of_tickets_than_it_persisted() -> None:
    record = ReplicaRecord(*G, A, REPLICAS, TABLE, None, None, False)
    for tickets in (1, 3):
        rules = RULES._replace(tickets=tickets)
        with pytest.raises(UsageError, match=f"began with 2 tickets.* say {tickets}: give every"):
            Leased(A, "g", rules, names, Random(1), persisted=(record,))
        Leased(A, "other", rules, names, Random(1), persisted=(record,))


def test_a_set_of_which_most_leave_is_replaced_all_the_same() -> None:
    """Whoever leaves still answers: it has its vote, and may be the reconfiguration leader."""
    leader = member().leader
    everybody = {one.name: one for one in (A, B, C, D)}
    begun = []
    for now in range(0, 5 * RULES.lease, RULES.tick):
        leader.tick(Step(now), everybody, {"b": B, "d": D}, NAMES)
        begun.append(leader.change is not None)
    assert any(begun)


@pytest.mark.parametrize(
    "packet",
    [
        Claim(*G, 1, 0, 1 << 22, D, 0, 1),
        Claim(*G, 1, 1024, 1, D, 0, 1),
        Claim(*G, 1, 0, 1, D, 1 << 32, 1),
        Claim(*G, 1, 0, 1, D, -1, 1),
        Claim(*G, 1 << 40, 0, 1, D, 0, 1),
        Grant(*G, 1, 1 << 54),
        Grant(*G, 1, 0, (0,) * 1025),
        Seal(*G, 1, Ballot(1 << 40, B)),
        Current(*G, sets(1, *(NodeId(f"n{place}") for place in range(16)))),
        Install(*G, Next(REPLICAS, (TicketState(),) * 1025)),
        Pong(*G, 1 << 62, None, B),
    ],
    ids=lambda packet: type(packet).__name__,
)
def test_numbers_beyond_the_limits_do_not_pass_the_codec(packet: About) -> None:
    codec = Codec([FAMILY])
    with pytest.raises(PeerError):
        codec.decode(codec.encode(packet))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"round": "50ms", "lease": "199ms"}, "lease must be at least 4 rounds"),
        ({"drift": 0.21}, "drift"),
        ({"drift": -0.01}, "drift"),
        ({"guards": 2}, "guards must be odd"),
        ({"guards": 17}, "guards"),
        ({"tickets": 1025}, "tickets"),
        ({"ownership": "leased", "updaters": ["n1"]}, "ownership = 'fixed'"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_settings_that_break_the_assumptions_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        options_for(FAMILIES["causal"], options)
