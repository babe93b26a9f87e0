"""The rows that the nodes of a live program wrote (`trace` in their settings), as one run.

Each node appends to a file of its own, over all its incarnations. A killed incarnation wrote no
`crash` row: it is added where a later incarnation follows. The run has finished if every node
stopped or crashed in the end; otherwise it counts as cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

from ordercast.errors import TraceError
from ordercast.trace.log import read_log
from ordercast.trace.schema import Ending, Header, Row, Trace
from ordercast.types import Guarantee

SUFFIX = ".rows"
_ENDS = frozenset({"stop", "crash"})


def holds_row_files(folder: Path) -> bool:
    return any(True for _ in folder.glob(f"*{SUFFIX}"))


def read_row_files(
    folder: Path, family: str | None, services: Mapping[str, Guarantee] = {}
) -> Trace:
    """`services`: as the header has them.

    TraceError: a file cannot be read, or two of them have rows of one incarnation.
    """
    rows: list[Row] = []
    owners: dict[tuple[str, int], Path] = {}
    finished = True
    for file in sorted(folder.glob(f"*{SUFFIX}")):
        own = sorted(read_log(file), key=lambda row: (row.process, row.incarnation, row.step))
        for process, of_process in groupby(own, lambda row: row.process):
            incarnations = [list(each) for _, each in groupby(of_process, _incarnation)]
            for each in incarnations:
                last = each[-1]
                other = owners.setdefault((process, last.incarnation), file)
                if other != file:
                    raise TraceError(
                        f"{other} and {file} both have rows of incarnation {last.incarnation} of "
                        f"{process!r}: give the files of one run, each once"
                    )
                rows += each
                if last.kind not in _ENDS and each is not incarnations[-1]:
                    rows.append(Row(process, last.incarnation, last.step + 1, last.at, "crash"))
            finished = finished and incarnations[-1][-1].kind in _ENDS
    ending = Ending.FINISHED if finished and rows else Ending.CUT
    name = folder.resolve().name
    return Trace(Header(name, family, ending=ending, services=dict(services)), rows)


def _incarnation(row: Row) -> int:
    return row.incarnation
