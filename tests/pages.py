"""Reads the pages of documentation, and runs the commands and programs that they show.

The word after a fence says what a block is:

    sh                  commands. A line that is meant to fail says so: `# exits 1`
    python              a program; the blocks of a page run in order, as one program
    python node         runs in a coroutine, with `node`, at each of the nodes n1, n2 and n3
    python examples/X   lines of that example, which another test runs
    toml                settings; a test in test_docs.py loads them
    python NAME.py      a whole file; the commands and programs of the page find it by its name
    toml NAME.toml      the same
    text NAME           the same
    text output         the program of the page prints this
    text                anything that cannot be run
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
NONE: frozenset[str] = frozenset()
LIMIT_SECONDS = 600  # a bound for a program that hangs, no claim about speed

NOT_RUN: dict[str, str] = {
    r"git clone \S+( ordercast)?": "the test already has a clone",
    r"cd ordercast": "the test is there already",
    r"(python3? -m )?pip install ['\"]?ordercast(\[[a-z,]+\])?['\"]?": (
        "tests download nothing; that the extras exist is checked"
    ),
    r"make (check|test|check test)": "this test would run itself; .ci/run is checked to run it",
    r"make golden": "it would write over the files that the other tests read",
    r"make bench": "measurements take minutes and prove nothing",
    r"make lock": "tests download nothing",
    r"make clean": "it would delete the environment that this test runs in",
    r"ordercast lab experiments/(figure-[45]|feed-moves)\.toml": (
        "takes minutes; test_docs.py loads every experiment, test_readme.py runs a small one"
    ),
}


class Command(NamedTuple):
    line: int
    text: str
    exits: int = 0


class Block(NamedTuple):
    line: int  # the number of the first line inside
    content: str
    word: str = ""  # what follows the language in the fence


def blocks(text: str, language: str) -> Iterator[Block]:
    """The fenced blocks of a language."""
    pattern = rf"^```{language}(?:[ \t]+([^\n]*?))?[ \t]*\n(.*?)^```[ \t]*$"
    for found in re.finditer(pattern, text, re.MULTILINE | re.DOTALL):
        yield Block(text.count("\n", 0, found.start(2)) + 1, found[2], found[1] or "")


def commands(text: str) -> list[Command]:
    """The commands of the sh blocks in order; a line that ends in a backslash continues."""
    found: list[Command] = []
    for first, content, _ in blocks(text, "sh"):
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


def chains(found: list[Command]) -> list[list[Command]]:
    """The commands in their order, and together those of which one reads what another wrote."""
    by_folder: dict[str, list[Command]] = {}
    separate: list[list[Command]] = []
    for command in found:
        words = command.text.split()
        chain = next((by_folder[word] for word in words if word in by_folder), None)
        if chain is None:
            chain = []
            separate.append(chain)
        chain.append(command)
        for folder in re.findall(r"--out (\S+)", command.text):
            by_folder[folder] = chain
        for experiment in re.findall(r"lab experiments/(\S+)\.toml$", command.text):
            by_folder[f"out/{experiment}"] = chain
    return separate


def reason_not_to_run(command: str) -> str | None:
    return next((why for what, why in NOT_RUN.items() if re.fullmatch(what, command)), None)


def make_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z]+):.*## ", text, re.MULTILINE))


def check_unrun(command: str) -> None:
    """Checks what can be seen of a command without running it."""
    words = command.split()
    if words[0] == "make":
        assert set(words[1:]) <= make_targets(), f"{command}: the Makefile has no such target"
    extras = re.search(r"\[([a-z,]+)\]", command)
    if extras:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert set(extras[1].split(",")) <= project["optional-dependencies"].keys(), command


def environment() -> dict[str, str]:
    """A newcomer's shell with the tools of this environment, not that of make or pytest."""
    outer = {"ARGS", "WORKERS", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "ORDERCAST_GOLDEN"}
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in outer and not name.startswith("PYTEST_")
    }
    kept["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", "")])
    return kept


def run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments,
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


@contextmanager
def the_ports_of(example: str) -> Iterator[None]:
    """An example listens at addresses that readers find in it, so one test at a time starts it."""
    path = Path(tempfile.gettempdir()) / f"ordercast-{example}-{os.getuid()}.lock"
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run_command(page: str, command: Command, folder: Path) -> None:
    example = re.search(r"examples/(\w+)\.py", command.text)
    with the_ports_of(example[1]) if example else nullcontext():
        ran = run(["bash", "-euo", "pipefail", "-c", command.text], folder)
    assert ran.returncode == command.exits, (
        f"{page} line {command.line}: `{command.text}` exits {ran.returncode},"
        f" not {command.exits}\n{ran.stdout[-2000:]}\n{ran.stderr[-2000:]}"
    )


def run_commands(
    page: str, text: str | list[Command], copy: Path, elsewhere: frozenset[str] = NONE
) -> None:
    """Runs the commands of a page in order in one folder; `make` runs in the repository.

    Commands in `elsewhere` are run by another test.
    """
    for command in commands(text) if isinstance(text, str) else text:
        if command.text in elsewhere:
            continue
        if reason_not_to_run(command.text):
            check_unrun(command.text)
        else:
            run_command(page, command, ROOT if command.text.split()[0] == "make" else copy)


def write_files(text: str, folder: Path) -> None:
    """Writes the files that a page shows whole."""
    for block in [found for kind in ("python", "toml", "text") for found in blocks(text, kind)]:
        if "." in block.word and "/" not in block.word:
            (folder / block.word).write_text(block.content, encoding="utf-8")


def newcomers_copy(folder: Path) -> Path:
    """What a newcomer's commands read, and a place for what they write."""
    folder.mkdir()
    shutil.copy(ROOT / "pyproject.toml", folder)
    for name in ("src", "examples", "experiments", "scenarios", "docs", "tests/histories"):
        if (ROOT / name).is_dir():
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    return folder
