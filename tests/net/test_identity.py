"""Who a node is: the incarnation grows, is never used twice, and belongs to one process."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from ordercast.errors import UsageError
from ordercast.kernel.identity import COUNTED, LAST
from ordercast.net.identity import Identity, new_birth, number_from_zero
from ordercast.types import NodeId
from ordercast.units import MILLISECOND
from ordercast.wire.greeting import SAME_AGE, is_earlier


def incarnations(folder: Path, count: int) -> list[NodeId]:
    """As many starts. An empty folder begins at 0."""
    found = []
    for _ in range(count):
        identity = Identity(folder, "n1", "shop")
        first = identity.is_new
        begun = identity.begin(0, reborn=False) if first else identity.next()
        found.append(begun.node)
        identity.release()
    return found


def test_every_start_is_a_new_incarnation(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there" / "yet"
    assert incarnations(folder, 3) == [NodeId("n1", 0), NodeId("n1", 1), NodeId("n1", 2)]


def test_an_incarnation_is_on_disk_before_the_node_sends_anything(tmp_path: Path) -> None:
    identity = Identity(tmp_path, "n1", "shop")
    assert not (tmp_path / "incarnation").exists()
    identity.begin(7, reborn=False)
    assert (tmp_path / "incarnation").read_text() == "7\n"
    identity.release()


def test_only_the_owner_can_read_the_files_of_a_folder(tmp_path: Path) -> None:
    number_from_zero(tmp_path / "n1")
    assert (tmp_path / "n1" / "incarnation").stat().st_mode & 0o777 == 0o600
    incarnations(tmp_path / "n1", 1)
    modes = {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "n1").iterdir()}
    assert modes == dict.fromkeys(["incarnation", "lock", "original", "owner"], 0o600)


def test_every_start_has_another_birth(tmp_path: Path) -> None:
    identity = Identity(tmp_path, "n1", "shop")
    births = {identity.begin(number, reborn=False).birth for number in range(5)}
    assert len(births) == 5
    assert {len(birth) for birth in births} == {8}
    identity.release()


@pytest.mark.parametrize("skew", [-4000, -500, 0, 500, 4000])
def test_all_nodes_judge_alike_which_of_two_was_opened_first(skew: int) -> None:
    """Each measures the ages itself, while a greeting may take 300 ms. The clocks of the two differ
    by some seconds."""
    for apart in range(0, 10_000, 50):  # milliseconds
        births = [new_birth(1_800_000_000_000 * MILLISECOND)]
        births.append(new_birth((1_800_000_000_000 + apart + skew) * MILLISECOND))
        seen = {
            is_earlier(20_000 + late, births[0], 20_000 - apart + later, births[1])
            for late in (0, 300)
            for later in (0, 300)
        }
        assert len(seen) == 1, apart
        if apart > SAME_AGE + 300 or (apart > 10 and not skew):
            assert seen == {True}, "it is the one that was first"


def test_an_incarnation_that_follows_another_in_one_process_is_as_old(tmp_path: Path) -> None:
    identity = Identity(tmp_path, "n1", "ordercast")
    first = identity.begin(3, reborn=False)._replace(birth=new_birth(10**18), opened_at=77)
    second = identity.begin(4, reborn=True).reopened_from(first)
    assert (second.node.incarnation, second.opened_at) == (4, 77)
    assert second.birth != first.birth
    between = new_birth(10**18 + 1000 * MILLISECOND)
    assert is_earlier(9, second.birth, 8, between)
    identity.release()


def test_a_number_is_never_used_again(tmp_path: Path) -> None:
    identity = Identity(tmp_path, "n1", "shop")
    identity.begin(7, reborn=False)
    for number in (-1, 6, 7, LAST + 1):
        with pytest.raises(UsageError, match=f"cannot hold {number}, which is no incarnation"):
            identity.begin(number, reborn=False)
    assert (tmp_path / "incarnation").read_text() == "7\n"
    identity.release()


def test_a_folder_remembers_that_its_name_had_another_one(tmp_path: Path) -> None:
    identity = Identity(tmp_path, "n1", "shop")
    assert (identity.is_new, identity.is_reborn) == (True, False)
    identity.begin(7, reborn=True)
    identity.release()
    again = Identity(tmp_path, "n1", "shop")
    assert (again.is_new, again.is_reborn) == (False, True)
    assert again.next().node == NodeId("n1", 8)
    again.release()
    assert (tmp_path / "incarnation").read_text() == "8\nreborn\n"


def test_a_drawn_number_is_the_first_of_its_folder(tmp_path: Path) -> None:
    """What others have met below it was of a folder that is lost."""
    identity = Identity(tmp_path, "n1", "shop")
    identity.draw(700)
    assert (tmp_path / "incarnation").read_text() == "700\ndrawn 700\n"
    identity.release()
    again = Identity(tmp_path, "n1", "shop")
    assert again.next().node == NodeId("n1", 701)
    assert [again.is_foreign(number) for number in (0, 699, 700, 701)] == [True, True, False, False]
    assert not again.is_reborn
    assert again.note_reborn() == (tmp_path / "incarnation", b"701\nreborn\n")
    assert again.is_reborn
    assert not again.is_foreign(0), "that is known now"
    again.release()


def test_a_folder_can_be_told_to_number_from_zero(tmp_path: Path) -> None:
    number_from_zero(tmp_path / "n1")
    assert incarnations(tmp_path / "n1", 2) == [NodeId("n1", 0), NodeId("n1", 1)]


def test_a_folder_belongs_to_one_process(tmp_path: Path) -> None:
    first = Identity(tmp_path, "n1", "shop")
    first.begin(0, reborn=False)
    with pytest.raises(UsageError, match="is in use: is n1 running already"):
        Identity(tmp_path, "n1", "shop")
    first.release()
    assert incarnations(tmp_path, 1) == [NodeId("n1", 1)], (
        "a start that was refused used up no incarnation"
    )


# --- copies ------------------------------------------------------------------------------------


def test_a_copied_folder_has_other_numbers_than_the_original(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    original, copies = tmp_path / "original", [tmp_path / f"copy{number}" for number in range(3)]
    incarnations(original, 2)
    for copy in copies:
        shutil.copytree(original, copy)
    assert incarnations(original, 2) == [NodeId("n1", 2), NodeId("n1", 3)]
    assert not caplog.messages
    for copy in copies:
        first, second = incarnations(copy, 2)
        assert 1 + COUNTED <= first.incarnation < 1 + COUNTED + 64
        assert second.incarnation == first.incarnation + 1, "it is an original now"
        assert f"{copy} was copied, or restored: n1 goes on" in caplog.text


def test_a_folder_that_was_moved_is_no_copy(tmp_path: Path) -> None:
    incarnations(tmp_path / "here", 1)
    (tmp_path / "here").rename(tmp_path / "there")
    assert incarnations(tmp_path / "there", 1) == [NodeId("n1", 1)]


@pytest.mark.parametrize("mark", [b"", b"1 2\n", b"\xff"])
def test_a_folder_with_a_strange_mark_counts_as_a_copy(tmp_path: Path, mark: bytes) -> None:
    incarnations(tmp_path, 1)
    (tmp_path / "original").write_bytes(mark)
    assert incarnations(tmp_path, 1)[0].incarnation >= COUNTED


# --- used up -----------------------------------------------------------------------------------


def test_a_name_says_in_time_that_its_numbers_are_running_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    identity = Identity(tmp_path, "n1", "shop")
    identity.begin(LAST // 2, reborn=False)
    assert not caplog.messages
    identity.begin(LAST // 2 + 2, reborn=False)
    assert "n1 has used more than half of its numbers: 2097150 of 4194303 are left" in caplog.text
    identity.begin(LAST, reborn=False)
    assert identity.numbers_left == 0
    with pytest.raises(UsageError, match=r"are used up\. Let all nodes forget it, and delete its"):
        identity.next()
    identity.release()
    with pytest.raises(UsageError, match=r"are used up\. Let all nodes forget it, and delete its"):
        Identity(tmp_path, "n1", "shop")


# --- whose folder it is ------------------------------------------------------------------------


def content(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


@pytest.mark.parametrize(("name", "cluster"), [("n2", "shop"), ("n1", "bank"), ("n1#0", "shop")])
def test_a_folder_of_another_node_or_cluster_is_not_touched(
    tmp_path: Path, name: str, cluster: str
) -> None:
    incarnations(tmp_path, 2)
    assert (tmp_path / "owner").read_text() == "n1 of cluster shop\n"
    before = content(tmp_path)
    said = f"{tmp_path} holds the data of n1 of cluster shop: {name} of cluster {cluster} needs"
    with pytest.raises(UsageError, match=re.escape(said)):
        Identity(tmp_path, name, cluster)
    assert content(tmp_path) == before
    assert incarnations(tmp_path, 1) == [NodeId("n1", 2)]


def test_a_folder_that_does_not_say_whose_it_is_belongs_to_the_first_that_starts(
    tmp_path: Path,
) -> None:
    """It is of an older version. A start that fails before it has a number leaves it as it is."""
    (tmp_path / "incarnation").write_text("4\n")
    Identity(tmp_path, "n2", "shop").release()
    assert incarnations(tmp_path, 2) == [NodeId("n1", 5), NodeId("n1", 6)]
    with pytest.raises(UsageError, match="holds the data of n1 of cluster shop"):
        Identity(tmp_path, "n2", "shop")


def test_a_folder_whose_owner_cannot_be_read_is_rejected(tmp_path: Path) -> None:
    incarnations(tmp_path, 1)
    (tmp_path / "owner").write_bytes(b"")
    with pytest.raises(UsageError, match="holds the data of an unknown node: n1 of cluster shop"):
        Identity(tmp_path, "n1", "shop")
    (tmp_path / "owner").unlink()
    (tmp_path / "owner").mkdir()
    with pytest.raises(UsageError, match="owner cannot be read: Is a directory"):
        Identity(tmp_path, "n1", "shop")


def test_a_start_that_was_cut_off_leaves_a_file_that_is_ignored(tmp_path: Path) -> None:
    incarnations(tmp_path, 2)
    (tmp_path / "incarnation.tmp").write_text("77 and then the power fail")
    assert incarnations(tmp_path, 1) == [NodeId("n1", 2)]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is damaged: it should hold a number"),
        (b"three\n", "is damaged: it should hold a number"),
        (b"\xff\xfe\x00", "is damaged: it should hold a number"),
        (b"9" * 5000, "is damaged: it should hold a number"),
        (b"3\ndrawn x\n", "is damaged: it should hold a number"),
        (b"-2\n", "holds -2, which is no incarnation"),
        (str(LAST).encode(), f"holds {LAST}, which is no incarnation"),
    ],
)
def test_a_damaged_file_is_rejected(tmp_path: Path, content: bytes, said: str) -> None:
    """A wrong guess would make two incarnations out of one."""
    (tmp_path / "incarnation").write_bytes(content)
    for _ in range(2):  # and the lock is free again
        with pytest.raises(UsageError, match=said):
            Identity(tmp_path, "n1", "shop")
    assert (tmp_path / "incarnation").read_bytes() == content


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be used: "):
        Identity(tmp_path / "file" / "n1", "n1", "shop")


def test_a_lock_that_cannot_be_opened_is_reported(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(UsageError, match="cannot be used: Is a directory"):
        Identity(tmp_path, "n1", "shop")


def test_a_counter_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    (tmp_path / "incarnation").mkdir()
    with pytest.raises(UsageError, match="incarnation cannot be read: Is a directory"):
        Identity(tmp_path, "n1", "shop")


def test_a_counter_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "incarnation.tmp").mkdir()
    identity = Identity(tmp_path, "n1", "shop")
    with pytest.raises(UsageError, match="incarnation cannot be written: Is a directory"):
        identity.begin(0, reborn=False)
    identity.release()
