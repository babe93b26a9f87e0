"""The pipeline on Spark: sweeps, laws, streams. `python -m bench spark` takes some minutes.

bench/sweep.py, laws.py and stream.py are its parts, and can be run alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench import laws, stream, sweep
from bench.table import Table


def measure() -> Iterator[Table]:
    """One after the other, so that what is measured is shown even if the rest never ends."""
    for part in (sweep, laws, stream):
        yield from part.measure()
