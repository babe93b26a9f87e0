"""`ordercast members` and `monitor` without a node. With one: tests/net."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ordercast.cli.members import shown


@pytest.mark.parametrize("command", ["members", "monitor"])
def test_a_socket_where_no_node_answers_ends_4(ordercast, tmp_path: Path, command: str) -> None:
    ran = ordercast(command, tmp_path / "n1.sock")
    assert (ran.code, ran.out) == (4, "")
    assert ran.err.startswith(f"ordercast: {tmp_path / 'n1.sock'}: no node answers there: No such")


@pytest.mark.parametrize("place", ["127.0.0.1:7001", "[::1]:7001", "[fe80::1]:7001"])
def test_every_address_is_shown_as_it_is(place: str) -> None:
    peer = {"connected": True, "incarnation": "n2", "link_bytes": 0, "place": place}
    status = {"node": "n1", "cluster": "c", "groups": {}, "peers": {"n2": peer}, "counters": {}}
    assert place in printed(status)


def printed(status: dict[str, Any]) -> str:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(shown({**status, "loop_lag_seconds": 0.0}))
    return capture.get()


def test_no_look_at_all_is_wrong_usage(ordercast, tmp_path: Path) -> None:
    ran = ordercast("monitor", tmp_path / "n1.sock", "--count", "0")
    assert ran.code == 2
    assert "--count is 0: give a whole number from 1 on" in ran.err


@pytest.mark.parametrize("command", [("members",), ("monitor",), ("forget", "n2")])
@pytest.mark.parametrize("control", [(), ("--control",)])
def test_a_socket_is_given_in_either_form_and_once(
    ordercast, tmp_path: Path, command: tuple[str, ...], control: tuple[str, ...]
) -> None:
    socket = str(tmp_path / "nowhere.sock")
    result = ordercast(*command, *control, socket)
    assert result.code == 4
    assert "no node answers there" in result.err
    twice = ordercast(*command, socket, "--control", socket)
    assert twice.code == 2
    assert "say once which node: --control SOCKET" in twice.err


def test_a_node_in_a_tree_says_where_it_is_and_what_its_log_has() -> None:
    log = {"floor": 3, "tail": 9, "strained": False}
    for parent, path, children, is_root, said in (
        ("", [], ["n2", "n3"], True, "the root, above n2 n3; log 3 to 9"),
        ("n2", ["n2", "n1"], [], False, "below n2 < n1; log 3 to 9"),
        ("", [], [], False, "no parent; log 3 to 9"),
    ):
        place = {"parent": parent, "path": path, "children": children, "is_root": is_root}
        group = {"members": [], "waiting_in": 0, "waiting_out": 0, "throttled": False}
        group |= {"place": place, "log": log}
        status = {"node": "n1#0", "cluster": "c", "groups": {"news": group}, "peers": {}}
        assert said in printed(status | {"counters": {}})
