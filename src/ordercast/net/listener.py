"""The listener: connections that come in pass the accept limiter as bare sockets, and only then
cost anything.

Rules. A connection that the limiter refuses is closed before a byte is read, so a flood costs an
accept and a close, and no handshake of TLS. One that it lets in counts as half open from here on,
through the handshake, until it has greeted or is gone. A handshake has as long as a greeting.

We accept by ourselves because a server of the event loop would begin TLS first; to begin it later
on a transport that reads already (`start_tls`) can lose the first bytes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Callable

from ordercast.net.accept_limiter import AcceptLimiter
from ordercast.net.connection import GREETING_SECONDS, Connection
from ordercast.net.incidents import Incidents
from ordercast.net.sockets import bound

log = logging.getLogger("ordercast.net")

BACKLOG = 128
AT_ONCE = 32
"""Connections that are taken in one turn of the event loop, so that others get their turn."""
REST_SECONDS = 1.0
"""How long none is taken after the system had no more file descriptors or memory for one."""


class Listener:
    def __init__(
        self,
        limiter: AcceptLimiter,
        incidents: Incidents,
        tls: ssl.SSLContext | None,
        connection: Callable[[str], Connection],  # by its source; half open from then on
    ) -> None:
        self.sockets: list[socket.socket] = []
        self._limiter = limiter
        self._incidents = incidents
        self.tls = tls
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[asyncio.Task[None], Connection] = {}  # handshakes that go on
        self._accepted: dict[Connection, socket.socket] = {}  # of tasks that have not begun yet

    async def open(self, host: str, port: int) -> int:
        """Listens, and returns the port. OSError: it cannot."""
        self.sockets = await bound(host, port, socket.SOCK_STREAM)
        port = int(self.sockets[0].getsockname()[1])
        try:
            for listener in self.sockets:
                listener.listen(BACKLOG)
                self.watch(listener)
        except OSError:
            self._stop()
            raise
        return port

    async def close(self) -> None:
        """Takes nobody any more, and breaks off the handshakes that go on."""
        self._stop()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _stop(self) -> None:
        for listener in self.sockets:
            self._loop.remove_reader(listener)
            listener.close()
        self.sockets = []

    @property
    def handshakes(self) -> int:
        """That go on."""
        return len(self._tasks)

    def watch(self, listener: socket.socket) -> None:
        if listener in self.sockets:  # else it was closed meanwhile
            self._loop.add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(AT_ONCE):
            try:
                taken, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._incidents.count("failed_accepts")
                self._incidents.warn("no connection can be taken for a while: %s", error.strerror)
                self._loop.remove_reader(listener)
                self._loop.call_later(REST_SECONDS, self.watch, listener)
                return
            self.accept(taken, str(address[0]))

    def accept(self, taken: socket.socket, source: str) -> None:
        """A connection has come in."""
        if not self._limiter.enter(source, time.monotonic_ns()):
            self._incidents.count("refused_accepts")
            taken.close()
            return
        taken.setblocking(False)
        connection = self._connection(source)
        self._accepted[connection] = taken
        task = self._loop.create_task(self._begin(connection))
        self._tasks[task] = connection
        task.add_done_callback(self._end)

    async def _begin(self, connection: Connection) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection,
                self._accepted.pop(connection),
                ssl=self.tls,
                ssl_handshake_timeout=GREETING_SECONDS if self.tls else None,
            )
        except (OSError, RuntimeError) as error:  # ssl.SSLError and timeouts are OSErrors
            log.debug("a handshake with %s failed: %s", connection.source, error)
        if not connection.is_made:
            self._incidents.count("failed_handshakes")

    def _end(self, task: asyncio.Task[None]) -> None:
        """Also of one that was cancelled before it ran: nothing in it would have been called."""
        connection = self._tasks.pop(task)
        taken = self._accepted.pop(connection, None)
        if taken is not None:
            taken.close()
        if task.cancelled() or not connection.is_made:
            connection.connection_lost(None)  # uvloop does not call it, and asyncio not always
