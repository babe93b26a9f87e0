"""Trials and what is made of them, without Spark."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ordercast.errors import DiskError, UsageError
from ordercast.spark.experiment import Trial, load_experiment
from ordercast.spark.results import combine, estimate, write_results
from ordercast.spark.sweep import TASK_SECONDS, TRIALS_A_TASK, pack, probes_of
from ordercast.spark.trials import (
    MANIFEST_VERSION,
    Manifest,
    manifest_path,
    read_manifest,
    run_trial,
)
from ordercast.trace.lake import find_runs, read_run

TICKETS = Path(__file__).resolve().parents[2] / "experiments" / "tickets.toml"
DOCUMENT = {
    "name": "trial",
    "family": "causal",
    "processes": 4,
    "duration": "1s",
    "quiet": "1s",
    "options": {"tickets": 2, "join_wait": "50ms", "ownership": "fixed"},
    "network": {"bandwidth": "100MB/s"},
}


def trial(seed: int = 1, place: int = 0, **changes: Any) -> Trial:
    return Trial(f"a-{seed}", place, {}, seed, {**DOCUMENT, **changes})


def test_a_trial_is_simulated_judged_measured_and_stored(tmp_path: Path) -> None:
    manifest = run_trial(trial(), tmp_path, "all")
    assert manifest.error is None
    assert set(manifest.laws.values()) == {"holds"}
    assert manifest.metrics["lost_share"] == 0
    assert manifest.metrics["delivered"] == 4 * manifest.metrics["submitted"] > 0
    assert manifest.metrics["packet_bytes"] > 100
    [run] = find_runs(tmp_path / "lake")
    assert len(read_run(run).rows) == manifest.rows
    assert read_manifest(manifest_path(tmp_path, "a-1")) == manifest


def test_the_same_trial_gives_the_same_bytes_and_leaves_nothing_else(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        run_trial(trial(), tmp_path / folder, "all")
    one, two = (
        {p.relative_to(tmp_path / f): p.read_bytes() for p in (tmp_path / f).rglob("*.*")}
        for f in ("one", "two")
    )
    assert one == two
    assert {path.name for path in one} == {"a-1.json", "part-00000.parquet", "run.json"}


def test_a_finished_trial_is_not_repeated(tmp_path: Path) -> None:
    first = run_trial(trial(), tmp_path, "none")
    impossible = Trial("a-1", 3, {"y": 2}, 1, {"name": "cannot be run"})
    again = run_trial(impossible, tmp_path, "none")
    assert again.metrics == first.metrics
    assert (again.place, again.settings) == (3, {"y": 2})


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:50],
        lambda data: b"",
        lambda data: b"\xff\x00 garbage",
        lambda data: data.replace(b'"version":%d' % MANIFEST_VERSION, b'"version":99'),
        lambda data: data.replace(b'"trace_version":', b'"trace_version":9'),
        lambda data: data.replace(b'"ordercast":"', b'"ordercast":"0.0.old-'),
    ],
    ids=["cut", "empty", "garbage", "its version", "the trace's version", "the release"],
)
def test_an_unusable_manifest_is_ignored_and_written_again(tmp_path: Path, damage) -> None:
    run_trial(trial(), tmp_path, "all")
    path = manifest_path(tmp_path, "a-1")
    whole = path.read_bytes()
    assert damage(whole) != whole
    path.write_bytes(damage(whole))
    assert read_manifest(path) is None
    run_trial(trial(), tmp_path, "all")
    assert path.read_bytes() == whole
    assert len(find_runs(tmp_path / "lake")) == 1


def test_half_a_run_that_a_kill_left_in_the_lake_is_replaced(tmp_path: Path) -> None:
    left = tmp_path / "lake" / "run=a-1"
    left.mkdir(parents=True)
    (left / "part-00000.parquet.tmp").write_bytes(b"PAR1")
    manifest = run_trial(trial(), tmp_path, "all")
    assert [path.name for path in sorted(left.iterdir())] == ["part-00000.parquet", "run.json"]
    assert len(read_run(left).rows) == manifest.rows


def test_a_trial_that_raises_is_reported_and_the_sweep_continues(tmp_path: Path) -> None:
    manifest = run_trial(trial(family="none"), tmp_path, "none")
    assert (manifest.ending, manifest.done) == ("failed", False)
    assert "unknown family" in (manifest.error or "")


def test_a_trial_that_was_started_three_times_without_an_end_is_given_up(tmp_path: Path) -> None:
    mark = tmp_path / "started" / "a-1"
    mark.parent.mkdir()
    mark.write_bytes(b"..")
    assert run_trial(trial(), tmp_path, "none").error is None  # the third time is allowed
    assert not mark.exists()
    manifest_path(tmp_path, "a-1").unlink()
    mark.write_bytes(b"...")
    manifest = run_trial(trial(), tmp_path, "none")
    assert not manifest.done
    assert "its process ended in the middle of it, 3 times" in (manifest.error or "")


def test_a_full_disk_is_no_trials_fault_and_loses_no_finished_trial(small_disk: Path) -> None:
    first = run_trial(trial(), small_disk, "none")
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space left"):
        filler.write_bytes(bytes(1 << 20))
    for traces in ("none", "all"):
        with pytest.raises(DiskError, match="cannot be written to: No space left on device"):
            run_trial(trial(2), small_disk, traces)
    assert read_manifest(manifest_path(small_disk, "a-1")) == first
    assert [path.name for path in (small_disk / "trials").iterdir()] == ["a-1.json"]
    filler.unlink()
    assert run_trial(trial(2), small_disk, "none").error is None


def test_a_table_that_does_not_fit_on_the_disk_is_reported_and_the_old_one_stays(
    small_disk: Path,
) -> None:
    manifests = [run_trial(trial(), small_disk, "none")]
    before = write_results(small_disk, manifests).read_bytes()
    with pytest.raises(OSError, match="No space left"):
        (small_disk / "filler").write_bytes(bytes(1 << 20))
    with pytest.raises(UsageError, match=r"results\.parquet cannot be written: No space left"):
        write_results(small_disk, manifests)
    assert (small_disk / "results.parquet").read_bytes() == before
    assert not list(small_disk.glob("*.tmp"))


def test_a_trace_that_does_not_fit_on_the_disk_leaves_nothing(small_disk: Path) -> None:
    large = trial(processes=12, duration="5s", workload={"rate": 100})
    with pytest.raises(DiskError, match="No space left"):
        run_trial(large, small_disk, "all")
    assert not list((small_disk / "lake").iterdir())
    assert not manifest_path(small_disk, "a-1").exists()


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission_is_reported(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(DiskError, match="Permission denied"):
        run_trial(trial(), tmp_path, "none")


def test_a_read_only_disk_is_reported(small_disk: Path) -> None:
    """Even root may not write there."""
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(DiskError, match="cannot be written to: Read-only file system"):
        run_trial(trial(), small_disk, "none")


def test_manifests_are_read_back_as_they_were(tmp_path: Path) -> None:
    manifest = run_trial(trial(), tmp_path, "none")
    assert msgspec.json.decode(msgspec.json.encode(manifest), type=Manifest) == manifest


def test_metrics_of_seeds_become_a_mean_and_a_margin(tmp_path: Path) -> None:
    manifests = [run_trial(trial(seed), tmp_path, "none") for seed in (1, 2, 3)]
    [combination] = combine(manifests)
    assert (combination.runs, combination.broken) == (3, 0)
    delivered = [one.metrics["delivered"] for one in manifests]
    assert combination.metrics["delivered"].value == pytest.approx(sum(delivered) / 3)
    path = write_results(tmp_path, manifests)
    before = path.read_bytes()
    assert write_results(tmp_path, manifests).read_bytes() == before


def test_a_margin_uses_students_distribution() -> None:
    value, margin = estimate([1.0, 2.0, 3.0])
    assert value == 2.0
    assert margin == pytest.approx(4.303 / 3**0.5, rel=1e-3)
    assert estimate([5.0]) == (5.0, None)


# --- how trials become tasks ------------------------------------------------------------------


def test_probes_are_one_of_each_combination_and_enough_for_all_cores() -> None:
    trials = [trial(place * 100 + seed, place) for place in range(3) for seed in range(50)]
    assert [each.place for each in probes_of(trials, 2)] == [0, 1, 2]
    many = probes_of(trials, 8)
    assert len(many) == len({each.id for each in many}) == 8
    assert probes_of(trials[:8], 2) == trials[:8]  # few enough for a task each


def test_tasks_last_a_second_or_two_and_the_longest_come_first() -> None:
    took = {0: 0.01, 1: 0.5, 2: 10.0}
    trials = [trial(place * 1000 + seed, place) for place in took for seed in range(300)]
    tasks = pack(trials, took, cores=2)
    lasts = [sum(took[each.place] for each in task) for task in tasks]
    assert lasts == sorted(lasts, reverse=True)
    assert all(len(task) == 1 for task, last in zip(tasks, lasts, strict=True) if last > 9)
    short = [last for last in lasts if last < 9]
    assert all(last <= TASK_SECONDS + 1e-9 for last in short)
    assert sum(last > 0.9 for last in short) >= len(short) - 1
    assert sorted(each.id for task in tasks for each in task) == sorted(c.id for c in trials)


def test_few_trials_are_spread_over_all_cores_and_no_task_has_too_many() -> None:
    trials = [trial(seed) for seed in range(5000)]
    assert len(pack(trials[:40], {0: 0.01}, cores=4)) >= 16
    assert max(map(len, pack(trials, {0: 0.0}, cores=1))) <= TRIALS_A_TASK
    assert pack([], {}, cores=1) == []


def test_the_experiment_gives_the_metrics_that_it_draws(tmp_path: Path) -> None:
    """A shorter run of one of its trials: half of the tickets in use, far below the bound."""
    experiment, trials = load_experiment(TICKETS)
    wanted = {"workload.senders": 10, "label.p_f": 0.1}
    trial = next(one for one in trials if wanted.items() <= one.settings.items())
    document = {**trial.document, "duration": "6s", "quiet": "2s"}
    manifest = run_trial(trial._replace(document=document), tmp_path, "none")
    assert manifest.error is None
    assert not manifest.broken
    assert {figure.y for figure in experiment.figure} <= manifest.metrics.keys()
    assert manifest.metrics["ticket_access"] > 0.9
    assert 9 < manifest.metrics["ticket_use"] <= 10


def test_a_metric_cannot_take_the_place_of_another_column(tmp_path: Path) -> None:
    what = {"id": "a-1", "place": 0, "seed": 1, "settings": {}, "ending": "finished"}
    with pytest.raises(AssertionError, match="a metric has the name of another column"):
        write_results(tmp_path, [Manifest(**what, metrics={"rows": 1.0})])
