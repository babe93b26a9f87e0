"""Sweeps: every trial of an experiment as part of a Spark task.

Theory of operation. A task does some trials, writes what is to be kept by itself, which costs less
than handing rows to Spark, and returns one manifest a trial. A trial whose manifest is there is not
done again: so a sweep that was killed goes on where it was, and a task that Spark repeats costs
nothing. Nothing depends on how trials are spread over tasks and machines, so metrics are the same
everywhere.

A task costs some 40 ms, so it ought to last a second or two. Probe runs measure how long a trial
takes: one trial of every combination, each a task of its own. From then on tasks are packed by
what the probe runs took, the longest first, so that no core waits long for the last one.

A trial that kills its process is given up by trials.py when it has done so three times. Spark gives
up a task after four deaths, so a task with two such trials takes the whole job with it: then what
is left is done again, and trials that were started and did not end each get their own task.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ordercast.errors import DiskError, UnreachableError, UsageError
from ordercast.spark.experiment import Trial
from ordercast.spark.session import cores_of, first_line, is_reachable
from ordercast.spark.trials import (
    LAKE,
    MANIFESTS,
    STARTED,
    WRITING,
    Manifest,
    manifest_path,
    read_manifest,
    run_trial,
)

TASK_SECONDS = 1.5
TASKS_A_CORE = 4  # at least, so that the last ones end together
MOST_PROBES = 256
TRIALS_A_TASK = 1_000
TRIALS_A_JOB = 5_000
LOOK_SECONDS = 0.5
LOOKING_SHARE = 0.05  # of the time, at most, goes into counting files
GONE_SECONDS = 10  # a master that nobody answers for, and no worker is left
IDLE_SECONDS = 120  # a master that answers, and has no worker for us
LOCK = ".lock"

_TRIAL_ROW = "manifest string, seconds double, trouble string"


def sweep(
    spark: Any,
    trials: list[Trial],
    out: Path,
    traces: str,
    tell: Callable[[int], None] = lambda done: None,
    say: Callable[[str], None] = lambda sentence: None,
    folders: Sequence[str] = (),
) -> list[Manifest]:
    """Does all trials that are not done, and returns the manifests of all, in order.

    `tell` hears how many are done, now and then; `say` hears sentences for a person; in `folders`
    tasks find modules of families. UsageError: nothing can be written there, or another sweep does.
    UnreachableError: the cluster is gone. What is done is kept in any case, and the same call goes
    on with the rest.
    """
    out = out.resolve()
    with _alone(out):
        found = _done_before(trials, out, say)
        left = [trial for trial in trials if trial.id not in found]
        tell(len(found))
        if left:
            work = _Sweep(spark, partial(do_tasks, str(out), traces, list(folders)), out, found)
            with _Watch(spark, out, len(found), tell) as watch:
                work.run(left, watch)
    return [
        msgspec.structs.replace(found[trial.id], place=trial.place, settings=trial.settings)
        for trial in trials
    ]


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Two sweeps in one folder would do everything twice. The lock dies with its process."""
    try:
        (out / MANIFESTS).mkdir(parents=True, exist_ok=True)
        file = (out / LOCK).open("w")
    except OSError as error:
        raise UsageError(f"{out} cannot be written to: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                f"another sweep is writing to {out}: wait for it, or choose another folder"
            ) from error
        except OSError:
            pass  # storage without locks: two would write the same bytes
        # What a sweep that was killed left. Its trials were not at fault.
        shutil.rmtree(out / STARTED, ignore_errors=True)
        for folder in (out / LAKE).glob(WRITING + "*"):
            shutil.rmtree(folder, ignore_errors=True)
        for path in (out / MANIFESTS).glob("*.tmp"):
            path.unlink(missing_ok=True)
        yield
        shutil.rmtree(out / STARTED, ignore_errors=True)


def _done_before(
    trials: Iterable[Trial], out: Path, say: Callable[[str], None]
) -> dict[str, Manifest]:
    """The manifests that count. The others go, so that who counts files counts only those."""
    found: dict[str, Manifest] = {}
    names = {entry.name for entry in os.scandir(out / MANIFESTS)}
    unreadable = again = 0
    for trial in trials:
        path = manifest_path(out, trial.id)
        if trial.id in found or path.name not in names:
            continue
        manifest = read_manifest(path)
        if manifest is not None and manifest.done:
            found[trial.id] = manifest
            continue
        unreadable += manifest is None
        again += manifest is not None
        path.unlink(missing_ok=True)
    if unreadable:
        say(
            f"{_runs(unreadable)} in {out} cannot be used, being damaged or of another version of "
            "ordercast: done again"
        )
    if again:
        say(f"{_runs(again)} in {out} could not be done before: tried again")
    return found


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


class _Sweep:
    """What is done so far, and what trials take, by combination."""

    def __init__(
        self,
        spark: Any,
        do: Callable[[Iterable[Any]], Iterator[Any]],
        out: Path,
        found: dict[str, Manifest],
    ) -> None:
        self._spark = spark
        self._do_tasks = do
        self._out = out
        self._found = found
        self._cores = cores_of(spark)
        self._took: dict[int, float] = {}  # seconds a trial, by place

    def run(self, trials: list[Trial], watch: _Watch) -> None:
        probes = probes_of(trials, self._cores)
        chosen = {trial.id for trial in probes}
        rest = [trial for trial in trials if trial.id not in chosen]
        portions = [probes, *_portions(rest)]
        for number, portion in enumerate(portions):
            self._do(portion, watch, alone=number == 0)

    def _do(self, trials: list[Trial], watch: _Watch, *, alone: bool) -> None:
        """One job, and as many more as it takes while trials kill their processes."""
        left = list({trial.id: trial for trial in trials}.values())
        while left:
            before = self._progress()
            marked = self._started()
            by_themselves = [trial for trial in left if alone or trial.id in marked]
            others = [trial for trial in left if not (alone or trial.id in marked)]
            tasks = [[trial] for trial in by_themselves] + pack(others, self._took, self._cores)
            try:
                self._job(tasks)
            except DiskError as error:
                raise UsageError(f"{error}: {self._kept(watch)}") from error
            except Exception as error:
                self._read_back(left)
                if watch.trouble or not _is_a_death(error) or self._progress() == before:
                    raise self._ended(error, watch) from error
            left = [trial for trial in left if trial.id not in self._found]

    def _job(self, tasks: list[list[Trial]]) -> None:
        rows = [
            (number, msgspec.json.encode(task, enc_hook=str).decode())
            for number, task in enumerate(tasks)
        ]
        frame = self._spark.createDataFrame(rows, "task int, trials string")
        frame = frame.repartitionById(len(rows), frame["task"])
        trouble = None
        for row in frame.mapInArrow(self._do_tasks, _TRIAL_ROW).collect():
            if row["trouble"] is not None:
                trouble = row["trouble"]
                continue
            manifest = msgspec.json.decode(row["manifest"], type=Manifest)
            self._found[manifest.id] = manifest
            if row["seconds"] is not None:
                self._took[manifest.place] = row["seconds"]
        if trouble is not None:
            raise DiskError(trouble)

    def _read_back(self, trials: list[Trial]) -> None:
        for trial in trials:
            manifest = read_manifest(manifest_path(self._out, trial.id))
            if manifest is not None:
                self._found[trial.id] = manifest

    def _started(self) -> dict[str, int]:
        """How often each trial was started that has not ended."""
        try:
            return {entry.name: entry.stat().st_size for entry in os.scandir(self._out / STARTED)}
        except OSError:
            return {}

    def _progress(self) -> tuple[int, int]:
        return len(self._found), sum(self._started().values())

    def _kept(self, watch: _Watch) -> str:
        return f"{_runs(watch.count())} done and kept; the same command goes on with the others"

    def _ended(self, error: Exception, watch: _Watch) -> Exception:
        text = str(error)
        if "ModuleNotFoundError" in text or "ImportError" in text:
            line = next(line for line in text.splitlines() if "Error" in line)
            return UsageError(
                f"the workers cannot run ordercast ({line.strip()[:200]}): install it there, with "
                "the same Python"
            )
        why = watch.trouble or first_line(error)
        return UnreachableError(f"Spark ended in the middle ({why}): {self._kept(watch)}")


def _is_a_death(error: Exception) -> bool:
    """Whether a task was given up because its processes died, and not Spark itself."""
    text = str(error)
    return "stage failure" in text and any(
        sign in text
        for sign in ("Python worker exited", "Python worker failed", "ExecutorLost", "EOFException")
    )


# --- tasks -----------------------------------------------------------------------------------


def probes_of(trials: list[Trial], cores: int) -> list[Trial]:
    """Those that go first: one of each combination, and enough for every core."""
    if len(trials) <= TASKS_A_CORE * cores:
        return trials
    firsts: dict[int, Trial] = {}
    for trial in trials:
        firsts.setdefault(trial.place, trial)
    probes = list(firsts.values())[: max(MOST_PROBES, cores)]
    chosen = {trial.id for trial in probes}
    more = (trial for trial in trials if trial.id not in chosen)
    return probes + [trial for trial, _ in zip(more, range(cores - len(probes)), strict=False)]


def _portions(trials: list[Trial]) -> list[list[Trial]]:
    return [trials[at : at + TRIALS_A_JOB] for at in range(0, len(trials), TRIALS_A_JOB)]


def pack(trials: list[Trial], took: dict[int, float], cores: int) -> list[list[Trial]]:
    """Tasks of a second or two by what trials of their combinations took, the longest first."""
    usual = sum(took.values()) / len(took) if took else TASK_SECONDS
    costs = [took.get(trial.place, usual) for trial in trials]
    limit = min(TASK_SECONDS, sum(costs) / (TASKS_A_CORE * cores))
    tasks: list[tuple[float, list[Trial]]] = []
    cost = 0.0
    task: list[Trial] = []
    for each, trial in sorted(zip(costs, trials, strict=True), key=lambda pair: -pair[0]):
        if task and (cost + each > limit or len(task) >= TRIALS_A_TASK):
            tasks.append((cost, task))
            cost, task = 0.0, []
        cost += each
        task.append(trial)
    if task:
        tasks.append((cost, task))
    return [task for _, task in sorted(tasks, key=lambda pair: -pair[0])]


class _TrialRow(NamedTuple):
    manifest: str | None
    seconds: float | None
    trouble: str | None


def do_tasks(out: str, traces: str, folders: list[str], batches: Iterable[Any]) -> Iterator[Any]:
    """What runs in Spark's Python workers, which import this module: one row for each trial.

    Where nothing can be written, it tells why and does no more.
    """
    import pyarrow

    sys.path += [folder for folder in folders if folder not in sys.path]
    fields = [("manifest", pyarrow.string()), ("seconds", pyarrow.float64())]
    schema = pyarrow.schema([*fields, ("trouble", pyarrow.string())])
    for batch in batches:
        for text in batch.column("trials").to_pylist():
            told = list(_do(msgspec.json.decode(text, type=list[Trial]), Path(out), traces))
            columns = [list(column) for column in zip(*told, strict=True)]
            yield pyarrow.RecordBatch.from_arrays(
                [
                    pyarrow.array(column, field.type)
                    for column, field in zip(columns, schema, strict=True)
                ],
                schema=schema,
            )


def _do(trials: list[Trial], out: Path, traces: str) -> Iterator[_TrialRow]:
    for trial in trials:
        begin = time.perf_counter()
        try:
            manifest = run_trial(trial, out, traces)
        except DiskError as error:
            yield _TrialRow(None, None, str(error))
            return
        text = msgspec.json.encode(manifest, enc_hook=str).decode()
        yield _TrialRow(text, time.perf_counter() - begin, None)


# --- watching --------------------------------------------------------------------------------


class _Watch:
    """Tells how many trials are done, by counting manifests: that works with every cluster.

    And sees to it that nobody waits for ever: Spark itself waits for workers without an end.
    """

    def __init__(self, spark: Any, out: Path, before: int, tell: Callable[[int], None]) -> None:
        self._folder = out / MANIFESTS
        self._others = 0  # manifests of other experiments in the same folder
        self._others = self.count() - before
        self._tell = tell
        self._context: Any = None
        self._url = ""
        if not type(spark).__module__.startswith("pyspark.sql.connect"):
            self._context = spark.sparkContext
            self._url = str(self._context.master)
        self._without_since: float | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.trouble: str | None = None

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        self._tell(self.count())

    def count(self) -> int:
        found = sum(entry.name.endswith(".json") for entry in os.scandir(self._folder))
        return found - self._others

    def _look(self) -> None:
        pause = LOOK_SECONDS
        while not self._over.wait(pause):
            begin = time.perf_counter()
            self._tell(self.count())
            pause = max(LOOK_SECONDS, (time.perf_counter() - begin) / LOOKING_SHARE)
            self.trouble = self.trouble or self._without_workers()
            if self.trouble and self._context is not None:
                self._context.cancelAllJobs()

    def _without_workers(self) -> str | None:
        """What to say when a standalone cluster has been without workers for too long."""
        if self._context is None or not self._url.startswith("spark:"):
            return None
        try:
            known = self._context._jsc.sc().getExecutorMemoryStatus().size()
        except Exception:  # Java is gone, and the job fails by itself
            return None
        if known > 1:  # the driver counts as one
            self._without_since = None
            return None
        now = time.monotonic()
        if self._without_since is None:
            self._without_since = now
        lasted = now - self._without_since
        if lasted > GONE_SECONDS and not is_reachable(self._url):
            return f"{self._url} does not answer any more, and no worker is left"
        if lasted > IDLE_SECONDS:
            return f"{self._url} had no worker for us in {IDLE_SECONDS} s"
        return None
