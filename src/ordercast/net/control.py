"""A running node asked from outside: a local socket that answers in JSON, a line a question.

Only a user who may open the socket's file can ask. `status`: how the node is, which is what
`ordercast members` and `ordercast monitor` print, and what the metrics show. `forget NAME`: the
node forgets what it knows of another one, as `ordercast forget` wants it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from ordercast.errors import OrdercastError, UsageError

log = logging.getLogger("ordercast.net")

LONGEST_QUESTION = 1000
CONVERSATIONS = 16
ANSWER_SECONDS = 5.0


class Control:
    """Answers questions, as often as they are asked."""

    def __init__(
        self,
        path: Path,
        status: Callable[[], dict[str, Any]],
        # The groups that wait until the node is restarted. OrdercastError: why it is not forgotten.
        forget: Callable[[str], Awaitable[list[str]]],
    ) -> None:
        self._path = path
        self._status = status
        self._forget = forget
        self._server: asyncio.Server | None = None
        self._conversations: set[asyncio.Task[None]] = set()  # in no order

    async def listen(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.unlink(missing_ok=True)
            listener = self._bound()
        except OSError as error:
            raise OrdercastError(
                f"{self._path}: no socket can be made: {error.strerror or error}"
            ) from error
        self._server = await asyncio.start_unix_server(
            self._talk, sock=listener, limit=LONGEST_QUESTION
        )

    def _bound(self) -> socket.socket:
        """Nobody else may ask. Other tasks make their files with the umask that they expect."""
        listener = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            listener.bind(str(self._path))
        except OSError:
            listener.close()
            raise
        finally:
            os.umask(before)
        return listener

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)
        for conversation in self._conversations:
            conversation.cancel()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            if len(self._conversations) < CONVERSATIONS:
                self._conversations.add(task)
                await self._answer(reader, writer)
        except (OSError, ValueError, TimeoutError) as error:
            log.debug("a conversation on %s ended: %s", self._path, error)
        except asyncio.CancelledError:
            log.debug("a conversation on %s ended with its node", self._path)
        finally:
            self._conversations.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while question := await reader.readline():
            answer = await self._answer_to(question.decode(errors="replace").split())
            writer.write(msgspec.json.encode(answer, enc_hook=str) + b"\n")
            async with asyncio.timeout(ANSWER_SECONDS):
                await writer.drain()

    async def _answer_to(self, words: list[str]) -> dict[str, Any]:
        match words:
            case ["status"]:
                return self._status()
            case ["forget", name]:
                try:
                    return {"forgot": name, "restart": await self._forget(name)}
                except OrdercastError as error:
                    return {"error": str(error)}
        return {"error": "ask: status, or forget NAME"}


async def ask(path: Path, question: str = "status") -> dict[str, Any]:
    """The answer of the node whose socket this is. OSError: nobody is there."""
    reader, writer = await asyncio.open_unix_connection(path, limit=1 << 22)
    try:
        writer.write(question.encode() + b"\n")
        async with asyncio.timeout(ANSWER_SECONDS):
            line = await reader.readline()
    finally:
        writer.close()
    try:
        answer = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} does not answer like a node") from error
    if not isinstance(answer, dict):
        raise UsageError(f"{path} does not answer like a node")
    return answer
