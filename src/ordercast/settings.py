"""TOML files into structs, and what is wrong with them: file, line, key, nearest key.

Scenarios and the settings of nodes are read this way. Structs say what may stand where; quantities
(`units.py`) are written with a unit. Everything that is wrong is a UsageError of one sentence.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args, get_origin

import msgspec

from ordercast.errors import UsageError, unknown_word
from ordercast.units import Quantity

LARGEST_FILE = 1 << 20
Where = tuple[str | int, ...]
Finding = tuple[Where, str]
T = TypeVar("T")

_STRING = r'"(?:\\.|[^"\\])*"|\'[^\']*\''
_PART = rf"{_STRING}|[A-Za-z0-9_-]+"
_DOTTED = rf"(?:{_PART})(?:\s*\.\s*(?:{_PART}))*"
_HEADER = re.compile(rf"\s*(\[\[?)\s*({_DOTTED})\s*\]")
_KEY = re.compile(rf"\s*({_DOTTED})\s*=")
_STRING_OR_COMMENT = re.compile(rf"{_STRING}|#.*")


class Source(NamedTuple):
    """A document and the text it came from, in which lines are looked up for errors."""

    name: str
    text: str
    document: dict[str, Any]

    def error(self, where: Where, what: str) -> UsageError:
        line = line_of(self.text, where)
        return UsageError(f"{self.name}:{line}: {what}" if line else f"{self.name}: {what}")

    def struct(self, kind: type[T], title: str) -> T:
        """The document as this struct. `title` is what to call its outermost table."""
        for where, what in _unknown_keys(kind, self.document, (), title):
            raise self.error(where, what)
        try:
            return convert(self.document, kind)
        except msgspec.ValidationError as error:
            where, what = located(str(error), kind, self.document)
            key = dotted(where)
            raise self.error(where, f"{key}: {what}" if key else what) from error


def read_source(path: Path, title: str) -> Source:
    """Reads a small text file in TOML."""
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    if len(raw) > LARGEST_FILE:
        raise UsageError(f"{path}: over {LARGEST_FILE} bytes; {title} is a small text file")
    try:
        text = raw.decode()
        if path.suffix == ".json":  # what a program wrote: the same keys and values
            return Source(str(path), text, msgspec.json.decode(text, type=dict[str, Any]))
        return Source(str(path), text, tomllib.loads(text))
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path}: not JSON: {error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not a text file in UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}:{_line_in(error, text)}: not TOML: {error}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: a number is too long, or tables lie too deep") from error


def convert(given: dict[str, Any], kind: type[T]) -> T:
    """Plain values as a struct. ValidationError says what is wrong, and `located` where."""
    return msgspec.convert(given, kind, dec_hook=_quantity)


def line_of(text: str, where: Where) -> int | None:
    """The line at which a key stands, or that of the table it belongs to. None: not found."""
    best: int | None = None
    depth = 0
    for number, path in _keys_of(text):
        common = min(len(path), len(where))
        if common > depth and path[:common] == where[:common]:
            best, depth = number, common
    return best


def _keys_of(text: str) -> Iterator[tuple[int, Where]]:
    """Every header and every key with its line. Enough of TOML to point at a line, no more."""
    header: Where = ()
    seen: dict[tuple[str, ...], int] = {}  # lists of tables, and how many of each
    inside = 0  # brackets that a value left open: its further lines hold no keys
    for number, line in enumerate(text.split("\n"), 1):
        if not inside and (found := _HEADER.match(line)):
            names = _parts(found[2])
            if found[1] == "[[":
                seen[names] = seen.get(names, -1) + 1
            header = ()
            for depth, name in enumerate(names, 1):
                index = seen.get(names[:depth])
                header = (*header, name) if index is None else (*header, name, index)
            yield number, header
            continue
        if not inside and (found := _KEY.match(line)):
            yield number, (*header, *_parts(found[1]))
        brackets = _STRING_OR_COMMENT.sub("", line)
        inside += sum(brackets.count(one) for one in "[{") - sum(map(brackets.count, "]}"))


def _parts(key: str) -> tuple[str, ...]:
    """A dotted key taken apart. A part in quotes may hold dots and blanks."""
    return tuple(part.strip("\"'") for part in re.findall(_PART, key))


def _line_in(error: tomllib.TOMLDecodeError, text: str) -> int:
    found = re.search(r"at line (\d+)", str(error))
    return int(found[1]) if found else text.rstrip().count("\n") + 1  # at the end


def _unknown_keys(kind: Any, value: Any, where: Where, title: str) -> Iterator[Finding]:
    """Keys that no struct of the schema has, with the nearest that it has."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown_keys(kind, item, (*where, index), title)
    if get_origin(kind) is dict and isinstance(value, dict):
        for key, inner in value.items():
            yield from _unknown_keys(get_args(kind)[1], inner, (*where, key), title)
        return
    types = _types_in(kind, value)
    if not types or not isinstance(value, dict):
        return
    for key, inner in value.items():
        if key not in types:
            table = dotted(where) or title
            yield (*where, key), unknown_word(f"key of {table}", key, types)
        else:
            yield from _unknown_keys(types[key], inner, (*where, key), title)


def _structs_in(kind: Any) -> list[type[msgspec.Struct]]:
    """The structs inside list[...], ... | None or a union of tagged ones."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [kind]
    if get_origin(kind) is dict:
        return []
    return [struct for part in get_args(kind) for struct in _structs_in(part)]


def _types_in(kind: Any, value: Any = None) -> dict[str, Any]:
    """The keys of the structs inside a type, and what stands there. Of several that a tag tells
    apart, those of the one that this value is tagged as, if it is."""
    structs = _structs_in(kind)
    types: dict[str, Any] = {}
    for struct in structs:
        config = struct.__struct_config__
        tag = value.get(config.tag_field) if isinstance(value, dict) else None
        if tag == config.tag or all(tag != one.__struct_config__.tag for one in structs):
            types |= {config.tag_field: str} if config.tag_field else {}
            types |= {field.encode_name: field.type for field in msgspec.structs.fields(struct)}
    return types


def _quantity(kind: type, value: object) -> object:
    if issubclass(kind, Quantity):
        return kind.parse(value)
    raise NotImplementedError


_WORDS = {
    "object": "a table",
    "array": "a list",
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
}


def located(message: str, root: Any, given: Any = None) -> tuple[Where, str]:
    """msgspec says `what - at $.a[0].b`: taken apart, with the words that could stand there.

    `given` is what was converted: the value of a number out of its bounds is named then.
    """
    what, _, path = message.replace(" - at `key` in `$", " (a key) - at `$").partition(" - at `$")
    steps = re.findall(r"\.([^.\[\]`]+)|\[(\d+)\]", path)
    where = tuple(name or int(index) for name, index in steps)
    if found := re.fullmatch(r"Invalid enum value '(.*)'", what, re.DOTALL):
        what = unknown_word("word", found[1], _words(_kind_at(root, where)))
    elif found := re.fullmatch(r"Object missing required field `(.*)`", what):
        what = f"{found[1]} is missing"
    elif found := re.fullmatch(r"Expected `(?:int|float)` (>=|>|<=|<) (.*)", what):
        value = _value_at(given, where)
        short = isinstance(value, float) or (isinstance(value, int) and abs(value) < 1 << 64)
        what = f"give a number that is {found[1]} {found[2]}{f', not {value}' if short else ''}"
    elif found := re.fullmatch(r"Expected `str` matching regex '(.*?)'( \(a key\))?", what):
        value = _value_at(given, where)
        shown = f"{value!r}: " if isinstance(value, str) else "a name in it: " if found[2] else ""
        form = _form(_kind_at(root, where), found[1]) or f"text that matches {found[1]}"
        what = f"{shown}give {form}"
    elif found := re.fullmatch(r"Expected `str` of length (<=|>=) (\d+)", what):
        bound = f"at {'most' if found[1] == '<=' else 'least'} {found[2]}"
        what = f"give {bound} character{'s' if found[2] != '1' else ''}"
    elif found := re.fullmatch(r"Expected `(.*)`, got `(.*)`", what):
        wanted, got = (_WORDS.get(word, word) for word in (found[1].split(" | ")[0], found[2]))
        what = f"expected {wanted}, not {got}"
    return where, what.replace("`", "'")


def _kind_at(root: Any, where: Where) -> Any:
    """The type that the schema has at a place. Items of a list lie inside the list's type."""
    for name in where:
        if get_origin(root) is dict:
            root = get_args(root)[1]
        types = _types_in(root)
        if types and isinstance(name, str):
            root = types.get(name)
    return root


def _value_at(given: Any, where: Where) -> Any:
    for part in where:
        try:
            given = given[part]
        except (LookupError, TypeError):
            return None
    return given


def _form(kind: Any, pattern: str) -> str:
    """What the schema says in words about a pattern that is somewhere inside a type."""
    for meta in getattr(kind, "__metadata__", ()):
        if isinstance(meta, msgspec.Meta) and repr(meta.pattern)[1:-1] == pattern:
            return meta.description or ""
    forms = (_form(part, pattern) for part in get_args(kind))
    return next((form for form in forms if form), "")


def _words(kind: Any) -> list[str]:
    """The words that a Literal inside this type allows."""
    return [
        word
        for part in get_args(kind)
        for word in ([part] if isinstance(part, str) else _words(part))
    ]


def dotted(where: Where, prefix: str = "") -> str:
    text = "".join(f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in where)
    return text if prefix else text.lstrip(".")
