"""Serves the pages of a board on the event loop of its node."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ordercast.errors import UsageError

MOST_CONNECTIONS = 256
LARGEST_HEAD = 16 << 10
"""Bytes of the head of a request."""
HEAD_SECONDS = 10.0
"""From the beginning of a connection until its first request is there."""
CLOSING_SECONDS = 2


class _Protocol(H11Protocol):
    def connection_made(self, transport: Any) -> None:
        """One connection too many ends here: they must not use up the files of the node."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        self.loop.call_later(HEAD_SECONDS, self._end_if_silent)

    def _end_if_silent(self) -> None:
        if cast("object", self.cycle) is None:  # which is so before a request
            self.transport.abort()


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The command ends the node first, and this with it."""
        yield


def bound(host: str, port: int) -> socket.socket:
    """A listening socket. UsageError: why there can be none."""
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UsageError(f"--web {place}: {error.strerror or error}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(MOST_CONNECTIONS)
    except OSError as error:
        listener.close()
        raise UsageError(f"--web {place}: {error.strerror or error}") from error
    listener.setblocking(False)
    return listener


@asynccontextmanager
async def serving(app: Any, listener: socket.socket) -> AsyncIterator[None]:
    """While this block runs. Streams to browsers must end with it, or they are cut."""
    config = uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=CLOSING_SECONDS,
        h11_max_incomplete_event_size=LARGEST_HEAD,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        server.should_exit = True
        await task
