"""Families are said once, in their folders: the pages derive from them, and no world names them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ordercast
from ordercast.check.history import PROMISES
from ordercast.check.laws import LAWS
from ordercast.errors import UsageError
from ordercast.kernel.family import Family
from ordercast.levels import choose, chosen, find_family, level_type
from ordercast.protocol.families import FAMILIES
from ordercast.protocol.fifo import FAMILY
from ordercast.protocol.planned import PLANNED
from ordercast.scenario.file import parse_scenario
from ordercast.testing import simulate

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
    live = {name: (list(each.laws), "**simulated and live**") for name, each in PROMISES.items()}
    assert listed == live | {name: (list(each.laws), "planned") for name, each in PLANNED.items()}


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
    laws = (*family.promises.laws, *family.promises.when_nothing_fails)
    assert set(laws) <= set(LAWS)
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
