"""Runs commands in this process, as their entry point would."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from ordercast.cli.main import main
from ordercast.live.namespaces import Namespaces, Unavailable

ROOT = Path(__file__).resolve().parents[2]


class Ran(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def ordercast(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ran]:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments: object) -> Ran:
        capsys.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as stopped:  # argparse, on wrong usage and --help
            code = stopped.code if isinstance(stopped.code, int) else 2
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return run


@pytest.fixture
def no_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without root: members cut their own connections."""

    def refuse(self: Namespaces) -> None:
        raise Unavailable("not in this test")

    monkeypatch.setattr(Namespaces, "open", refuse)
