"""`ordercast`: reads the command line, calls the command, turns errors into exit codes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from io import TextIOWrapper

import ordercast
from ordercast.cli.modules import find_beside
from ordercast.errors import UnreachableError, UsageError, unknown_word

FINE, BROKEN, WRONG_USAGE, UNDECIDED, UNREACHABLE = range(5)
"""The exit codes that scripts may rely on."""


def main(arguments: Sequence[str] | None = None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ✓ still gets the rest
    try:
        words = sys.argv[1:] if arguments is None else list(arguments)
        parser, commands = _parser()
        if words and not words[0].startswith("-") and words[0] not in commands:
            raise UsageError(unknown_word("command", words[0], commands))
        chosen = parser.parse_args(words)
        files = (getattr(chosen, name, None) for name in ("scenario", "config"))
        find_beside(*filter(None, files))
        code: int = chosen.run(chosen)
        sys.stdout.flush()
        return code
    except UsageError as error:
        print(f"ordercast: {error}", file=sys.stderr)
        return WRONG_USAGE
    except UnreachableError as error:
        print(f"ordercast: {error}", file=sys.stderr)
        return UNREACHABLE
    except BrokenPipeError:
        # Whoever read our output has seen enough. Nothing may be flushed into the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINE
    except OSError as error:  # a full disk behind stdout, a folder that may not be entered
        print(f"ordercast: {error.filename or 'output'}: {error.strerror}", file=sys.stderr)
        return WRONG_USAGE
    except KeyboardInterrupt:
        print("ordercast: stopped", file=sys.stderr)
        return 130


def _parser() -> tuple[argparse.ArgumentParser, Iterable[str]]:
    """The parser, and the names of the commands."""
    try:
        from ordercast.cli import (
            board,
            ca,
            check,
            demo,
            forget,
            lab,
            live,
            log,
            members,
            monitor,
            node,
            plan,
            report,
            sim,
        )
    except ModuleNotFoundError as error:
        if error.name in ("rich", "pyarrow"):
            raise UsageError(
                f'the commands need {error.name}: pip install "ordercast[cli]"'
            ) from error
        raise
    parser = argparse.ArgumentParser(
        prog="ordercast",
        description="Group communication with the consistency you choose.",
        epilog="Exit codes: 0 fine, 1 a law is broken, 2 wrong usage or bad file, 3 could not be "
        "decided, 4 a peer or a service cannot be reached.",
    )
    parser.add_argument("--version", action="version", version=f"ordercast {ordercast.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    files = (
        *(demo, sim, live, check, lab, report, plan),
        *(node, board, members, monitor, forget, log, ca),
    )
    for command in files:
        name = command.__name__.rpartition(".")[2]
        title, _, description = (command.__doc__ or "").partition("\n\n")
        words = title.partition(": ")[2].rstrip(".")
        one = commands.add_parser(name, help=words, description=description)
        one.set_defaults(run=command.run)
        command.add_arguments(one)
    return parser, commands.choices
