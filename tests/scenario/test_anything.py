"""Whatever a scenario file says, it loads or its writer is told what is wrong."""

from __future__ import annotations

import copy
import datetime
import tomllib
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scenario.test_file import EVERYTHING

from ordercast.errors import UsageError
from ordercast.scenario.file import load_scenario, parse_scenario

PLAIN = st.one_of(
    st.booleans(),
    st.integers(),
    st.integers(-(10**40), 10**40),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["1s", "0s", "9e9h", "5MB", "n1", "n9", "all", "crash", "partition", "fifo"]),
    st.dates().map(lambda date: datetime.datetime(date.year, date.month, date.day)),
)
ANYTHING = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
DOCUMENT = tomllib.loads(EVERYTHING)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container in a document with each of its keys or indexes."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, item in inner:
        found.append((value, key))
        if isinstance(item, dict | list):
            found += places(item)
    return found


@settings(max_examples=300, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_document_loads_or_is_rejected_with_a_sentence(data: st.DataObject) -> None:
    document = copy.deepcopy(DOCUMENT)
    for _ in range(data.draw(st.integers(1, 4))):
        container, key = data.draw(st.sampled_from(places(document)))
        change = data.draw(st.sampled_from(["replace", "delete", "rename"]))
        if change == "replace":
            container[key] = data.draw(ANYTHING)
            continue
        item = container.pop(key)
        if change == "rename" and isinstance(container, dict):
            container[data.draw(st.text(max_size=8))] = item
    with suppress(UsageError):
        parse_scenario(document)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_text_loads_or_is_rejected_with_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    begin = data.draw(st.integers(0, len(EVERYTHING)))
    end = data.draw(st.integers(begin, min(begin + 30, len(EVERYTHING))))
    pieces = st.sampled_from([*'[]{}"=.,#\n ', "[[fault]]", '"""', "nan", "0x1", "'"])
    between = data.draw(st.lists(pieces, max_size=3).map("".join) | st.text(max_size=4))
    path = tmp_path_factory.getbasetemp() / "anything.toml"
    text = EVERYTHING[:begin] + between + EVERYTHING[end:]
    path.write_bytes(text.encode())
    with suppress(UsageError):
        load_scenario(path)
