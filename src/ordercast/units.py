"""Durations, sizes and rates as people write them: "2ms", "4MiB", "100MB/s"."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from types import NoneType
from typing import ClassVar, Self, get_args, get_type_hints

import msgspec

_NANOSECONDS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_WRITTEN = re.compile(r"(\d{1,999}(?:\.\d{1,999})?)\s*([A-Za-z/]+)")


class Quantity(int):
    """A whole number that people write with a unit. Each kind knows its units."""

    units: ClassVar[dict[str, int]] = {}
    example = ""
    bare = False  # whether a number alone is clear enough

    @classmethod
    def parse(cls, text: object) -> Self:
        """From text with a unit. ValueError says what would have been right."""
        if cls.bare and type(text) is int and 0 <= text < 1 << 62:
            return cls(text)
        found = _WRITTEN.fullmatch(text.strip()) if isinstance(text, str) else None
        if not found or found[2] not in cls.units:
            shown = repr(text) if len(repr(text)) < 60 else f"{repr(text)[:50]}..."
            raise ValueError(
                f"{shown} is not a {cls.__name__.lower()}: write a number with a unit "
                f"({', '.join(cls.units)}), such as {cls.example!r}"
            )
        value = cls(round(Decimal(found[1]) * cls.units[found[2]]))
        if value >= 1 << 62:
            raise ValueError(f"{found[1][:20]}{'...' * (len(found[1]) > 20)} is too large")
        return value


class Duration(Quantity):
    """Nanoseconds."""

    units: ClassVar = _NANOSECONDS
    example = "2ms"

    def __str__(self) -> str:
        for unit in ("h", "min", "s", "ms", "us"):
            if self and self % _NANOSECONDS[unit] == 0:
                return f"{self // _NANOSECONDS[unit]}{unit}"
        return f"{int(self)}ns"


class Size(Quantity):
    """Bytes."""

    units: ClassVar = _BYTES
    example = "4MiB"
    bare = True

    def __str__(self) -> str:
        for unit in ("GiB", "MiB", "KiB", "GB", "MB", "kB"):
            if self and self % _BYTES[unit] == 0:
                return f"{self // _BYTES[unit]}{unit}"
        return f"{int(self)}B"


class Rate(Quantity):
    """Bytes a second."""

    units: ClassVar = {f"{unit}/s": factor for unit, factor in _BYTES.items()}
    example = "100MB/s"

    def __str__(self) -> str:
        return f"{Size(self)}/s"


def take_units(struct: msgspec.Struct) -> None:
    """Lets a struct be made with quantities as people write them: `Fifo(heartbeat="50ms")`.

    For `__post_init__`: fields that hold text where a quantity belongs are converted. TypeError:
    there is text where a number belongs.
    """
    for name in _numbers_of(type(struct)):
        value = getattr(struct, name)
        if isinstance(value, str):
            raise TypeError(
                f"{type(struct).__name__}: {name}: expected a number, not the text {value!r}"
            )
    for name, kind in _quantities_of(type(struct)).items():
        value = getattr(struct, name)
        if isinstance(value, str):
            msgspec.structs.force_setattr(struct, name, kind.parse(value))


@lru_cache(maxsize=256)
def _quantities_of(kind: type[msgspec.Struct]) -> dict[str, type[Quantity]]:
    found = {}
    for name, hint in get_type_hints(kind).items():
        for part in (hint, *get_args(hint)):
            if isinstance(part, type) and issubclass(part, Quantity):
                found[name] = part
    return found


@lru_cache(maxsize=256)
def _numbers_of(kind: type[msgspec.Struct]) -> list[str]:
    """Fields that hold a number, or nothing."""
    hints = get_type_hints(kind).items()
    return [name for name, hint in hints if {*(get_args(hint) or [hint])} <= {int, float, NoneType}]


MILLISECOND = 10**6
SECOND = 10**9
