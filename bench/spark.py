"""The pipeline on Spark: sweeps, laws, streams, rounds. `python -m bench spark` takes some minutes.

bench/sweep.py, laws.py, stream.py and rounds.py are its parts, and can be run alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench import laws, rounds, stream, sweep
from bench.table import Table


def measure() -> Iterator[Table]:
    """One after the other, so that what is measured is shown even if the rest never ends."""
    for part in (sweep, laws, stream, rounds):
        yield from part.measure()
