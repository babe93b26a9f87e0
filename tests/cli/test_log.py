"""`ordercast log`: what it says of logs that are whole, torn, damaged and incomplete."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.store.group_log.logged import everything, made, opened, persist
from tests.store.stored import Latest

from ordercast.kernel.log import Bad, Entry, Reference, Repaired, Trimmed
from ordercast.store.group_log.entries import pack_entry
from ordercast.store.group_log.form import FLOOR, INDEX, SEGMENT, file_of, find_files

ENTRIES = list(made(200, payload=b"p" * 100))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log of several segments whose node was killed."""
    log = opened(tmp_path / "log")
    for begin in range(0, 200, 4):
        persist(log, *ENTRIES[begin : begin + 4], Latest("g", "a", begin))
    log.close()
    return tmp_path / "log"


def newest(folder: Path) -> Path:
    return list(find_files(folder, SEGMENT).values())[-1]


def spoil(folder: Path, entry: Entry) -> None:
    for path in find_files(folder, SEGMENT).values():
        data = path.read_bytes()
        if (place := data.find(pack_entry(entry))) >= 0:
            path.write_bytes(data[:place] + b"?" + data[place + 1 :])


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_whole_log_is_said_to_be_whole(ordercast, folder: Path) -> None:
    before = contents(folder)
    ran = ordercast("log", "verify", folder)
    lines = ran.out.splitlines()
    assert (ran.code, ran.err) == (0, "")
    assert lines[0].startswith("group g, log ")
    assert lines[0].endswith(": 200 entries, positions 0 to 199")
    assert len(lines) == 1 + len(find_files(folder, SEGMENT))
    assert all(line.endswith("  whole") for line in lines[1:])
    assert contents(folder) == before


def test_a_torn_tail_is_said_and_cut_off(ordercast, folder: Path) -> None:
    path = newest(folder)
    size = len(path.read_bytes().rstrip(b"\0"))
    os.truncate(path, size)
    with path.open("ab") as file:
        file.write(b"oREC torn")
    ran = ordercast("log", "verify", folder)
    assert ran.code == 0
    assert "a torn tail of 9 bytes" in ran.out
    ran = ordercast("log", "repair", folder)
    assert ran.code == 0
    assert f"{path.name}: a torn tail of 9 bytes is cut off" in ran.out
    assert "torn" not in ordercast("log", "verify", folder).out
    assert everything(opened(folder)) == ENTRIES


def test_what_is_lost_is_named_until_it_is_put_back(ordercast, folder: Path) -> None:
    spoil(folder, ENTRIES[5])
    before = contents(folder)
    for command in ("verify", "repair"):
        ran = ordercast("log", command, folder)
        assert ran.code == 1
        number = ENTRIES[5].number
        said = f"position 5 is lost: event {number} of {ENTRIES[5].origin}, log 0000000000000007"
        assert said in ran.out
        assert "an entry at byte" in ran.out
    assert contents(folder) == before
    ran = ordercast("log", "show", folder, "--first", 5, "--count", 1)
    assert (ran.code, ran.out.split()[:2]) == (1, ["5", "lost:"])
    log = opened(folder)
    persist(log, Repaired("g", 5, ENTRIES[5]))
    log.close()
    ran = ordercast("log", "verify", folder, "--json")
    assert ran.code == 0
    assert json.loads(ran.out.splitlines()[0])["put_back"] == 1


def test_indexes_and_copies_are_made_again(ordercast, folder: Path) -> None:
    log = opened(folder)
    floor = log.extents()[1].first
    persist(log, Trimmed("g", floor))
    log.close()
    file_of(folder, floor, FLOOR).write_bytes(b"")
    file_of(folder, floor, INDEX).unlink()
    ran = ordercast("log", "verify", folder)
    assert ran.code == 1
    assert f"{floor:020}.floor is damaged or missing; its copy is whole" in ran.out
    assert f"{floor:020}.index is damaged or missing: it is a cache" in ran.out
    ran = ordercast("log", "repair", folder)
    assert ran.code == 0
    assert f"{floor:020}.floor is made again, from its copy" in ran.out
    assert f"{floor:020}.index is made again" in ran.out
    assert ordercast("log", "repair", folder).out.startswith("nothing was to be mended\n")
    assert everything(opened(folder)) == ENTRIES[floor:]


@pytest.mark.parametrize("which", ["first", "second"])
def test_a_segment_that_is_gone_for_good_is_marked_as_lost(
    ordercast, folder: Path, which: str
) -> None:
    first, second, third, *_ = find_files(folder, SEGMENT)
    begin, end = (first, second) if which == "first" else (second, third)
    file_of(folder, begin, SEGMENT).unlink()
    file_of(folder, begin, INDEX).unlink()
    ran = ordercast("log", "verify", folder)
    assert ran.code == 2
    assert f"{begin:020}.segment is missing: put it back. `ordercast log repair` gives" in ran.err
    ran = ordercast("log", "repair", folder)
    assert ran.code == 1
    assert f"positions {begin} to {end - 1} are marked as lost" in ran.out
    log = opened(folder)
    found = everything(log)
    assert found[begin:end] == [Bad(("", 0), 0, 0)] * (end - begin)
    assert found[:begin] + found[end:] == ENTRIES[:begin] + ENTRIES[end:]
    persist(log, *(Repaired("g", at, ENTRIES[at]) for at in range(begin, end)))
    assert everything(log) == ENTRIES
    log.close()
    assert ordercast("log", "verify", folder).code == 1  # the file is still missing


@pytest.mark.parametrize("sealed", [True, False])
def test_a_header_with_one_wrong_bit_and_no_copy_is_put_right(
    ordercast, folder: Path, sealed: bool
) -> None:
    path = next(iter(find_files(folder, SEGMENT).values())) if sealed else newest(folder)
    data = bytearray(path.read_bytes())
    data[21] ^= 16
    path.write_bytes(data)
    path.with_suffix(INDEX).unlink()
    ran = ordercast("log", "verify", folder)
    assert ran.code == 2
    assert "is damaged at byte 0: the checksum of its header is wrong" in ran.err
    ran = ordercast("log", "repair", folder)
    assert ran.code == 0
    assert f"{path.name}: one bit of the header was wrong" in ran.out
    assert everything(opened(folder)) == ENTRIES


def test_entries_are_shown_by_position_and_origin(ordercast, tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    first = Entry("n1", 7, 1, 0, payloads=[b"hello", b"\xff"], size=6)
    reply = Entry("n2", 8, 1, 0, 7, reply=Reference("n1", 7, 1), payloads=[b"yes"], size=3)
    persist(log, first, reply, Entry("n3", 9, 5, 2, is_gap=True), Latest("g", "a", 1))
    log.close()
    ran = ordercast("log", "show", tmp_path / "log")
    assert (ran.code, ran.out.splitlines()) == (
        0,
        [
            "0  n1:1  2 messages  hello base64:/w==",
            "1  n2:1  reply to n1:1  1 messages  yes",
            "2  n3:5  gap after 2",
        ],
    )
    ran = ordercast("log", "show", tmp_path / "log", "--origin", "n2", "--json")
    assert [json.loads(line) for line in ran.out.splitlines()] == [
        {
            "position": 1,
            "origin": "n2",
            "birth": 8,
            "number": 1,
            "prev": 0,
            "via": 7,
            "gap": False,
            "reply": ["n1", 7, 1],
            "at": 0,
            "payloads": ["yes"],
        }
    ]
    ran = ordercast("log", "show", tmp_path / "log", "--states")
    assert [json.loads(line) for line in ran.out.splitlines()] == [["test.latest", "g", "a", 1]]


def test_what_is_no_log_is_wrong_usage(ordercast, folder: Path) -> None:
    for command in ("verify", "show", "repair"):
        ran = ordercast("log", command, folder / "nowhere")
        assert (ran.code, ran.out) == (2, "")
        assert "does not exist, or is no folder: the log of a group is one" in ran.err
        ran = ordercast("log", command, folder.parent)
        assert ran.code == 2
        assert ran.err.startswith(f"ordercast: {folder.parent}")
    log = opened(folder)
    assert ordercast("log", "verify", folder).code == 0
    ran = ordercast("log", "repair", folder)
    assert ran.code == 2
    assert "is in use: stop the node that writes there" in ran.err
    log.close()
