"""A board with all its parts, while a block runs: it joins the feed, reads it, and serves pages."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from ordercast import LoggedGroup, Node
from ordercast.board.access import Access
from ordercast.board.server import serving
from ordercast.board.service import BoardService
from ordercast.board.site import Site
from ordercast.kernel.family import LoggedLevel


class RunningBoard(NamedTuple):
    """Its parts, for whoever opened it."""

    service: BoardService
    site: Site
    reading: asyncio.Task[None]  # ends with the board's feed


@asynccontextmanager
async def running_board(
    node: Node, group: str, level: LoggedLevel, listener: socket.socket, token: str | None
) -> AsyncIterator[RunningBoard]:
    """While its block runs. The page is where `listener` is bound."""

    def join() -> LoggedGroup:
        return node.join(group, level)

    service = BoardService(join, node.me.name)
    site = Site(service, Access(token, listener.getsockname()[1]))
    reading = asyncio.create_task(service.run())
    try:
        async with serving(site.app(), listener):
            try:
                yield RunningBoard(service, site, reading)
            finally:  # first: what browsers read ends with it, and the server waits for them
                reading.cancel()
                await asyncio.wait([reading])
    finally:
        reading.cancel()
