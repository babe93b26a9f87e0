"""What a world makes durable of a step besides its records."""

from __future__ import annotations

from collections.abc import Callable

from tests.kernel.test_host import PEER, Desk, Word, do, persist, plain, say

from ordercast.types import View


def test_what_is_remembered_is_durable_after_the_records_and_before_the_effects() -> None:
    desk, wanted = Desk(patient=True), True

    def commit(done: Callable[[], None]) -> None:
        desk.log.append("also")
        desk.commits.append(done)

    seat = desk.seat("g")
    desk.host.remember = lambda step: commit if wanted else None
    view = View("g", 1, ())
    do(desk, seat, lambda step: step.install(view), persist, say("first"))
    do(desk, seat, lambda step: step.install(view), say("second"))
    wanted = False
    desk.host.receive(PEER, Word("g", "nothing"), 0)
    do(desk, seat, lambda step: step.install(view), say("third"))
    assert desk.log == ["commit", "also", "also"]
    desk.log.clear()
    desk.durable()
    assert desk.log == [], "its records are, and what was wanted is not"
    desk.durable()
    assert [line for line in desk.log if "send" in line] == ["send first"]
    desk.durable()
    assert [line for line in desk.log if "send" in line][1:] == ["send second", "send third"]
    plain(seat).on_input = lambda step: step.install(view)
    desk.log.clear()
    wanted = True
    desk.host.receive(PEER, Word("g", "by a packet"), 0)
    assert desk.log == ["also"]
