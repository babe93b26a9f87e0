"""The benches still fit the code that they measure: each can be loaded. They are run by hand."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).resolve().parent.parent / "bench").glob("[a-z]*.py"))


@pytest.mark.parametrize("name", [path.stem for path in FILES])
def test_every_benchmark_can_be_imported(name: str) -> None:
    assert import_module(f"bench.{name}").__doc__
