"""`ordercast node`: run one node of a real group.

Runs a node with these settings, joins its groups, and prints a line for every message and view,
until it is interrupted. With --send every line of standard input is sent into that group. SIGINT or
SIGTERM ends it in an orderly way.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from ordercast import (
    Group,
    Joined,
    Left,
    Merged,
    Message,
    Partitioned,
    TicketLost,
    Updating,
    Waiting,
)
from ordercast import open as open_node
from ordercast.cli import screen
from ordercast.errors import (
    DiskError,
    OrdercastError,
    UnreachableError,
    UsageError,
    unknown_word,
)
from ordercast.kernel.family import Level
from ordercast.kernel.step import Heard
from ordercast.kernel.wording import notification_text
from ordercast.levels import find_family, level_of, level_type
from ordercast.net.config import GroupRules, table_of
from ordercast.net.readiness import waiting_text
from ordercast.settings import Source, dotted, located, read_source
from ordercast.types import View

LINES_AHEAD = 1000
"""The most lines of standard input that wait to be sent."""
LONGEST_LINE = 16 << 20
"""The most bytes of a line: what has no end would be read until there is no memory left."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, metavar="CONFIG", help="a TOML file")
    parser.add_argument("--send", metavar="GROUP", help="send the lines of standard input there")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--verbose", action="store_true", help="log what the network does")


def run(arguments: argparse.Namespace) -> int:
    start_log(verbose=arguments.verbose)
    try:
        code: int = runner()(_live(arguments))
        return code
    except UsageError:
        raise
    except DiskError as error:
        raise UsageError(str(error)) from error
    except OrdercastError as error:
        raise UnreachableError(str(error)) from error


def start_log(*, verbose: bool) -> None:
    """What a node has to say goes to stderr."""
    level = logging.INFO if verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(levelname)s %(message)s", stream=sys.stderr)


def runner() -> Any:
    """uvloop where it is installed: the same, and faster."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


async def _live(arguments: argparse.Namespace) -> int:
    leaving = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, leaving.set)
    opened = open_node(arguments.config)
    source = read_source(arguments.config, "a node's settings")
    rules = opened.config.group
    levels = {name: level_in(source, name, rule) for name, rule in rules.items()}
    async with opened as node:
        if not rules:
            raise UsageError(f"{arguments.config}: no [group.NAME] to join")
        if arguments.send is not None and arguments.send not in rules:
            raise UsageError(f"--send {arguments.send}: there is no {table_of(arguments.send)}")
        groups = {name: node.join(name, level) for name, level in levels.items()}
        if arguments.send is not None and not groups[arguments.send].may_send:
            raise UsageError(f"--send {arguments.send}: {node.me.name} may not send there")
        tasks = [loop.create_task(_print_all(group, arguments.json)) for group in groups.values()]
        if arguments.send is not None:
            tasks.append(loop.create_task(_send_lines(groups[arguments.send])))
        tasks.append(loop.create_task(_until(leaving)))
        screen.stderr().print(f"{node.me} joins {', '.join(groups)}; Ctrl-C leaves")
        working = {*tasks}
        while not leaving.is_set():  # whoever fails ends it all; who has no more to do does not
            done, working = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
            if any(task.exception() for task in done):
                break
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for error in ended:
        if isinstance(error, Exception):
            raise error
    return 0


async def _until(event: asyncio.Event) -> None:
    await event.wait()


def level_in(source: Source, name: str, rule: GroupRules) -> Level:
    """Of a group in a node's settings. UsageError: which line is wrong, and why."""
    table = ("group", name)
    try:
        kind = level_type(find_family(rule.family))
    except UsageError as error:
        raise source.error((*table, "family"), str(error)) from error
    known = [field.name for field in msgspec.structs.fields(kind)]
    for key in rule.options:
        if key not in known:
            what = unknown_word(f"option of {rule.family}", key, known)
            raise source.error((*table, "options", key), what)
    try:
        return level_of(rule.family, rule.options)
    except msgspec.ValidationError as error:
        where, what = located(str(error), kind, rule.options)
        raise source.error(
            (*table, "options", *where), f"options{dotted(where, '.')}: {what}"
        ) from error


async def _print_all(group: Group, json: bool) -> None:
    async for event in group:
        if json:
            screen.json_line(_fields(event))
        else:
            print(f"{group.name}: {_line(event)}")
        sys.stdout.flush()


def _line(event: Message | Heard) -> str:
    match event:
        case View(members=members, transitional=transitional):
            return f"{'transitional ' * transitional}view {' '.join(map(str, members))}"
        case Merged(sides=sides):
            return f"merged {' and '.join(' '.join(map(str, side)) for side in sides)}"
        case Updating(ticket=ticket, cause=cause):
            return f"ticket {ticket} {cause}"
        case Partitioned(gone=gone):
            return f"without {' '.join(map(str, gone))}"
        case Waiting():
            return _printable(waiting_text(event).encode())
        case Joined(member=member):
            return f"joined {member}"
        case Left(member=member, why=why):
            return f"left {member} ({why})"
        case Message(sender=sender, data=data):
            return f"{sender}: {_printable(data)}"
    return _printable(notification_text(event).encode())


def _printable(data: bytes) -> str:
    """Whatever others send must not steer this terminal."""
    text = data.decode(errors="replace")
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def _fields(event: Heard) -> dict[str, Any]:
    if isinstance(event, Updating):
        return {"group": event.group, "ticket": event.ticket, "updating": event.cause}
    if isinstance(event, Partitioned):
        return {"group": event.group, "without": [str(member) for member in event.gone]}
    if isinstance(event, Waiting):
        return {"group": event.group, "waits_for": list(event.on), "why": event.why}
    if isinstance(event, Joined):
        return {"group": event.group, "joined": str(event.member)}
    if isinstance(event, Left):
        return {"group": event.group, "left": str(event.member), "why": event.why}
    if isinstance(event, View):
        fields = {"group": event.group, "members": [str(member) for member in event.members]}
        return {**fields, "transitional": True} if event.transitional else fields
    if isinstance(event, Merged):
        sides = [[str(member) for member in side] for side in event.sides]
        return {"group": event.group, "merged": sides}
    if isinstance(event, Message):
        text = event.data.decode(errors="replace")
        fields = {"group": event.group, "sender": str(event.sender), "data": text}
        return {**fields, "service": event.service} if event.service else fields
    return {"group": event.group, "notification": notification_text(event)}


async def _send_lines(group: Group) -> None:
    """Standard input, whatever it is: a pipe, a file, a terminal. A thread reads it.

    Where it takes a ticket to send, one is had from the first line on.
    """
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[bytes | Exception | None] = asyncio.Queue(LINES_AHEAD)

    def read() -> None:
        end: Exception | None = None
        try:
            for line in _lines_of(sys.stdin.fileno()):
                asyncio.run_coroutine_threadsafe(lines.put(line), loop).result()  # waits for room
        except (OSError, UsageError) as error:
            end = error
        asyncio.run_coroutine_threadsafe(lines.put(end), loop)

    threading.Thread(target=read, daemon=True).start()
    while (line := await lines.get()) is not None:
        if isinstance(line, Exception):
            raise line
        if group.permit is None:
            await group.send(line)
        else:
            await _send_as_updater(group, line)


def _lines_of(descriptor: int) -> Iterator[bytes]:
    """Without a buffer of Python's: who ends while a thread waits in one ends with an abort."""
    rest = b""
    while chunk := os.read(descriptor, 1 << 16):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
        if len(rest) > LONGEST_LINE:
            raise UsageError(f"standard input has a line of over {LONGEST_LINE} bytes")
    if rest:
        yield rest


async def _send_as_updater(group: Group, line: bytes) -> None:
    """With the next ticket, if one is lost before the line is sent."""
    while True:
        await group.become_updater()
        with suppress(TicketLost):
            await group.send(line, until="delivered")
            return
