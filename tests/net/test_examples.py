"""The examples that need several processes, as a reader starts them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from tests.pages import the_ports_of

EDITORS = Path(__file__).resolve().parents[2] / "examples" / "editors.py"
NAMES = ("ann", "ben", "cid")
BOUND_SECONDS = 60


@pytest.fixture
def ports() -> Iterator[None]:
    with the_ports_of("editors"):
        yield


def start_editors(folder: Path) -> list[subprocess.Popen[str]]:
    return [
        subprocess.Popen(
            [sys.executable, "-u", str(EDITORS), name],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name in NAMES
    ]


def stop(processes: Iterable[subprocess.Popen[str]]) -> None:
    for process in processes:
        with process:  # waits, and closes its pipe
            process.kill()


@pytest.mark.slow(30)
@pytest.mark.usefixtures("ports")
def test_editors_take_turns_and_again_from_the_same_folders(tmp_path: Path) -> None:
    for _ in range(2):  # the second time they find what they persisted
        started = start_editors(tmp_path)
        try:
            novels = [process.communicate(timeout=BOUND_SECONDS)[0] for process in started]
        finally:
            stop(started)
        for name, process, said in zip(NAMES, started, novels, strict=True):
            assert process.returncode == 0, said
            lines = [line for line in said.splitlines() if "paragraph" in line]
            paragraphs = list(zip(lines[::2], lines[1::2], strict=True))
            assert len(paragraphs) == 6
            for begins, ends in paragraphs:
                assert begins.replace("begins", "ends") == ends
            assert f"{name}: the pen is acquired" in said


@pytest.mark.slow(6)
@pytest.mark.usefixtures("ports")
def test_the_others_write_on_when_the_editor_that_has_the_pen_is_killed(tmp_path: Path) -> None:
    """Killed in its second paragraph: by then the cluster has more than one lease replica."""
    started = dict(zip(NAMES, start_editors(tmp_path), strict=True))
    try:
        watched = started["ben"].stdout
        assert watched is not None
        heard: list[str] = []
        for line in watched:
            heard.append(line)
            if "begins paragraph 2" in line:
                break
        else:
            pytest.fail("".join(heard))
        victim = line.split()[1]
        started[victim].kill()
        novels = {
            name: process.communicate(timeout=BOUND_SECONDS)[0] for name, process in started.items()
        }
    finally:
        stop(started.values())
    del novels[victim]
    for name, said in novels.items():
        assert started[name].returncode == 0, said
        assert f"{name}: {victim} did not end its paragraph" in said
        for writer in novels:
            assert f"{name}: {writer} ends paragraph 2" in said
        assert said.endswith("nobody has written for 10 s, so this is the end\n")


@pytest.mark.parametrize("given", [["dan"], []])
@pytest.mark.parametrize(
    ("program", "names"), [("editors.py", "ann|ben|cid"), ("hello.py", "n1|n2|n3")]
)
def test_an_unknown_name_is_rejected_with_the_names_to_choose_from(
    program: str, names: str, given: list[str]
) -> None:
    path = EDITORS.with_name(program)
    ran = subprocess.run(
        [sys.executable, str(path), *given], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert ran.stderr == f"usage: {program} {names}\n"
