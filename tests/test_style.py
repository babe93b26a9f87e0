"""The rules of the house that a machine can see. Each one is shown to find what it forbids."""

from __future__ import annotations

import ast
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

FILE_LINES = 500
FUNCTION_LINES = 60
COLUMNS = 100
EMPTY_NAMES = frozenset("util utils base manager managers helper helpers common misc".split())
EMPTY_VERBS = frozenset({"handle", "process"})

Complaints = Iterator[str]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def offences(check: Callable[[str], Complaints], paths: list[Path]) -> list[str]:
    """What a check of source text says about files, each with its place."""
    return [
        f"{path.relative_to(ROOT)}:{said}"
        for path in paths
        for said in check(path.read_text(encoding="utf-8"))
    ]


def functions_of(source: str) -> Iterator[Function]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Function):
            yield node


# --- size and shape --------------------------------------------------------------------------


def long_file(source: str) -> Complaints:
    count = len(source.splitlines())
    if count > FILE_LINES:
        yield f"1: {count} lines, {FILE_LINES} at most: a responsibility wants out"


def long_lines(source: str) -> Complaints:
    for number, line in enumerate(source.splitlines(), 1):
        if len(line) > COLUMNS:
            yield f"{number}: {len(line)} columns, {COLUMNS} at most"


def long_functions(source: str) -> Complaints:
    for function in functions_of(source):
        assert function.end_lineno is not None
        count = function.end_lineno - function.lineno + 1
        if count > FUNCTION_LINES:
            yield f"{function.lineno}: {function.name} has {count} lines, {FUNCTION_LINES} at most"


def missing_docstring(source: str) -> Complaints:
    if not ast.get_docstring(ast.parse(source)):
        yield "1: the module does not say what it is for"


# --- names -----------------------------------------------------------------------------------


def empty_file_name(path: str) -> Complaints:
    for part in Path(path).with_suffix("").parts:
        if part.strip("_").lower() in EMPTY_NAMES:
            yield f"{path}: a name that says nothing: {part}"


def empty_verbs(source: str) -> Complaints:
    for function in functions_of(source):
        verb = function.name.strip("_").partition("_")[0]
        if verb in EMPTY_VERBS:
            yield f"{function.lineno}: {function.name}: say what is done, not that it is {verb}d"


# --- tests and time --------------------------------------------------------------------------

CLOCKS = frozenset(
    f"{name}{unit}"
    for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time")
    for unit in ("", "_ns")
)


def waits_and_clocks(source: str) -> Complaints:
    """Sleeping, or reading the clock on the wall. `asyncio.sleep(0)` only gives way."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            for alias in node.names:
                if alias.name in CLOCKS | {"sleep"}:
                    yield f"{node.lineno}: time.{alias.name} in a test"
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            owner, _, name = called.rpartition(".")
            gives_way = (
                bool(node.args)
                and isinstance(node.args[0], ast.Constant)
                and not node.args[0].value
            )
            if (
                (owner == "time" and name in CLOCKS | {"sleep"})
                or (name in {"now", "utcnow", "today"} and owner.startswith(("datetime", "date")))
                or (owner in {"asyncio", "anyio", "trio"} and name == "sleep" and not gives_way)
            ):
                yield f"{node.lineno}: {called} in a test"


# --- the kernel's law: never iterate a set ---------------------------------------------------

SET_TYPES = frozenset("set frozenset Set FrozenSet AbstractSet MutableSet".split())
SET_METHODS = frozenset("union intersection difference symmetric_difference copy".split())
# What these make of an iterable does not depend on its order.
ORDER_FREE = frozenset("all any frozenset len max min set sorted sum".split())


def names_a_set_type(annotation: ast.expr | None) -> bool:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
    if isinstance(annotation, ast.Attribute):
        return annotation.attr in SET_TYPES
    return isinstance(annotation, ast.Name) and annotation.id in SET_TYPES


class SetIteration(ast.NodeVisitor):
    """Finds iteration over what can be seen to be a set: literals, calls, and annotated names.

    A heuristic: it follows no calls. Names are looked up in the function (or module) that
    binds them, attributes in the whole file.
    """

    def __init__(self, tree: ast.AST) -> None:
        self.found: list[tuple[int, str]] = []
        self.names: list[set[str]] = [set()]
        self.attributes: set[str] = set()
        self.free: set[ast.expr] = set()  # generators whose order does not matter
        for node in ast.walk(tree):
            if isinstance(node, ast.AnnAssign) and names_a_set_type(node.annotation):
                if isinstance(node.target, ast.Attribute):
                    self.attributes.add(node.target.attr)
            elif isinstance(node, ast.ClassDef):
                for field in node.body:
                    if isinstance(field, ast.AnnAssign) and names_a_set_type(field.annotation):
                        self.attributes.add(ast.unparse(field.target))

    def is_set(self, node: ast.expr) -> bool:
        match node:
            case ast.Set() | ast.SetComp():
                return True
            case ast.Call(func=ast.Name(id="set" | "frozenset")):
                return True
            case ast.Call(func=ast.Attribute(value=owner, attr=method)):
                return method in SET_METHODS and self.is_set(owner)
            case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.BitXor() | ast.Sub()):
                return self.is_set(left) or self.is_set(node.right)
            case ast.Name(id=name):
                return name in self.names[-1]
            case ast.Attribute(attr=name):
                return name in self.attributes
        return False

    def look(self, iterated: ast.expr) -> None:
        if self.is_set(iterated):
            self.found.append((iterated.lineno, ast.unparse(iterated)))

    def visit_FunctionDef(self, node: Function | ast.Lambda) -> None:
        known = set(self.names[-1])
        arguments = node.args
        for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            known.discard(each.arg)
            if names_a_set_type(each.annotation):
                known.add(each.arg)
        self.names.append(known)
        self.generic_visit(node)
        self.names.pop()

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if isinstance(node.target, ast.Name) and names_a_set_type(node.annotation):
            self.names[-1].add(node.target.id)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            if isinstance(target, ast.Name):
                (self.names[-1].add if self.is_set(node.value) else self.names[-1].discard)(
                    target.id
                )

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.look(node.iter)
        self.generic_visit(node)

    visit_AsyncFor = visit_For

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in ORDER_FREE and not (name in {"min", "max"} and node.keywords):
            self.free.update(node.args)
        elif name in {"list", "tuple", "iter", "enumerate", "zip", "map", "filter", "dict"}:
            for argument in node.args:
                self.look(argument)
        elif isinstance(node.func, ast.Attribute):
            if node.func.attr == "join" and node.args:
                self.look(node.args[0])
            elif node.func.attr == "pop" and self.is_set(node.func.value):
                self.found.append((node.lineno, ast.unparse(node)))
        self.generic_visit(node)

    def visit_Starred(self, node: ast.Starred) -> None:
        if node not in self.free:
            self.look(node.value)
        self.generic_visit(node)

    def visit_Set(self, node: ast.Set) -> None:
        self.free.update(node.elts)
        self.generic_visit(node)

    def visit_ListComp(self, node: ast.ListComp | ast.GeneratorExp | ast.DictComp) -> None:
        if node not in self.free:
            for generator in node.generators:
                self.look(generator.iter)
        self.generic_visit(node)

    visit_GeneratorExp = visit_DictComp = visit_ListComp  # a set made of a set is fine


def set_iteration(source: str) -> Complaints:
    tree = ast.parse(source)
    visitor = SetIteration(tree)
    visitor.visit(tree)
    for line, text in sorted(visitor.found):
        yield f"{line}: iterates a set ({text}): sort it, or keep a dict"


# --- the repository stands alone -------------------------------------------------------------


def tracked_files() -> list[Path]:
    """Files in the repository, or about to be; all but hidden ones where there is no git."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode == 0:
        names = [name for name in listed.stdout.decode().split("\0") if name]
        return [path for name in names if (path := ROOT / name).is_file()]
    return [
        path
        for path in ROOT.rglob("*")
        if path.is_file() and not any(p.startswith(".") for p in path.relative_to(ROOT).parts)
    ]


def places_here() -> list[str]:
    """Where this clone and this person's files are; nothing may depend on either."""
    shared = {Path("/"), Path(tempfile.gettempdir()), *(Path("/") / n for n in ("opt", "srv"))}
    return [f"{place}/" for place in (ROOT, ROOT.parent, Path.home()) if place not in shared]


HOMES = re.compile(r"(?<![\w.])/(?:(?:home|Users)/\w+|(?:root))/")
REGISTRIES = re.compile(
    r"--(?:extra-)?index[-]url|--find[-]links|file:[/]{3}\w"
    r"|https?://[^ ]*(?:/simple/|/packages/[0-9a-f]{2}/)"
)


def foreign_places(text: str, here: list[str]) -> Complaints:
    for number, line in enumerate(text.splitlines(), 1):
        if HOMES.search(line) or any(place in line for place in here):
            yield f"{number}: a path of one machine"
        if REGISTRIES.search(line):
            yield f"{number}: the address of a package registry"


def unhashed(lock: str) -> Complaints:
    """Requirements in a lock that are not pinned to one version and to hashes."""
    for entry in re.sub(r"\\\n", " ", lock).splitlines():
        if entry and not entry.lstrip().startswith("#"):
            name = entry.split()[0]
            if not re.fullmatch(r"[\w.-]+==[\w.]+", name):
                yield f"{name}: not one public version"
            if "--hash=sha256:" not in entry:
                yield f"{name}: no hash"


WORLDS = frozenset(
    "world driver host node process simulation simulated stage group queue mesh seat call".split()
)
"""What tests call worlds and their parts."""
OF_WORLDS = ("net", "sim", "live", "store", "testing", "kernel/host.py", "kernel/seat.py")
OF_MACHINES = ("protocol", "studies")
OF_TUPLES = frozenset({"_replace", "_asdict", "_fields", "_make"})


@cache
def private_names(*places: str) -> frozenset[str]:
    """What classes in these folders and files of src call their own private methods and fields."""
    return frozenset(
        name
        for place in places
        for path in [ROOT / "src/ordercast" / place, *python_files(f"src/ordercast/{place}")]
        if path.is_file()
        for name in _names_set_in(ast.parse(path.read_text(encoding="utf-8")))
        if _is_private(name)
    )


def _names_set_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Attribute(attr=name, ctx=ast.Store(), value=ast.Name(id="self")):
                yield name


def reaches_into_a_world(source: str) -> Complaints:
    """What a test wants of a world it asks for in public, or no other driver could be tested so.

    Neither of what is called like a world, nor by a name that only worlds have for a thing of
    theirs, whatever the test calls the world.
    """
    tree = ast.parse(source)
    modules = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    theirs = private_names(*OF_WORLDS) - private_names(*OF_MACHINES) - {*_names_set_in(tree)}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=owner, attr=name) if _is_private(name):
                pass
            case ast.Call(
                func=ast.Name(id="getattr" | "setattr") | ast.Attribute(attr="setattr"),
                args=[owner, ast.Constant(value=str(name)), *_],
            ) if _is_private(name):
                pass
            case _:
                continue
        while isinstance(owner, ast.Subscript | ast.Call):
            owner = owner.value if isinstance(owner, ast.Subscript) else owner.func
        called = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
        is_module = isinstance(owner, ast.Name) and called in modules and called.islower()
        if not is_module and (called in WORLDS or (name in theirs and called != "self")):
            yield f"{node.lineno}: {ast.unparse(node)}"


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in OF_TUPLES


# --- the rules, applied ----------------------------------------------------------------------

EVERYWHERE = ("src", "tests", "bench")
RULES: list[tuple[Callable[[str], Complaints], tuple[str, ...]]] = [
    (long_file, EVERYWHERE),
    (long_lines, EVERYWHERE),
    (long_functions, ("src",)),
    (missing_docstring, ("src",)),
    (empty_verbs, ("src", "bench")),
    (waits_and_clocks, ("tests",)),
    (reaches_into_a_world, ("tests",)),
    (set_iteration, ("src/ordercast/kernel", "src/ordercast/protocol")),
]


@pytest.mark.parametrize(("rule", "folders"), RULES, ids=[rule.__name__ for rule, _ in RULES])
def test_every_file_keeps_the_rule(
    rule: Callable[[str], Complaints], folders: tuple[str, ...]
) -> None:
    found = offences(rule, python_files(*folders))
    assert not found, "\n".join(found)


def test_file_names_say_something() -> None:
    paths = [str(path.relative_to(ROOT)) for path in python_files(*EVERYWHERE)]
    assert not [said for path in paths for said in empty_file_name(path)]


def test_a_class_name_means_one_thing() -> None:
    """Packets may share a name with others: traces have it, and their tag names the family."""
    places: dict[str, list[str]] = {}
    for path in python_files("src"):
        if path.name != "packets.py":
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_no_file_mentions_a_machine_or_a_registry() -> None:
    here, found = places_here(), []
    for path in tracked_files():
        text = path.read_bytes().decode("utf-8", errors="replace")
        found += [f"{path.relative_to(ROOT)}:{said}" for said in foreign_places(text, here)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", ["build.lock", "dev.lock"])
def test_locks_are_pinned_and_hashed(name: str) -> None:
    lock = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    assert "==" in lock
    assert not list(unhashed(lock))


# --- the rules find what they forbid ---------------------------------------------------------

BAD: list[tuple[Callable[[str], Complaints], str]] = [
    (long_file, "x = 1\n" * 501),
    (long_lines, "x = " + "1" * 97),
    (long_functions, "def f():\n" + "    x = 1\n" * 60),
    (long_functions, "class A:\n    async def f():\n" + "        x = 1\n" * 60),
    (missing_docstring, "x = 1"),
    (empty_file_name, "src/ordercast/utils.py"),
    (empty_file_name, "src/ordercast/common/clock.py"),
    (empty_verbs, "def handle_message(): ..."),
    (empty_verbs, "class A:\n    async def _process(self): ..."),
    (waits_and_clocks, "import time\ntime.sleep(1)"),
    (waits_and_clocks, "from time import perf_counter"),
    (waits_and_clocks, "start = time.monotonic_ns()"),
    (waits_and_clocks, "await asyncio.sleep(0.1)"),
    (waits_and_clocks, "datetime.datetime.now()"),
    (set_iteration, "for x in {1, 2}: pass"),
    (set_iteration, "for x in set(y) - z: pass"),
    (set_iteration, "a = [x for x in {y for y in z}]"),
    (set_iteration, "a = {x: 1 for x in frozenset(z)}"),
    (set_iteration, "b = list(set(z))"),
    (set_iteration, "b = [*set(z)]"),
    (set_iteration, "b = max((x for x in set(z)), key=len)"),
    (set_iteration, "b = ','.join({'a', 'b'})"),
    (set_iteration, "def f(peers: set[str]):\n    for p in peers: pass"),
    (set_iteration, "def f(peers: 'frozenset[str]'):\n    return tuple(peers)"),
    (set_iteration, "def f():\n    s = set()\n    for x in s: pass"),
    (set_iteration, "def f(self):\n    self.s: set[int] = set()\n    self.s.pop()"),
    (set_iteration, "class A:\n    s: set[int]\n    def f(self):\n        return list(self.s)"),
    (reaches_into_a_world, "plans = world._plans['n1']"),
    (reaches_into_a_world, "cluster.node('n1').driver._loop = asked"),
    (reaches_into_a_world, "stages[0].host._settings"),
    (reaches_into_a_world, "setattr(node, '_links', {})"),
    (reaches_into_a_world, "n2._directory.groups_of_others()"),
    (reaches_into_a_world, "monkeypatch.setattr(Process, '_talks_to', always)"),
    (lambda text: foreign_places(text, ["/clone/of/mine/"]), "see /clone/of/mine/notes"),
    (lambda text: foreign_places(text, []), "/home/" + "someone/notes"),
    (lambda text: foreign_places(text, []), "pip install --index" + "-url x"),
    (unhashed, "rich>=15.0.0 --hash=sha256:00"),
    (unhashed, "torch==2.0+cpu --hash=sha256:00"),
    (unhashed, "rich==15.0.0"),
]


@pytest.mark.parametrize(("rule", "text"), BAD)
def test_forbidden_things_are_found(rule: Callable[[str], Complaints], text: str) -> None:
    assert len(list(rule(text))) == 1


GOOD: list[tuple[Callable[[str], Complaints], str]] = [
    (long_file, "x = 1\n" * 500),
    (long_lines, "x = " + "1" * 96),
    (long_functions, "def f():\n" + "    x = 1\n" * 59),
    (empty_file_name, "src/ordercast/kernel/database.py"),
    (empty_verbs, "def processes(): ...\ndef handler(): ..."),
    (waits_and_clocks, "await asyncio.sleep(0)\nworld.time()\nstep.now()"),
    (set_iteration, "for x in sorted({2, 1}): pass"),
    (set_iteration, "a = {x + 1 for x in {1, 2}}"),
    (set_iteration, "ok = all(x in seen for x in {1, 2})"),
    (set_iteration, "s = {1}\ns = sorted(s)\nfor x in s: pass"),
    (set_iteration, "def f(x: dict[str, int]):\n    for k in x: pass\n    x.pop(1)"),
    (reaches_into_a_world, "from ordercast.cli import node\nnode._lines_of(1)"),
    (reaches_into_a_world, "class Own:\n    def _look(self): ...\nOwn()._look()"),
    (reaches_into_a_world, "world.plans\nsimulated._replace(rows=[])\nmachine._serve(step)"),
    (unhashed, "# a comment\nrich==15.0.0 \\\n    --hash=sha256:00"),
]


@pytest.mark.parametrize(("rule", "text"), GOOD)
def test_allowed_things_are_left_alone(rule: Callable[[str], Complaints], text: str) -> None:
    assert list(rule(text)) == []
