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
        raise UsageError(f"{path}: not TOML: {error}") from error
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
        where, what = _located(str(error))
        key = _dotted(where)
        raise fail(where, f"{key}: {what}" if key else what) from error
    for finding in _options_of_groups(scenario):
        raise fail(*finding)
    for finding in findings(scenario):
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
        if path == where[: len(path)] and len(path) > depth:
            best, depth = number, len(path)
    return best


def _keys_of(text: str) -> Iterator[tuple[int, Path_]]:
    """Every header and every key with its line. Enough of TOML to point at a line, no more."""
    header: Path_ = ()
    seen: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if found := re.match(r"\s*(\[\[?)\s*([^\]]+?)\s*\]", line):
            header = tuple(part.strip(" \"'") for part in found[2].split("."))
            if found[1] == "[[":
                seen[found[2]] = seen.get(found[2], -1) + 1
                header = (*header, seen[found[2]])
            yield number, header
        elif found := re.match(r"\s*([A-Za-z0-9_.\"'-]+)\s*=", line):
            yield number, (*header, *(part.strip("\"'") for part in found[1].split(".")))


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
            inner, what = _located(str(error))
            yield (*base, "options", *inner), f"options{_dotted(inner, '.')}: {what}"


def _quantity(kind: type, value: object) -> object:
    if issubclass(kind, Quantity):
        return kind.parse(value)
    raise NotImplementedError


def _located(message: str) -> tuple[Path_, str]:
    """msgspec says `what - at $.a[0].b`: taken apart."""
    what, _, path = message.partition(" - at `$")
    steps = re.findall(r"\.([^.\[\]`]+)|\[(\d+)\]", path)
    return tuple(name or int(index) for name, index in steps), what


def _dotted(where: Path_, prefix: str = "") -> str:
    text = "".join(f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in where)
    return text if prefix else text.lstrip(".")


FAULT_KINDS: tuple[str, ...] = get_args(msgspec.structs.fields(Fault)[1].type)
