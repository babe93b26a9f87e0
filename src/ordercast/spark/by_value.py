"""Laws on their way to Spark's tasks: as values, so that nobody has to install them there.

A law of this package goes as a reference to its file. One that was defined elsewhere (a notebook, a
test) goes with the code of the module in which its judge or one of its forms is defined.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

from ordercast.check.law import Law

_OURS = "ordercast"


def pack(laws: Iterable[Law]) -> bytes:
    cloudpickle = import_module("pyspark.cloudpickle")
    several = tuple(laws)
    known = cloudpickle.list_registry_pickle_by_value()
    foreign = [one for one in _modules(several) if one.__name__ not in known]
    for module in foreign:
        cloudpickle.register_pickle_by_value(module)
    try:
        packed: bytes = cloudpickle.dumps(several)
        return packed
    finally:
        for module in foreign:
            cloudpickle.unregister_pickle_by_value(module)


def unpack(packed: bytes) -> tuple[Law, ...]:
    """In a task."""
    found: tuple[Law, ...] = import_module("pyspark.cloudpickle").loads(packed)
    return found


def _modules(laws: Iterable[Law]) -> list[ModuleType]:
    names = {part.__module__ for law in laws for part in _parts(law) if hasattr(part, "__module__")}
    everywhere = {_OURS, "__main__", *sys.stdlib_module_names}  # "__main__" goes by value anyway
    outside = sorted(name for name in names if name.partition(".")[0] not in everywhere)
    return [sys.modules[name] for name in outside if name in sys.modules]


def _parts(law: Law) -> Iterator[Any]:
    yield from (law.judge, law.select)
    yield from law.prove or ()
    yield from law.stream or ()
