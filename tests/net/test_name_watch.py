"""What others say of our name: how often an incarnation is given up for it."""

from __future__ import annotations

import asyncio

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


def test_what_was_said_of_the_last_incarnation_does_not_end_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Refusals arrive as long as the disk forgets what the last one has promised."""
    monkeypatch.setattr(name_watch, "ABANDON_SECONDS", 0.0)

    async def story() -> None:
        abandoned: list[int] = []
        watch = NameWatch(abandoned.append, never, lambda older: False)
        watch.superseded(7)
        await turns()
        assert abandoned == [7]
        watch.superseded(7)
        watch.reported(3, 8)
        watch.reopened()
        await turns()
        assert abandoned == [7]
        watch.superseded(9)
        await turns()
        assert abandoned == [7, 9]
        watch.close()

    asyncio.run(story())
