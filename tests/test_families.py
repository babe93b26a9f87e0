"""Families are said once, in their folders: the pages derive from them, and no world names them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import ordercast
from ordercast.check.history import PROMISES
from ordercast.check.implications import with_implied
from ordercast.check.laws import LAWS
from ordercast.cli.live import judge
from ordercast.errors import UsageError
from ordercast.kernel.family import Family
from ordercast.kernel.packet import tag_of
from ordercast.levels import choose, chosen, find_family, level_type
from ordercast.live.supervisor import Gathered
from ordercast.protocol.families import FAMILIES, FOLDERS
from ordercast.protocol.fifo import FAMILY
from ordercast.scenario.file import parse_scenario
from ordercast.testing import simulate
from ordercast.types import GUARANTEES

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def rows_under(title: str) -> list[list[str]]:
    """The cells of the table below a title of the README."""
    lines = README.partition(f"{title}\n")[2].splitlines()
    table = [line for line in lines[: lines.index("", 2)] if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


# --- what pages say --------------------------------------------------------------------------


def test_the_readme_lists_the_laws_that_each_family_keeps() -> None:
    listed = {
        name.strip("`"): (laws.split(", "), status)
        for name, _, laws, status in rows_under("### What each family guarantees")
    }
    status = {True: "simulated", False: "**simulated and live**"}
    assert listed == {
        name: (kept(each.laws), status[bool(FAMILIES[name].not_live)])
        for name, each in PROMISES.items()
    }


def kept(laws: tuple[str, ...]) -> list[str]:
    """These laws, and those that follow from them, in the order of the laws."""
    names = with_implied(laws, LAWS.values())
    return [name for name in LAWS if name in names]


def test_the_readme_names_the_family_behind_each_level() -> None:
    rows = rows_under("## Which level to choose")
    assert [family.strip("`") for _, _, family in rows] == list(FAMILIES)
    for _, level, family in rows:
        asked = eval(f"ordercast.{level.strip('`')}", {"ordercast": ordercast})
        assert chosen(asked).family.name == family.strip("`")


# --- what a family must say ------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
def test_a_family_promises_laws_and_has_a_public_level(family: Family) -> None:
    assert family.promises is not None
    assert family.promises.source
    laws = kept((*family.promises.laws, *family.promises.when_nothing_fails))
    assert set(family.promises.laws + family.promises.when_nothing_fails) <= set(LAWS)
    assert {mutant.breaks for mutant in family.mutants.values()} <= set(laws)
    assert getattr(ordercast, level_type(family).__name__) is family.level


# --- which family a file means ---------------------------------------------------------------


def scenario_of(family: str, **options: object) -> dict[str, object]:
    return {"name": "x", "family": family, "processes": 3, "duration": "1s", "options": options}


def test_total_by_a_sequencer_is_sequenced_in_scenario_files() -> None:
    by_option = simulate(parse_scenario(scenario_of("total", by="sequencer", window=9)), 1)
    by_name = simulate(parse_scenario(scenario_of("sequenced", window=9)), 1)
    assert by_option.trace.rows == by_name.trace.rows
    assert by_option.trace.header.family == "sequenced"
    assert by_option.verdicts == by_name.verdicts
    everyone = simulate(parse_scenario(scenario_of("total", by="everyone")), 1)
    assert everyone.trace.header.family == "total"
    assert everyone.trace.rows != by_name.trace.rows


def test_groups_of_one_file_may_be_ordered_by_different_members() -> None:
    document = scenario_of("total")
    document["group"] = [
        {"name": "a", "members": ["n1", "n2"]},
        {"name": "b", "members": ["n1", "n2", "n3"], "options": {"by": "sequencer"}},
    ]
    simulated = simulate(parse_scenario(document), 1)
    groups = simulated.trace.header.parameters["group"]
    assert [group["family"] for group in groups] == [None, "sequenced"]
    assert "total-in-view" in {verdict.law for verdict in simulated.verdicts}
    assert not simulated.broken


def test_a_name_that_settles_an_option_is_not_contradicted() -> None:
    assert choose("sequenced", {"by": "sequencer"}).family.name == "sequenced"
    with pytest.raises(UsageError, match=r"options.by: sequenced has 'sequencer' here"):
        parse_scenario(scenario_of("sequenced", by="everyone"))
    with pytest.raises(UsageError, match=re.escape("options.by")):
        parse_scenario(scenario_of("total", by="nobody"))


ELSEWHERE = FAMILY._replace(name="elsewhere")
NO_FAMILY = "some text"


def test_a_scenario_may_name_a_family_that_lives_elsewhere() -> None:
    word = f"{__name__}:ELSEWHERE"
    simulated = simulate(parse_scenario(scenario_of(word, window=9)), 1)
    assert simulated.trace.header.family == "elsewhere"
    assert simulated.trace.header.parameters["family"] == "elsewhere"
    assert simulated.outcome.delivered
    assert not simulated.broken
    assert [verdict.law for verdict in simulated.verdicts] == list(PROMISES["fifo"].laws)


def test_a_live_run_of_a_family_that_lives_elsewhere_is_held_to_its_promises() -> None:
    scenario = parse_scenario(scenario_of(f"{__name__}:ELSEWHERE"))
    lived = judge(scenario, 1, Gathered([], began=0, ended=1, error=None))
    assert [verdict.law for verdict in lived.verdicts] == list(PROMISES["fifo"].laws)


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("fifi", "family"),
        ("nowhere.at_all:FAMILY", "No module named"),
        (f"{__name__}:NOBODY", "has no attribute"),
        (f"{__name__}:NO_FAMILY", "is str, and not a Family"),
        (":", "family ':'"),
    ],
)
def test_a_family_that_is_not_there_is_named(word: str, why: str) -> None:
    with pytest.raises(UsageError, match=re.escape(why)):
        find_family(word)
    with pytest.raises(UsageError, match=re.escape(why)):
        parse_scenario(scenario_of(word))


# --- no generic package names one ------------------------------------------------------------

SOURCE = ROOT / "src" / "ordercast"
GENERIC = tuple(
    "kernel scenario sim net live check spark trace store wire testing report cli".split()
)
LISTS = ("ordercast.protocol.families",)
"""All that a generic package may know of families: that there are some."""
OPTIONS = frozenset(
    name for family in FAMILIES.values() for name in level_type(family).__struct_fields__
)
TAGS = frozenset(  # but not of packets that the kernel has for several families
    tag_of(kind)
    for family in FAMILIES.values()
    for kind in family.packets
    if not kind.__module__.startswith("ordercast.kernel.")
)
JUDGES = ("check", "spark")
"""Where names of families are names of laws: fifo, causal, total."""
WORD = re.compile(r"[A-Za-z_][\w-]*")
ALLOWED = {
    ("cli/demo.py", "imports ordercast.studies.demonstration"): "it runs and tells that one",
    ("cli/demo.py", "names the family causal"): "the demonstration is of a causal cluster",
    ("cli/demo.py", "names the family fifo"): "and of a fifo group with a planted bug",
    ("cli/demo.py", "names the family gossip"): "and tells what gossip misses",
    ("cli/demo.py", "names the option recovery"): "without recovery",
    ("report/demo_page.py", "names the family causal"): "the page of the demonstration",
    ("report/demo_page.py", "names the family fifo"): "the same",
    ("cli/plan.py", "imports ordercast.studies"): "the command of a study: a planner of gossip",
    ("cli/plan.py", "imports ordercast.studies.planner"): "the same",
    ("cli/plan.py", "imports ordercast.studies.rounds"): "the same",
    ("cli/plan.py", "names the family gossip"): "the same",
    ("cli/plan.py", "names the option recovery"): "the same",
    ("cli/plan.py", "names the option events_per_message"): "the same",
    ("cli/plan.py", "names the option recovery_buffer"): "the same",
    ("cli/plan_feed.py", "imports ordercast.studies"): "the command of a study: trees of a feed",
    ("cli/plan_feed.py", "imports ordercast.studies.tree_costs"): "the same",
    ("cli/plan_feed.py", "imports ordercast.studies.tree_spread"): "the same",
    ("cli/plan_feed.py", "names the family gossip"): "beside gossip",
    ("cli/plan_feed.py", "names the family feed"): "the same",
    ("cli/plan.py", "names the family feed"): "the name of that command",
    (
        "net/message.py",
        "names the option window_size",
    ): "every family calls it so",
    ("check/metrics/recovery.py", "names the option recovery"): "the measure of `recover` rows",
}
"""What generic files may name after all, and why."""


def files_in(*packages: str) -> list[Path]:
    return [path for package in packages for path in sorted((SOURCE / package).rglob("*.py"))]


@cache
def names_defined_in(*packages: str) -> frozenset[str]:
    """What the classes of these packages call their own fields and methods."""
    found: set[str] = set()
    for path in files_in(*packages):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found.add(node.attr)
            for part in node.body if isinstance(node, ast.ClassDef) else ():
                match part:
                    case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                        found.add(name)
                    case ast.AnnAssign(target=ast.Name(id=name)):
                        found.add(name)
    return frozenset(found)


def leaks(text: str, room: str = "") -> Iterator[str]:
    """Where a program knows of a family: imports, packets, options, and words in its texts."""
    tree = ast.parse(text)
    own = set(names_defined_in(*GENERIC)) | set(dir(str)) | set(dir(list))
    telling = OPTIONS - own
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module)):
                if module.startswith("ordercast.studies"):
                    own |= names_defined_in("studies")
                    yield f"{node.lineno}: imports {module}"
                if module.startswith("ordercast.protocol") and module not in LISTS:
                    yield f"{node.lineno}: imports {module}"
            case ast.Import(names=names):
                for alias in names:
                    if alias.name.startswith(("ordercast.protocol", "ordercast.studies")):
                        yield f"{node.lineno}: imports {alias.name}"
    for node in texts_in(tree):
        for word in dict.fromkeys(WORD.findall(node.value)):
            if word in FAMILIES and not (room in JUDGES and word in (*LAWS, *GUARANTEES)):
                yield f"{node.lineno}: names the family {word}"
            if word in telling:
                yield f"{node.lineno}: names the option {word}"
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) if name in OPTIONS and name not in own:
                yield f"{node.lineno}: reads the option {name}"
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=name), *_]):
                if name in OPTIONS and name not in own:
                    yield f"{node.lineno}: reads the option {name}"
            case ast.Constant(value=str(text)) if text in TAGS:
                yield f"{node.lineno}: names the packet {text}"


def texts_in(tree: ast.AST) -> Iterator[Any]:
    """Strings, but for those that only describe what follows or comes before them."""
    described = {
        id(part.value)
        for node in ast.walk(tree)
        if isinstance(body := getattr(node, "body", None), list)
        for part in body
        if isinstance(part, ast.Expr)
    }
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in described:
            yield node


def leaks_of(path: Path) -> list[tuple[str, str]]:
    """The file, and what it knows."""
    file = path.relative_to(SOURCE)
    found = leaks(path.read_text(encoding="utf-8"), file.parts[0])
    return [(file.as_posix(), leak.partition(": ")[2]) for leak in found]


@pytest.mark.parametrize("path", files_in(*GENERIC), ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_generic_package_knows_a_family(path: Path) -> None:
    assert not [leak for leak in leaks_of(path) if leak not in ALLOWED]


def test_nothing_is_allowed_that_no_file_does() -> None:
    found = {leak for path in files_in(*GENERIC) for leak in leaks_of(path)}
    assert not set(ALLOWED) - found


def test_only_options_that_mean_something_generic_too_go_unseen() -> None:
    """A word that generic classes use for a thing of their own says nothing about a family."""
    unseen = OPTIONS & names_defined_in(*GENERIC)
    seen = {"updaters", "ownership", "invitations", "heartbeat", "fan_out", "window_size"}
    assert not unseen & seen
    assert len(OPTIONS - unseen) > len(OPTIONS) / 2


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from ordercast.protocol.fifo import FAMILY", "1: imports ordercast.protocol.fifo"),
        ("import ordercast.protocol.newtop.packets", "1: imports ordercast.protocol.newtop"),
        ("def f(o):\n    return o.updaters", "2: reads the option updaters"),
        ("x = getattr(o, 'window_size', 1)", "1: reads the option window_size"),
        ("x = kind == 'fifo.data'", "1: names the packet fifo.data"),
        ("family: str = 'fifo'", "1: names the family fifo"),
        ("x = f'{y}: its updaters are named'", "1: names the option updaters"),
        ("x = '''\nfamily = \"causal\"\n'''", "1: names the family causal"),
        ("from ordercast.studies.rounds import reach", "1: imports ordercast.studies.rounds"),
        ("import ordercast.studies.planner", "1: imports ordercast.studies.planner"),
    ],
)
def test_a_leak_is_found(text: str, found: str) -> None:
    assert [leak for leak in leaks(text) if leak.startswith(found)]


def test_families_of_this_version_are_found_in_their_folders_alone() -> None:
    listed = [f"{folder.__name__.rpartition('.')[2]}" for folder in FOLDERS]
    assert listed == ["fifo", "cluster", "newtop", "transis", "hpp"]
    text = (SOURCE / "protocol" / "families.py").read_text(encoding="utf-8")
    assert not [name for name in FAMILIES if f'"{name}"' in text]
