"""Every command in the README is run as written, in the order in which it is written.

The programs in the README are run by test_docs.py. tests/pages.py says how pages are read, and
which commands are not run and why.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.pages import ROOT, commands, make_targets, newcomers_copy, run_commands

README = ROOT / "README.md"


@pytest.fixture
def readme() -> str:
    assert README.is_file(), "there is no README.md"
    return README.read_text(encoding="utf-8")


def test_the_readme_starts_with_commands_to_run(readme: str) -> None:
    found = [command.text for command in commands(readme)]
    assert found, "README.md has no ```sh block with a command"
    assert "make demo" in found
    assert "make test" in found


@pytest.mark.slow
def test_every_command_of_the_readme_works(readme: str, tmp_path: Path) -> None:
    assert commands(readme), "README.md has no ```sh block with a command"
    run_commands("README.md", readme, newcomers_copy(tmp_path / "ordercast"))


def test_ci_runs_the_checks_and_the_tests() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert "set -euo pipefail" in script
    assert script[-1] == "make check test"
    assert {"check", "test", "demo"} <= make_targets()
