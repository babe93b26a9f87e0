"""`ordercast node`: what it reads from standard input. Its conversations: tests/net."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ordercast.cli import node
from ordercast.errors import UsageError


def lines_of(*chunks: bytes) -> list[bytes]:
    """The lines of a pipe that is written piece by piece."""
    reading, writing = os.pipe()

    def write() -> None:
        with os.fdopen(writing, "wb", buffering=0) as pipe:
            for chunk in chunks:
                pipe.write(chunk)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        return list(node._lines_of(reading))
    finally:
        writer.join()
        os.close(reading)


def test_lines_are_put_together_and_the_last_needs_no_end() -> None:
    assert lines_of(b"one\ntw", b"o\n\nthree") == [b"one", b"two", b"", b"three"]


def test_a_line_without_an_end_is_refused_before_memory_runs_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node, "LONGEST_LINE", 100)
    assert lines_of(b"x" * 100 + b"\n") == [b"x" * 100]
    with pytest.raises(UsageError, match="standard input has a line of over 100 bytes"):
        lines_of(b"x" * 101)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("options = { windw = 64 }", "4: unknown option of fifo 'windw': did you mean 'window'?"),
        ("options = { window = 0 }", "4: options.window: give a number that is >= 1, not 0"),
        ('family = "fifoo"', "4: unknown family 'fifoo': did you mean 'fifo'?"),
    ],
)
def test_what_is_wrong_with_a_group_is_reported_with_its_line(
    ordercast, tmp_path: Path, line: str, said: str
) -> None:
    path = tmp_path / "n1.toml"
    data = tmp_path / "n1"
    path.write_text(f'name = "n1"\ndata = "{data}"\n[group.orders]\n{line}\n')
    ran = ordercast("node", path)
    assert (ran.code, ran.err) == (2, f"ordercast: {path}:{said}\n")
    assert not data.exists(), "no incarnation was used up"
