"""The supervisor: real processes, real faults, and nothing left behind whatever happens.

No test sleeps: a run takes the seconds of its plan, and every test has a bound far beyond them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ordercast.live import supervisor
from ordercast.live.member import GroupPlan, LoadPlan
from ordercast.live.namespaces import Namespaces, Unavailable
from ordercast.live.supervisor import Gathered, LivePlan, Supervisor
from ordercast.scenario.faults.fault import Fault
from ordercast.scenario.faults.paths import Cut, OneWay, Partition
from ordercast.scenario.faults.processes import Crash, Pause, Restart
from ordercast.trace.schema import Row
from ordercast.units import MILLISECOND, SECOND, Duration

BOUND_SECONDS = 120
NAMES = ("n1", "n2", "n3")
PATIENT = {"heartbeat": "25ms", "suspicion_limit": "2s"}
HASTY = {"heartbeat": "20ms", "suspicion_limit": "300ms"}
"""Notices within half a second what lasts for `LONG`, so a machine may be many times slower than
that. A busy one may then see suspicions that no cut caused."""
LONG = Duration(3 * SECOND)
SOON = Duration(SECOND // 4)


def plan(
    *faults: Fault,
    duration: int = SECOND,
    quiet: int = SECOND,
    options: dict[str, str] = PATIENT,
) -> LivePlan:
    group = GroupPlan(name="g", family="fifo", members=list(NAMES), options=options, rate=50)
    return LivePlan(NAMES, (group,), LoadPlan(senders=list(NAMES)), faults, duration, quiet)


def run(
    wanted: LivePlan,
    folder: Path,
    network: Namespaces | None = None,
    on_begin: Callable[[Supervisor], object] = lambda supervisor: None,
) -> Gathered:
    """Runs a plan, and sees to it that no process outlives it."""

    async def scene() -> Gathered:
        running = Supervisor(wanted, folder, network, lambda text: void(on_begin(running)))
        try:
            async with asyncio.timeout(BOUND_SECONDS):
                return await running.run()
        finally:
            for member in running.members:
                assert member.process.returncode is not None
                with pytest.raises(ProcessLookupError):
                    os.kill(member.process.pid, 0)

    return asyncio.run(scene())


def void(value: object) -> None:
    """What a callback returns does not matter."""


def rows_of(gathered: Gathered, name: str, incarnation: int = 0) -> list[Row]:
    return [row for row in gathered.rows if (row.process, row.incarnation) == (name, incarnation)]


def incarnations(gathered: Gathered, name: str) -> list[int]:
    return sorted({row.incarnation for row in gathered.rows if row.process == name})


def kinds(rows: list[Row]) -> list[str]:
    return [row.kind for row in rows]


def test_members_begin_send_and_stop(tmp_path: Path) -> None:
    ran = run(plan(quiet=2 * SECOND), tmp_path)
    assert ran.error is None
    assert ran.began is not None
    for name in NAMES:
        rows = rows_of(ran, name)
        assert kinds(rows)[0] == "start"
        assert kinds(rows)[-1] == "stop"
        assert {"leave", "crash"}.isdisjoint(kinds(rows))
        assert [row.step for row in rows] == list(range(1, len(rows) + 1))
        assert kinds(rows).count("deliver") == kinds(ran.rows).count("submit") > 0
        views = [row.members for row in rows if row.kind == "view"]
        assert views[0] == NAMES  # for they were connected before the group formed


def test_a_killed_member_restarts_as_a_new_incarnation(tmp_path: Path) -> None:
    crash = Crash(at=SOON, lasts=SOON, nodes=["n2"], disk="lost")
    ran = run(plan(crash, duration=4 * SECOND), tmp_path)  # for a new process needs its time
    assert ran.error is None
    assert incarnations(ran, "n2")[0] == 0
    (again,) = incarnations(ran, "n2")[1:]  # a few higher: see kernel/identity.py
    first, second = rows_of(ran, "n2", 0), rows_of(ran, "n2", again)
    assert kinds(first)[-1] == "crash"
    assert first[-1].step == first[-2].step + 1
    assert kinds(second)[0] == "start"
    assert kinds(second)[-1] == "stop"
    assert "deliver" in kinds(second)
    assert kinds(ran.rows).count("crash") == 1


def test_members_of_an_open_group_find_each_other_by_its_anchor(tmp_path: Path) -> None:
    """One of them restarts, and so does the anchor, without its folder."""
    group = GroupPlan(
        name="g",
        family="fifo",
        members=list(NAMES),
        options=PATIENT,
        rate=50,
        open=True,
        anchors=["n1"],
    )
    faults = (
        Restart(at=Duration(SECOND), nodes=["n3"]),
        Restart(at=Duration(4 * SECOND), nodes=["n1"], disk="lost"),
    )
    load = LoadPlan(senders=list(NAMES))
    wanted = LivePlan(NAMES, (group,), load, faults, 8 * SECOND, 6 * SECOND)
    ran = run(wanted, tmp_path)
    assert ran.error is None
    for name in NAMES:
        rows = rows_of(ran, name, incarnations(ran, name)[-1])
        views = [row.members for row in rows if row.kind == "view"]
        assert views[-1] == NAMES
        assert "deliver" in kinds(rows)
    assert len(incarnations(ran, "n2")) == 1


def test_a_member_that_loses_its_folder_while_it_is_cut_off_draws_a_number(tmp_path: Path) -> None:
    cut = Partition(at=SOON, lasts=Duration(3 * SECOND), nodes=["n3"])
    crash = Crash(at=Duration(SECOND // 2), lasts=SOON, nodes=["n3"], disk="lost")
    ran = run(plan(cut, crash, duration=6 * SECOND, quiet=5 * SECOND, options=HASTY), tmp_path)
    assert ran.error is None
    first, drawn = incarnations(ran, "n3")
    assert first == 0
    assert drawn > 1
    assert "deliver" in kinds(rows_of(ran, "n3", drawn))
    views = [row for row in rows_of(ran, "n1") if row.kind == "view"]
    assert views[-1].members == NAMES


def test_a_member_that_crashed_for_good_is_not_restarted(tmp_path: Path) -> None:
    shorter = Crash(at=SOON, lasts=Duration(SECOND // 12), nodes=["n3"])
    for_good = Crash(at=SOON, nodes=["n3"])
    ran = run(plan(shorter, for_good), tmp_path)
    assert ran.error is None
    assert kinds(rows_of(ran, "n3"))[-1] == "crash"
    assert not rows_of(ran, "n3", 1)


def test_crashes_may_overlap_and_hit_a_starting_process(tmp_path: Path) -> None:
    times = [(200, 300), (310, 400), (390, 420), (425, 430), (431, 600)]
    crashes = [
        Crash(
            at=Duration(at * MILLISECOND),
            lasts=Duration((until - at) * MILLISECOND),
            nodes=["n1"],
        )
        for at, until in times
    ]
    ran = run(plan(*crashes, duration=2 * SECOND), tmp_path)
    assert ran.error is None
    assert kinds(ran.rows).count("stop") == 3  # all are there in the end


def test_a_paused_member_is_suspected_and_returns(tmp_path: Path) -> None:
    pause = Pause(at=SOON, lasts=LONG, nodes=["n2"])
    ran = run(plan(pause, duration=4 * SECOND, quiet=2 * SECOND, options=HASTY), tmp_path)
    assert ran.error is None
    others = rows_of(ran, "n1")
    assert "n2" in {row.peer for row in others if row.kind == "suspect"}
    assert "n2" in {row.peer for row in others if row.kind == "refute"}
    assert kinds(rows_of(ran, "n2"))[-1] == "stop"


def cut(kind: type[Cut], *sides: list[str], quiet: int) -> LivePlan:
    fault = kind(at=SOON, lasts=LONG, sides=list(sides))
    return plan(fault, duration=7 * SECOND // 2, quiet=quiet, options=HASTY)


PARTITION = cut(Partition, ["n1"], ["n2", "n3"], quiet=6 * SECOND)
"""Afterwards it may take TCP, or who dials again, as long as the cut was until it tries."""


def views_after_a_loss(rows: list[Row]) -> list[tuple[str, ...]]:
    """The views since the first that lacks somebody. The last may lack who stopped before us."""
    views = [row.members for row in rows if row.kind == "view"]
    lacking = next(index for index, members in enumerate(views) if members != NAMES)
    return views[lacking:]


def assert_cut_and_mended(ran: Gathered) -> None:
    assert ran.error is None
    for name, peers in {"n1": {"n2", "n3"}, "n2": {"n1"}, "n3": {"n1"}}.items():
        rows = rows_of(ran, name)
        assert {row.peer for row in rows if row.kind == "suspect"} >= peers
        assert NAMES in views_after_a_loss(rows)
    delivered = {name: kinds(rows_of(ran, name)).count("deliver") for name in NAMES}
    assert len(set(delivered.values())) == 1  # what each side missed it got afterwards


def test_members_cut_paths_by_themselves(tmp_path: Path) -> None:
    assert_cut_and_mended(run(PARTITION, tmp_path))


def test_a_member_that_starts_during_a_cut_is_cut_off_and_mended(tmp_path: Path) -> None:
    faults = (
        Partition(at=SOON, nodes=["n1"]),
        Restart(at=Duration(SECOND // 2), lasts=SOON, nodes=["n1"]),
    )
    wanted = plan(*faults, duration=5 * SECOND, quiet=6 * SECOND, options=HASTY)
    ran = run(wanted, tmp_path)
    assert ran.error is None
    views = [row.members for row in rows_of(ran, "n1", 1) if row.kind == "view"]
    assert views[0] == ("n1",)  # alone, for nobody could be reached
    assert NAMES in views


@pytest.fixture
def namespaces() -> Namespaces:
    network = Namespaces(NAMES)
    try:
        network.open()
    except Unavailable as why:
        pytest.skip(str(why))
    network.close()
    return network


def spaces_left() -> list[str]:
    return [path.name for path in Path("/run/netns").glob(f"ordercast-{os.getpid()}-*")]


def test_cuts_by_the_kernel_leave_nothing_behind(tmp_path: Path, namespaces: Namespaces) -> None:
    namespaces.open()
    try:
        assert len(spaces_left()) == len(NAMES) + 1
        assert_cut_and_mended(run(PARTITION, tmp_path, namespaces))
    finally:
        namespaces.close()
    assert spaces_left() == []


def test_a_one_way_cut_of_the_kernel_is_noticed_at_both_ends(
    tmp_path: Path, namespaces: Namespaces
) -> None:
    namespaces.open()
    try:
        ran = run(cut(OneWay, ["n1"], ["n2"], quiet=SECOND // 2), tmp_path, namespaces)
    finally:
        namespaces.close()
    assert ran.error is None
    assert "n1" in {row.peer for row in rows_of(ran, "n2") if row.kind == "suspect"}
    assert "n2" in {row.peer for row in rows_of(ran, "n1") if row.kind == "suspect"}


def test_namespaces_of_a_dead_run_are_swept(namespaces: Namespaces) -> None:
    forgetful = "from ordercast.live.namespaces import Namespaces; Namespaces(('lost',)).open()"
    with subprocess.Popen([sys.executable, "-c", forgetful]) as process:
        assert process.wait(BOUND_SECONDS) == 0
    left = Path("/run/netns", f"ordercast-{process.pid}-lost")
    assert left.exists()
    namespaces.open()
    namespaces.close()
    assert not left.exists()


def test_without_root_or_tools_there_are_no_namespaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Namespaces(NAMES)
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(Unavailable, match="Linux"):
        network.open()
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(Unavailable, match="root"):
        network.open()
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="no `ip` command"):
        network.open()
    tool = tmp_path / "ip"
    tool.write_text("#!/bin/sh\necho 'Operation not permitted' >&2\nexit 2\n", encoding="utf-8")
    tool.chmod(0o755)
    with pytest.raises(Unavailable, match="`ip` refuses: Operation not permitted"):
        network.open()
    assert spaces_left() == []


# --- what goes wrong that is not part of the plan ---------------------------------------------


def test_a_member_that_dies_at_start_ends_the_run(tmp_path: Path) -> None:
    bad = GroupPlan(name="b", family="fifo", members=["n2"], options={"heartbeat": "0ms"})
    wanted = plan()._replace(groups=(*plan().groups, bad))
    ran = run(wanted, tmp_path)
    assert ran.began is None
    assert ran.error is not None
    assert ran.error.startswith("n2 ended with code 1: ")
    assert "heartbeat must be longer than nothing" in ran.error


def test_a_port_that_is_taken_is_not_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = iter([25_111, 25_111, 25_111])
    real = supervisor.randrange
    monkeypatch.setattr(supervisor, "randrange", lambda *span: next(ports, None) or real(*span))
    ran = run(plan(duration=SECOND // 4, quiet=SECOND // 4), tmp_path)
    assert ran.error is None
    assert {row.incarnation for row in ran.rows} == {0}  # who cannot listen has none


def test_a_member_that_dies_unexpectedly_ends_the_run(tmp_path: Path) -> None:
    ran = run(
        plan(duration=60 * SECOND),
        tmp_path,
        on_begin=lambda running: os.kill(running.members[0].process.pid, signal.SIGKILL),
    )
    assert ran.error is not None
    assert "ended with code -9" in ran.error
    assert ran.began is not None
    assert "crash" not in kinds(ran.rows)  # nobody planned it


def test_a_cancelled_run_leaves_no_process(tmp_path: Path) -> None:
    def cancel(running: Supervisor) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    with pytest.raises(asyncio.CancelledError):
        run(plan(duration=60 * SECOND), tmp_path, on_begin=cancel)
