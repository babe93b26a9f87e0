"""`ordercast members` and `monitor` without a node. With one: tests/net."""

from __future__ import annotations

from pathlib import Path

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
    console = Console(width=100)
    with console.capture() as capture:
        console.print(shown({**status, "loop_lag_seconds": 0.0}))
    assert place in capture.get()


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
