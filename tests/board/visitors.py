"""Who visits a board: HTTP as programs and browsers speak it, without a browser."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any, NamedTuple


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Told(NamedTuple):
    """An event that the board sent."""

    name: str
    mark: str
    data: Any


class Visitor:
    """Asks one board. `headers` go with everything that it asks."""

    def __init__(self, port: int, **headers: str) -> None:
        self.port = port
        self.headers = {"Host": f"127.0.0.1:{port}"} | headers

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        reader, writer = await self._send(method, path, body, headers)
        try:
            status, found = await _head(reader)
            return Answer(status, found, (await reader.read()).decode())
        finally:
            await _close(writer)

    async def post(self, author: str, text: str, reply_to: str = "") -> Answer:
        body = json.dumps({"author": author, "text": text, "reply_to": reply_to}).encode()
        return await self.ask("POST", "/post", body, **{"Content-Type": "application/json"})

    async def listen(self, mark: str = "") -> Listener:
        """As a browser does that comes back with the last mark that it has."""
        given = {"Last-Event-ID": mark} if mark else {}
        reader, writer = await self._send("GET", "/events", b"", given)
        status, headers = await _head(reader)
        assert (status, headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        return Listener(reader, writer)

    async def _send(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 22)
        given = {"Content-Length": str(len(body)), "Connection": "close"}
        given |= self.headers | {name.replace("_", "-"): said for name, said in headers.items()}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {said}" for name, said in given.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        return reader, writer


class Listener:
    """Reads what a board sends, event by event."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._left = b""  # of a chunk
        self.mark = ""

    async def hear(self) -> Told | None:
        """The next event; None: the stream has ended."""
        name = mark = data = ""
        while line := await self._line():
            field, _, said = line.rstrip("\n").partition(": ")
            if field == "event":
                name = said
            elif field == "id":
                mark = self.mark = said
            elif field == "data":
                data = said
            elif not field and name:
                return Told(name, mark, json.loads(data))
        return None

    async def hear_all(self, name: str, count: int) -> list[Told]:
        """So many events of this name; others between them are skipped."""
        found: list[Told] = []
        while len(found) < count:
            told = await self.hear()
            assert told is not None, f"the stream ended after {found}"
            if told.name == name:
                found.append(told)
        return found

    async def whole(self) -> list[dict[str, Any]]:
        """The posts of a whole new page, which is what comes next."""
        told = await self.hear()
        assert told is not None
        assert told.name == "page"
        posts = []
        while (told := await self.hear()) is not None and told.name == "shown":
            posts.append(told.data)
        assert told is not None
        assert told.name == "whole"
        return posts

    async def state(self, **wanted: Any) -> dict[str, Any]:
        """The first one in which the place of the node is so."""
        while True:
            [told] = await self.hear_all("state", 1)
            state: dict[str, Any] = told.data
            if all(state["place"][name] == value for name, value in wanted.items()):
                return state

    async def _line(self) -> str:
        """A line, out of the chunks in which HTTP sends what has no known length."""
        while b"\n" not in self._left:
            head = await self._reader.readline()
            size = int(head or b"0", 16)
            if not size:
                return ""
            self._left += await self._reader.readexactly(size)
            await self._reader.readexactly(2)
        line, _, self._left = self._left.partition(b"\n")
        return line.decode() + "\n"

    async def close(self) -> None:
        await _close(self._writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    status = int((await reader.readline()).split()[1])
    headers = {}
    while line := (await reader.readline()).decode().strip():
        name, _, said = line.partition(": ")
        headers[name.lower()] = said
    return status, headers
