"""`ordercast lab`: what it writes and says. Sweeps themselves are in tests/spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

BASE = """name = "base"
family = "causal"
processes = 3
duration = "1s"
quiet = "1s"
options = { tickets = 2, join_wait = "50ms", ownership = "fixed" }
"""


def written(folder: Path, text: str = "") -> Path:
    (folder / "base.toml").write_text(BASE, encoding="utf-8")
    path = folder / "e.toml"
    path.write_text(f'name = "e"\nscenario = "base.toml"\nseeds = 2\n{text}', encoding="utf-8")
    return path


@pytest.mark.slow
def test_an_experiment_becomes_a_table_and_a_file(ordercast, tmp_path: Path) -> None:
    path = written(tmp_path, '[grid]\n"network.loss" = [0.0, 0.1]\n')
    ran = ordercast("lab", path, "--out", tmp_path / "out", "--master", "local[2,4]")
    assert ran.code == 0, ran.err
    assert "lost" in ran.out
    assert "share" in ran.out
    assert (tmp_path / "out" / "results.parquet").is_file()
    again = ordercast("lab", path, "--out", tmp_path / "out", "--json", "--master", "local[1,4]")
    assert again.code == 0, again.err
    told = [json.loads(line) for line in again.out.splitlines()]
    assert [one["settings"] for one in told] == [{"network.loss": 0.0}, {"network.loss": 0.1}]
    assert all(one["runs"] == 2 and one["broken"] == 0 for one in told)


def test_a_wrong_experiment_is_reported_in_one_sentence(ordercast, tmp_path: Path) -> None:
    ran = ordercast("lab", written(tmp_path, '[grid]\n"network.los" = [1]\n'))
    assert ran.code == 2
    assert "did you mean 'loss'?" in ran.err


def test_an_unreachable_cluster_exits_4(ordercast, tmp_path: Path) -> None:
    ran = ordercast("lab", written(tmp_path), "--master", "spark://127.0.0.1:1")
    assert ran.code == 4
    assert "no Spark at 127.0.0.1:1" in ran.err
