"""Who owns which ticket, and what nobody who follows the rules would say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.errors import PeerError
from ordercast.kernel.buffers import Limit
from ordercast.kernel.family import Plan
from ordercast.protocol.cluster.causality import CausalOrder
from ordercast.protocol.cluster.options import CausalOptions
from ordercast.protocol.cluster.ownership import Fixed
from ordercast.protocol.cluster.packets import Update
from ordercast.protocol.cluster.updaters import may_send, updaters_of
from ordercast.protocol.tickets.entries import SEQUENCE_BITS
from ordercast.types import NodeId, event_number

SENDER = NodeId("somebody")


def plan(names: str, **options: Any) -> Plan:
    return Plan("g", tuple(sorted(names.split())), CausalOptions(ownership="fixed", **options))


def epoch(number: int, sequence: int) -> int:
    return number << SEQUENCE_BITS | sequence


def fixed(me: NodeId, plan: Plan) -> Fixed:
    return Fixed(me, plan, CausalOrder(plan.options.tickets, Limit(10, 1000)))


def owned(me: str = "n1", incarnation: int = 0, made: int = 0) -> Fixed:
    """Four entries, three of which are owned: by n1, n2 and n3."""
    group = plan("n1 n2 n3 n4", tickets=4, updaters=["n1", "n2", "n3"])
    found = fixed(NodeId(me, incarnation), group)
    found.sequence = made
    return found


def update(
    index: int, *stamp: int, origin: NodeId | None = None, number: int | None = None, base: int = 0
) -> Update:
    entry = stamp[index]
    node = origin or NodeId(f"n{index + 1}", entry >> SEQUENCE_BITS)
    place = entry & (1 << SEQUENCE_BITS) - 1 if number is None else number
    return Update(index, stamp, node, place, [b"x"], 1, base)


# --- who owns what ----------------------------------------------------------------------------


def test_the_first_members_by_name_own_the_tickets() -> None:
    assert updaters_of(plan("n3 n1 n2", tickets=2)) == ("n1", "n2")


def test_numbers_in_names_count_as_numbers() -> None:
    names = " ".join(f"n{number}" for number in range(1, 13))
    assert updaters_of(plan(names, tickets=3)) == ("n1", "n2", "n3")
    assert updaters_of(plan("n10 n9 n2", tickets=25)) == ("n2", "n9", "n10")
    assert updaters_of(plan("a10b2 a10b10 a9b1 7 b", tickets=25)) == (
        "7", "a9b1", "a10b2", "a10b10", "b",
    )  # fmt: skip


def test_names_that_count_as_the_same_have_an_order_all_the_same() -> None:
    assert updaters_of(plan("n1 n01 n001", tickets=2)) == updaters_of(
        plan("n001 n01 n1", tickets=2)
    )


@settings(derandomize=True, max_examples=200)
@given(st.permutations([f"{a}{n}{b}" for a in ("", "x") for n in (1, 2, 10) for b in ("", "y")]))
def test_all_members_find_the_same_owners_in_whatever_order_they_read_the_names(
    names: list[str],
) -> None:
    members = tuple(names)
    assert updaters_of(Plan("g", members, CausalOptions(tickets=5, ownership="fixed"))) == (
        "1", "1y", "2", "2y", "10",
    )  # fmt: skip


def test_a_list_of_updaters_is_taken_as_it_is() -> None:
    group = plan("n1 n2 n3", updaters=["n3", "n1"])
    assert updaters_of(group) == ("n3", "n1")
    assert [may_send(group, name) for name in ("n1", "n2", "n3")] == [True, False, True]
    assert [fixed(NodeId(name), group).index for name in ("n1", "n2", "n3")] == [1, None, 0]


def test_an_entry_names_the_incarnation_of_its_owner_and_which_of_its_events() -> None:
    tickets = owned("n2", incarnation=5)
    assert tickets.entry(7) == epoch(5, 7)
    assert tickets.event_of(1, epoch(5, 7)) == ("n2", event_number(5, 7))
    assert tickets.owner(2, epoch(1, 1)) == "n3"


def test_a_later_incarnation_has_greater_entries() -> None:
    assert owned("n1", 1).entry(1) > owned("n1", 0).entry((1 << SEQUENCE_BITS) - 1)


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize("clock", [(0, 0, 0, 0), (epoch(3, 1), 5, 0, 0)])
def test_a_clock_of_the_right_length_is_taken(clock: tuple[int, ...]) -> None:
    owned().refuse_clock(SENDER, clock)


@pytest.mark.parametrize("clock", [(), (1, 0, 0), (1, 0, 0, 0, 0)])
def test_a_clock_of_another_length_is_refused(clock: tuple[int, ...]) -> None:
    with pytest.raises(PeerError, match=f"a stamp of {len(clock)} entries; this cluster has 4"):
        owned().refuse_clock(SENDER, clock)


def test_a_clock_that_knows_events_of_a_ticket_that_nobody_owns_is_refused() -> None:
    with pytest.raises(PeerError, match="a ticket that nobody owns"):
        owned().refuse_clock(SENDER, (0, 0, 0, 1))


GOOD = {
    "the first of all": update(1, 0, 1, 0, 0),
    "a later one": update(1, 2, 9, 0, 0),
    "the first of a new incarnation": update(1, 0, epoch(2, 1), 0, 0),
    "the first of a new incarnation that follows another": update(1, 0, epoch(2, 1), 0, 0, base=8),
    "one of ours that we made": update(0, 3, 0, 0, 0),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_valid_event_of_an_owner_is_taken(name: str) -> None:
    owned(made=3).refuse_nonsense(SENDER, GOOD[name])


BAD = {
    "too short a stamp": (update(0, 1, 0, 0), "a stamp of 3 entries"),
    "too long a stamp": (update(0, 1, 0, 0, 0, 0), "a stamp of 5 entries"),
    "names what nobody makes": (update(0, 1, 0, 0, 2), "that nobody owns"),
    "of a ticket that nobody owns": (update(3, 0, 0, 0, 1), "that nobody owns"),
    "of nothing of such a ticket": (update(3, 0, 0, 0, 0), "does not own ticket 3"),
    "of another's ticket": (update(1, 0, 1, 0, 0, origin=NodeId("n3")), "does not own ticket 1"),
    "of a reader": (update(1, 0, 1, 0, 0, origin=NodeId("n4")), "does not own ticket 1"),
    "of another incarnation": (update(1, 0, 1, 0, 0, origin=NodeId("n2", 1)), "as entry 1"),
    "with another number": (update(1, 0, 5, 0, 0, number=6), "event 6 of n2 as entry 5"),
    "without a number": (update(1, 0, 0, 0, 0), "numbers go backwards"),
    "the first of an epoch, without one": (update(1, 0, epoch(2, 0), 0, 0), "numbers go backwards"),
    "that follows itself": (update(1, 0, 1, 0, 0, base=1), "numbers go backwards"),
    "that follows the future": (
        update(1, 0, epoch(1, 1), 0, 0, base=epoch(2, 1)), "numbers go backwards",
    ),
    "not the first, that says what it follows": (
        update(1, 0, 5, 0, 0, base=3), "numbers go backwards",
    ),
    "of ours that we never made": (update(0, 4, 0, 0, 0), "what n1 never made"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_an_event_that_breaks_the_rules_is_refused(name: str) -> None:
    nonsense, said = BAD[name]
    with pytest.raises(PeerError, match=said):
        owned(made=3).refuse_nonsense(SENDER, nonsense)


def test_an_event_that_has_seen_more_of_ours_than_we_made_is_refused() -> None:
    """Else our own clock would be driven beyond our own next event."""
    owned(made=3).refuse_nonsense(SENDER, update(1, 3, 1, 0, 0))
    with pytest.raises(PeerError):
        owned(made=3).refuse_nonsense(SENDER, update(1, 4, 1, 0, 0))
    with pytest.raises(PeerError):
        owned(made=3).refuse_nonsense(SENDER, update(1, epoch(1, 1), 1, 0, 0))


entries = st.sampled_from([0, 1, 2, 3, 4, epoch(1, 0), epoch(1, 1), epoch(2, 3), (1 << 54) - 1])


@settings(derandomize=True, max_examples=400)
@given(
    st.integers(0, 4), st.lists(entries, min_size=3, max_size=6),
    st.sampled_from(["n1", "n2", "n3", "n4"]), st.integers(0, 2), st.integers(0, 4), entries,
)  # fmt: skip
def test_any_event_is_taken_or_rejected(
    index: int, stamp: list[int], name: str, incarnation: int, number: int, base: int
) -> None:
    if index >= len(stamp):
        return  # such a packet is refused before: see test_packets.py
    said = Update(index, tuple(stamp), NodeId(name, incarnation), number, [], 0, base)
    try:
        owned(made=2).refuse_nonsense(SENDER, said)
    except PeerError:
        return
    assert (len(stamp), name) == (4, f"n{index + 1}")
    assert said.entry == epoch(incarnation, number)
    assert said.predecessor < said.entry
