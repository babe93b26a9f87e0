"""Server-sent events: what a browser reads with `EventSource`, and goes on with by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import msgspec

SEND_SECONDS = 30.0
"""How long a browser may take nothing before its connection ends. It comes back by itself."""
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-accel-buffering", b"no"),  # of proxies, which would hold back what is live
]
BEGIN = b"retry: 1000\n\n"
"""Browsers wait so many milliseconds before they come back."""
COMMENT = b":\n\n"
"""Nothing happened. It shows both ends that the other one is there."""


def server_event(name: str, data: object, mark: str = "") -> bytes:
    """JSON has no line breaks, so data is one line. A mark is where the browser goes on."""
    assert "\n" not in name + mark
    number = f"id: {mark}\n" if mark else ""
    return b"event: %b\n%bdata: %b\n\n" % (
        name.encode(),
        number.encode(),
        msgspec.json.encode(data),
    )


class BrowserStream:
    """A response that goes on until `events` ends or the browser is gone; an ASGI application.

    What is sent waits for the browser, so nothing piles up here.
    """

    def __init__(self, events: AsyncGenerator[bytes, None], closed: Callable[[], None]) -> None:
        self._events, self._closed = events, closed

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._closed()
            for task in (sending, leaving):
                task.cancel()
            ended = await asyncio.gather(sending, leaving, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception) and not isinstance(error, TimeoutError | OSError):
                raise error

    async def _send(self, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        async with aclosing(self._events) as events:
            async for event in events:
                async with asyncio.timeout(SEND_SECONDS):
                    await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
