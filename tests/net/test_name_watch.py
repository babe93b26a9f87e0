"""What others say of our name: how often an incarnation is given up for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from ordercast.errors import NameTaken
from ordercast.net import name_watch
from ordercast.net.name_watch import NameWatch


async def turns() -> None:
    """Of the event loop: enough for what is due."""
    for _ in range(10):
        await asyncio.sleep(0)


def never(error: NameTaken) -> None:
    raise AssertionError(error)


class Clock:
    """A loop's time, as the test sets it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self.now)


def ending() -> tuple[NameWatch, list[str]]:
    ends: list[str] = []
    watch = NameWatch(lambda reported: None, lambda error: ends.append(str(error)), lambda _: False)
    return watch, ends


def run_on_clock(monkeypatch: pytest.MonkeyPatch, story: Callable[[Clock], None]) -> None:
    async def staged() -> None:
        with monkeypatch.context() as patch:
            story(Clock(patch))

    asyncio.run(staged())


# --- another node has our name -----------------------------------------------------------------


def test_a_node_ends_when_nobody_talked_to_it_for_ten_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def story(clock: Clock) -> None:
        watch, ends = ending()
        for seconds in range(10):
            clock.now = 1000.0 + seconds
            watch.taken("two nodes", company=0)
        watch.accepted()
        for seconds in range(10, 20):
            clock.now = 1000.0 + seconds
            watch.taken("two nodes", company=0)
        assert ends == []
        clock.now = 1020.0
        watch.taken("two nodes", company=0)
        assert ends == ["two nodes"]

    run_on_clock(monkeypatch, story)


def test_a_single_node_cannot_end_one_that_others_talk_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says for an hour that the name is taken."""

    def story(clock: Clock) -> None:
        watch, ends = ending()
        for seconds in range(3600):
            clock.now = 1000.0 + seconds
            watch.taken("two nodes", company=1)
        watch.taken("two nodes", company=0)
        assert ends == []

    run_on_clock(monkeypatch, story)


def test_what_was_said_long_ago_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def story(clock: Clock) -> None:
        watch, ends = ending()
        watch.taken("two nodes", company=0)
        watch.met_first("two nodes", is_same=False)
        clock.now += 3600.0
        watch.taken("two nodes", company=0)
        watch.met_first("two nodes", is_same=False)
        assert ends == []

    run_on_clock(monkeypatch, story)


def test_a_node_that_has_met_the_first_one_ends_whoever_talks_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def story(clock: Clock) -> None:
        watch, ends = ending()
        for seconds in range(11):
            clock.now = 1000.0 + seconds
            assert ends == []
            watch.accepted()
            watch.met_first("two nodes", is_same=False)
        assert ends == ["two nodes"]
        watch.met_first("with our number", is_same=True)
        assert ends == ["two nodes", "with our number"]

    run_on_clock(monkeypatch, story)


# --- an incarnation is given up ------------------------------------------------------------------


def test_a_node_gives_up_incarnations_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a liar says that they are outdated."""

    def story(clock: Clock) -> None:
        abandoned: list[float] = []
        watch = NameWatch(lambda reported: abandoned.append(clock.now), never, lambda _: False)
        waits: list[float] = []
        due: list[Callable[[], None]] = []

        def call_later(wait: float, act: Callable[[], None]) -> asyncio.Handle:
            waits.append(wait)
            due.append(act)
            clock.now += wait
            return asyncio.get_running_loop().call_soon(lambda: None)

        monkeypatch.setattr(asyncio.get_running_loop(), "call_later", call_later)
        for number in range(12):
            watch.superseded(number)
            due.pop()()
        assert waits == [0, 2, 4, 8, 16, 32, 64, 128, 256, 512, 512, 512]
        clock.now += name_watch.CALM_SECONDS + 1
        watch.superseded(99)
        due.pop()()
        watch.superseded(99)
        assert waits[-2:] == [0, 2]

    run_on_clock(monkeypatch, story)


def test_what_two_nodes_say_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        abandoned: list[list[int]] = []
        watch = NameWatch(abandoned.append, never, lambda _: False)
        for teller, number in (("n1", 5), ("n2", 9), ("n3", 7), ("n1", 6)):
            watch.superseded(number, teller)
        await turns()
        assert abandoned == [[9, 7]]

    asyncio.run(story())


def test_what_was_said_of_the_last_incarnation_does_not_end_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Refusals arrive as long as the disk forgets what the last one has promised."""
    monkeypatch.setattr(name_watch, "ABANDON_SECONDS", 0.0)

    async def story() -> None:
        abandoned: list[list[int]] = []
        watch = NameWatch(abandoned.append, never, lambda older: False)
        watch.superseded(7)
        await turns()
        assert abandoned == [[7]]
        watch.superseded(7)
        watch.reported(3, 8)
        watch.reopened()
        await turns()
        assert abandoned == [[7]]
        watch.superseded(9)
        await turns()
        assert abandoned == [[7], [9]]
        watch.close()

    asyncio.run(story())
