"""The door: connections that come in pass the gate as bare sockets, and only then cost anything.

Rules. Whoever the gate refuses is hung up on before a byte is read, so a flood costs an accept and
a close, and no handshake of TLS. Whoever it lets in counts as half open from here on, through the
handshake, until it has greeted or is gone. A handshake has as long as a greeting.

We accept by ourselves because a server of the event loop would begin TLS first; to begin it later
on a transport that reads already (`start_tls`) can lose the first bytes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from typing import TYPE_CHECKING

from ordercast.net.connection import GREETING_SECONDS, Connection
from ordercast.net.sockets import bound

if TYPE_CHECKING:
    from ordercast.net.mesh import Mesh

log = logging.getLogger("ordercast.net")

BACKLOG = 128
AT_ONCE = 32
"""Connections that are taken in one turn of the event loop, so that others get their turn."""
REST_SECONDS = 1.0
"""How long none is taken after the system had no more file descriptors or memory for one."""


class Door:
    def __init__(self, mesh: Mesh, tls: ssl.SSLContext | None) -> None:
        self._mesh = mesh
        self._tls = tls
        self._listeners: list[socket.socket] = []
        self._tasks: dict[asyncio.Task[None], Connection] = {}  # handshakes that go on
        self._sockets: dict[Connection, socket.socket] = {}  # of tasks that have not begun yet

    async def open(self, host: str, port: int) -> int:
        """Listens, and returns the port. OSError: it cannot."""
        self._listeners = await bound(host, port, socket.SOCK_STREAM)
        port = int(self._listeners[0].getsockname()[1])
        try:
            for listener in self._listeners:
                listener.listen(BACKLOG)
                self._watch(listener)
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
        for listener in self._listeners:
            self._mesh.loop.remove_reader(listener)
            listener.close()
        self._listeners = []

    def _watch(self, listener: socket.socket) -> None:
        if listener in self._listeners:  # else it was closed meanwhile
            self._mesh.loop.add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(AT_ONCE):
            try:
                taken, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._mesh.count("failed_accepts")
                self._mesh.warn("no connection can be taken for a while: %s", error.strerror)
                self._mesh.loop.remove_reader(listener)
                self._mesh.loop.call_later(REST_SECONDS, self._watch, listener)
                return
            self._admit(taken, str(address[0]))

    def _admit(self, taken: socket.socket, source: str) -> None:
        mesh = self._mesh
        if not mesh.gate.enter(source, mesh.now()):
            mesh.count("refused_at_gate")
            taken.close()
            return
        taken.setblocking(False)
        connection = Connection(mesh, dialled=False, source=source)
        self._sockets[connection] = taken
        task = mesh.loop.create_task(self._begin(connection))
        self._tasks[task] = connection
        task.add_done_callback(self._end)

    async def _begin(self, connection: Connection) -> None:
        try:
            await self._mesh.loop.connect_accepted_socket(
                lambda: connection,
                self._sockets.pop(connection),
                ssl=self._tls,
                ssl_handshake_timeout=GREETING_SECONDS if self._tls else None,
            )
        except (OSError, RuntimeError) as error:  # ssl.SSLError and timeouts are OSErrors
            log.debug("a handshake with %s failed: %s", connection.source, error)
        if not connection.is_made:
            self._mesh.count("failed_handshakes")

    def _end(self, task: asyncio.Task[None]) -> None:
        """Also of one that was cancelled before it ran: nothing in it would have been called."""
        connection = self._tasks.pop(task)
        taken = self._sockets.pop(connection, None)
        if taken is not None:
            taken.close()
        if task.cancelled() or not connection.is_made:
            connection.connection_lost(None)  # nobody else says so, or uvloop does not
