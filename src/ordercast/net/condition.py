"""A condition: wakes all who wait for something to change.

Everybody waits for a future of their own, so whoever is cancelled takes nobody along. That is
also cheaper than shielding one future for all: waiting is done once a batch.
"""

from __future__ import annotations

import asyncio


class Condition:
    __slots__ = ("_loop", "waiting")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.waiting: list[asyncio.Future[None]] = []  # one for each who waits

    async def wait(self) -> None:
        """Until the next `notify`."""
        future = self._loop.create_future()
        self.waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future in self.waiting:
                self.waiting.remove(future)
            raise

    def notify(self) -> None:
        if self.waiting:
            waiting, self.waiting = self.waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)
