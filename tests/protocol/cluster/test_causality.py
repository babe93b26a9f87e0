"""The causality layer, against a brute-force oracle that knows every event's whole past."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.kernel.buffers import Limit
from ordercast.protocol.cluster.causality import CausalOrder, EntryRange, OrderedUpdate
from ordercast.protocol.cluster.packets import Update
from ordercast.protocol.tickets.entries import SEQUENCE_BITS
from ordercast.types import NodeId

ROOMY = Limit(10_000, 1 << 30)
Past = dict[int, frozenset[int]]  # event: all that precedes it


def update(index: int, *stamp: int, base: int = 0) -> Update:
    sequence = stamp[index] & (1 << SEQUENCE_BITS) - 1
    node = NodeId(f"n{index}", stamp[index] >> SEQUENCE_BITS)
    return Update(index, stamp, node, sequence, [b"x"], 1, base)


def epoch(number: int, sequence: int) -> int:
    return number << SEQUENCE_BITS | sequence


def keys(delivered: list[OrderedUpdate]) -> list[tuple[int, int]]:
    return [(one.update.index, one.update.entry) for one in delivered]


def enqueue(order: CausalOrder, *updates: Update) -> list[tuple[int, int]]:
    return [key for one in updates for key in keys(order.enqueue(one, 1))]


# --- one rule each ----------------------------------------------------------------------------


def test_an_event_without_missing_predecessors_is_delivered_at_once() -> None:
    order = CausalOrder(2, ROOMY)
    assert enqueue(order, update(0, 1, 0)) == [(0, 1)]
    assert order.stamp == (1, 0)


def test_an_early_event_is_delivered_after_its_predecessors() -> None:
    order = CausalOrder(2, ROOMY)
    assert enqueue(order, update(1, 2, 1), update(0, 2, 0)) == []
    assert enqueue(order, update(0, 1, 0)) == [(0, 1), (0, 2), (1, 1)]


def test_waiting_for_the_last_event_of_each_ticket_is_enough() -> None:
    order = CausalOrder(2, ROOMY)
    assert enqueue(order, update(1, 3, 1)) == []
    assert order.missing(update(1, 3, 1)) == [EntryRange(0, 1, 3)]
    assert enqueue(order, update(0, 3, 0), update(0, 2, 0)) == []
    assert enqueue(order, update(0, 1, 0)) == [(0, 1), (0, 2), (0, 3), (1, 1)]


def test_an_event_is_obsolete_once_it_or_a_later_one_was_delivered() -> None:
    order = CausalOrder(1, ROOMY)
    enqueue(order, update(0, 1), update(0, 2))
    assert order.is_obsolete(update(0, 1))
    assert order.is_obsolete(update(0, 2))
    assert not order.is_obsolete(update(0, 3))


def test_forcing_skips_missing_events_and_returns_them() -> None:
    order = CausalOrder(2, ROOMY)
    late = update(1, 3, 2)
    assert enqueue(order, late) == []
    [delivery] = order.force(late.key)
    assert delivery.update == late
    assert delivery.skipped == (EntryRange(0, 1, 3), EntryRange(1, 1, 1))
    assert order.is_obsolete(update(0, 2, 0))


def test_forcing_first_delivers_the_waiting_predecessors_in_causal_order() -> None:
    """The paper's text, section 5.1; its pseudocode would leave out those that are blocked."""
    order = CausalOrder(3, ROOMY)
    second, third = update(1, 2, 1, 0), update(2, 2, 1, 1)
    assert enqueue(order, third, second, update(0, 2, 0, 0)) == []
    delivered = order.force(third.key)
    assert keys(delivered) == [(0, 2), (1, 1), (2, 1)]
    assert [one.skipped for one in delivered] == [(EntryRange(0, 1, 1),), (), ()]


def test_events_that_waited_for_a_skipped_event_are_delivered() -> None:
    order = CausalOrder(2, ROOMY)
    forced, other = update(0, 2, 0), update(1, 1, 1)
    assert enqueue(order, other, forced) == []
    assert keys(order.force(forced.key)) == [(0, 2), (1, 1)]


def test_forcing_an_event_twice_delivers_it_once() -> None:
    order = CausalOrder(1, ROOMY)
    late = update(0, 2)
    enqueue(order, late)
    assert keys(order.force(late.key)) == [(0, 2)]
    assert order.force(late.key) == []


# --- tickets that change hands ------------------------------------------------------------------


def test_the_first_event_of_an_epoch_waits_for_the_one_that_it_follows() -> None:
    order = CausalOrder(1, ROOMY)
    enqueue(order, update(0, 1))
    successor = update(0, epoch(1, 1), base=2)
    assert enqueue(order, successor) == []
    assert enqueue(order, update(0, 2)) == [(0, 2), (0, epoch(1, 1))]


def test_events_sent_in_an_epoch_that_is_over_are_ignored() -> None:
    """A zombie: it was replaced at entry 2, and goes on with 3 as if nothing had happened."""
    order = CausalOrder(1, ROOMY)
    enqueue(order, update(0, 1), update(0, 2), update(0, epoch(1, 1), base=2))
    assert order.is_obsolete(update(0, 3))


def test_the_tail_of_a_former_owner_is_delivered_where_the_new_epoch_is_not_known() -> None:
    order = CausalOrder(1, ROOMY)
    enqueue(order, update(0, 1), update(0, 2), update(0, 3))
    assert enqueue(order, update(0, epoch(1, 1), base=2)) == [(0, epoch(1, 1))]


def test_events_that_wait_for_a_former_owner_are_delivered_with_the_new_epoch() -> None:
    order = CausalOrder(2, ROOMY)
    enqueue(order, update(0, 1, 0))
    assert enqueue(order, update(1, 3, 1)) == []  # saw the zombie's 2 and 3
    delivered = enqueue(order, update(0, epoch(1, 1), 0, base=1))
    assert delivered == [(0, epoch(1, 1)), (1, 1)]


def test_contradicting_stamps_block_nothing() -> None:
    """Two owners in two epochs, on two tickets, can make events that precede each other."""
    order = CausalOrder(2, ROOMY)
    one, other = update(0, 2, 2), update(1, 2, 2)
    assert enqueue(order, one, other) == []
    assert len(order.force(one.key)) >= 1
    assert order.is_obsolete(one)
    assert order.is_obsolete(other)


# --- the oracle -------------------------------------------------------------------------------


def history(draw: Random, tickets: int, events: int) -> tuple[list[Update], Past]:
    """A random run of honest updaters, some of whom are replaced, with every event's true past."""
    clocks = [[0] * tickets for _ in range(tickets)]
    known: list[frozenset[int]] = [frozenset()] * tickets  # what each has delivered
    epochs, sequences = [0] * tickets, [0] * tickets
    made: list[Update] = []
    past: Past = {}
    for _ in range(events):
        who = draw.randrange(tickets)
        for one in made:  # delivers some of what it could, in causal order
            deliverable = one.key not in known[who] and past[one.key] <= known[who]
            if deliverable and draw.random() < 0.5:
                known[who] |= {one.key}
                clocks[who] = list(map(max, clocks[who], one.stamp))
        base = 0
        if draw.random() < 0.05:  # the ticket changes hands; the clock goes with it
            epochs[who], sequences[who] = epochs[who] + 1, 0
        sequences[who] += 1
        if sequences[who] == 1:
            base = clocks[who][who]
        stamp = list(clocks[who])
        stamp[who] = epoch(epochs[who], sequences[who])
        event = update(who, *stamp, base=base)
        past[event.key] = known[who]
        known[who] |= {event.key}
        clocks[who] = stamp
        made.append(event)
    return made, past


@settings(deadline=None, max_examples=300)
@given(st.integers(0, 1 << 32), st.integers(1, 6), st.integers(1, 40))
def test_no_order_of_arrival_breaks_optimistic_causal_order(
    seed: int, tickets: int, events: int
) -> None:
    draw = Random(seed)
    made, past = history(draw, tickets, events)
    order = CausalOrder(tickets, ROOMY)
    arriving = [one for one in made for _ in range(draw.choice((0, 1, 1, 1, 2)))]
    draw.shuffle(arriving)
    delivered: list[int] = []
    for one in arriving:
        if not order.is_obsolete(one) and one.key not in order:
            delivered += [each.update.key for each in order.enqueue(one, 1)]
        if len(order) and draw.random() < 0.1:
            waiting = draw.choice([one for one in made if one.key in order])
            delivered += [each.update.key for each in order.force(waiting.key)]
    assert len(set(delivered)) == len(delivered)
    for place, key in enumerate(delivered):
        assert not past[key] & set(delivered[place + 1 :])


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 1 << 32), st.integers(1, 6), st.integers(1, 40))
def test_if_every_event_arrives_all_are_delivered_in_causal_order(
    seed: int, tickets: int, events: int
) -> None:
    """Lemma 5.1: without loss the order is causal, and nothing is missing."""
    draw = Random(seed)
    made, past = history(draw, tickets, events)
    order = CausalOrder(tickets, ROOMY)
    arriving = list(made)
    draw.shuffle(arriving)
    delivered: list[int] = []
    for one in arriving:
        for each in order.enqueue(one, 1):
            assert past[each.update.key] <= set(delivered)
            assert not each.skipped
            delivered.append(each.update.key)
    assert sorted(delivered) == sorted(one.key for one in made)
    assert len(order) == 0


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 1 << 32), st.integers(1, 5), st.integers(1, 30))
def test_before_an_event_is_delivered_its_predecessors_were_delivered_or_skipped(
    seed: int, tickets: int, events: int
) -> None:
    """Without changes of hands, so that everything skipped has a number that can be told."""
    draw = Random(seed)
    made, past = history(draw, tickets, events)
    if any(one.entry >> SEQUENCE_BITS for one in made):
        return
    order = CausalOrder(tickets, ROOMY)
    told: list[int] = []
    for one in draw.sample(made, draw.randint(1, len(made))):
        if not order.is_obsolete(one):
            deliveries = order.enqueue(one, 1)
            if one.key in order:
                deliveries += order.force(one.key)
            for each in deliveries:
                told += [key for span in each.skipped for key in span.events()]
                told.append(each.update.key)
    assert len(set(told)) == len(told)
    for key in told:
        assert past[key] <= set(told)


class Process:
    """One of several that make events, each in an epoch of its own, whoever owns the ticket now."""

    def __init__(self, tickets: int) -> None:
        self.order = CausalOrder(tickets, ROOMY)
        self.known: frozenset[int] = frozenset()
        self.index = self.epoch = self.sequence = 0

    def acquire(self, index: int, number: int) -> None:
        self.index, self.epoch, self.sequence = index, number, 0

    def make(self) -> Update | None:
        entry = epoch(self.epoch, self.sequence + 1)
        before = self.order.clock[self.index]
        if before >= entry:
            return None  # it has seen a later epoch of its ticket, and stops
        self.sequence += 1
        stamp = [*self.order.clock]
        stamp[self.index] = entry
        made = update(self.index, *stamp, base=before if self.sequence == 1 else 0)
        self.order.made(made)
        return made


@settings(deadline=None, max_examples=400)
@given(st.integers(0, 1 << 32), st.integers(1, 3), st.integers(2, 5))
def test_former_owners_that_do_not_know_it_break_nothing(
    seed: int, tickets: int, members: int
) -> None:
    """Several processes hold one ticket at once, each in its own epoch, and all hear of some."""
    draw = Random(seed)
    processes = [Process(tickets) for _ in range(members)]
    epochs = [0] * tickets
    for one in processes:
        index = draw.randrange(tickets)
        epochs[index] += 1
        one.acquire(index, epochs[index])
    made: list[Update] = []
    past: Past = {}
    delivered: list[list[int]] = [[] for _ in processes]

    def hear(who: int, deliveries: list[OrderedUpdate]) -> None:
        for each in deliveries:
            delivered[who].append(each.update.key)
            processes[who].known |= {each.update.key}

    for _ in range(40):
        who = draw.randrange(members)
        process = processes[who]
        if draw.random() < 0.05:
            index = draw.randrange(tickets)
            epochs[index] += 1
            process.acquire(index, epochs[index])
        if draw.random() < 0.5 and (event := process.make()) is not None:
            past[event.key] = process.known
            process.known |= {event.key}
            delivered[who].append(event.key)
            made.append(event)
        for event in draw.sample(made, min(len(made), 3)):
            if not process.order.is_obsolete(event) and event.key not in process.order:
                hear(who, process.order.enqueue(event, 1))
        if len(process.order) and draw.random() < 0.3:
            waiting = draw.choice([one for one in made if one.key in process.order])
            hear(who, process.order.force(waiting.key))
    closed = _closure(past)
    for line in delivered:
        assert len(set(line)) == len(line)
        for place, key in enumerate(line):
            assert not closed[key] & set(line[place + 1 :])


def _closure(past: Past) -> Past:
    closed: Past = {}
    for key, before in past.items():  # in the order in which they were made
        closed[key] = before.union(*(closed[one] for one in before))
    return closed


@pytest.mark.parametrize("tickets", [1, 25, 125])
def test_the_clock_is_as_long_as_there_are_tickets(tickets: int) -> None:
    assert CausalOrder(tickets, ROOMY).stamp == (0,) * tickets
