"""Where the rows of a run go: nowhere, into memory, or (see `parquet.py`) into a lake.

A sink gets the rows of one run, each process's in its local order, and at the end either
`close` with the header that says how the run ended, or `abort`, after which nothing of the run
is left. A run that was cut or that failed is closed too: its trace is what explains it.
"""

from __future__ import annotations

import re
from typing import Protocol

from ordercast.errors import UsageError
from ordercast.trace.schema import Header, Row, Trace

_RUN_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")


class Sink(Protocol):
    """What the drivers need. `write` is called for every row, and should be quick."""

    def write(self, row: Row) -> None: ...

    def close(self, header: Header) -> None: ...

    def abort(self) -> None: ...


class NoSink:
    """Drops everything: trace level `off`."""

    def write(self, row: Row) -> None:
        pass

    def close(self, header: Header) -> None:
        pass

    def abort(self) -> None:
        pass


class MemorySink:
    """Keeps all rows. For runs that are judged at once and then forgotten."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.header: Header | None = None  # set by `close`

    def write(self, row: Row) -> None:
        self.rows.append(row)

    def close(self, header: Header) -> None:
        self.header = header

    def abort(self) -> None:
        self.rows.clear()

    def trace(self, header: Header) -> Trace:
        """The rows so far as a trace of their own, which later writes do not change."""
        return Trace(header, self.rows.copy())


def check_run_id(run: str) -> str:
    """Returns the run id if it can name a folder everywhere, or else refuses it."""
    if not _RUN_ID.fullmatch(run):
        raise UsageError(
            f"{run[:250]!r} cannot name a run: use 1 to 200 letters, digits, '-', '_' and '.', "
            "and no '.' at the start."
        )
    return run
