"""The examples that need several processes, as a reader starts them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EDITORS = Path(__file__).resolve().parents[2] / "examples" / "editors.py"
NAMES = ("ann", "ben", "cid")
BOUND_SECONDS = 60


@pytest.mark.slow
def test_editors_take_turns_and_again_from_the_same_folders(tmp_path: Path) -> None:
    for _ in range(2):  # the second time they find what they persisted
        started = [
            subprocess.Popen(
                [sys.executable, str(EDITORS), name],
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for name in NAMES
        ]
        try:
            novels = [process.communicate(timeout=BOUND_SECONDS)[0] for process in started]
        finally:
            for process in started:
                process.kill()
        for name, process, said in zip(NAMES, started, novels, strict=True):
            assert process.returncode == 0, said
            lines = [line for line in said.splitlines() if "paragraph" in line]
            paragraphs = list(zip(lines[::2], lines[1::2], strict=True))
            assert len(paragraphs) == 6
            for begins, ends in paragraphs:
                assert begins.replace("begins", "ends") == ends
            assert f"{name}: the pen is acquired" in said


def test_an_unknown_editor_is_rejected_with_the_names_to_choose_from() -> None:
    ran = subprocess.run(
        [sys.executable, str(EDITORS), "dan"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert ran.stderr == "usage: editors.py ann|ben|cid\n"
