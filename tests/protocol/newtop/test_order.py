"""One order without failures: bounds, ties, overlapping groups, nulls, windows (section 4)."""

from __future__ import annotations

import pytest
from tests.protocol.newtop.table import carry, group, member, messages, staged

from ordercast.errors import UsageError
from ordercast.kernel.packet import Packet
from ordercast.protocol.newtop.packets import Data, Null
from ordercast.testing.actor import Posted
from ordercast.testing.stage import Stage


def casts(stage: Stage, kind: type[Packet]) -> int:
    return sum(isinstance(what, Posted) and isinstance(what.packet, kind) for _, what in stage.log)


def test_an_event_is_delivered_when_all_members_have_sent_a_larger_number() -> None:
    """safe1: a number is deliverable when every member has sent one as large."""
    stage = staged({"g": "n1 n2 n3"})
    stage.submit("n1", [b"a"])
    carry(stage, "n1", "n2")
    assert messages(stage, "n1") == messages(stage, "n2") == []
    stage.settle(ticks=1)
    assert [messages(stage, name) for name in stage.actors] == [["a"]] * 3


def test_events_with_one_number_are_delivered_by_the_id_of_their_sender() -> None:
    """safe2: all three number their first event 1."""
    stage = staged({"g": "n1 n2 n3"})
    orders = [stage.submit(name, [name.encode()]).order for name in ("n3", "n1", "n2")]
    stage.settle(ticks=1)
    assert orders == [1, 1, 1]
    assert [messages(stage, name) for name in stage.actors] == [["n1", "n2", "n3"]] * 3


def test_an_event_sent_after_a_delivery_has_a_larger_number() -> None:
    stage = staged({"g": "n1 n2"})
    first = stage.submit("n1", [b"a"])
    stage.settle(ticks=2)
    second = stage.submit("n2", [b"b"])
    assert first is not None
    assert second is not None
    assert (second.order or 0) > (first.order or 0) > 0


def test_a_process_waits_for_all_its_groups() -> None:
    """safe1': n2 is in both groups, so what n3 may yet send in h holds back what n1 sent in g."""
    stage = staged({"g": "n1 n2", "h": "n2 n3"})
    stage.cut("n2", "n3")
    stage.submit("n1", [b"a"], "g")
    stage.settle(ticks=2)
    assert messages(stage, "n1") == ["a"]
    assert messages(stage, "n2") == []
    stage.mend("n2", "n3")
    stage.settle(ticks=2)
    assert messages(stage, "n2") == ["a"]


def test_an_idle_group_is_solicited_for_its_numbers() -> None:
    """n3 cannot know that n2 waits for it: n2's null message asks, and n3 answers at once."""
    stage = staged({"g": "n1 n2", "h": "n2 n3"}, silence_limit="10s", suspicion_limit="30s")
    event = stage.submit("n1", [b"a"], "g")
    assert event is not None
    carry(stage, "n1", "n2")
    stage.now += 20_000_000
    stage.submit("n1", [b"b"], "g")
    carry(stage, "n1", "n2")
    asked = [parcel.packet for parcel in stage.underway("n2", "n3")]
    assert [packet.solicits for packet in asked if isinstance(packet, Null)] == [event.order]
    carry(stage, "n2", "n3")
    assert stage.underway("n3", "n2"), "the answer does not wait for a timer"
    stage.settle(ticks=1)
    assert messages(stage, "n2") == ["a", "b"]


def test_a_ring_of_groups_has_one_order() -> None:
    """Each pair of processes shares a group, no group holds all: the order is one all the same."""
    ring = {"a": "n1 n2", "b": "n2 n3", "c": "n3 n1"}
    stage = staged(ring)
    for at in range(4):
        for name, names in ring.items():
            sender = names.split()[at % 2]
            stage.submit(sender, [f"{name}{at}".encode()], name)
    stage.settle(ticks=3)
    delivered = {name: messages(stage, name) for name in stage.actors}
    assert len({word for words in delivered.values() for word in words}) == 12
    for one in delivered:
        for other in delivered:
            common = [word for word in delivered[one] if word in delivered[other]]
            assert common == [word for word in delivered[other] if word in delivered[one]]
            assert len(common) == (8 if one == other else 4)


def test_an_idle_group_is_almost_silent() -> None:
    stage = staged({"g": "n1 n2 n3"})
    stage.submit("n1", [b"a"])
    stage.settle(ticks=8)
    assert messages(stage, "n3") == ["a"]
    for name in stage.actors:
        assert not group(stage, name).is_busy(0, 0)
        assert group(stage, name).timer_after > 200_000_000
    assert casts(stage, Data) == 1
    assert casts(stage, Null) < 30


def test_stable_events_are_discarded_and_unstable_ones_retained() -> None:
    stage = staged({"g": "n1 n2 n3"})
    stage.cut("n1", "n3")
    event = stage.submit("n1", [b"a"])
    assert event is not None
    stage.settle(ticks=3)
    assert group(stage, "n2").streams.unstable_events == 1
    assert member(stage, "n1").stable_up_to("g") == 0
    stage.mend("n1", "n3")
    stage.settle(ticks=6)
    assert [group(stage, name).streams.unstable_events for name in stage.actors] == [0, 0, 0]
    assert member(stage, "n1").stable_up_to("g") == event.number


def test_the_window_blocks_a_sender_until_its_events_are_stable() -> None:
    stage = staged({"g": "n1 n2"}, window=2)
    assert stage.submit("n1", [b"a"])
    assert stage.submit("n1", [b"b"])
    assert stage.submit("n1", [b"c"]) is None
    stage.settle(ticks=4)
    assert stage.submit("n1", [b"c"])
    assert messages(stage, "n2") == ["a", "b"]


def test_an_application_that_takes_no_more_blocks_its_senders() -> None:
    stage = staged({"g": "n1 n2"}, window=2)
    stage.throttle("n2", True, "g")
    assert stage.submit("n1", [b"a"])
    assert stage.submit("n1", [b"b"])
    stage.settle(ticks=6)
    assert not stage.accepts("n1")
    stage.throttle("n2", False, "g")
    stage.settle(ticks=4)
    assert stage.accepts("n1")


def test_windows_are_per_group() -> None:
    """A full window in one group never stops another, so groups cannot deadlock."""
    stage = staged({"g": "n1 n2", "h": "n1 n3"}, window=1)
    stage.cut("n1", "n2")
    assert stage.submit("n1", [b"a"], "g")
    assert stage.submit("n1", [b"b"], "g") is None
    assert stage.submit("n1", [b"c"], "h")


def test_a_batch_larger_than_the_window_is_rejected() -> None:
    stage = staged({"g": "n1 n2"}, window_size="1kB")
    with pytest.raises(UsageError, match="does not fit the window"):
        stage.submit("n1", [b"x" * 1001])


def test_alone_in_its_groups_a_member_delivers_at_once() -> None:
    stage = staged({"g": "n1"})
    stage.submit("n1", [b"a"])
    assert messages(stage, "n1") == ["a"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prompt_after": "0ms"}, "longer than nothing"),
        ({"silence_limit": "5ms"}, "at least prompt_after"),
        ({"suspicion_limit": "300ms"}, "two silence_limits"),
    ],
)
def test_times_that_cannot_work_are_rejected(options: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        staged({"g": "n1"}, **options)
