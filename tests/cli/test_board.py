"""`ordercast board`: what is wrong is said before anything is opened. With nodes: tests/board."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "say who this node is: --name NAME, or --settings CONFIG"),
        (("--name", "n1", "--web", "0.0.0.0:8001"), "0.0.0.0:8001 can be reached from elsewhere"),
        (("--name", "n1", "--web", "8001"), "--web 8001: give an address with a port"),
        (("--name", "n1", "--token", "short"), "the token has 5 characters: give 16 or more"),
        (("--name", "n 1"), "a name of letters, digits"),
        (("--name", "n1", "--group", "a b"), "--group: 'a b' is no name for a group"),
        (("--name", "n1", "--seed", "nowhere"), "an address with a port"),
        (("--name", "n1", "--parent", "x" * 101), "parent: give at most 100 characters"),
        (("--settings", "nowhere.toml"), "nowhere.toml"),
    ],
)
def test_wrong_usage_is_one_sentence(
    ordercast, words: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ORDERCAST_BOARD_TOKEN", raising=False)
    ran = ordercast("board", *words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1


def test_settings_of_another_family_are_refused(ordercast, tmp_path: Path) -> None:
    settings = tmp_path / "n1.toml"
    settings.write_text('name = "n1"\n[group.board]\nfamily = "fifo"\n', "utf-8")
    ran = ordercast("board", "--settings", settings)
    assert ran.code == 2
    assert ran.err == f'ordercast: {settings}: [group.board]: a board needs family = "feed"\n'


def test_the_token_may_be_in_the_environment(ordercast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERCAST_BOARD_TOKEN", "hunter2")
    ran = ordercast("board", "--name", "n1")
    assert ran.code == 2
    assert "the token has 7 characters" in ran.err
    assert "hunter2" not in ran.err


def test_a_place_that_is_taken_is_said_before_a_node_opens(ordercast, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        ran = ordercast("board", "--name", "n1", "--data", tmp_path / "n1", "--web", place)
    assert ran.code == 2
    assert ran.err == f"ordercast: --web {place}: Address already in use\n"
    assert not (tmp_path / "n1").exists()
