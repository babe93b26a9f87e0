"""`ordercast members`: who is in the groups of a running node.

Asks a running node through its local socket (`control` in its settings).
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group as Stack
from rich.markup import escape
from rich.table import Table

from ordercast.cli import screen
from ordercast.errors import UnreachableError, UsageError
from ordercast.net.control import ask


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_control(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def add_control(parser: argparse.ArgumentParser) -> None:
    """Where the node is: by `--control`, or as an argument of its own."""
    parser.add_argument("socket", type=Path, metavar="SOCKET", nargs="?", help=argparse.SUPPRESS)
    told = "the node's local socket (`control` in its settings)"
    parser.add_argument("--control", type=Path, metavar="SOCKET", help=told)


def control_of(arguments: argparse.Namespace) -> Path:
    paths: tuple[Path | None, ...] = arguments.control, arguments.socket
    given = [path for path in paths if path is not None]
    if len(given) != 1:
        raise UsageError(
            "say once which node: --control SOCKET, which is `control` in its settings"
        )
    return given[0]


def run(arguments: argparse.Namespace) -> int:
    status = asyncio.run(ask_node(control_of(arguments)))
    if arguments.json:
        screen.json_line(status)
    else:
        screen.stdout().print(shown(status))
    return 0


async def ask_node(path: Path, question: str = "status") -> dict[str, Any]:
    try:
        return await ask(path, question)
    except OSError as error:
        if path.is_file():
            raise UsageError(
                f"{path} is a file, and not a socket: give the path that is `control` in the "
                "node's settings"
            ) from error
        why = error.strerror or "no answer"
        raise UnreachableError(f"{path}: no node answers there: {why}") from error


def _updates(group: dict[str, Any]) -> str:
    """What a node may do where it takes a ticket to send."""
    updating = group.get("updating")
    if updating is None:
        return ""
    if updating["ticket"] is None:
        return "wants a ticket" if updating["wanted"] else "no"
    return f"ticket {updating['ticket']}{' (suspended)' if updating['suspended'] else ''}"


def _who(group: dict[str, Any]) -> str:
    """Who is in it, and where groups form, in which formation."""
    who, counters = " ".join(group["members"]), group.get("counters", {})
    if not who and group.get("waits"):
        return str(group["waits"])
    if "place" in group:
        return _where(group["place"], group["log"])
    if not who and "known" in counters:
        return f"no view; knows {counters['known']} others"
    if not who and "forming" in counters:
        return "not formed yet"
    formation = group.get("formation")
    who = f"{who} ({formation})" if formation else who
    return f"{who}, {counters['suspected']} suspected" if counters.get("suspected") else who


def _where(place: dict[str, Any], log: dict[str, Any]) -> str:
    """Where a node is in a tree, and what its log has."""
    above = " < ".join(place["path"] or [place["parent"]])
    where = f"below {above}" if place["parent"] else "no parent"
    where = "the root" if place["is_root"] else where
    below = f", above {' '.join(place['children'])}" if place["children"] else ""
    full = ", disk nearly full" if log["strained"] else ""
    return f"{where}{below}; log {log['floor']} to {log['tail']}{full}"


def shown(status: dict[str, Any]) -> Stack:
    groups = Table(box=box.SIMPLE_HEAD, title=f"{status['node']} in {status['cluster']}")
    for column in ("group", "members", "updates", "waiting in", "waiting out"):
        groups.add_column(column, justify="right" if column.startswith("waiting") else "left")
    for name, group in sorted(status["groups"].items()):
        waiting = f"{group['waiting_in']}{' (full)' if group['throttled'] else ''}"
        groups.add_row(
            name, escape(_who(group)), _updates(group), waiting, str(group["waiting_out"])
        )
    peers = Table(box=box.SIMPLE_HEAD)
    for column in ("peer", "where", "connected", "bytes underway"):
        peers.add_column(column, justify="right" if column == "bytes underway" else "left")
    for name, peer in sorted(status["peers"].items()):
        connected = "[green]yes[/]" if peer["connected"] else "[red]no[/]"
        shown = peer["incarnation"] or name
        underway = f"{peer['link_bytes']}{' (full)' if peer.get('full') else ''}"
        # Unescaped, [fe80::1] would be a style.
        peers.add_row(shown, escape(peer["place"] or "it dials"), connected, underway)
    refused = {key: value for key, value in status["counters"].items() if "refused" in key}
    told = ", ".join(f"{key} {value}" for key, value in sorted(refused.items())) or "nothing"
    lag = f"refused: {told}; event loop late by {status['loop_lag_seconds'] * 1000:.0f} ms"
    return Stack(groups, peers, lag)
