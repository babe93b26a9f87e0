"""`ordercast live`: the same scenarios and the same laws as in the simulator, with real processes.

These runs take the seconds of their scenarios. No test sleeps.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.live_runs import laws_of, run_in_both_worlds, run_live

from ordercast.live import run
from ordercast.live.supervisor import Gathered, Supervisor
from ordercast.trace.lake import read_lake
from ordercast.trace.schema import Row
from ordercast.units import SECOND

ROOT = Path(__file__).resolve().parents[2]
CRASH = "scenarios/fifo-crash.toml"
TICKETS = "scenarios/tickets-kill.toml"
PARTITION = "scenarios/fifo-partition.toml"
BOUND_SECONDS = 120


@pytest.mark.slow
def test_crashes_keep_the_same_laws_simulated_and_live(ordercast, tmp_path: Path) -> None:
    run_in_both_worlds(ordercast, CRASH, "--out", tmp_path)
    judged = ordercast("check", tmp_path)
    assert judged.code == 0
    assert "live-fifo-crash-1" in judged.out
    again = ordercast("live", CRASH, "--out", tmp_path)
    assert again.code == 2
    assert "exists already" in again.err


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["datagram", "status"])
def test_a_causal_cluster_keeps_the_same_laws_simulated_and_live(
    ordercast, tmp_path: Path, transport: str
) -> None:
    text = (ROOT / "scenarios" / "causal.toml").read_text(encoding="utf-8")
    scenario = tmp_path / "causal.toml"
    scenario.write_text(
        text.replace("[options]", f'[options]\ntransport = "{transport}"'), encoding="utf-8"
    )
    assert run_in_both_worlds(ordercast, scenario)["crashes"] == 2


@pytest.mark.slow
def test_stopped_and_killed_owners_never_share_a_ticket_simulated_or_live(
    ordercast, tmp_path: Path
) -> None:
    printed = run_in_both_worlds(ordercast, TICKETS, "--out", tmp_path)
    assert laws_of(printed)["ticket-uniqueness"] == "holds"
    assert printed["crashes"] == 4
    # Two of the four who want the three tickets stand still, and later the other two are killed:
    # whoever had them, some change hands each time.
    assert printed["tickets"]["granted"] > 3
    assert printed["tickets"]["reclaimed"] >= 1
    (trace,) = read_lake(tmp_path)
    last_fault = max(row.at for row in trace.rows if row.kind == "crash")
    later = [row for row in trace.rows if row.kind == "submit" and row.at > last_fault]
    assert later, "updates do not go on"


@pytest.mark.slow
def test_live_processes_take_turns_and_the_output_counts_tickets(ordercast) -> None:
    """With wishes that come and go, and whatever this seed draws."""
    lived = ordercast("live", "scenarios/tickets-turns.toml", "--seed", 3)
    assert lived.code == 0, lived.out + lived.err
    line = lived.out.splitlines()[-1]
    assert re.match(r"tickets: \d+ granted after .* given back, \d+ lost; \d+ reclaimed", line)
    assert int(line.split(" given back")[0].split()[-1]) > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fifo-members", "total-members"])
def test_members_leave_and_join_simulated_and_live(ordercast, tmp_path: Path, name: str) -> None:
    path = ROOT / "scenarios" / f"{name}.toml"
    simulated = ordercast("sim", path, "--seed", 1, "--json", "--out", tmp_path / "sim")
    assert simulated.code == 0, simulated.out + simulated.err
    printed = run_live(ordercast, path, "--out", tmp_path / "live")
    assert laws_of(printed) == laws_of(json.loads(simulated.out))
    for lake in ("sim", "live"):
        (trace,) = read_lake(tmp_path / lake)
        moves = [
            (row.process, row.kind)
            for row in sorted(trace.rows, key=lambda row: row.at)
            if row.kind in ("join", "leave") and row.group == "g"
        ]
        assert moves.count(("n4", "join")) == 1
        assert moves.index(("n4", "join")) > moves.index(("n3", "join"))
        assert ("n3", "leave") in moves
        assert moves.count(("n2", "join")) == 1 + (name == "total-members")


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["lost-loop", "open-fifo-live", "open-causal-live", "open-ordered-live"]
)
def test_open_groups_keep_their_laws_while_members_come_go_and_lose_their_folders(
    ordercast, name: str
) -> None:
    printed = run_live(ordercast, ROOT / "scenarios" / f"{name}.toml")
    assert printed["crashes"] >= (20 if name == "lost-loop" else 1)


@pytest.mark.slow
def test_a_partition_keeps_the_same_laws_simulated_and_live(ordercast, no_namespaces: None) -> None:
    simulated = ordercast("sim", PARTITION, "--seed", 1)
    lived = ordercast("live", PARTITION)
    assert lived.code == simulated.code == 0
    assert "5 hold" in simulated.out
    assert "5 hold" in lived.out
    assert "cuts are made by the members themselves: not in this test" in lived.err


@pytest.mark.slow
def test_a_partition_works_by_whatever_means_this_machine_has(ordercast) -> None:
    lived = ordercast("live", PARTITION, "--seed", 7, "--json")
    assert lived.code == 0
    printed = json.loads(lived.out)
    assert set(laws_of(printed).values()) == {"holds"}
    assert printed["ending"] == "finished"
    assert "cuts are made by " in lived.err


@pytest.mark.parametrize("kind", ["loss", "slow", "disk", "skew"])
def test_a_fault_that_cannot_be_done_live_is_named(ordercast, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "one.toml"
    extra = 'by = "1s"\n' if kind == "skew" else ""
    text = f'name = "x"\n[[fault]]\nat = "1s"\nkind = "{kind}"\nnodes = ["n1"]\n{extra}'
    path.write_text(text, encoding="utf-8")
    ran = ordercast("live", path)
    assert ran.code == 2
    assert f"{path}: fault 1 ({kind}) cannot be done live" in ran.err
    assert ran.out == ""


def test_chaos_that_cannot_be_done_live_is_named(ordercast) -> None:
    ran = ordercast("live", "scenarios/chaos.toml")
    assert ran.code == 2
    assert "chaos draws loss, which cannot be done live" in ran.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere.toml"], "nowhere.toml: cannot be read"),
        ([CRASH, "--seed", "-1"], "--seed is -1"),
        ([], "SCENARIO"),
    ],
)
def test_wrong_usage_exits_2_with_a_sentence(
    ordercast, arguments: list[str], sentence: str
) -> None:
    ran = ordercast("live", *arguments)
    assert ran.code == 2
    assert sentence in ran.err
    assert "Traceback" not in ran.err


def test_too_many_processes_are_refused(ordercast, tmp_path: Path) -> None:
    path = tmp_path / "many.toml"
    text = 'name = "x"\nprocesses = 201\n[[group]]\nname = "g"\nmembers = ["n1"]\n'
    path.write_text(text, encoding="utf-8")
    ran = ordercast("live", path)
    assert ran.code == 2
    assert "201 processes" in ran.err


def test_a_group_whose_name_no_node_takes_is_refused_before_anything_starts(
    ordercast, tmp_path: Path
) -> None:
    path = tmp_path / "odd.toml"
    text = 'name = "x"\n[[group]]\nname = "two words"\nmembers = ["n1"]\n'
    path.write_text(text, encoding="utf-8")
    ran = ordercast("live", path)
    assert ran.code == 2
    assert f"{path}:3: 'two words' is no name for a group" in ran.err


# --- how a run that was not fine is told ------------------------------------------------------


def pretend(monkeypatch: pytest.MonkeyPatch, gathered: Gathered) -> None:
    class Pretended(Supervisor):
        async def run(self) -> Gathered:
            return gathered

    monkeypatch.setattr(run, "Supervisor", Pretended)


def test_a_run_that_never_began_exits_3(ordercast, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, Gathered([], None, 9, "n2 ended with code 1"))
    ran = ordercast("live", CRASH)
    assert ran.code == 3
    assert "failed: n2 ended with code 1" in ran.out


def test_a_member_that_raises_exits_1_as_in_the_simulator(
    ordercast, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, Gathered([], 1, 9, "n2 ended with code 1"))
    ran = ordercast("live", CRASH, "--json")
    assert ran.code == 1
    fields = json.loads(ran.out)
    assert fields["ending"] == "failed"
    assert fields["error"] == "n2 ended with code 1"


def test_a_broken_law_exits_1_and_is_explained(ordercast, monkeypatch: pytest.MonkeyPatch) -> None:
    forged = Row("n1", 0, 1, 5, "deliver", group="g", origin="n2", number=1)
    pretend(monkeypatch, Gathered([forged], 1, 9, None))
    ran = ordercast("live", CRASH)
    assert ran.code == 1
    assert "no-creation is broken" in ran.out
    assert "too short" not in ran.out


@pytest.mark.parametrize(("end", "late"), [(2, True), (3600, False)])
def test_a_delivery_shortly_before_the_end_hints_at_a_quiet_phase_that_is_too_short(
    ordercast, monkeypatch: pytest.MonkeyPatch, end: int, late: bool
) -> None:
    event: dict[str, Any] = {"group": "g", "origin": "n1", "number": 1}
    rows = [Row(name, 0, 1, 1, "join", group="g") for name in ("n1", "n2")]
    rows.append(Row("n1", 0, 2, SECOND, "submit", **event))
    rows.append(Row("n1", 0, 3, SECOND, "deliver", **event))
    pretend(monkeypatch, Gathered(rows, 1, end * SECOND, None))
    ran = ordercast("live", CRASH)
    assert "agreement is broken" in ran.out
    assert ("may be too short: the last delivery came 1.0 s before the end." in ran.out) is late
    assert ("hint" in json.loads(ordercast("live", CRASH, "--json").out)) is late


def test_laws_that_were_not_asked_are_named_in_a_sentence(
    ordercast, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [Row("n1", 0, 1, 1, "join", group="g"), Row("n1", 0, 2, 2, "crash")]
    pretend(monkeypatch, Gathered(rows, 1, 9, None))
    ran = ordercast("live", "scenarios/causal.toml")
    assert "The laws completeness and causal were not asked: the family causal" in ran.out
    assert "NotAsked" not in ran.out


# --- whoever ends it, nothing stays -----------------------------------------------------------


# Whoever runs the tests in the background has them ignore Ctrl-C, and their children with them.
_MAIN = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from ordercast.cli.main import main; sys.exit(main())"
)


def begun(tmp_path: Path, scenario: str) -> subprocess.Popen[str]:
    """A run whose members have begun. They can be told from others' by the folder they name."""
    process = subprocess.Popen(
        [sys.executable, "-c", _MAIN, "live", scenario],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "4 processes have begun" in line:
            return process
    raise AssertionError("the run did not begin")


def members(tmp_path: Path) -> list[int]:
    """The processes that name the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:  # it has just ended
            continue
        if b"ordercast.live.member" in words and os.fsencode(tmp_path) in words:
            found.append(int(path.parent.name))
    return found


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@linux_only
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_no_process_and_no_file(
    tmp_path: Path, number: signal.Signals
) -> None:
    process = begun(tmp_path, PARTITION)
    assert len(members(tmp_path)) == 4
    process.send_signal(number)
    _, said = process.communicate(timeout=BOUND_SECONDS)
    assert process.returncode == 130
    assert said == "ordercast: stopped\n"
    assert members(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
    assert not list(Path("/run/netns").glob(f"ordercast-{process.pid}-*"))


@linux_only
def test_members_do_not_outlive_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    process = begun(tmp_path, CRASH)
    waiting = {os.pidfd_open(pid) for pid in members(tmp_path)}
    assert len(waiting) == 4
    process.kill()
    process.communicate(timeout=BOUND_SECONDS)
    while waiting:
        ended, _, _ = select.select(sorted(waiting), [], [], BOUND_SECONDS)
        assert ended, "a member is still there"
        for descriptor in ended:
            os.close(descriptor)
            waiting.discard(descriptor)
