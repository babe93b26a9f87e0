"""`ordercast check`: every law's broken trace is named, and bad folders get a sentence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ordercast.check.laws import LAWS
from ordercast.trace.parquet import ParquetSink
from ordercast.trace.text import parse_history

HISTORIES = Path(__file__).resolve().parents[1] / "histories"


def write_lake(history: Path, lake: Path) -> Path:
    """A history as the Parquet files that a run would have left."""
    trace = parse_history(history.read_text(encoding="utf-8"), str(history))
    with ParquetSink(lake, trace.header.run) as sink:
        for row in trace.rows:
            sink.write(row)
        sink.close(trace.header)
    return lake


@pytest.mark.parametrize("law", LAWS)
def test_a_broken_history_of_every_law_exits_1_and_names_the_law(
    ordercast, tmp_path: Path, law: str
) -> None:
    history = HISTORIES / f"broken-{law}.history"
    lake = write_lake(history, tmp_path / "lake")
    for path in (history, lake):
        ran = ordercast("check", path, "--laws", law)
        assert ran.code == 1, ran
        assert f"{law} is broken" in ran.out
        (line,) = ordercast("check", path, "--laws", law, "--json").out.splitlines()
        (verdict,) = json.loads(line)["laws"]
        assert (verdict["law"], verdict["answer"]) == (law, "broken")
        assert verdict["witness"]


@pytest.mark.parametrize("law", LAWS)
def test_a_sound_history_of_every_law_exits_0(ordercast, tmp_path: Path, law: str) -> None:
    lake = write_lake(HISTORIES / f"sound-{law}.history", tmp_path / "lake")
    ran = ordercast("check", lake, "--laws", law)
    assert (ran.code, "holds" in ran.out) == (0, True), ran


def test_an_unknown_verdict_exits_3(ordercast, tmp_path: Path) -> None:
    path = tmp_path / "cut.history"
    path.write_text("run cut family=fifo ending=cut\nn1 submit n1:1\nn1 deliver n1:1\n")
    ran = ordercast("check", path, "--laws", "completeness")
    assert ran.code == 3
    assert "unknown" in ran.out


def test_a_broken_law_outweighs_an_unknown_one(ordercast, tmp_path: Path) -> None:
    path = tmp_path / "both.history"
    text = "run both ending=cut\nn1 submit n1:1\nn1 deliver n1:1\nn1 deliver n1:1\n"
    path.write_text(text)
    assert ordercast("check", path, "--laws", "completeness,no-duplication").code == 1


def lake_of_one(tmp_path: Path) -> Path:
    return write_lake(HISTORIES / "sound-fifo.history", tmp_path / "lake")


def cut_off(folder: Path) -> None:
    part = next(folder.glob("*/part-*.parquet"))
    part.write_bytes(part.read_bytes()[:-10])


def replaced_by_text(folder: Path) -> None:
    next(folder.glob("*/part-*.parquet")).write_text("run,process\n")


def emptied(folder: Path) -> None:
    next(folder.glob("*/part-*.parquet")).write_bytes(b"")


def without_parts(folder: Path) -> None:
    next(folder.glob("*/part-*.parquet")).unlink()


def of_another_version(folder: Path) -> None:
    header = next(folder.glob("*/run.json"))
    told = header.read_text()
    assert '"schema_version": 2' in told
    header.write_text(told.replace('"schema_version": 2', '"schema_version": 99'))


def without_anything(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def gone(folder: Path) -> None:
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (cut_off, "is cut off"),
        (replaced_by_text, "is not a Parquet file"),
        (emptied, "is empty"),
        (without_parts, "holds no part"),
        (of_another_version, "version 99"),
        (without_anything, "holds no trace"),
        (gone, "does not exist"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_damaged_lake_exits_2_with_a_sentence(ordercast, tmp_path, damage, sentence) -> None:
    lake = lake_of_one(tmp_path)
    damage(lake)
    ran = ordercast("check", lake)
    assert ran.code == 2
    assert sentence in ran.err
    assert ran.err.count("\n") <= 3
    assert ran.out == ""


def test_unknown_laws_and_engines_exit_2(ordercast, tmp_path: Path) -> None:
    lake = lake_of_one(tmp_path)
    assert "did you mean 'fifo'?" in ordercast("check", lake, "--laws", "fif").err
    assert ordercast("check", lake, "--laws", "fif").code == 2
    assert ordercast("check", lake, "--laws", ",").code == 2
    assert "invalid choice: 'duck'" in ordercast("check", lake, "--engine", "duck").err


@pytest.mark.slow
def test_both_engines_print_the_same(ordercast, tmp_path: Path) -> None:
    lake = lake_of_one(tmp_path)
    ordercast("sim", "scenarios/causal-chaos.toml", "--seed", 1, "--out", lake)
    plain, spark = (ordercast("check", lake, "--engine", each) for each in ("plain", "spark"))
    assert (plain.code, plain.out) == (spark.code, spark.out)
    assert "were not asked" in plain.out


def test_bad_histories_name_the_line(ordercast, tmp_path: Path) -> None:
    path = tmp_path / "bad.history"
    path.write_text("run x\nn1 delivers n1:1\n")
    ran = ordercast("check", path)
    assert ran.code == 2
    assert f"{path}:2" in ran.err
    path.write_bytes(b"\xff\xfe\x00")
    assert ordercast("check", path).code == 2
    assert ordercast("check", tmp_path / "absent.history").code == 2
