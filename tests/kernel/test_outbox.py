"""The outbox: credit, turns, and where batches are cut; each rule, then all of them at random."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.kernel.outbox import AS_PLANNED, NOW, TURN_ENDS, Batch, Limits, Outbox, When


def outbox(**limits: Any) -> Outbox[int]:
    """Receipts are numbers in the order in which batches were begun."""
    return Outbox(Limits(**limits), count(1).__next__)


def add(box: Outbox[int], *messages: bytes, attribute: str | None = None) -> When | None:
    """When they leave; None: there was no credit for them."""
    size = sum(map(len, messages))
    batch = box.offer(size, len(messages), attribute)
    if batch is None:
        return None
    batch.payloads += messages
    batch.size += size
    return box.added()


def taken(box: Outbox[int], now: int = 0) -> list[list[bytes]]:
    """All that leaves at this time."""
    found = []
    while (batch := box.take(now)) is not None:
        assert batch.size == sum(map(len, batch.payloads))
        found.append(batch.payloads)
    return found


# --- turns -------------------------------------------------------------------------------------


def test_a_lone_message_leaves_when_its_turn_ends() -> None:
    box = outbox()
    assert add(box, b"lone") is TURN_ENDS
    assert box.is_planned
    assert box.turn_ended(now=5)
    assert not box.is_planned
    assert taken(box) == [[b"lone"]]


def test_messages_of_one_turn_share_a_batch_and_its_receipt() -> None:
    box = outbox()
    assert [add(box, b"a"), add(box, b"b", b"c")] == [TURN_ENDS, AS_PLANNED]
    batch = box.take(0)
    assert batch is not None
    assert (batch.payloads, batch.receipt) == ([b"a", b"b", b"c"], 1)
    assert box.open.receipt == 2


def test_after_another_batch_messages_gather_for_some_turns() -> None:
    box = outbox(gather_turns=3, gather_time=100)
    add(box, b"first")
    assert box.turn_ended(0)
    assert taken(box, now=0)
    add(box, b"second")
    assert [box.turn_ended(now) for now in (1, 2, 3, 4)] == [False, False, False, True]


def test_a_message_long_after_the_last_batch_does_not_wait_to_gather() -> None:
    box = outbox(gather_time=100)
    add(box, b"first")
    assert taken(box, now=0)
    add(box, b"second")
    assert not box.turn_ended(99)
    assert box.turn_ended(100)


def test_nothing_gathers_while_somebody_waits_for_it() -> None:
    box = outbox()
    add(box, b"first")
    assert taken(box, now=0)
    add(box, b"second")
    assert not box.turn_ended(1)
    box.hurry()
    assert box.turn_ended(2)
    assert taken(box, now=2)
    add(box, b"third")
    assert not box.turn_ended(3), "nobody waits for this one"


def test_a_full_batch_leaves_at_once() -> None:
    box = outbox(full_bytes=10)
    assert add(box, bytes(9)) is TURN_ENDS
    assert add(box, b"x") is NOW
    assert add(outbox(full_bytes=10), bytes(500)) is NOW


# --- credit ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "waiting", "more", "has_credit"),
    [
        ({"credit_bytes": 10}, [bytes(6)], [bytes(4)], True),
        ({"credit_bytes": 10}, [bytes(6)], [bytes(5)], False),
        ({"credit_bytes": 10}, [b""], [bytes(11)], False),
        ({"credit_bytes": 10}, [], [bytes(11)], True),
        ({"credit_count": 3}, [b"a", b"b"], [b"c"], True),
        ({"credit_count": 3}, [b"a", b"b"], [b"c", b"d"], False),
        ({"credit_count": 3}, [], [b""] * 4, True),
        ({"credit_count": 3}, [b"a"] * 3, [], True),
        ({"credit_bytes": 10, "batch_bytes": 4}, [bytes(3)] * 3, [b"x"], True),
        ({"credit_bytes": 10, "batch_bytes": 4}, [bytes(3)] * 3, [b"xx"], False),
        ({"credit_count": 3, "batch_count": 1}, [b"a"] * 3, [b"x"], False),
    ],
)
def test_messages_beyond_the_credit_are_not_taken(
    limits: dict[str, int], waiting: list[bytes], more: list[bytes], has_credit: bool
) -> None:
    box = outbox(**limits)
    for message in waiting:
        assert add(box, message) is not None
    assert (add(box, *more) is not None) == has_credit
    assert len(box) == len(waiting) + has_credit * len(more)


def test_messages_that_left_or_were_given_up_return_their_credit() -> None:
    box = outbox(credit_count=2, batch_count=1)
    assert add(box, b"a")
    assert add(box, b"b")
    assert not add(box, b"c")
    assert box.take(0)
    assert add(box, b"c")
    assert not add(box, b"d")
    assert [batch.payloads for batch in box.give_up()] == [[b"b"], [b"c"]]
    assert not box
    assert add(box, bytes(1 << 20))


# --- cutting -----------------------------------------------------------------------------------


def test_a_batch_ends_before_it_is_too_large() -> None:
    box = outbox(batch_bytes=10)
    for message in (bytes(4), bytes(4), bytes(4), bytes(10), b"", b"x"):
        add(box, message)
    assert [list(map(len, batch)) for batch in taken(box)] == [[4, 4], [4], [10, 0], [1]]


def test_a_batch_ends_before_it_has_too_many_messages() -> None:
    box = outbox(batch_count=3)
    for messages in ([b"a"], [b"b", b"c"], [b"d", b"e"], [b"f", b"g"]):
        add(box, *messages)
    assert taken(box) == [[b"a", b"b", b"c"], [b"d", b"e"], [b"f", b"g"]]


def test_messages_offered_together_stay_together() -> None:
    box = outbox(batch_bytes=2, batch_count=2)
    add(box, b"a")
    add(box, b"b", b"c", b"d")
    assert taken(box) == [[b"a"], [b"b", b"c", b"d"]]


def test_a_batch_ends_where_the_attribute_changes() -> None:
    box = outbox()
    for message, attribute in ((b"1", None), (b"2", "safe"), (b"3", "safe"), (b"4", "agreed")):
        add(box, message, attribute=attribute)
    batches: list[Batch[int]] = box.give_up()
    assert [(batch.attribute, batch.payloads, batch.receipt) for batch in batches] == [
        (None, [b"1"], 1),
        ("safe", [b"2", b"3"], 2),
        ("agreed", [b"4"], 3),
    ]


def test_an_empty_batch_takes_any_attribute() -> None:
    box = outbox()
    assert box.offer(1, 1, "safe") is not None  # and whoever asked was cancelled
    add(box, b"x", attribute="agreed")
    batch = box.take(0)
    assert batch is not None
    assert batch.attribute == "agreed"
    assert box.take(0) is None


# --- all of it ---------------------------------------------------------------------------------

SMALL = st.integers(0, 12)
MESSAGES = st.lists(st.binary(max_size=6), min_size=1, max_size=4)
ACTS = st.one_of(
    st.tuples(st.just("add"), MESSAGES, st.sampled_from([None, "a", "b"])),
    st.tuples(st.just("turn"), st.integers(0, 60)),
    st.tuples(st.just("take"), st.integers(0, 60)),
    st.tuples(st.just("hurry")),
)
LIMITS = st.builds(
    Limits,
    full_bytes=SMALL,
    batch_bytes=SMALL,
    batch_count=SMALL,
    credit_bytes=st.integers(0, 40),
    credit_count=SMALL,
    gather_time=st.integers(0, 50),
    gather_turns=st.integers(0, 3),
)


@given(LIMITS, st.lists(ACTS, max_size=40))
def test_every_rule_holds_for_any_sequence_of_calls(
    limits: Limits, acts: list[tuple[Any, ...]]
) -> None:
    """Beside it a plain list of what was offered, in which each rule is looked for the slow way."""
    box: Outbox[int] = Outbox(limits, count(1).__next__)
    now, turns, hurried, left_at = 0, 0, False, None
    waiting: list[tuple[list[bytes], str | None]] = []  # offerings, in order
    for act in acts:
        if act[0] == "add":
            size = sum(len(data) for offered, _ in waiting for data in offered)
            number = sum(len(offered) for offered, _ in waiting)
            fits = size + sum(map(len, act[1])) <= limits.credit_bytes
            fits = not waiting or (fits and number + len(act[1]) <= limits.credit_count)
            when = add(box, *act[1], attribute=act[2])
            assert (when is not None) == fits
            waiting += [(act[1], act[2])] if fits else []
            assert when is not AS_PLANNED or box.is_planned
        elif act[0] == "turn" and box.is_planned:
            now += act[1]
            recent = left_at is not None and now - left_at < limits.gather_time
            gathers = recent and turns < limits.gather_turns and not hurried
            assert box.turn_ended(now) == (not gathers) == (not box.is_planned)
            turns += gathers
        elif act[0] == "hurry":
            box.hurry()
            hurried = True
        elif act[0] == "take":
            now += act[1]
            batch = box.take(now)
            assert (batch is None) == (not waiting)
            if batch is not None:
                offered = _offerings_of(batch, waiting)
                del waiting[: len(offered)]
                _check_cut(batch, offered, waiting, limits)
                turns, hurried, left_at = 0, False, now
        assert len(box) == sum(len(offered) for offered, _ in waiting)


def _offerings_of(
    batch: Batch[int], waiting: list[tuple[list[bytes], str | None]]
) -> list[tuple[list[bytes], str | None]]:
    """The first that wait, whole: exactly what the batch holds."""
    held: list[bytes] = []
    for place, (messages, _) in enumerate(waiting):
        held += messages
        if len(held) >= len(batch.payloads):
            assert held == batch.payloads
            assert batch.size == sum(map(len, held))
            return waiting[: place + 1]
    raise AssertionError("it holds more than was offered")


def _check_cut(
    batch: Batch[int],
    offered: list[tuple[list[bytes], str | None]],
    after: list[tuple[list[bytes], str | None]],
    limits: Limits,
) -> None:
    assert {attribute for _, attribute in offered} == {batch.attribute}
    if len(offered) > 1:
        assert batch.size <= limits.batch_bytes
        assert len(batch.payloads) <= limits.batch_count
    if after:  # it was cut for a reason
        messages, attribute = after[0]
        assert (
            attribute != batch.attribute
            or batch.size + sum(map(len, messages)) > limits.batch_bytes
            or len(batch.payloads) + len(messages) > limits.batch_count
        )
