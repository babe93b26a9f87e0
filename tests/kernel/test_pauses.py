"""Pauses between calls of a name that does not answer."""

from __future__ import annotations

from ordercast.kernel.pauses import pause_after


def test_two_hundred_calls_are_enough_for_a_million_pauses() -> None:
    shortest, unanswered, calls = 20, 0, 0
    while unanswered < 1_000_000 * shortest:
        pause = pause_after(unanswered, shortest)
        assert shortest <= pause <= max(shortest, unanswered / 16)
        unanswered, calls = unanswered + pause, calls + 1
    assert 180 < calls <= 200
