"""A bell: wakes all who wait for something to change.

Everybody waits for a future of their own, so whoever is cancelled takes nobody along. That is
also cheaper than shielding one future for all: waiting is done once a batch.
"""

from __future__ import annotations

import asyncio


class Bell:
    __slots__ = ("_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        """Until the bell is rung the next time."""
        future = self._loop.create_future()
        self._waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future in self._waiting:
                self._waiting.remove(future)
            raise

    def ring(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)
