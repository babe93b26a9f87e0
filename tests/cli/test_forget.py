"""`ordercast forget` without a node. With one: tests/net/test_control.py."""

from __future__ import annotations

from pathlib import Path

import pytest


def test_a_socket_where_no_node_answers_ends_4(ordercast, tmp_path: Path) -> None:
    ran = ordercast("forget", "n2", "--control", tmp_path / "n1.sock")
    assert (ran.code, ran.out) == (4, "")
    assert ran.err.startswith(f"ordercast: {tmp_path / 'n1.sock'}: no node answers there: No such")


@pytest.mark.parametrize("name", ["", "two words", "a\nstatus"])
def test_what_is_no_name_is_wrong_usage(ordercast, tmp_path: Path, name: str) -> None:
    ran = ordercast("forget", name, "--control", tmp_path / "n1.sock")
    assert ran.code == 2
    assert "is no name of a node" in ran.err
