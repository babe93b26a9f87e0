"""`ordercast forget`: make a running node forget another one.

Makes a running node forget all that it knows of another node: where it is, which incarnations of
its name there were, what is still underway to it, and which groups it was in. The other node must
not be connected. Ask every node that should forget it.
"""

from __future__ import annotations

import argparse
import asyncio

from ordercast.cli.members import add_control, ask_node, control_of
from ordercast.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the name of the node to forget")
    add_control(parser)


def run(arguments: argparse.Namespace) -> int:
    if not arguments.name or any(letter.isspace() for letter in arguments.name):
        raise UsageError(f"{arguments.name!r} is no name of a node")
    answer = asyncio.run(ask_node(control_of(arguments), f"forget {arguments.name}"))
    if "forgot" not in answer:
        raise UsageError(str(answer.get("error", "the node did not answer")))
    print(f"{arguments.name} is forgotten")
    if groups := answer.get("restart"):
        print(f"restart the node: until then {', '.join(groups)} still waits for {arguments.name}")
    return 0
