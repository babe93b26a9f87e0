"""The tiny history language: a trace that a person can write, and read, a line a row.

    run lost-update family=fifo ending=finished    # the header comes first
    n1 join
    n2 join
    n1 submit n1:1                 # who, what, and the event
    n2 deliver n1:1
    n2 view 7 n1,n2                # a view: its identity, its members
    n3 crash
    n3#1 start                     # the second incarnation of n3
    n3#1 submit n3#1:1 count=20    # any other column as key=value
    n1 ticket index=3 cause=acquired until=5s
    n2 submit n2:1 reply=n1:1      # the event that it answers, as two columns

Rules.

- `#` begins a comment at the start of a line or after a space. Empty lines mean nothing.
- An event is `origin:counter`, or `origin#incarnation:counter` for a later one.
- What a row does not say it gets: the group is `g` where the kind has one; `step` is one more
  than the writer's step before it, from 1; `at` is one millisecond after the row above.
- Numbers may carry `ns`, `us`, `ms` or `s` where they are times (`at`, `until`, `start`, `end`).
- Lists are written with commas. `-` is a column that is absent, which matters for the group, the
  event and the view, where absence is not the default.
- A character that would be misread is written as in addresses on the web: `%20` is a space.

`format_history` writes what `parse_history` reads back as the same trace. It refuses what has no
spelling: an empty process name, and parameters that are not JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn
from urllib.parse import quote, unquote

import msgspec

from ordercast.errors import TraceError, unknown_word
from ordercast.trace.schema import (
    COLUMN_TYPES,
    COLUMNS,
    KINDS,
    TIMES,
    Ending,
    Header,
    Row,
    Trace,
)
from ordercast.types import COUNTER_BITS

_UNNAMED_GROUP = "g"  # that of rows that name none
LINE_NS = 1_000_000

_WITH_EVENT = frozenset({"submit", "deliver", "lose", "recover"})
_WITH_GROUP = _WITH_EVENT | {"join", "leave", "view", "primary", "parent", "ticket", "exclude"}
_UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_TIMES = (*TIMES, "start", "end")
_TYPES = COLUMN_TYPES | dict.fromkeys(("family", "version", "ending", "level"), "string")
_KEYS = COLUMNS[2:4] + COLUMNS[5:]  # the process, its incarnation and the kind have their places
_REPLY = "reply"  # stands for both of these
_REPLY_COLUMNS = ("reply_origin", "reply_number")
_HEADER_KEYS = Header.__struct_fields__[1:]
_TABLES = ("parameters", "services")  # of the header, as JSON
_SAFE = "/._~+@!$*()'"  # letters and digits are safe; so is "-", unless it stands alone
_JSON_SAFE = _SAFE + '{}[]":,'

_WRITER = re.compile(r"(?P<name>[^#:,=]+)(?:#(?P<incarnation>\d{1,9}))?")
_EVENT = re.compile(r"(?P<name>[^#:,=]+)(?:#(?P<incarnation>\d{1,9}))?:(?P<counter>\d{1,18})")
_TIME = re.compile(r"(?P<number>-?\d{1,19})(?P<unit>ns|us|ms|s)?")


def incarnation_name(process: str, incarnation: int) -> str:
    """`n1`, and `n1#2` for its third incarnation."""
    return f"{process}#{incarnation}" if incarnation else process


def event_name(origin: str, number: int) -> str:
    """`n1:3` for the third event of n1's first incarnation, `n1#1:3` for that of its second."""
    incarnation, counter = number >> COUNTER_BITS, number & ((1 << COUNTER_BITS) - 1)
    return f"{incarnation_name(origin, incarnation)}:{counter}"


# --- reading -----------------------------------------------------------------------------------


def parse_history(text: str, source: str = "<text>") -> Trace:
    """Reads a history. What is wrong is said with the source, the line and the nearest word."""
    lines = _lines(text, source)
    for line, words in lines:
        header = line.header(words)
        break
    else:
        raise TraceError(f"{source}: empty; a history begins with a line `run NAME`")
    rows: list[Row] = []
    steps: dict[tuple[str, int], int] = {}
    at = 0
    for line, words in lines:
        name, incarnation = line.writer(words[0])
        given = line.columns(words)
        given.setdefault("step", steps.get((name, incarnation), 0) + 1)
        given.setdefault("at", at + LINE_NS)
        row = Row(process=name, incarnation=incarnation, **given)
        steps[name, incarnation], at = row.step, row.at
        rows.append(row)
    return Trace(header, rows)


def _lines(text: str, source: str) -> Iterator[tuple[_HistoryLine, list[str]]]:
    for number, written in enumerate(text.splitlines(), 1):
        words = re.sub(r"(^|\s)#.*", "", written).split()
        if words:
            yield _HistoryLine(source, number), words


class _HistoryLine:
    """One line, which knows where it stands so that its mistakes can say so."""

    def __init__(self, source: str, number: int) -> None:
        self.source = source
        self.number = number

    def wrong(self, what: str) -> NoReturn:
        raise TraceError(f"{self.source}:{self.number}: {what}")

    def unknown_word(self, what: str, word: str, valid: Iterable[str]) -> NoReturn:
        self.wrong(unknown_word(what, word, valid))

    def header(self, words: list[str]) -> Header:
        if words[0] != "run" or len(words) < 2:
            self.wrong(f"expected `run NAME`, got `{' '.join(words)}`")
        given = self.pairs(words[2:], _HEADER_KEYS)
        try:
            return msgspec.convert({"run": unquote(words[1]), **given}, Header)
        except msgspec.ValidationError as error:
            self.wrong(str(error))

    def writer(self, word: str) -> tuple[str, int]:
        match = _WRITER.fullmatch(word)
        if match is None:
            self.wrong(f"expected a process such as `n1` or `n1#2`, got `{word}`")
        return unquote(match["name"]), int(match["incarnation"] or 0)

    def columns(self, words: list[str]) -> dict[str, Any]:
        """All columns that a line gives, by name."""
        if len(words) < 2:
            self.wrong(f"expected a kind after `{words[0]}`")
        kind = words[1]
        if kind not in KINDS:
            self.unknown_word("kind", kind, KINDS)
        first_pair = next((n for n, word in enumerate(words) if "=" in word), len(words))
        placed, given = words[2:first_pair], self.pairs(words[first_pair:], (*_KEYS, _REPLY))
        if _REPLY in given:
            given |= self.reply(given.pop(_REPLY), given)
        columns: dict[str, Any] = {"kind": kind}
        if kind in _WITH_GROUP:
            columns["group"] = _UNNAMED_GROUP
        if kind in _WITH_EVENT:
            columns |= self.event(kind, placed, given)
        elif kind == "view":
            columns |= self.view(placed, given)
        elif placed:
            self.wrong(f"`{kind}` takes only key=value, got `{placed[0]}`")
        return columns | given

    def event(self, kind: str, placed: list[str], given: dict[str, Any]) -> dict[str, Any]:
        if len(placed) > 1:
            self.wrong(f"expected key=value, got `{placed[1]}`")
        if not placed:
            if "origin" in given or "number" in given:
                return {}
            self.wrong(f"`{kind}` needs an event such as `n1:1`")
        if placed[0] == "-":
            return {}
        origin, number = self.named(placed[0])
        return {"origin": origin, "number": number}

    def reply(self, word: str | None, given: dict[str, Any]) -> dict[str, Any]:
        twice = next((name for name in _REPLY_COLUMNS if name in given), None)
        if twice is not None:
            self.wrong(f"`{twice}` is given twice: `{_REPLY}` says it too")
        named = (None, None) if word is None else self.named(word)
        return dict(zip(_REPLY_COLUMNS, named, strict=True))

    def named(self, word: str) -> tuple[str, int]:
        """The origin and the number of an event."""
        match = _EVENT.fullmatch(word)
        if match is None:
            self.wrong(f"expected an event such as `n1:1` or `n1#2:1`, got `{word}`")
        incarnation, counter = int(match["incarnation"] or 0), int(match["counter"])
        if counter >> COUNTER_BITS:
            self.wrong(f"the counter of `{word}` does not fit in {COUNTER_BITS} bits")
        return unquote(match["name"]), incarnation << COUNTER_BITS | counter

    def view(self, placed: list[str], given: dict[str, Any]) -> dict[str, Any]:
        if len(placed) > 2:
            self.wrong(f"expected key=value, got `{placed[2]}`")
        if not placed and "view" not in given:
            self.wrong("`view` needs an identity and members such as `7 n1,n2`")
        if len(placed) == 1 and "members" not in given:
            self.wrong("`view` needs members after its identity, such as `n1,n2`")
        places = zip(("view", "members"), placed, strict=False)
        return {key: self.value(key, word) for key, word in places}

    def pairs(self, words: list[str], valid: tuple[str, ...]) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for word in words:
            key, equals, value = word.partition("=")
            if not equals:
                self.wrong(f"expected key=value, got `{word}`")
            if key not in valid:
                self.unknown_word("key", key, valid)
            if key in given:
                self.wrong(f"`{key}` is given twice")
            given[key] = self.value(key, value)
        return given

    def value(self, key: str, word: str) -> Any:
        if word == "-":
            return None
        if key == "ending" and word not in tuple(Ending):
            self.unknown_word("ending", word, map(str, Ending))
        if key == _REPLY:
            return word
        if _TYPES.get(key) == "string":
            return unquote(word)
        if key in _TABLES:
            try:
                return msgspec.json.decode(unquote(word), type=dict[str, Any])
            except msgspec.MsgspecError as error:
                self.wrong(f"{key}: {error}")
        if _TYPES.get(key) == "list<string>":
            return tuple(unquote(name) for name in word.split(",")) if word else ()
        if _TYPES.get(key) == "list<int64>":
            return tuple(self.integer(key, entry) for entry in word.split(",")) if word else ()
        return self.integer(key, word)

    def integer(self, key: str, word: str) -> int:
        match = _TIME.fullmatch(word)
        if match is None or (match["unit"] and key not in _TIMES):
            example = "5, 5ms or 5s" if key in _TIMES else "5"
            self.wrong(f"{key}: expected a whole number such as {example}, got `{word}`")
        return int(match["number"]) * _UNITS[match["unit"] or "ns"]


# --- writing -----------------------------------------------------------------------------------


def format_history(trace: Trace) -> str:
    """Writes a trace so that `parse_history` reads it back; defaults are left unsaid."""
    words = ["run", _word(trace.header.run)]
    words += [
        f"{key}={_value(key, getattr(trace.header, key))}"
        for key in _HEADER_KEYS
        if key == "ending" or getattr(trace.header, key) != getattr(_PLAIN, key)
    ]
    lines = [" ".join(words)]
    steps: dict[tuple[str, int], int] = {}
    at = 0
    for row in trace.rows:
        writer = row.process, row.incarnation
        lines.append(_format_row(row, steps.get(writer, 0) + 1, at + LINE_NS))
        steps[writer], at = row.step, row.at
    return "\n".join(lines) + "\n"


_PLAIN = Header("")


def _format_row(row: Row, next_step: int, next_at: int) -> str:
    said: dict[str, object] = {"step": next_step, "at": next_at}
    said["group"] = _UNNAMED_GROUP if row.kind in _WITH_GROUP else None
    words = [incarnation_name(_word(row.process), row.incarnation), row.kind]
    if row.kind in _WITH_EVENT:
        if row.origin and row.number is not None and row.number >= 0:
            words.append(event_name(_word(row.origin), row.number))
            said |= {"origin": row.origin, "number": row.number}
        elif row.origin is None and row.number is None:
            words.append("-")
    elif row.kind == "view":
        words.append("-" if row.view is None else str(row.view))
        said["view"] = row.view
        if row.members != ():
            words.append(_value("members", row.members))
            said["members"] = row.members
    if row.reply_origin and row.reply_number is not None and row.reply_number >= 0:
        words.append(f"{_REPLY}={event_name(_word(row.reply_origin), row.reply_number)}")
        said |= {name: getattr(row, name) for name in _REPLY_COLUMNS}
    for key in _KEYS:
        value = getattr(row, key)
        if value != said.get(key):
            words.append(f"{key}={_value(key, value)}")
    return " ".join(words)


def _word(text: str) -> str:
    if not text:
        raise TraceError("a process or a run without a name cannot be written as a history")
    return "%2D" if text == "-" else quote(text, safe=_SAFE)


def _value(key: str, value: Any) -> str:
    if value is None:
        return "-"
    if key in _TABLES:
        try:
            return quote(msgspec.json.encode(value), safe=_JSON_SAFE)
        except (TypeError, msgspec.MsgspecError) as error:
            raise TraceError(f"{key} cannot be written as a history: {error}") from error
    if _TYPES.get(key, "").startswith("list"):
        return ",".join(_word(entry) if isinstance(entry, str) else str(entry) for entry in value)
    if isinstance(value, str):
        return _word(value).replace("%23", "#") if value else ""  # no comment begins in a word
    if key in _TIMES and value and value % LINE_NS == 0:
        return f"{value // LINE_NS}ms"
    return str(value)
