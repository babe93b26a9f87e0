"""Every command in the README is run as written, after those whose files it reads.

The programs in the README are run by test_docs.py, and the demo by tests/cli/test_demo.py.
tests/pages.py says how pages are read, and which commands are not run and why.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_demo import DEMO
from tests.pages import (
    ROOT,
    Command,
    chains,
    commands,
    make_targets,
    newcomers_copy,
    reason_not_to_run,
    run_commands,
)

README = ROOT / "README.md"
SPARK_SECONDS = 25
LIVE_SECONDS = 10


def separate_commands() -> list[Any]:
    """Each alone, or with those whose files it reads. The longest are started first."""
    found = []
    for chain in chains(commands(README.read_text(encoding="utf-8"))):
        text = "\n".join(command.text for command in chain)
        seconds = SPARK_SECONDS if "lab" in text or "spark" in text else LIVE_SECONDS
        found.append(pytest.param(chain, id=chain[0].text, marks=pytest.mark.slow(seconds)))
    return found


@pytest.fixture
def readme() -> str:
    assert README.is_file(), "there is no README.md"
    return README.read_text(encoding="utf-8")


def test_the_readme_starts_with_commands_to_run(readme: str) -> None:
    found = [command.text for command in commands(readme)]
    assert found, "README.md has no ```sh block with a command"
    assert DEMO in found
    assert "make test" in found


@pytest.mark.parametrize("chain", separate_commands())
def test_every_command_of_the_readme_works(chain: list[Command], tmp_path: Path) -> None:
    copy = newcomers_copy(tmp_path / "ordercast")
    run_commands("README.md", chain, copy, elsewhere=frozenset([DEMO]))


def test_every_command_of_the_readme_is_in_one_chain(readme: str) -> None:
    found = commands(readme)
    together = chains(found)
    assert sorted(command for chain in together for command in chain) == sorted(found)
    assert [command.text for command in next(c for c in together if len(c) == 3)] == [
        "ordercast sim scenarios/chaos.toml --seed 1 --runs 20 --out lake",
        "ordercast check lake",
        "ordercast check lake --engine spark",
    ]
    assert reason_not_to_run(DEMO) is None


def test_ci_runs_the_checks_and_the_tests() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert "set -euo pipefail" in script
    assert "make check" in script
    assert script[-1] == "make test"
    assert {"check", "test", "demo"} <= make_targets()
