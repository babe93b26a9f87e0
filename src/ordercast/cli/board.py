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

from ordercast import Node
from ordercast import open as open_node
from ordercast.board.access import TOKEN_VARIABLE, check_web
from ordercast.board.level import board_level
from ordercast.cli import screen
from ordercast.cli.node import level_in, runner, start_log
from ordercast.errors import DiskError, OrdercastError, UnreachableError, UsageError
from ordercast.kernel.family import LoggedLevel
from ordercast.net.config import table_of
from ordercast.settings import read_source
from ordercast.types import objection_to_group

if TYPE_CHECKING:
    import socket

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
    parser.add_argument("--group", default="board", help="the name of its group (board)")
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
    level = level_for(arguments, node)
    listener = server.bound(host, port)
    try:
        runner()(_board(node, arguments.group, level, listener, token))
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


def level_for(arguments: argparse.Namespace, node: Node) -> LoggedLevel:
    """The options of its group are in the settings, as for `ordercast node`."""
    group, parent = arguments.group, arguments.parent
    if (rule := node.config.group.get(group)) is None:
        return board_level(parent=parent)
    given = level_in(read_source(arguments.settings, "a node's settings"), group, rule)
    return board_level(given, where=f"{arguments.settings}: {table_of(group)}", parent=parent)


async def _board(
    node: Node, group: str, level: LoggedLevel, listener: socket.socket, token: str | None
) -> None:
    from ordercast.board.running import running_board

    leaving = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, leaving.set)
    async with node, running_board(node, group, level, listener, token) as board:
        host, port, *_ = listener.getsockname()
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        screen.stderr().print(f"{node.me} shows {group} at http://{place}; Ctrl-C leaves")
        waiting = asyncio.create_task(leaving.wait())
        await asyncio.wait((board.reading, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if board.reading.done():
            board.reading.result()
