"""What runs on Spark itself: sweeps, and laws on a lake, embedded in this process."""

from __future__ import annotations

import fcntl
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from ordercast.check.laws import check
from ordercast.errors import UnreachableError, UsageError
from ordercast.spark.experiment import load_experiment
from ordercast.spark.laws import judge_lake
from ordercast.spark.results import write_results
from ordercast.spark.session import clash_of, open_session, resource_managers, with_retries
from ordercast.spark.sweep import do_tasks, sweep
from ordercast.spark.trials import MANIFEST_VERSION, manifest_path
from ordercast.trace.lake import find_runs
from ordercast.trace.parquet import write_trace
from ordercast.trace.text import parse_history

ROOT = Path(__file__).resolve().parents[2]
HISTORIES = sorted((ROOT / "tests" / "histories").glob("*.history"))


def experiment(folder: Path) -> Path:
    (folder / "base.toml").write_text(
        'name = "base"\nfamily = "causal"\nprocesses = 4\nduration = "1s"\nquiet = "1s"\n'
        'options = { tickets = 2, join_wait = "50ms", ownership = "fixed" }\n',
        encoding="utf-8",
    )
    path = folder / "e.toml"
    path.write_text(
        'name = "e"\nscenario = "base.toml"\nseeds = 3\n[grid]\n"network.loss" = [0.0, 0.1]\n',
        encoding="utf-8",
    )
    return path


@pytest.mark.slow
def test_a_sweep_resumes_and_gives_the_same_metrics(spark: Any, tmp_path: Path) -> None:
    _, trials = load_experiment(experiment(tmp_path))
    told: list[int] = []
    first = sweep(spark, trials, tmp_path / "one", "none", told.append)
    assert [one.id for one in first] == [trial.id for trial in trials]
    assert all(one.error is None and not one.broken for one in first)
    assert told[-1] == len(trials)
    before = {trial.id: manifest_path(tmp_path / "one", trial.id).stat() for trial in trials}
    manifest_path(tmp_path / "one", trials[0].id).unlink()  # as if it had been killed in the middle
    again = sweep(spark, trials, tmp_path / "one", "none")
    assert again == first
    for trial in trials[1:]:
        now = manifest_path(tmp_path / "one", trial.id).stat()
        assert now.st_mtime_ns == before[trial.id].st_mtime_ns
    other = sweep(spark, trials[::-1], tmp_path / "two", "none")[::-1]
    results = [
        write_results(tmp_path / name, runs) for name, runs in (("one", again), ("two", other))
    ]
    assert results[0].read_bytes() == results[1].read_bytes()


@pytest.mark.slow
def test_spark_and_the_plain_reference_agree_on_broken_and_sound_runs(
    spark: Any, tmp_path: Path
) -> None:
    traces = {}
    for path in HISTORIES:
        trace = parse_history(path.read_text(encoding="utf-8"), path.name)
        if trace.header.run not in traces:
            traces[trace.header.run] = trace
            write_trace(tmp_path, trace)
    folders = find_runs(tmp_path)
    (tmp_path / "run=damaged").mkdir()
    (tmp_path / "run=damaged" / "part-00000.parquet").write_bytes(b"not Parquet")
    judged = judge_lake(spark, [*folders, tmp_path / "run=damaged"], None)
    assert len(judged) == len(traces) + 1
    for one in judged[:-1]:
        assert one.verdicts == check(traces[one.run])
    assert "is not a Parquet file" in (judged[-1].error or "")


@pytest.mark.slow
def test_unusable_results_of_a_sweep_are_repeated_and_reported_once(
    spark: Any, tmp_path: Path
) -> None:
    _, trials = load_experiment(experiment(tmp_path))
    out = tmp_path / "out"
    first = sweep(spark, trials, out, "none")
    good = [manifest_path(out, trial.id).read_bytes() for trial in trials]
    now = b'"version":%d' % MANIFEST_VERSION
    manifest_path(out, trials[0].id).write_bytes(good[0][:40])
    manifest_path(out, trials[1].id).write_bytes(good[1].replace(now, b'"version":7'))
    manifest_path(out, trials[2].id).write_bytes(
        good[2].replace(b'"done":true', b'"done":false').replace(b"finished", b"failed")
    )
    (out / "trials" / "of-another-experiment.json").write_bytes(good[0])
    told: list[int] = []
    said: list[str] = []
    assert sweep(spark, trials, out, "none", told.append, said.append) == first
    assert [manifest_path(out, trial.id).read_bytes() for trial in trials] == good
    assert (told[0], told[-1]) == (len(trials) - 3, len(trials))
    assert said == [
        f"2 runs in {out} cannot be used, being damaged or of another version of ordercast: done "
        "again",
        f"1 run in {out} could not be done before: tried again",
    ]


@pytest.mark.slow
def test_a_full_disk_ends_a_sweep_with_a_sentence_and_loses_no_finished_run(
    spark: Any, tmp_path: Path, small_disk: Path
) -> None:
    _, trials = load_experiment(experiment(tmp_path))
    first = sweep(spark, trials[:2], small_disk, "none")
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space left"):
        filler.write_bytes(bytes(1 << 20))
    with pytest.raises(UsageError) as raised:
        sweep(spark, trials, small_disk, "none")
    assert str(raised.value) == (
        f"{small_disk} cannot be written to: No space left on device: 2 runs done and kept; the "
        "same command goes on with the others"
    )
    filler.unlink()
    done = sweep(spark, trials, small_disk, "none")
    assert done[:2] == first
    assert [one.error for one in done] == [None] * len(trials)


def test_two_sweeps_do_not_write_to_one_folder(tmp_path: Path) -> None:
    """Whoever comes second is told before anything runs."""
    _, trials = load_experiment(experiment(tmp_path))
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match="another sweep is writing to"):
            sweep(None, trials, tmp_path, "none")


def test_functions_for_workers_are_sent_by_name() -> None:
    """Workers import it, so that nothing of ours is sent along."""
    sent = cloudpickle.dumps(partial(do_tasks, "out", "none", []))
    assert len(sent) < 200
    assert pickle.loads(sent).func is do_tasks


@pytest.mark.slow
def test_a_session_that_is_there_is_used_and_stays(spark: Any) -> None:
    with open_session() as same:
        assert same.sparkContext is spark.sparkContext
    assert spark.range(3).count() == 3
    assert clash_of("local[2,4]", "spark://a:7077") != ""
    assert clash_of("spark://a:7077", "spark://a:7077") == clash_of("yarn", "local[1]") == ""


@pytest.mark.parametrize("url", ["nowhere", "http://x", "spark:/x", "sc://", "local[x]", "locals"])
def test_an_invalid_url_is_rejected(url: str) -> None:
    with pytest.raises(UsageError, match="--master"), open_session(url):
        pass


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("local", "local[1,4]"),
        ("local[2]", "local[2,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,1]", "local[2,1]"),
        ("spark://h:7077", "spark://h:7077"),
    ],
)
def test_a_task_is_tried_four_times_unless_the_url_says_otherwise(url: str, meant: str) -> None:
    assert with_retries(url) == meant


UNREACHABLE = ["spark", "sc", "k8s", "k8s://https"]


@pytest.mark.parametrize("url", [f"{kind}://127.0.0.1:1" for kind in UNREACHABLE])
def test_an_unreachable_cluster_is_reported_at_once(url: str) -> None:
    with pytest.raises(UnreachableError, match=r"no Spark at 127\.0\.0\.1:1"), open_session(url):
        pass


def yarn_site(folder: Path, **properties: str) -> Path:
    told = "".join(
        f"<property><name>yarn.resourcemanager.{name}</name><value>{value}</value></property>"
        for name, value in properties.items()
    )
    file = folder / "yarn-site.xml"
    file.write_text(f"<configuration>{told}</configuration>", encoding="utf-8")
    return file


def test_an_unreachable_yarn_is_reported_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hadoop itself would try for a quarter of an hour."""
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    with pytest.raises(UnreachableError, match="HADOOP_CONF_DIR"), open_session("yarn"):
        pass
    monkeypatch.setenv("YARN_CONF_DIR", str(tmp_path))
    with pytest.raises(UnreachableError, match="name no resource manager"), open_session("yarn"):
        pass
    yarn_site(tmp_path, address="127.0.0.1:1")
    with pytest.raises(UnreachableError, match=r"no YARN at 127\.0\.0\.1:1"), open_session("yarn"):
        pass


def test_resource_managers_are_found_by_address_and_by_host(tmp_path: Path) -> None:
    file = yarn_site(tmp_path, **{"address": "a:99", "hostname.rm1": "b", "scheduler.address": "c"})
    assert resource_managers(file) == [("a", 99), ("b", 8032)]
    yarn_site(tmp_path, address="${yarn.resourcemanager.hostname}:8032", hostname="d")
    assert resource_managers(file) == [("d", 8032)]
    file.write_text("<configuration>", encoding="utf-8")
    assert resource_managers(file) == []
