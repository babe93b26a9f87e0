"""One cell of a sweep: simulate it, judge it, measure it, write what is to be kept.

A pure function of the cell but for the files that it writes, each under its final name only when it
is complete. Whoever does a cell twice writes the same bytes. The manifest comes last: a cell with a
manifest is done, for ever.
"""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import Any

import msgspec

from ordercast.check.laws import check
from ordercast.check.verdict import Answer
from ordercast.protocol.families import FAMILIES
from ordercast.sim.scenario_file import options_for, parse_scenario
from ordercast.sim.world import World
from ordercast.spark.measure import measure
from ordercast.trace.parquet import write_trace
from ordercast.trace.schema import Trace
from ordercast.trace.sinks import MemorySink

TRIES = 2
MANIFESTS = "cells"
LAKE = "lake"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a cell: what the task tells, and what is written beside its trace."""

    id: str
    place: int
    seed: int
    settings: dict[str, Any]
    ending: str
    error: str | None = None
    laws: dict[str, str] = {}  # each law and its answer
    broken: list[str] = []  # what was found, in words
    rows: int = 0
    figures: dict[str, float] = {}


def manifest_path(out: Path, cell: str) -> Path:
    return out / MANIFESTS / f"{cell}.json"


def read_manifest(path: Path) -> Manifest | None:
    """None: it is not there, or was cut off, and so the cell is not done."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError):
        return None


def run_cell(
    cell: str,
    place: int,
    seed: int,
    settings: dict[str, Any],
    document: dict[str, Any],
    out: Path,
    traces: str,
) -> Manifest:
    """Does a cell, unless it is done already."""
    path = manifest_path(out, cell)
    done = read_manifest(path)
    if done is not None:
        return msgspec.structs.replace(done, place=place, settings=settings)
    error = None
    for _ in range(TRIES):
        try:
            manifest = _run(cell, place, seed, settings, document, out, traces)
            break
        except Exception as failure:  # the sweep goes on, and tells which cell broke
            error = "".join(traceback.format_exception_only(failure)).strip()
    else:
        manifest = Manifest(
            id=cell, place=place, seed=seed, settings=settings, ending="failed", error=error
        )
    _write(path, msgspec.json.encode(manifest, order="deterministic"))
    return manifest


def _run(
    cell: str,
    place: int,
    seed: int,
    settings: dict[str, Any],
    document: dict[str, Any],
    out: Path,
    traces: str,
) -> Manifest:
    scenario = parse_scenario(document)
    sink = MemorySink()
    world = World(scenario, seed, sink=sink)
    outcome = world.run()
    header = msgspec.structs.replace(outcome.header, run=cell)
    trace = Trace(header, sink.rows)
    verdicts = check(trace)
    broken = [f"{one.law}: {one.why}" for one in verdicts if one.answer is Answer.BROKEN]
    if traces == "all" or (traces == "failures" and (broken or outcome.error)):
        write_trace(out / LAKE, trace, replace=True)
    group = scenario.groups()[0]
    options = options_for(FAMILIES[scenario.family_of(group)], scenario.options_of(group))
    return Manifest(
        id=cell,
        place=place,
        seed=seed,
        settings=settings,
        ending=str(header.ending),
        error=outcome.error,
        laws={one.law: str(one.answer) for one in verdicts},
        broken=broken,
        rows=len(sink.rows),
        figures=measure(
            trace, outcome.packets, world.network.bytes, getattr(options, "round", None)
        ),
    )


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(data)
    temporary.replace(path)
