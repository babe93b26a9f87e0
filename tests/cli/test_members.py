"""`ordercast members` and `monitor` without a node. With one: tests/net."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.mark.parametrize("command", ["members", "monitor"])
def test_a_socket_where_no_node_answers_ends_4(ordercast, tmp_path: Path, command: str) -> None:
    ran = ordercast(command, tmp_path / "n1.sock")
    assert (ran.code, ran.out) == (4, "")
    assert ran.err.startswith(f"ordercast: {tmp_path / 'n1.sock'}: no node answers there: No such")


def test_no_look_at_all_is_wrong_usage(ordercast, tmp_path: Path) -> None:
    ran = ordercast("monitor", tmp_path / "n1.sock", "--count", "0")
    assert ran.code == 2
    assert "--count is 0: give a whole number from 1 on" in ran.err
