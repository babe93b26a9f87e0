"""Boards at nodes of a test, each with a page at a port that the system chose."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.board.visitors import Visitor

from ordercast import Feed, LoggedGroup, Node
from ordercast.board.running import RunningBoard, running_board
from ordercast.board.server import bound
from ordercast.units import MILLISECOND, Duration

QUICK = Feed(beat=Duration(50 * MILLISECOND))
"""Notices within a quarter of a second who is gone."""


class Board:
    def __init__(self, node: Node, running: RunningBoard, port: int) -> None:
        self.node, self.port = node, port
        self.service, self.site = running.service, running.site

    @property
    def feed(self) -> LoggedGroup:
        return self.service.feed

    def visitor(self, **headers: str) -> Visitor:
        return Visitor(self.port, **headers)


@asynccontextmanager
async def board_at(
    node: Node, token: str | None = None, level: Feed = QUICK
) -> AsyncIterator[Board]:
    with bound("127.0.0.1", 0) as listener:
        async with running_board(node, "board", level, listener, token) as running:
            yield Board(node, running, listener.getsockname()[1])
