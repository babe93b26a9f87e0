"""The programs themselves, as a reader starts them: real nodes, a partition, a crash, a merge."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.applications.driven import EXAMPLES
from tests.pages import the_ports_of

BOUND_SECONDS = 60
LAST_LINES = {
    "consensus": "n2, n3, n4 and n5 have one decision: right",
    "lock": "three holders, one after the other, and all agree who writes now",
    "work": "all 60 tasks are completed, ",
    "atm": "all four have the same books: ann is overdrawn by 100, ben has 450",
    "airline": "28 tickets for 20 seats: all four tell n3-5 n3-6 n4-1 n4-2 n4-3 n4-4 n4-5 n4-6",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LAST_LINES)
def test_a_program_goes_through_partition_crash_and_merge(name: str, tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    with the_ports_of(name):
        ran = subprocess.run(
            command,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=BOUND_SECONDS,
            check=False,
        )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    lines = ran.stdout.splitlines()
    for what in ("* the network is cut: ", "crashes", "* the network heals"):
        assert any(what in line for line in lines), ran.stdout
    assert any(": sides merge: " in line for line in lines[lines.index("* the network heals") :])
    assert lines[-1].startswith(LAST_LINES[name]), ran.stdout
    assert list(tmp_path.iterdir()) == []
