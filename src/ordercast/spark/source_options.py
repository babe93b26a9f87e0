"""The options of `format("ordercast")`: all of them are checked, whatever the folder holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path

from ordercast.errors import UsageError, unknown_word

PARTITIONS = 8
ROWS_PER_TASK = 10_000


def given_options(given: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """By their names. Spark hands them over in lower case, or as they were written."""
    known = {name.lower(): name for name in ("path", *names)}
    found: dict[str, str] = {}
    for name, value in given.items():
        if name.lower() not in known:
            raise UsageError(unknown_word("option", name, known.values()))
        found[known[name.lower()]] = value
    return found


def folder_of(given: Mapping[str, str]) -> Path:
    found = {name.lower(): value for name, value in given.items()}
    if not found.get("path"):
        raise UsageError('which folder? Say .load("FOLDER"), or .option("path", "FOLDER")')
    return Path(found["path"].removeprefix("file://"))


def word_of(given: Mapping[str, str], name: str, words: tuple[str, ...]) -> str:
    """One of these; the first if nothing is given."""
    word = given.get(name, words[0])
    if word not in words:
        raise UsageError(unknown_word(f"value for {name}", word, words))
    return word


def count_of(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 1 << 31):
        raise UsageError(f"{name} is {text!r}: it must be a whole number from 1 on")
    return int(text)


def shares(first: int, last: int, most: int) -> list[tuple[int, int]]:
    """A range of numbers as what tasks read: about the same share for each, and none too small."""
    count = min(most, max(1, (last - first) // ROWS_PER_TASK))
    ends = [first + (last - first) * part // count for part in range(count + 1)]
    return [(begin, end) for begin, end in pairwise(ends) if begin < end]
