"""The pipeline on Spark: sweeps, laws, rounds. `python -m bench spark` takes some minutes.

bench/sweep.py, laws.py and rounds.py are its parts, and can be run alone.
"""

from __future__ import annotations

from bench import laws, rounds, sweep
from bench.table import Table


def measure() -> list[Table]:
    return [*sweep.measure(), *laws.measure(), *rounds.measure()]
