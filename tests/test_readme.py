"""Every command and every program in the README is run, as written.

The commands of all ```sh blocks run in order, in a copy of what they read, with the tools of this
environment on the PATH; `make` runs in the repository itself, where its environment is. A line
that is meant to fail says so: `ordercast check lake  # exits 1`. What is not run here is in
`NOT_RUN`, with the reason. Each ```python block is a program of its own.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
LIMIT_SECONDS = 600  # a bound for what hangs, no claim about speed

NOT_RUN: dict[str, str] = {
    r"git clone \S+( ordercast)?": "whoever runs this test has a clone",
    r"cd ordercast": "the test is there already",
    r"(python3? -m )?pip install ['\"]?ordercast(\[[a-z,]+\])?['\"]?": (
        "this test fetches nothing; that the extras exist is checked"
    ),
    r"make (check|test|check test)": "this test would run itself; .ci/run is checked to run it",
    r"make golden": "it would write over the files that the other tests read",
    r"make bench": "figures, which take minutes and prove nothing",
    r"make lock": "this test fetches nothing",
    r"make clean": "it would take away the environment that this test runs in",
}


class Command(NamedTuple):
    line: int
    text: str
    exits: int = 0


def blocks(text: str, language: str) -> Iterator[tuple[int, str]]:
    """The fenced blocks of a language: the number of the first line inside, and the content."""
    pattern = rf"^```{language}[ \t]*\n(.*?)^```[ \t]*$"
    for found in re.finditer(pattern, text, re.MULTILINE | re.DOTALL):
        yield text.count("\n", 0, found.start(1)) + 1, found[1]


def commands(text: str) -> list[Command]:
    """The commands of the sh blocks in order; a line that ends in a backslash goes on."""
    found: list[Command] = []
    for first, content in blocks(text, "sh"):
        whole = ""
        for number, line in enumerate(content.splitlines(), first):
            whole += line.strip().removeprefix("$ ")
            if whole.endswith("\\"):
                whole = whole[:-1]
                continue
            command, _, comment = whole.partition(" #") if whole[:1] != "#" else ("", "", whole)
            exits = re.search(r"\bexits (\d)\b", comment)
            if command.strip():
                found.append(Command(number, command.strip(), int(exits[1]) if exits else 0))
            whole = ""
        assert not whole, f"line {first}: the block ends in the middle of a command"
    return found


def reason_not_to_run(command: str) -> str | None:
    return next((why for what, why in NOT_RUN.items() if re.fullmatch(what, command)), None)


def make_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z]+):.*## ", text, re.MULTILINE))


def check_unrun(command: str) -> None:
    """What can be seen of a command without running it."""
    words = command.split()
    if words[0] == "make":
        assert set(words[1:]) <= make_targets(), f"{command}: the Makefile has no such target"
    extras = re.search(r"\[([a-z,]+)\]", command)
    if extras:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert set(extras[1].split(",")) <= project["optional-dependencies"].keys(), command


def environment() -> dict[str, str]:
    """As a newcomer's shell, with this environment's tools; not as inside make or pytest."""
    outer = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "ORDERCAST_GOLDEN"}
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in outer and not name.startswith("PYTEST_")
    }
    kept["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", "")])
    return kept


def run(command: Command, folder: Path) -> None:
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command.text],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert ran.returncode == command.exits, (
        f"README line {command.line}: `{command.text}` exits {ran.returncode},"
        f" not {command.exits}\n{ran.stdout[-2000:]}\n{ran.stderr[-2000:]}"
    )


def run_all(text: str, copy: Path) -> None:
    for command in commands(text):
        if reason_not_to_run(command.text):
            check_unrun(command.text)
        else:
            run(command, ROOT if command.text.split()[0] == "make" else copy)


@pytest.fixture
def readme() -> str:
    assert README.is_file(), "there is no README.md"
    return README.read_text(encoding="utf-8")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """What a newcomer's commands read, and a place for what they write."""
    folder = tmp_path / "ordercast"
    folder.mkdir()
    shutil.copy(ROOT / "pyproject.toml", folder)
    for name in ("src", "examples", "experiments", "scenarios", "docs", "tests/histories"):
        if (ROOT / name).is_dir():
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    return folder


def test_the_readme_starts_with_commands_to_run(readme: str) -> None:
    found = [command.text for command in commands(readme)]
    assert found, "README.md has no ```sh block with a command"
    assert "make demo" in found
    assert "make test" in found


def test_every_command_works(readme: str, copy: Path) -> None:
    assert commands(readme), "README.md has no ```sh block with a command"
    run_all(readme, copy)


def test_every_program_works(readme: str) -> None:
    for first, program in blocks(readme, "python"):
        ran = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        assert ran.returncode == 0, f"README line {first}: the program fails\n{ran.stderr[-3000:]}"


def test_ci_runs_the_checks_and_the_tests() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert "set -euo pipefail" in script
    assert script[-1] == "make check test"
    assert {"check", "test", "demo"} <= make_targets()


# --- the reader reads what is written --------------------------------------------------------

SAMPLE = """\
# A title
```sh
$ make demo
# only a comment
ordercast sim a.toml \\
  --seed 1   # one run
ordercast check lake  # exits 1
```
```text
not a command
```
```python
x = 1
```
"""


def test_commands_are_read_as_written() -> None:
    assert commands(SAMPLE) == [
        Command(3, "make demo"),
        Command(6, "ordercast sim a.toml --seed 1"),
        Command(7, "ordercast check lake", exits=1),
    ]
    assert list(blocks(SAMPLE, "python")) == [(13, "x = 1\n")]
    assert commands("no block at all") == []


def test_a_command_that_fails_is_told_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="README line 2: `false` exits 1, not 0"):
        run_all("```sh\nfalse\n```\n", tmp_path)
    run_all("```sh\nfalse  # exits 1\n```\n", tmp_path)


def test_commands_follow_each_other_in_one_folder(tmp_path: Path) -> None:
    run_all("```sh\necho 1 > lake\n```\n\n```sh\ntest -s lake\n```\n", tmp_path)


def test_what_is_not_run_is_still_checked(tmp_path: Path) -> None:
    run_all("```sh\npip install 'ordercast[cli,net]'\nmake test\n```\n", tmp_path)
    with pytest.raises(AssertionError, match="wings"):
        run_all("```sh\npip install ordercast[wings]\n```\n", tmp_path)
    assert reason_not_to_run("pip install something-else") is None
    assert reason_not_to_run("make demo") is None
