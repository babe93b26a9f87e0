"""One trial of a sweep: simulate it, judge it, measure it, write what is to be kept.

A pure function of the trial but for the files that it writes, each under its final name only when
it is complete. A trial that is run twice writes the same bytes. The manifest comes last: a trial
with a manifest is done, for ever.

Three things can go wrong, and none of them costs what others have done. A trial that raises is
tried again, and then its manifest tells what was raised. A trial that takes its whole process with
it, by memory or a crash, tells nothing: so every start leaves a mark, and a trial that was started
three times without an end is given up. And where nothing can be written any more, DiskError says
so: that is no trial's fault, nothing is written about it, and the sweep ends.
"""

from __future__ import annotations

import errno
import os
import shutil
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from ordercast.check.laws import judge_run
from ordercast.check.metric import MeasuredRun
from ordercast.check.metrics import measure
from ordercast.check.promise import NotAsked, promises_with
from ordercast.check.verdict import Answer
from ordercast.errors import DiskError, UsageError
from ordercast.levels import choose
from ordercast.scenario.file import parse_scenario
from ordercast.sim.world import Simulation
from ordercast.spark.experiment import Trial
from ordercast.spark.tune import StatusAnswers, settled
from ordercast.trace.parquet import run_folder, write_trace
from ordercast.trace.schema import SCHEMA_VERSION, Trace
from ordercast.trace.sinks import MemorySink

TRIAL_TRIES = 2
MOST_STARTS = 3
MANIFEST_VERSION = 3
MANIFESTS = "trials"
LAKE = "lake"
STARTED = "started"
WRITING = ".writing-"

_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}


@cache
def release() -> str:
    """Which ordercast this is: another one may simulate differently."""
    try:
        return version("ordercast")
    except PackageNotFoundError:  # it is run from its source alone
        return "unknown"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a trial: what the task tells, and what is written beside its trace."""

    id: str
    place: int
    seed: int
    settings: dict[str, Any]
    ending: str
    error: str | None = None
    done: bool = True  # False: it could not be done, and the next sweep tries again
    laws: dict[str, str] = {}  # each law and its answer
    broken: list[str] = []  # what was found, in words
    not_asked: list[NotAsked] = []
    rows: int = 0
    metrics: dict[str, float] = {}
    version: int = MANIFEST_VERSION
    trace_version: int = SCHEMA_VERSION
    ordercast: str = msgspec.field(default_factory=release)


class _Origin(msgspec.Struct):
    """What is read of a manifest first: the rest means something only if this is ours."""

    version: int = MANIFEST_VERSION
    trace_version: int = SCHEMA_VERSION
    ordercast: str = msgspec.field(default_factory=release)


def manifest_path(out: Path, trial: str) -> Path:
    return out / MANIFESTS / f"{trial}.json"


def read_manifest(path: Path) -> Manifest | None:
    """None: not there, cut off, or written by another version, and so the trial is not done."""
    try:
        data = path.read_bytes()
        if msgspec.json.decode(data, type=_Origin) != _Origin():
            return None
        return msgspec.json.decode(data, type=Manifest)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def run_trial(trial: Trial, out: Path, traces: str) -> Manifest:
    """Does a trial, unless it is done already. DiskError: nothing can be written to `out`."""
    path = manifest_path(out, trial.id)
    found = read_manifest(path)
    if found is not None:
        return msgspec.structs.replace(found, place=trial.place, settings=trial.settings)
    mark = out / STARTED / trial.id
    with _writing(out):
        starts = _start(mark)
        if starts > MOST_STARTS:
            manifest = _given_up(
                trial,
                f"its process ended in the middle of it, {MOST_STARTS} times: memory, or a crash",
            )
        else:
            manifest = _tried(trial, out, traces)
        _write(path, msgspec.json.encode(manifest, order="deterministic", enc_hook=str))
        mark.unlink(missing_ok=True)
    return manifest


def _tried(trial: Trial, out: Path, traces: str) -> Manifest:
    error = ""
    for _ in range(TRIAL_TRIES):
        try:
            return _run(trial, out, traces)
        except Exception as failure:  # the sweep goes on, and tells which trial broke
            if _unwritable(failure) is not None:
                raise
            error = "".join(traceback.format_exception_only(failure)).strip()
    return _given_up(trial, error)


def _given_up(trial: Trial, error: str) -> Manifest:
    return Manifest(
        id=trial.id,
        place=trial.place,
        seed=trial.seed,
        settings=trial.settings,
        ending="failed",
        error=error,
        done=False,
    )


def _run(trial: Trial, out: Path, traces: str) -> Manifest:
    scenario = parse_scenario(settled(trial.document, trial.seed))
    sink = MemorySink()
    answers = StatusAnswers()
    world = Simulation(scenario, trial.seed, sink=sink, families=answers.watch(scenario))
    outcome = world.run()
    header = msgspec.structs.replace(outcome.header, run=trial.id)
    trace = Trace(header, sink.rows)
    verdicts, not_asked = judge_run(trace, promises=promises_with(world.families))
    broken = [f"{one.law}: {one.why}" for one in verdicts if one.answer is Answer.BROKEN]
    if traces == "all" or (traces == "failures" and (broken or outcome.error)):
        _keep(out / LAKE, trace)
    group = scenario.groups()[0]
    family, options = choose(scenario.family_of(group), scenario.options_of(group))
    counted = {
        "packets": outcome.packets,
        "bytes": world.network.bytes,
        "failed_share": answers.failed_share,
    }
    return Manifest(
        id=trial.id,
        place=trial.place,
        seed=trial.seed,
        settings=trial.settings,
        ending=str(header.ending),
        error=outcome.error,
        laws={one.law: str(one.answer) for one in verdicts},
        broken=broken,
        not_asked=not_asked,
        rows=len(sink.rows),
        metrics=measure(MeasuredRun(trace.rows, family.times_in(options), counted)),
    )


# --- files -----------------------------------------------------------------------------------


def _keep(lake: Path, trace: Trace) -> None:
    """Writes a run aside and moves it into the lake: who reads it there sees all of it or nothing.

    Two tasks may be at the same trial when Spark took one for dead. They write the same.
    """
    aside = lake / f"{WRITING}{trace.header.run}-{os.getpid()}"
    try:
        write_trace(aside, trace, replace=True)
        written = run_folder(aside, trace.header.run)
        try:
            written.rename(run_folder(lake, trace.header.run))
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            # One of a sweep that was killed before it wrote the manifest, or of another version.
            run_folder(lake, trace.header.run).rename(aside / "old")
            written.rename(run_folder(lake, trace.header.run))
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _start(mark: Path) -> int:
    """Leaves a mark for this start; how many there are, this one among them."""
    mark.parent.mkdir(parents=True, exist_ok=True)
    with mark.open("ab") as file:
        file.write(b".")
        file.flush()
        return file.tell()


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, UsageError) as error:
        reason = _unwritable(error)
        if reason is None:
            raise
        raise DiskError(f"{out} cannot be written to: {reason}") from error


def _unwritable(error: BaseException | None) -> str | None:
    """Why nothing can be written, if that is what went wrong."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _UNWRITABLE:
            return os.strerror(error.errno or 0)
        error = error.__cause__ or error.__context__
    return None
