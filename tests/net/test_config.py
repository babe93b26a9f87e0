"""A node's settings: what may be a name, and how wrong ones are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

import ordercast
from ordercast import Config, UsageError
from ordercast.net.config import GroupRules, table_of
from ordercast.types import objection_to_group

GOOD = ["orders", "world/7", "a", "x" * 100, "A.b_c-d/e", "/", "0"]
WRONG = ["", "x" * 101, "two words", "new\n", "é", "a:b", 'a"b', 7, None, b"orders"]


@pytest.mark.parametrize("name", GOOD)
def test_valid_names_of_groups_are_accepted(name: str, tmp_path: Path) -> None:
    assert objection_to_group(name) is None
    path = tmp_path / "n1.toml"
    path.write_text(f'name = "n1"\n{table_of(name)}\nmembers = ["n1"]\n', encoding="utf-8")
    assert ordercast.open(path).config.group == {name: GroupRules(members=["n1"])}


@pytest.mark.parametrize("name", WRONG)
def test_invalid_names_of_groups_are_rejected(name: object) -> None:
    objection = objection_to_group(name)
    assert objection is not None
    assert objection.endswith("is no name for a group: give 1 to 100 letters, digits and . _ - /")
    assert len(objection) < 200


def test_a_wrong_name_in_a_file_is_reported_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "n1.toml"
    path.write_text('name = "n1"\n[group."two words"]\n', encoding="utf-8")
    with pytest.raises(UsageError, match=r"n1\.toml.*'two words' is no name for a group"):
        ordercast.open(path)
    with pytest.raises(ValueError, match="'two words' is no name for a group"):
        Config(name="n1", group={"two words": GroupRules()})


def test_names_of_nodes_have_no_slash() -> None:
    with pytest.raises(UsageError, match="name"):
        ordercast.open(name="world/7")


def test_tables_are_quoted_where_toml_wants_it() -> None:
    assert table_of("orders") == "[group.orders]"
    assert table_of("world/7") == '[group."world/7"]'
    assert table_of("v1.2") == '[group."v1.2"]'


def test_the_limit_per_peer_is_written_as_a_size() -> None:
    assert ordercast.open(name="n1").config.peer_limit == 32 << 20
    assert ordercast.open(name="n1", peer_limit="1MiB").config.peer_limit == 1 << 20
    with pytest.raises(UsageError, match="peer_limit: '1 lot' is not a size"):
        ordercast.open(name="n1", peer_limit="1 lot")
