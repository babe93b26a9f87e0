"""The stage on which tests play a group by hand."""

from __future__ import annotations

from ordercast.testing.stage import Stage

TOO_LARGE_FOR_A_DATAGRAM = [b"x" * 100_000]


def test_the_status_of_a_send_is_nothing_to_a_member_that_has_left() -> None:
    stage = Stage.of("gossip", "n1 n2 n3")
    stage.settle(ticks=5)
    stage.submit("n1", TOO_LARGE_FOR_A_DATAGRAM)
    while not any(message.channel.answered for message in stage.underway()):
        stage.fire("n1")
    stage.leave("n1")
    stage.settle()
    assert not stage.underway()
