"""Packets about formations that break the rules: they are rejected, or they change
nothing; and whatever can grow has a limit."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec
import pytest
from tests.protocol.newtop.forming_table import known, run, stage_of, view_of, vote_of
from tests.protocol.newtop.table import die, group, member, node, suspect, views, wait

from ordercast.errors import PeerError
from ordercast.kernel.inputs import StateProvided
from ordercast.kernel.packet import Packet
from ordercast.protocol.newtop import FAMILY
from ordercast.protocol.newtop.attempt import MOST_EARLY, MOST_REMEMBERED
from ordercast.protocol.newtop.packets import (
    LARGEST_GROUP,
    Data,
    Here,
    Invite,
    Move,
    Null,
    Please,
    Start,
    State,
    Vote,
)
from ordercast.protocol.newtop.suspicion import MOST_WITHHELD
from ordercast.sim.explore.fingerprint import encode
from ordercast.testing.stage import Stage
from ordercast.types import NodeId, StateGiven, StateWanted
from ordercast.wire.codec import Codec

N1, N2, N3 = node("n1"), node("n2"), node("n3")
STRANGER = NodeId("n9", 0)


def terms(stage: Stage) -> dict[str, str]:
    return member(stage, "n1").named["g"].terms


def invite(stage: Stage, *members: NodeId, formation: str = "n2.0.7") -> Invite:
    return Invite("g", formation, list(members), terms(stage))


def nonsense(stage: Stage) -> dict[str, tuple[NodeId, Packet]]:
    return {
        "a stranger is here": (STRANGER, Here("g", None, 0, "", terms(stage), True)),
        "a stranger invites": (STRANGER, invite(stage, N1, STRANGER, formation="n9.0.1")),
        "a stranger votes": (STRANGER, Vote("g", "n2.0.7", True, "")),
        "a stranger asks": (STRANGER, Please("g")),
        "without us": (N2, invite(stage, N2, N3)),
        "to another incarnation of us": (N2, invite(stage, NodeId("n1", 1), N2)),
        "without itself": (N2, invite(stage, N1, N3)),
        "of strangers": (N2, invite(stage, N1, N2, STRANGER)),
        "twice": (N2, invite(stage, N1, N2, N2)),
        "two lives of one": (N2, invite(stage, N1, N2, N3, NodeId("n3", 1))),
        "in disorder": (N2, invite(stage, N2, N1)),
        "in another's name": (N2, invite(stage, N1, N2, formation="n3.0.1")),
        "in the name of one called n2.0": (N2, invite(stage, N1, N2, formation="n2.0.0.1")),
        "under a name that is no number": (N2, invite(stage, N1, N2, formation="n2.0.x+y")),
        "in an earlier incarnation": (NodeId("n2", 1), invite(stage, N1, NodeId("n2", 1))),
        "under no name": (N2, invite(stage, N1, N2, formation="")),
        "a start of what is there": (N2, Start("g", "", 9, 8, 0, 0, 0)),
        "a state of what is there": (N2, State("g", "", 9, 0, 0, 0, b"mine")),
    }


def state_of(stage: Stage, name: str) -> bytes:
    return encode(member(stage, name))


@pytest.mark.parametrize("what", nonsense(stage_of("n1 n2 n3", formed=True)))
def test_an_invalid_packet_is_rejected_and_changes_nothing(what: str) -> None:
    stage = stage_of("n1 n2 n3", formed=True)
    sender, packet = nonsense(stage)[what]
    before = state_of(stage, "n1")
    with pytest.raises(PeerError):
        stage.inject(sender, "n1", packet)
    assert state_of(stage, "n1") == before


def test_a_stream_of_a_formation_starts_once() -> None:
    stage = stage_of("n1 n2 n3")
    run(stage)
    formation = view_of(stage, "n1")[0]
    streams = group(stage, "n1", f"g+{formation}").streams
    last = streams.up_to(N2)
    before = state_of(stage, "n1")
    for packet in (
        Start("g", formation, last + 1, last, 0, 0, 0),
        Null("g", formation, last + 1, 0, 0, 0),
        State("g", formation, last + 1, last, 0, 0, b"mine"),
    ):
        with pytest.raises(PeerError):
            stage.inject(N2, "n1", packet)
    assert state_of(stage, "n1") == before


def test_votes_of_members_that_are_not_invited_are_rejected() -> None:
    stage = stage_of("n1 n2 n3", formed=True, invitations="ask")
    stage.inject(N2, "n1", invite(stage, N1, N2))
    with pytest.raises(PeerError, match="not invited"):
        stage.inject(N3, "n1", Vote("g", "n2.0.7", True, ""))
    with pytest.raises(PeerError, match="not invited"):
        stage.inject(N3, "n1", Null("g", "n2.0.7", 1, 0, 0, 0))


def test_packets_of_an_ended_formation_change_nothing() -> None:
    stage = stage_of("n1 n2 n3", formed=True, invitations="ask")
    invitation = invite(stage, N1, N2)
    stage.inject(N2, "n1", invitation)
    stage.inject(N2, "n1", Vote("g", "n2.0.7", False, "changed my mind"))
    before = state_of(stage, "n1")
    stage.inject(N2, "n1", invitation)
    stage.inject(N2, "n1", Vote("g", "n2.0.7", True, ""))
    stage.inject(N2, "n1", Start("g", "n2.0.7", 1, 0, 0, 0, 0))
    stage.answer("n1", True)
    assert state_of(stage, "n1") == before


def test_duplicate_packets_change_nothing() -> None:
    """Every packet of a formation once more, and all again at the end."""
    calm, doubled = stage_of("n1 n2 n3"), stage_of("n1 n2 n3")
    run(calm)
    seen: list[tuple[NodeId, str, Packet]] = []
    deliver = doubled.deliver

    def twice(parcel: Any, **answered: Any) -> None:
        deliver(parcel, **answered)
        if not isinstance(parcel.packet, Here):
            seen.append((parcel.sender, parcel.target, parcel.packet))
            doubled.inject(parcel.sender, parcel.target, parcel.packet)

    doubled.deliver = twice  # type: ignore[method-assign]
    run(doubled)
    for sender, target, packet in seen:
        doubled.inject(sender, target, packet)
    assert len(seen) > 20
    for name in ("n1", "n2", "n3"):
        assert view_of(doubled, name) == view_of(calm, name) == ("n1.0.1", "n1 n2 n3")


def test_votes_without_invitations_are_remembered_up_to_a_limit() -> None:
    stage = stage_of("n1 n2 n3", formed=True)
    for number in range(10 * MOST_REMEMBERED):
        stage.inject(N3, "n1", Vote("g", f"n2.0.{number}", True, ""))
    assert len(member(stage, "n1").named["g"]._others) == MOST_REMEMBERED
    stage.inject(N2, "n1", invite(stage, N1, N2, N3, formation=f"n2.0.{number}"))
    vote = vote_of(stage, "n1")
    assert vote is not None
    assert set(vote.yes) == {N1, N3}, "a vote may come first"


def test_a_no_that_arrives_before_the_invitation_counts() -> None:
    stage = stage_of("n1 n2 n3", formed=True)
    stage.inject(N3, "n1", Vote("g", "n2.0.1", True, ""))
    stage.inject(N3, "n1", Vote("g", "n2.0.1", False, "no, after all"))
    stage.inject(N2, "n1", invite(stage, N1, N2, N3, formation="n2.0.1"))
    assert vote_of(stage, "n1") is None
    assert stage.accepts("n1")


def test_too_many_early_packets_end_the_formation() -> None:
    stage = stage_of("n1 n2 n3", formed=True)
    stage.inject(N2, "n1", invite(stage, N1, N2, N3))
    stage.inject(N2, "n1", Start("g", "n2.0.7", 1, 0, 0, 0, 0))
    for order in range(2, MOST_EARLY + 1):
        stage.inject(N2, "n1", Null("g", "n2.0.7", order, order - 1, 0, 0))
    assert vote_of(stage, "n1") is not None
    stage.inject(N2, "n1", Null("g", "n2.0.7", MOST_EARLY + 1, MOST_EARLY, 0, 0))
    assert vote_of(stage, "n1") is None


def test_the_bytes_of_early_packets_have_a_limit() -> None:
    stage = stage_of("n1 n2 n3", formed=True, window_size="1kB")
    stage.inject(N2, "n1", invite(stage, N1, N2, N3))
    stage.inject(N2, "n1", Start("g", "n2.0.7", 1, 0, 0, 0, 0))
    stage.inject(N2, "n1", State("g", "n2.0.7", 2, 1, 0, 0, bytes(16_000)))
    assert vote_of(stage, "n1") is not None
    stage.inject(N2, "n1", State("g", "n2.0.7", 3, 2, 0, 0, b"one more"))
    assert vote_of(stage, "n1") is None


def test_the_sender_of_an_invalid_early_packet_is_excluded() -> None:
    stage = stage_of("n1 n2 n3", formed=True)
    stage.inject(N2, "n1", invite(stage, N1, N2, N3))
    stage.inject(N3, "n1", Null("g", "n2.0.7", 5, 4, 0, 0))  # no start
    stage.inject(N3, "n1", Vote("g", "n2.0.7", True, ""))
    stage.inject(N2, "n1", Vote("g", "n2.0.7", True, ""))
    formed = group(stage, "n1", "g+n2.0.7")
    assert N3 in formed.agreement.suspicions.suspected


def test_a_state_below_our_own_start_ends_the_formation() -> None:
    """Its initiator did not wait until we had begun: what follows it may be below our start too."""
    stage = stage_of("n1 n2")
    member(stage, "n2").order.clock.witness(100)
    stage.settle()
    formed = group(stage, "n2", "g+n1.0.1")
    last = formed.streams.up_to(N1)
    assert formed.floor > 100 > last + 1
    stage.inject(N1, "n2", State("g", "n1.0.1", last + 1, last, 0, 0, b"hasty"))
    assert "g+n1.0.1" not in member(stage, "n2").joined
    assert not [what for who, what in stage.log if isinstance(what, StateGiven)]


def test_an_invitation_with_other_options_is_rejected_with_the_difference() -> None:
    stage = stage_of("n1 n2 n3", formed=True)
    packet = Invite("g", "n2.0.7", [N1, N2], {**terms(stage), "window": "9"})
    stage.inject(N2, "n1", packet)
    votes = [one.packet for one in stage.underway("n1", "n2") if isinstance(one.packet, Vote)]
    assert [(vote.yes, vote.why) for vote in votes] == [
        (False, "n1 has joined with other options: window is 64 here and 9 there")
    ]
    assert vote_of(stage, "n1") is None


def test_packets_of_an_earlier_incarnation_do_not_count() -> None:
    stage = stage_of("n1 n2")
    stage.crash("n2")
    here = Here("g", None, 0, "", terms(stage), False)
    stage.inject(NodeId("n2", 3), "n1", Here("g", "n2.3.1", 1, "n2", terms(stage), False))
    stage.inject(NodeId("n2", 2), "n1", here)
    assert vote_of(stage, "n1") is None
    stage.inject(NodeId("n2", 4), "n1", here)
    assert vote_of(stage, "n1") is not None


def test_a_state_that_was_not_asked_for_is_ignored() -> None:
    stage = stage_of("n1 n2")
    stage.settle(ticks=3)
    before = len(stage.underway())
    stage.give("n1", StateProvided("g", "n1.0.99", b"another"))
    assert len(stage.underway()) == before
    stage.provide("n1", b"this")
    run(stage, 3)
    assert known(stage, "n2") == ["this"]


def test_a_move_to_an_unknown_formation_does_no_harm() -> None:
    stage = stage_of("n1 n2", formed=True)
    stage.inject(N2, "n1", Move("g", "", 1, 0, 0, 0, "n9.9.9"))
    stage.submit("n1", [b"on"])
    assert group(stage, "n1").moves == {N2: ("n9.9.9", 1)}


def test_a_member_whose_state_cannot_be_given_is_not_in_the_group() -> None:
    stage = stage_of("n1 n2")
    stage.settle(ticks=3)
    (wanted,) = [what for _, what in stage.log if isinstance(what, StateWanted)]
    stage.actors["n1"].answered += 1
    stage.give("n1", StateProvided("g", wanted.token, None, "KeyError: 'accounts'"))
    run(stage, 3)
    given = [what for who, what in stage.log if isinstance(what, StateGiven)]
    assert given == [StateGiven("g", None, "n1 could not give its state: KeyError: 'accounts'")]
    assert view_of(stage, "n1")[0] == "n1.0.1"
    assert view_of(stage, "n2") == ("", "")


def test_huge_lists_do_not_decode() -> None:
    codec, stage = Codec([FAMILY]), stage_of("n1 n2")
    many = [NodeId(f"n{number}", 0) for number in range(LARGEST_GROUP + 1)]
    with pytest.raises(PeerError):
        codec.decode(codec.encode(Invite("g", "n2.0.1", many, terms(stage))))
    words = {f"word{number}": "" for number in range(31)}
    with pytest.raises(PeerError):
        codec.decode(codec.encode(Here("g", None, 0, "", words, True)))
    with pytest.raises(PeerError):
        codec.decode(codec.encode(Vote("g", "n" * 151, True, "")))


def test_a_deep_copy_of_a_member_that_forms_is_a_snapshot() -> None:
    stage = stage_of("n1 n2 n3")
    stage.settle(ticks=2)
    machine = member(stage, "n2")
    assert encode(deepcopy(machine)) == encode(machine)
    assert msgspec.msgpack.encode(terms(stage))


# --- packets of a suspected member ---------------------------------------------------------------


def flooded(packets: int, size: int, **options: Any) -> Stage:
    """n1 suspects n2, whose packets arrive all the same, before n3 says what it thinks of it."""
    stage = stage_of("n1 n2 n3", formed=True, **options)
    suspect(stage, "n1", "n2")
    for order in range(1, packets + 1):
        packet: Packet = Null("g", "", order, order - 1, 0, 0)
        if size:
            packet = Data("g", "", order, order - 1, 0, 0, N2, order, [bytes(size)], size)
        stage.inject(N2, "n1", packet)
    return stage


@pytest.mark.parametrize(("packets", "size"), [(MOST_WITHHELD, 0), (15, 1000)])
def test_packets_of_a_suspect_are_withheld_up_to_a_limit(packets: int, size: int) -> None:
    options = {"window": 2, "window_size": 1000}
    held = group(flooded(packets, size, **options), "n1").agreement.suspicions
    assert len(held.withheld[N2]) == packets
    assert not held.overrun
    stage = flooded(packets + 2, size, **options)
    held = group(stage, "n1").agreement.suspicions
    assert N2 in held.overrun
    assert not held.withheld[N2]
    die(stage, "n2")
    wait(stage, 120)
    assert views(stage, "n1")[-1] == views(stage, "n3")[-1] == "g{n1 n3}"


def test_a_member_that_overran_stays_while_another_vouches_for_it() -> None:
    """n1 reads n2 no more, but gets what n3 has of it."""
    stage = flooded(17, 1000, window=2, window_size=1000)
    for _ in range(3):
        assert stage.submit("n2", [b"well"]) is not None
        wait(stage, 5)
    assert N2 in group(stage, "n1").agreement.suspicions.overrun
    assert views(stage, "n1") == ["g{n1 n2 n3}"]
    assert known(stage, "n1") == known(stage, "n3") == ["well"] * 3
    die(stage, "n2")
    wait(stage, 60)
    assert views(stage, "n1")[-1] == views(stage, "n3")[-1] == "g{n1 n3}"
