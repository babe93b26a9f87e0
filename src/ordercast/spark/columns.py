"""One run's Parquet parts as numpy columns, in local order: what the vectorised laws look at.

Rules:

  1. What the plain reader (trace/lake.py) refuses is refused here, in its words. This reader
     takes only files that are beyond doubt: every column of a known type, complete, of this run,
     with kinds of the contract and no step twice. At the first doubt the plain reader reads the
     run again, and either it says what is wrong or its rows are taken.
  2. Local order is (process, incarnation, step), processes by name: the order in which the
     reference meets rows. `place` remembers where a row stood in the file.
  3. Names become small numbers, an absent value -1. Rows as the reference wants them are made
     for the few that somebody asks for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ordercast.errors import TraceError
from ordercast.trace.columns import rows_of_columns, to_lists
from ordercast.trace.lake import ROWS_LIMIT, read_header, read_run
from ordercast.trace.parquet import PARTS, Pyarrow, arrow_schema, load_pyarrow
from ordercast.trace.schema import (
    COLUMN_TYPES,
    COLUMNS,
    KINDS,
    READABLE_TRACES,
    REQUIRED,
    Header,
    Row,
    Trace,
)
from ordercast.types import GUARANTEES, name_of

Vector: TypeAlias = npt.NDArray[Any]

SUBMIT, DELIVER, LOSE = 0, 1, 2
"""The codes of the kinds that are about events; all others have greater ones."""

_SERVICE_CODES = {"": 0} | {str(word): code for code, word in enumerate(GUARANTEES, 1)}

ENTRIES_LIMIT = 150_000_000
"""The most entries of pasts, a number for each event and stream of its group, four bytes each."""
ROWS_AT_ONCE = 1 << 18
_MAGIC = b"PAR1"
_SHORT = 1 << 16  # so many codes fit 16 bits, and such are sorted by counting


class Doubt(Exception):
    """Something that the plain reader has to judge."""


class Columns:
    """The rows of one run in local order, as one array a column.

    log        the number of the row's log (one per incarnation), in the order of the reference
    place      where the row stands in the file
    kind       SUBMIT, DELIVER, LOSE or the code of another kind, see `code_of`
    group      codes of `groups`
    origin     codes of `origins`
    number     0 where it is absent, see `numbered`
    numbered   whether the row has a number; None if all have
    """

    def __init__(self, header: Header, batches: list[Any]) -> None:
        self.header = header
        self._batches = [batch for batch in batches if batch.num_rows]
        self._starts = np.cumsum([0, *(batch.num_rows for batch in self._batches)])
        self.count = int(self._starts[-1])
        kinds: dict[str, int] = {"submit": SUBMIT, "deliver": DELIVER, "lose": LOSE}
        groups: dict[str, int] = {}
        origins: dict[str, int] = {}
        processes: dict[str, int] = {}
        self._kinds, self.groups, self.origins = kinds, groups, origins
        process = self._codes("process", processes)
        names = sorted(processes)
        rank = np.empty(len(names), np.int32)
        rank[[processes[name] for name in names]] = np.arange(len(names))
        self.processes = names
        log = self._number_logs(rank[process] if len(names) else process)
        order, self.log = self._in_local_order(log)
        self.place = order
        self.kind = self._codes("kind", kinds).astype(np.int16)[order]
        self.group = self._codes("group", groups)[order]
        self.origin = self._codes("origin", origins)[order]
        number, absent = self._integers("number")
        self.number = number[order]
        self.numbered = None if absent is None else ~absent[order]
        ranks = {name: number for number, name in enumerate(names)}
        self.origin_process = np.array([ranks.get(name, -1) for name in origins], np.int32)

    @cached_property
    def at(self) -> Vector:
        """The time of each row."""
        return self._integers("at")[0][self.place]

    def code_of(self, kind: str) -> int:
        """The code of a kind; -1 if no row has it."""
        return self._kinds.get(kind, -1)

    @property
    def unknown_kinds(self) -> list[int]:
        """The codes of kinds that the contract does not know."""
        return [code for kind, code in self._kinds.items() if kind not in KINDS]

    def rows(self, wanted: Vector) -> list[Row]:
        """These rows as the reference wants them, given by their places in local order."""
        places = np.sort(self.place[wanted])
        found: list[Row] = []
        cuts = np.searchsorted(places, self._starts)
        for number, batch in enumerate(self._batches):
            inside = places[cuts[number] : cuts[number + 1]] - self._starts[number]
            if not len(inside):
                continue
            taken = batch if len(inside) == batch.num_rows else batch.take(inside)
            found.extend(rows_of(taken))
        return found

    @cached_property
    def _service(self) -> Vector:
        """By row: 0 if it is about no event or that has no service; else what its service
        promises, from 1."""
        words: dict[str, int] = {}
        cause = self._codes("cause", words)[self.place]
        codes = [_SERVICE_CODES[self.header.guarantee(word)] for word in words]
        found: Vector = np.array([*codes, 0], np.int8)[cause]
        found[self.kind > DELIVER] = 0
        return found

    @cached_property
    def services(self) -> frozenset[str]:
        """What those of submissions and deliveries promise; "" if one has none."""
        codes = np.unique(self._service[self.kind <= DELIVER]).tolist()
        return frozenset(word for word, code in _SERVICE_CODES.items() if code in codes)

    def having(self, service: str) -> Vector:
        """By row: whether it submits or delivers an event whose service promises this."""
        found: Vector = self._service == _SERVICE_CODES[service]
        return found

    def serving(self, services: Sequence[str]) -> Columns:
        """Without the events of other services; "" stands for having none."""
        codes = [_SERVICE_CODES[word] for word in services]
        return self._only((self.kind > DELIVER) | np.isin(self._service, codes), self.header)

    def only(self, groups: Sequence[str], header: Header) -> Columns:
        """The rows of these groups in all their formations, and those of no group."""
        codes = [code for label, code in self.groups.items() if name_of(label) in groups]
        return self._only(np.isin(self.group, [-1, *codes]), header)

    def _only(self, wanted: Vector, header: Header) -> Columns:
        kept = np.zeros(self.count, bool)
        kept[self.place] = wanted
        pyarrow = load_pyarrow()
        starts = self._starts
        parts = [
            batch.filter(pyarrow.core.array(kept[starts[number] : starts[number + 1]]))
            for number, batch in enumerate(self._batches)
        ]
        return Columns(header, parts)

    def views(self, rows: Vector) -> Vector:
        """The identities of the views that these rows install."""
        return self._integers("view")[0][self.place[rows]]

    def stamps(self, rows: Vector) -> tuple[Vector, Vector, Vector]:
        """For these rows the index, the stamp's entry there, and whether there is one."""
        index, no_index = self._integers("index")
        entries = np.zeros(self.count, np.int64)
        stamped = np.zeros(self.count, bool)
        for number, batch in enumerate(self._batches):
            begin, end = self._starts[number], self._starts[number + 1]
            absent = None if no_index is None else no_index[begin:end]
            found = stamp_entries(batch, index[begin:end], absent)
            entries[begin:end], stamped[begin:end] = found
        where = self.place[rows]
        return index[where], entries[where], stamped[where]

    @cached_property
    def after(self) -> tuple[Vector, Vector]:
        """Where a range of losses begins, and which rows say so."""
        return self._given("after")

    @cached_property
    def replies(self) -> tuple[Vector, Vector, Vector]:
        """By row the origin and the number that it answers, -1 and 0 where it does not say so, and
        whether it says only one of them. Origins have the codes of `origins`; -2: another name."""
        words: dict[str, int] = {}
        codes = self._codes("reply_origin", words)[self.place]
        known = np.array([*(self.origins.get(word, -2) for word in words), -1], np.int64)
        number, told = self._given("reply_number")
        return known[codes], number, (codes >= 0) != told

    @property
    def has_replies(self) -> bool:
        return any(
            batch.column(name).null_count < batch.num_rows
            for batch in self._batches
            for name in ("reply_origin", "reply_number")
            if name in batch.schema.names
        )

    def _given(self, name: str) -> tuple[Vector, Vector]:
        """A column of integers, and which rows have it."""
        values, absent = self._integers(name)
        told = np.ones(self.count, bool) if absent is None else ~absent
        return values[self.place], told[self.place]

    # --- from Arrow to numpy, in the order of the file ---

    def _codes(self, name: str, known: dict[str, int]) -> Vector:
        """A column of names as codes, -1 where there is none. New names get the next codes."""
        codes = np.full(self.count, -1, np.int32)
        for number, batch in enumerate(self._batches):
            if name in batch.schema.names:
                codes[self._starts[number] : self._starts[number + 1]] = codes_of(
                    batch.column(name), known
                )
        return codes

    def _integers(self, name: str) -> tuple[Vector, Vector | None]:
        """A column of integers, 0 where there is none, and where that is, if anywhere."""
        values = np.zeros(self.count, np.int64)
        absent: Vector | None = None
        for number, batch in enumerate(self._batches):
            begin, end = self._starts[number], self._starts[number + 1]
            values[begin:end], missing = integers_of(batch, name)
            if missing is not None:
                absent = np.zeros(self.count, bool) if absent is None else absent
                absent[begin:end] = missing
        return values, absent

    def _number_logs(self, process: Vector) -> Vector:
        incarnation = self._integers("incarnation")[0]
        if not self.count or (incarnation.min() == 0 and incarnation.max() == 0):
            self.log_process = np.arange(len(self.processes), dtype=np.int32)
            self.log_incarnation = np.zeros(len(self.processes), np.int64)
            return process.astype(np.int32)
        known, codes = np.unique(incarnation, return_inverse=True)
        logs, log = np.unique(process.astype(np.int64) * len(known) + codes, return_inverse=True)
        self.log_process = (logs // len(known)).astype(np.int32)
        self.log_incarnation = known[logs % len(known)]
        numbers: Vector = log.astype(np.int32)
        return numbers

    def _in_local_order(self, log: Vector) -> tuple[Vector, Vector]:
        """Local order, logs in that order; notes whether a log has two rows with one step."""
        step = self._integers("step")[0]
        order = by_small_code(log, len(self.log_process))
        ordered = log[order]
        self.step_twice = False
        if not _grow(step[order], ordered):
            order = np.lexsort((step, log))
            ordered = log[order]
            self.step_twice = not _grow(step[order], ordered)
        return order, ordered


def codes_of(column: Any, known: dict[str, int]) -> Vector:
    """A dictionary column as codes, -1 where there is no name. New names get the next codes."""
    words = column.dictionary.to_pylist()
    indices = column.indices
    if column.null_count:
        indices = indices.fill_null(len(words))
    spots = indices.to_numpy(zero_copy_only=False)
    used = np.bincount(spots, minlength=len(words) + 1)[: len(words)]
    mapped = [
        known.setdefault(word, len(known)) if count else -1
        for word, count in zip(words, used.tolist(), strict=True)
    ]
    found: Vector = np.array([*mapped, -1], np.int32)[spots]
    return found


def integers_of(batch: Any, name: str) -> tuple[Vector, Vector | None]:
    """A column of integers, 0 where there is none, and where that is, if anywhere."""
    column = batch.column(name) if name in batch.schema.names else None
    if column is None:
        return np.zeros(batch.num_rows, np.int64), np.ones(batch.num_rows, bool)
    if not column.null_count:
        return column.to_numpy(zero_copy_only=False), None
    absent = column.is_null().to_numpy(zero_copy_only=False)
    return column.fill_null(0).to_numpy(zero_copy_only=False), absent


def rows_of(batch: Any) -> list[Row]:
    """The rows of a batch as the reference wants them."""
    pyarrow, told = load_pyarrow(), Path("the run")
    lists = [
        to_lists(pyarrow, told, name, batch.column(name))
        if name in batch.schema.names
        else [None] * batch.num_rows
        for name in COLUMNS
    ]
    return list(rows_of_columns(lists))


def stamp_entries(batch: Any, index: Vector, no_index: Vector | None) -> tuple[Vector, Vector]:
    """The entry of each row's stamp at the row's index, and whether there is one."""
    entries = np.zeros(batch.num_rows, np.int64)
    column = batch.column("stamp") if "stamp" in batch.schema.names else None
    if column is None or column.null_count == len(column):
        return entries, np.zeros(batch.num_rows, bool)
    offsets = column.offsets.to_numpy()
    valid = ~column.is_null().to_numpy(zero_copy_only=False)
    valid &= (index >= 0) & (index < np.diff(offsets))
    if no_index is not None:
        valid &= ~no_index
    entries[valid] = column.values.to_numpy()[(offsets[:-1] + index)[valid]]
    return entries, valid


def _grow(step: Vector, log: Vector) -> bool:
    """Whether steps increase strictly within every incarnation."""
    return bool(np.all((step[1:] > step[:-1]) | (log[1:] != log[:-1])))


def by_small_code(codes: Vector, count: int) -> Vector:
    """The stable order of codes from 0 to count - 1, by counting 16 bits at a time."""
    if not len(codes) or np.all(codes[1:] >= codes[:-1]):
        return np.arange(len(codes))
    if count <= _SHORT:
        return np.argsort(codes.astype(np.uint16), kind="stable")
    low = np.argsort((codes & (_SHORT - 1)).astype(np.uint16), kind="stable")
    if count > _SHORT * _SHORT:
        return np.argsort(codes, kind="stable")
    return low[np.argsort((codes >> 16).astype(np.uint16)[low], kind="stable")]


def read_columns(folder: Path, rows_limit: int = ROWS_LIMIT) -> Columns:
    """One run. TraceError as `read_run` raises it."""
    try:
        columns = Columns(*_read(folder, rows_limit))
        if not columns.step_twice:
            return columns
    except Doubt:
        pass
    return columns_of(read_run(folder, rows_limit))


def count_rows(folder: Path) -> int:
    """How many rows the footers of a run's parts promise; 0 where they cannot be read."""
    pyarrow = load_pyarrow()
    try:
        parts = sorted(folder.glob(PARTS))
        return sum(pyarrow.parquet.read_metadata(str(part)).num_rows for part in parts)
    except (pyarrow.core.ArrowException, OSError):
        return 0


def columns_of(trace: Trace) -> Columns:
    """The columns of a trace that is in memory already."""
    pyarrow = load_pyarrow()
    schema = arrow_schema(pyarrow)
    arrays = []
    for name in COLUMNS:
        array = pyarrow.core.array(
            [getattr(row, name) for row in trace.rows], schema.field(name).type
        )
        arrays.append(array.dictionary_encode() if COLUMN_TYPES[name] == "string" else array)
    return Columns(trace.header, [pyarrow.core.RecordBatch.from_arrays(arrays, list(COLUMNS))])


def _read(folder: Path, rows_limit: int) -> tuple[Header, list[Any]]:
    pyarrow = load_pyarrow()
    batches: list[Any] = []
    try:
        parts = sorted(folder.glob(PARTS))
        if not parts:
            raise Doubt
        header = read_header(folder)
        missing = sum(pyarrow.parquet.read_metadata(str(part)).num_rows for part in parts)
        if missing > rows_limit:
            raise Doubt
        for part in parts:
            batches += read_part(pyarrow, part, header.run)
    except (pyarrow.core.ArrowException, OSError, UnicodeDecodeError, TraceError) as error:
        raise Doubt from error
    if missing != sum(batch.num_rows for batch in batches):
        raise Doubt
    return header, batches


def read_part(
    pyarrow: Pyarrow,
    part: Path,
    run: str,
    columns: Collection[str] = tuple(COLUMN_TYPES),
    row_groups: list[int] | None = None,
) -> Iterator[Any]:
    """The rows of a part, some at a time, of these columns. Doubt if they are not as we want."""
    with part.open("rb") as start:
        if start.read(len(_MAGIC)) != _MAGIC:
            raise Doubt
    footer = pyarrow.parquet.read_metadata(str(part))
    leaves = map(footer.schema.column, range(footer.num_columns))
    words = [leaf.path for leaf in leaves if COLUMN_TYPES.get(leaf.path) == "string"]
    with pyarrow.parquet.ParquetFile(
        str(part), metadata=footer, read_dictionary=words, page_checksum_verification=True
    ) as file:
        version = (file.metadata.metadata or {}).get(b"schema_version", b"1")
        names = file.schema_arrow.names
        present = [name for name in COLUMN_TYPES if name in names]
        known = [name for name in names if name in COLUMN_TYPES]
        if version not in (b"%d" % one for one in READABLE_TRACES) or len(known) != len(present):
            raise Doubt
        if not set(REQUIRED) <= set(names):
            raise Doubt
        asked = [name for name in present if name in columns]
        for batch in file.iter_batches(
            ROWS_AT_ONCE, row_groups=row_groups, columns=asked, use_threads=False
        ):
            batch.validate(full=True)
            yield _settle(pyarrow, batch, run)


def _settle(pyarrow: Pyarrow, batch: Any, run: str) -> Any:
    """The batch with its columns in the types that we count on; those without a value left out."""
    if not batch.num_rows:
        return batch
    settled = {}
    for name in batch.schema.names:
        array = batch.column(name)
        if array.null_count and name in REQUIRED:
            raise Doubt
        if array.null_count < len(array):
            settled[name] = _settle_column(pyarrow, name, array)
    runs = _used_words(settled.pop("run"))
    if runs != {run} or not _used_words(settled["kind"]) <= KINDS:
        raise Doubt
    return pyarrow.core.RecordBatch.from_arrays(list(settled.values()), list(settled))


def _settle_column(pyarrow: Pyarrow, name: str, array: Any) -> Any:
    pa, types = pyarrow.core, pyarrow.core.types
    right, kind = COLUMN_TYPES[name], array.type
    if right == "string":
        if not types.is_dictionary(kind):
            if not (types.is_string(kind) or types.is_large_string(kind)):
                raise Doubt
            array = array.cast(pa.string()).dictionary_encode()
        elif not types.is_string(kind.value_type) or array.dictionary.null_count:
            raise Doubt
        return array
    if right.startswith("int"):
        if not types.is_integer(kind):
            raise Doubt
        return array if kind in (pa.int32(), pa.int64()) else array.cast(pa.int64())
    wanted = pa.int64() if right == "list<int64>" else pa.string()
    if not types.is_list(kind) or kind.value_type != wanted or array.flatten().null_count:
        raise Doubt
    return array


def _used_words(array: Any) -> set[str]:
    words: Iterable[str] = array.unique().to_pylist()
    return set(words)
