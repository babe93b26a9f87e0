"""The tables of docs/laws.md are those that the law files make: `make golden` writes them again."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ordercast.check.implications import implications
from ordercast.check.laws import LAWS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "laws.md"


def laws_table() -> Iterator[tuple[str, ...]]:
    yield "law", "says", "unknown if"
    for law in LAWS.values():
        says = f"{law.says}; {law.remark}" if law.remark else law.says
        yield f"`{law.name}`", says, law.unknown_when


def implications_table() -> Iterator[tuple[str, ...]]:
    yield "if these hold", "this one is not broken", "because", "source"
    for law, one in implications(LAWS.values()):
        given = ", ".join(f"`{name}`" for name in (law.name, *one.given))
        yield given, f"`{one.law}`", one.because, one.source


def forms_table() -> Iterator[tuple[str, ...]]:
    yield "law", "vector form", "proof over slices", "streaming form"
    for law in LAWS.values():
        skeleton = "skeleton rows" if law.skeleton_only else ""
        forms = (law.select, law.prove, law.stream)
        shown = ["yes" if form else "" for form in forms]
        yield f"`{law.name}`", skeleton or shown[0], skeleton or shown[1], shown[2]


TABLES = {"laws": laws_table, "implications": implications_table, "forms": forms_table}


def table(rows: Iterator[tuple[str, ...]]) -> str:
    head = next(rows)
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines).replace("|  |", "| |")


@pytest.mark.parametrize("name", TABLES)
def test_the_page_has_the_table(name: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    expected = table(TABLES[name]())
    mark = re.compile(rf"(?<=<!-- {name}, from the law files -->\n)(?:\|.*\n)*")
    found = mark.search(text)
    assert found is not None, f"{PAGE} has no place for the table {name!r}"
    if os.environ.get("ORDERCAST_GOLDEN") == "rewrite":
        PAGE.write_text(text[: found.start()] + expected + text[found.end() :], encoding="utf-8")
        return
    assert found[0] == expected
