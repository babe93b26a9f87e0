"""Turns the columns of a trace file into lists of Python values, whoever wrote it.

Other writers choose other types for the same values: large strings, dictionaries, wider or
unsigned integers. These are cast. A type that would have to be guessed at, such as a floating
point number or a timestamp, is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ordercast.errors import TraceError
from ordercast.trace.parquet import Pyarrow
from ordercast.trace.schema import COLUMN_TYPES, REQUIRED, Row


def to_lists(pyarrow: Pyarrow, part: Path, name: str, array: Any) -> list[Any]:
    """The values of one column. Lists become tuples, equal strings one object."""
    if array.null_count and name in REQUIRED:
        raise TraceError(
            f"{part} has rows without a value for {name!r}, which every trace must fill."
        )
    if array.null_count == len(array):
        return [None] * len(array)
    right = COLUMN_TYPES[name]
    types = pyarrow.core.types
    value_type = array.type
    in_list = types.is_list(value_type) or types.is_large_list(value_type)
    if in_list and right.startswith("list<"):
        return _tuples(pyarrow, part, name, array)
    if types.is_dictionary(value_type):
        value_type = value_type.value_type
    if right == "string" and _is_string(types, value_type):
        return _strings(pyarrow, array)
    if right.startswith("int") and types.is_integer(value_type):
        return _integers(pyarrow, part, name, array)
    raise _wrong_type(part, name, array)


def rows_of_columns(lists: list[list[Any]]) -> Iterator[Row]:
    """Rows from all their columns, in order. What no row has at the end is left to the default."""
    used = len(lists)
    while used > len(REQUIRED) and lists[used - 1].count(None) == len(lists[used - 1]):
        used -= 1
    return map(Row, *lists[:used])


def _integers(pyarrow: Pyarrow, part: Path, name: str, array: Any) -> list[Any]:
    try:
        integers: list[Any] = array.cast(pyarrow.core.int64()).to_pylist()
    except pyarrow.core.ArrowInvalid as error:
        raise TraceError(f"{part} has a value of {name!r} too large for int64.") from error
    return integers


def _strings(pyarrow: Pyarrow, array: Any) -> list[Any]:
    """Looks every distinct string up once: the few names of a run are shared by its rows."""
    pa = pyarrow.core
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    words: list[Any] = [*array.dictionary.cast(pa.string()).to_pylist(), None]
    absent = len(words) - 1
    places = array.indices.cast(pa.int64()).fill_null(absent).to_pylist()
    return list(map(words.__getitem__, places))


def _tuples(pyarrow: Pyarrow, part: Path, name: str, array: Any) -> list[Any]:
    pa, types = pyarrow.core, pyarrow.core.types
    element, value_type = COLUMN_TYPES[name], array.type.value_type
    if element == "list<int64>" and types.is_integer(value_type):
        target = pa.list_(pa.int64())
    elif element == "list<string>" and _is_string(types, value_type):
        target = pa.list_(pa.string())
    else:
        raise _wrong_type(part, name, array)
    if array.flatten().null_count:
        raise TraceError(f"{part} has a {name!r} with an entry that is null.")
    lists = array.cast(target).to_pylist()
    return [None if values is None else tuple(values) for values in lists]


def _is_string(types: Any, value_type: Any) -> bool:
    return bool(
        types.is_string(value_type)
        or types.is_large_string(value_type)
        or types.is_string_view(value_type)
    )


def _wrong_type(part: Path, name: str, array: Any) -> TraceError:
    return TraceError(
        f"{part} has the column {name!r} as {array.type}, where {COLUMN_TYPES[name]} is right."
    )
