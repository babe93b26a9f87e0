"""Reads a scenario file, and says exactly what is wrong with it: file, line, key, nearest key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec

from ordercast.consistency import FAMILIES as PROMISES
from ordercast.errors import UsageError, unknown_word
from ordercast.kernel.machine import Family
from ordercast.protocol.families import FAMILIES
from ordercast.sim.scenario import Fault, Scenario
from ordercast.sim.scenario_rules import Finding, findings
from ordercast.units import Quantity

LARGEST_FILE = 1 << 20
Path_ = tuple[str | int, ...]

_STRING = r'"(?:\\.|[^"\\])*"|\'[^\']*\''
_PART = rf"{_STRING}|[A-Za-z0-9_-]+"
_DOTTED = rf"(?:{_PART})(?:\s*\.\s*(?:{_PART}))*"
_HEADER = re.compile(rf"\s*(\[\[?)\s*({_DOTTED})\s*\]")
_KEY = re.compile(rf"\s*({_DOTTED})\s*=")
_STRING_OR_COMMENT = re.compile(rf"{_STRING}|#.*")


def load_scenario(path: Path) -> Scenario:
    """The scenario in a file. UsageError is one sentence for the person who wrote the file."""
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    if len(raw) > LARGEST_FILE:
        raise UsageError(f"{path}: over {LARGEST_FILE} bytes; a scenario is a small text file")
    try:
        text = raw.decode()
        document = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not a text file in UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}:{_line_in(error, text)}: not TOML: {error}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: a number is too long, or tables lie too deep") from error
    return parse_scenario(document, text, str(path))


def parse_scenario(
    document: dict[str, Any], text: str = "", source: str = "<scenario>"
) -> Scenario:
    """The scenario in a parsed document; `text` is where lines are looked up for errors."""

    def fail(where: Path_, what: str) -> UsageError:
        line = line_of(text, where)
        return UsageError(f"{source}:{line}: {what}" if line else f"{source}: {what}")

    for where, what in _unknown_keys(Scenario, document, ()):
        raise fail(where, what)
    try:
        scenario = msgspec.convert(document, Scenario, dec_hook=_quantity)
    except msgspec.ValidationError as error:
        where, what = _located(str(error), Scenario)
        key = _dotted(where)
        raise fail(where, f"{key}: {what}" if key else what) from error
    for finding in _options_of_groups(scenario):
        raise fail(*finding)
    options = [
        options_for(FAMILIES[scenario.family_of(group)], scenario.options_of(group))
        for group in scenario.groups()
    ]
    for finding in findings(scenario, options):
        raise fail(*finding)
    return scenario


def options_for(family: Family, given: dict[str, Any]) -> Any:
    """A family's options from what a file says. ValidationError tells what is wrong."""
    return msgspec.convert(given, family.options, dec_hook=_quantity)


def line_of(text: str, where: Path_) -> int | None:
    """The line at which a key stands, or that of the table it belongs to. None: not found."""
    best: int | None = None
    depth = 0
    for number, path in _keys_of(text):
        common = min(len(path), len(where))
        if common > depth and path[:common] == where[:common]:
            best, depth = number, common
    return best


def _keys_of(text: str) -> Iterator[tuple[int, Path_]]:
    """Every header and every key with its line. Enough of TOML to point at a line, no more."""
    header: Path_ = ()
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


def _unknown_keys(kind: Any, value: Any, where: Path_) -> Iterator[Finding]:
    """Keys that no struct of the schema has, with the nearest that it has."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown_keys(kind, item, (*where, index))
    struct = _struct_in(kind)
    if struct is None or not isinstance(value, dict):
        return
    fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    for key, inner in value.items():
        if key not in fields:
            table = _dotted(where) or "a scenario"
            yield (*where, key), unknown_word(f"key of {table}", key, fields)
        else:
            yield from _unknown_keys(fields[key].type, inner, (*where, key))


def _struct_in(kind: Any) -> type[msgspec.Struct] | None:
    """The struct inside list[...] or ... | None, where there is one."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    return next((found for part in get_args(kind) if (found := _struct_in(part))), None)


def _options_of_groups(scenario: Scenario) -> Iterator[Finding]:
    for index, group in enumerate(scenario.groups()):
        base: Path_ = ("group", index) if scenario.group else ()
        family = scenario.family_of(group)
        if family not in FAMILIES:
            where = (*base, "family") if group.family else ("family",)
            if family in PROMISES:
                have = ", ".join(FAMILIES)
                yield where, f"family {family!r} does not run in this version; {have} does"
            else:
                yield where, unknown_word("family", family, PROMISES)
            return
        given = scenario.options_of(group)
        for key in given:
            known = [field.name for field in msgspec.structs.fields(FAMILIES[family].options)]
            if key not in known:
                own = key in group.options and scenario.group
                where = (*(base if own else ()), "options", key)
                yield where, unknown_word(f"option of {family}", key, known)
                return
        try:
            options_for(FAMILIES[family], given)
        except msgspec.ValidationError as error:
            inner, what = _located(str(error), FAMILIES[family].options)
            here = not inner or inner[0] in group.options
            where = (*(base if here else ()), "options", *inner)
            yield where, f"options{_dotted(inner, '.')}: {what}"


def _quantity(kind: type, value: object) -> object:
    if issubclass(kind, Quantity):
        return kind.parse(value)
    raise NotImplementedError


def _located(message: str, root: Any) -> tuple[Path_, str]:
    """msgspec says `what - at $.a[0].b`: taken apart, with the words that could stand there."""
    what, _, path = message.partition(" - at `$")
    steps = re.findall(r"\.([^.\[\]`]+)|\[(\d+)\]", path)
    where = tuple(name or int(index) for name, index in steps)
    if found := re.fullmatch(r"Invalid enum value '(.*)'", what, re.DOTALL):
        what = unknown_word("word", found[1], _words(_kind_at(root, where)))
    return where, what


def _kind_at(root: Any, where: Path_) -> Any:
    """The type that the schema has at a place. Items of a list lie inside the list's type."""
    for name in where:
        struct = _struct_in(root)
        if struct is not None and isinstance(name, str):
            fields = msgspec.structs.fields(struct)
            root = next((field.type for field in fields if field.encode_name == name), None)
    return root


def _words(kind: Any) -> list[str]:
    """The words that a Literal inside this type allows."""
    return [
        word
        for part in get_args(kind)
        for word in ([part] if isinstance(part, str) else _words(part))
    ]


def _dotted(where: Path_, prefix: str = "") -> str:
    text = "".join(f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in where)
    return text if prefix else text.lstrip(".")


FAULT_KINDS: tuple[str, ...] = get_args(msgspec.structs.fields(Fault)[1].type)
