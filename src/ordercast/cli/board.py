"""`ordercast board`: a bulletin board on a feed, as a web page.

Opens a node, joins a feed and serves a page with its threads, until it is interrupted. Boards of
one group at several nodes show the same posts. The page is for this machine alone; any other --web
address needs a token, which browsers ask for.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ordercast import Feed, LoggedGroup, Node
from ordercast import open as open_node
from ordercast.board.access import TOKEN_VARIABLE, Access, check_web
from ordercast.cli import screen
from ordercast.cli.node import runner, start_log
from ordercast.errors import DiskError, OrdercastError, UnreachableError, UsageError
from ordercast.types import objection_to_group

if TYPE_CHECKING:
    import socket

    from ordercast.board.service import BoardService

WEB = "127.0.0.1:8001"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", help="of this node")
    parser.add_argument("--listen", metavar="HOST:PORT", help="where other nodes reach this one")
    parser.add_argument(
        "--seed", metavar="HOST:PORT", action="append", help="somebody of the cluster is there"
    )
    parser.add_argument("--parent", metavar="NAME", default="", help="the node to ask first")
    parser.add_argument("--data", metavar="DIR", help="the node's folder")
    parser.add_argument("--settings", type=Path, metavar="CONFIG", help="a node's settings")
    parser.add_argument("--group", default="board", help="the feed (board)")
    parser.add_argument("--web", metavar="HOST:PORT", default=WEB, help=f"of the page ({WEB})")
    parser.add_argument("--token", help=f"asked for by the page; better give {TOKEN_VARIABLE}")
    parser.add_argument("--verbose", action="store_true", help="log what the network does")


def run(arguments: argparse.Namespace) -> int:
    start_log(verbose=arguments.verbose)
    try:
        from ordercast.board import server  # before anything is opened
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise UsageError(f'a board needs {error.name}: pip install "ordercast[board]"') from error
    token = arguments.token or os.environ.get(TOKEN_VARIABLE) or None
    host, port = check_web(arguments.web, token)
    if objection := objection_to_group(arguments.group):
        raise UsageError(f"--group: {objection}")
    node = opened(arguments)
    listener = server.bound(host, port)
    try:
        runner()(_board(arguments, node, listener, token))
    except UsageError:
        raise
    except DiskError as error:
        raise UsageError(str(error)) from error
    except OrdercastError as error:
        raise UnreachableError(str(error)) from error
    finally:
        listener.close()
    return 0


def opened(arguments: argparse.Namespace) -> Node:
    """What the arguments do not say, the settings say."""
    given: dict[str, Any] = {
        "name": arguments.name,
        "listen": arguments.listen,
        "seeds": arguments.seed,
        "data": arguments.data,
    }
    if arguments.name is None and arguments.settings is None:
        raise UsageError("say who this node is: --name NAME, or --settings CONFIG")
    return open_node(arguments.settings, **{key: one for key, one in given.items() if one})


async def _board(
    arguments: argparse.Namespace, node: Node, listener: socket.socket, token: str | None
) -> None:
    from ordercast.board.server import serving
    from ordercast.board.service import BoardService
    from ordercast.board.site import Site

    leaving = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, leaving.set)
    level = Feed(parent=arguments.parent)
    async with node:

        def join() -> LoggedGroup:
            group = node.join(arguments.group, level)
            assert isinstance(group, LoggedGroup)
            return group

        service = BoardService(join, node.me.name)
        place = listener.getsockname()
        access = Access(token, place[1])
        async with serving(Site(service, access).app(), listener):
            host = f"[{place[0]}]" if ":" in place[0] else place[0]
            screen.stderr().print(
                f"{node.me} shows {arguments.group} at http://{host}:{place[1]}; Ctrl-C leaves"
            )
            await _until_one_ends(service, leaving)


async def _until_one_ends(service: BoardService, leaving: asyncio.Event) -> None:
    """The board, or the wish of its user; the streams to browsers have ended then."""
    running = asyncio.create_task(service.run())
    waiting = asyncio.create_task(leaving.wait())
    try:
        await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        running.cancel()
        await asyncio.wait((running, waiting))
    if not running.cancelled():
        running.result()
