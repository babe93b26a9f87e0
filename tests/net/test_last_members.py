"""What a node's folder remembers about the groups that it was in."""

from __future__ import annotations

from pathlib import Path

import pytest

from ordercast.errors import DiskError, UsageError
from ordercast.net.last_members import MOST_NAMES, LastMembers


def test_the_last_members_of_a_group_are_found_again(tmp_path: Path) -> None:
    first = LastMembers(tmp_path)
    assert first.of("orders") == ()
    first.note("orders", ["n2", "n1"])
    first.note("prices", ["n1"])
    again = LastMembers(tmp_path)
    assert again.of("orders") == ("n1", "n2")
    assert again.of("prices") == ("n1",)
    assert again.drop("n3") == []
    assert again.drop("n2") == ["orders"]
    assert LastMembers(tmp_path).of("orders") == ("n1",)
    again.forget()
    assert LastMembers(tmp_path).of("orders") == ()


def test_nothing_is_written_that_has_not_changed(tmp_path: Path) -> None:
    members = LastMembers(tmp_path)
    members.note("orders", ["n1"])
    (tmp_path / "groups").unlink()
    members.note("orders", ["n1"])
    assert not (tmp_path / "groups").exists()


def test_of_many_members_some_are_remembered(tmp_path: Path) -> None:
    members = LastMembers(tmp_path)
    names = [f"n{number:04}" for number in range(1000)]
    members.note("orders", names)
    assert members.of("orders") == tuple(names[:MOST_NAMES])
    (tmp_path / "groups").unlink()
    members.note("orders", names[1:])
    assert not (tmp_path / "groups").exists(), "one member more or less is no news"


def test_a_damaged_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "groups").write_bytes(b'{"orders": 7}')
    with pytest.raises(UsageError, match="groups is damaged"):
        LastMembers(tmp_path)


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    members = LastMembers(tmp_path / "gone")
    with pytest.raises(DiskError, match="groups cannot be written"):
        members.note("orders", ["n1"])
