"""`ordercast check`: every law's broken trace is named, and bad folders get a sentence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ordercast.check.laws import LAWS
from ordercast.trace.log import RowLog
from ordercast.trace.parquet import ParquetSink
from ordercast.trace.row_files import read_row_files
from ordercast.trace.schema import SCHEMA_VERSION, Row
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
    ours = f'"schema_version": {SCHEMA_VERSION}'
    assert ours in told
    header.write_text(told.replace(ours, '"schema_version": 99'))


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


# --- what live nodes wrote --------------------------------------------------------------------


def write_rows(file: Path, *rows: tuple[Any, ...]) -> None:
    """Rows of one process: incarnation, step, kind, and for events of g their origin and number."""
    log = RowLog(file)
    for incarnation, step, kind, *event in rows:
        given = dict(zip(("origin", "number"), event, strict=False))
        group = None if kind in ("start", "stop") else "g"
        log.write(Row(file.stem, incarnation, step, step, kind, group=group, **given))
    log.close()


SENT = ((0, 1, "start"), (0, 2, "join"), (0, 3, "submit", "n1", 1), (0, 4, "deliver", "n1", 1))


def test_the_rows_of_live_nodes_are_judged_as_one_run(ordercast, tmp_path: Path) -> None:
    write_rows(tmp_path / "n1.rows", *SENT, (0, 5, "stop"))
    received = ((0, 1, "start"), (0, 2, "join"), (0, 3, "deliver", "n1", 1))
    write_rows(tmp_path / "n2.rows", *received, (0, 4, "stop"))
    ran = ordercast("check", tmp_path, "--family", "fifo", "--json")
    assert ran.code == 0, ran.out
    printed = json.loads(ran.out)
    assert (printed["rows"], printed["ending"]) == (9, "finished")
    write_rows(tmp_path / "n2.rows", (1, 1, "start"), (1, 2, "deliver", "n9", 1))
    ran = ordercast("check", tmp_path, "--laws", "no-creation", "--json")
    assert ran.code == 3
    assert json.loads(ran.out)["ending"] == "cut", "n2 has not stopped"
    write_rows(tmp_path / "n2.rows", (1, 3, "stop"))
    ran = ordercast("check", tmp_path, "--laws", "no-creation")
    assert (ran.code, "no-creation is broken" in ran.out) == (1, True)


def test_a_killed_incarnation_that_a_later_one_follows_has_crashed(tmp_path: Path) -> None:
    write_rows(tmp_path / "n1.rows", *SENT, (1, 1, "start"), (1, 2, "stop"))
    trace = read_row_files(tmp_path, "fifo")
    kinds = [(row.incarnation, row.step, row.kind) for row in trace.rows]
    assert kinds[3:] == [(0, 4, "deliver"), (0, 5, "crash"), (1, 1, "start"), (1, 2, "stop")]
    assert trace.header.ending == "finished"


@pytest.mark.parametrize("name", ["n1.rows", "one.history"])
def test_what_spark_does_not_read_is_judged_without_it_and_says_so(
    ordercast, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    if name == "n1.rows":
        write_rows(path, *SENT, (0, 5, "stop"))
        path = tmp_path
    else:
        path.write_text("run x ending=finished\nn1 join\n")
    ran = ordercast("check", path, "--laws", "fifo", "--engine", "spark")
    assert (ran.code, ran.err) == (0, f"{path}: no lake, so it is judged without Spark\n")


def test_rows_that_cannot_be_judged_are_rejected_with_what_to_do(ordercast, tmp_path: Path) -> None:
    file = tmp_path / "n1.rows"
    write_rows(file, *SENT)
    assert "give --family, such as --family fifo, or --laws" in ordercast("check", tmp_path).err
    assert "give the folder with those of all" in ordercast("check", file).err
    ran = ordercast("check", "tests/histories", "--family", "fifo")
    assert (ran.code, ran.err[:34]) == (2, "ordercast: --family is for .rows f")
    ran = ordercast("check", tmp_path, "--family", "fifoo")
    assert "unknown family 'fifoo': did you mean 'fifo'?" in ran.err
    (tmp_path / "copy.rows").write_bytes(file.read_bytes())
    ran = ordercast("check", tmp_path, "--family", "fifo")
    assert ran.code == 2
    assert "both have rows of incarnation 0 of 'n1': give the files of one run" in ran.err
