"""Sweeps and streams on a standalone cluster, sweeps over Connect, and when these die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.spark.test_stream import record, recording

from ordercast.spark.clusters import Cluster, connect_server, standalone
from ordercast.trace.record_log import RecordLog

pytestmark = pytest.mark.slow

EXECUTOR = b"CoarseGrainedExecutorBackend"


def executors(programs: list[subprocess.Popen[bytes]]) -> list[int]:
    """The processes that these workers have started for an application."""
    parents = {program.pid for program in programs}
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            pid = int(folder.name)
            if parent_of(pid) in parents and EXECUTOR in (folder / "cmdline").read_bytes():
                found.append(pid)
        except OSError:  # it ended while we looked
            continue
    return sorted(found)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.long
def test_a_standalone_cluster_loses_an_executor_and_then_everything(
    lab, spark: Any, undisturbed: bytes
) -> None:
    """An executor's death costs nothing; the cluster's ends with 4, and another does the rest."""
    with standalone(workers=2) as cluster:
        with lab.start("one", "--master", cluster.url) as program:
            lab.wait_for("one", 2, program)
            os.kill(executors(cluster.programs)[0], signal.SIGKILL)
            _, narrated = program.communicate(timeout=300)
            assert program.returncode == 0, narrated
        assert lab.results("one") == undisturbed
        with lab.start("two", "--master", cluster.url) as program:
            lab.wait_for("two", 2, program)
            alive = executors(cluster.programs)
            for each in cluster.programs:
                each.kill()
            for pid in alive:
                os.kill(pid, signal.SIGKILL)
            _, narrated = program.communicate(timeout=300)
            assert program.returncode == 4, narrated
            assert "Spark ended in the middle" in narrated
            assert "the same command goes on with the others" in narrated
    before = lab.manifests("two")
    assert 2 <= len(before) < lab.runs
    lab.go_on("two", spark)
    assert {name: lab.manifests("two")[name] for name in before} == before
    assert lab.results("two") == undisturbed


@pytest.mark.slow(50)
def test_connect_gives_the_same_results_and_its_death_is_reported(lab, undisturbed: bytes) -> None:
    with connect_server() as cluster:
        code, _, narrated = lab.run("one", "--master", cluster.url)
        assert code == 0, narrated
        assert lab.results("one") == undisturbed
        with lab.start("two", "--master", cluster.url) as program:
            lab.wait_for("two", 2, program)
            cluster.programs[0].kill()
            _, narrated = program.communicate(timeout=300)
            assert program.returncode == 4, narrated
            assert "Spark ended in the middle" in narrated
    assert 2 <= len(lab.manifests("two")) < lab.runs


# Follows a recording on a cluster up to an offset, and tells how far its batches are. One task
# waits in the middle of its piece, half of which it has handed on, to die with its executor: it
# tells who it is, and when it is tried again the file is there already.
STREAM = """
import json, os, signal, sys
from pathlib import Path
from ordercast.spark.session import open_session
from ordercast.spark.stream import register

url, folder, total, deadly = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
held = folder / "held"

def wait_once(batches):
    for batch in batches:
        yield batch
        if deadly in batch.column("offset").to_pylist() and not held.exists():
            held.with_suffix(".new").write_text(str(os.getpid()))
            held.with_suffix(".new").rename(held)
            signal.pause()

settings = {
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # short lives: no fast code
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
}
with open_session(url, light=True, **settings) as spark:
    register(spark)
    live = spark.readStream.format("ordercast").option("maxRows", 20_000)
    query = (
        live.load(str(folder / "recording"))
        .select("offset", "number")
        .mapInArrow(wait_once, "`offset` bigint, `number` bigint")
        .writeStream.format("parquet")
        .option("path", str(folder / "sink"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    done, waits = 0, False
    while done < total:
        query.awaitTermination(0.02)  # raises what it died of
        if held.exists() and not waits:
            waits = True
            print("held", flush=True)
        source = query.lastProgress["sources"][0] if query.lastProgress else {}
        after = json.loads(source.get("endOffset") or "{}").get("next", 0)
        if after > done:
            done = after
            print(done, flush=True)
    query.stop()
    sink = spark.read.parquet(str(folder / "sink")).select("offset", "number")
    (folder / "rows").write_text(json.dumps(sink.collect()))
"""


def append(log: RecordLog, count: int, at_once: int) -> None:
    for begin in range(log.next_offset, log.next_offset + count, at_once):
        log.append([record(number + 1) for number in range(begin, begin + at_once)])


def wait_until_done(lines: Iterator[str], offset: int) -> None:
    assert any(int(line) >= offset for line in lines), "it ended before"


def kill_executors(cluster: Cluster, lines: Iterator[str], folder: Path, log: RecordLog) -> None:
    """One in the middle of a task, and one in whatever it does; the recording goes on each time."""
    wait_until_done(lines, 20_000)
    append(log, 20_000, 20_000)  # one commit, so that all of it is one batch, of two tasks
    assert next(lines, "it ended") == "held\n"
    worker = int((folder / "held").read_text())
    first = parent_of(parent_of(worker))  # between the two is Spark's forking server
    assert first in executors(cluster.programs)
    os.kill(first, signal.SIGKILL)
    append(log, 10_000, 500)
    wait_until_done(lines, 40_000)
    append(log, 10_000, 500)
    second = executors(cluster.programs)[0]
    assert second != first
    os.kill(second, signal.SIGKILL)
    append(log, 20_000, 500)
    wait_until_done(lines, 80_000)


@pytest.mark.long
def test_each_offset_reaches_the_sink_once_when_executors_are_killed(tmp_path: Path) -> None:
    total, deadly = 80_000, 35_500
    log = recording(tmp_path / "recording", 20_000)
    with (
        (tmp_path / "errors").open("w") as errors,
        standalone(workers=2) as cluster,
        subprocess.Popen(
            [sys.executable, "-c", STREAM, cluster.url, tmp_path, str(total), str(deadly)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as program,
    ):
        assert program.stdout is not None
        try:
            kill_executors(cluster, iter(program.stdout.readline, ""), tmp_path, log)
            assert program.wait() == 0
        finally:
            program.kill()
    rows = json.loads((tmp_path / "rows").read_text())
    assert sorted(rows) == [[offset, offset + 1] for offset in range(total)]
    log.close()
