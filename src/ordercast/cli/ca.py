"""`ordercast ca`: make certificates for the nodes of a cluster.

An authority of your own for mutual TLS: ca init once a cluster, then ca issue once a node, and
again to renew.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ordercast.cli import screen
from ordercast.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    steps = parser.add_subparsers(title="steps", metavar="STEP", required=True)
    first = steps.add_parser(
        "init",
        help="make an authority",
        description="Writes ca.pem, which every node needs, and ca.key, which no node needs: keep "
        "it where only you can read it. Nothing is ever overwritten.",
    )
    first.add_argument("folder", type=Path, metavar="FOLDER", help="created if it does not exist")
    first.add_argument("--cluster", default="ordercast", help="the cluster's name (ordercast)")
    first.set_defaults(step=init)
    each = steps.add_parser(
        "issue",
        help="make or renew the certificate of a node",
        description="Writes NAME.pem and NAME.key, and prints what to put into the node's "
        "configuration. A node that runs takes renewed files by itself.",
    )
    each.add_argument("folder", type=Path, metavar="FOLDER", help="where the authority is")
    each.add_argument("name", metavar="NAME", help="the node's name")
    each.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="H",
        help="a host name or address to name as well, for other tools; may be repeated",
    )
    each.add_argument("--days", type=int, default=365, help="how long it is valid (365)")
    each.set_defaults(step=issue)


def run(arguments: argparse.Namespace) -> int:
    code: int = arguments.step(arguments)
    return code


def init(arguments: argparse.Namespace) -> int:
    written = _authority().init(arguments.folder, arguments.cluster)
    print(
        f"wrote {written.certificate}: every node needs it; valid until {written.expires:%Y-%m-%d}"
    )
    print(f"wrote {written.key}: keep it secret, and off the nodes")
    screen.stderr().print(
        f"next, for each node: ordercast ca issue {arguments.folder} NAME", markup=False
    )
    return 0


def issue(arguments: argparse.Namespace) -> int:
    """What is printed is TOML, so it may be appended to a configuration as it is."""
    written = _authority().issue(arguments.folder, arguments.name, arguments.host, arguments.days)
    authority, certificate, key = map(
        _quoted, (written.authority, written.certificate, written.key)
    )
    print(f"# wrote {certificate}: valid until {written.expires:%Y-%m-%d}")
    print(f"# wrote {key}: keep it secret, only {arguments.name} needs it")
    print(f"# for name = {_quoted(arguments.name)}, cluster = {_quoted(written.cluster)}")
    print("[tls]")
    print(f"authority = {authority}")
    print(f"certificate = {certificate}")
    print(f"key = {key}")
    return 0


def _quoted(text: object) -> str:
    """As TOML writes it, which is as JSON does."""
    return json.dumps(str(text), ensure_ascii=False)


def _authority() -> Any:
    try:
        from ordercast.net import authority
    except ModuleNotFoundError as error:
        raise UsageError(f'certificates need {error.name}: pip install "ordercast[net]"') from error
    return authority
