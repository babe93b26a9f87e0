"""The file of records and power that fails: what the disk never said it has is gone."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from tests.store.stored import (
    CODEC,
    SMALL,
    Latest,
    counted,
    found_in,
    opened,
    persist,
    persist_newer_and_newer,
)

from ordercast.errors import DiskError
from ordercast.kernel.packet import Packet


class Platter:
    """What is surely on the disk: files as they were synced, under names as they were synced.

    It stands between the store and the system, which does all that it is asked to.
    """

    def __init__(self, folder: Path, scratch: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.scratch = scratch
        self.fails_for: str | None = None  # the next sync of the "folder" or of a "file"
        self.written = bytearray()
        self.found_at_renames: list[list[Packet]] = []  # if a name is there without a sync
        self._count = 0
        self._files: dict[int, bytes] = {}
        self._names: dict[str, int] = {}
        self._fsync, self._write, self._rename = os.fsync, os.write, os.rename
        patch.setattr(os, "fsync", self.fsync)
        patch.setattr(os, "write", self.write)
        patch.setattr(os, "rename", self.rename)

    def fsync(self, file: int) -> None:
        about = os.fstat(file)
        what = "folder" if stat.S_ISDIR(about.st_mode) else "file"
        if what == self.fails_for:
            self.fails_for = None
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._fsync(file)
        if what == "file":
            self._files[about.st_ino] = os.pread(file, about.st_size, 0)
        else:
            self._names = self._names_now()

    def write(self, file: int, data: bytes) -> int:
        self.written += data
        return self._write(file, data)

    def rename(self, old: Path, new: Path) -> None:
        self._rename(old, new)
        self.found_at_renames.append(self._found(self._names_now()))

    def found(self) -> list[Packet]:
        """What a process finds when the power is back."""
        return self._found(self._names)

    def _names_now(self) -> dict[str, int]:
        return {path.name: path.stat().st_ino for path in self.folder.iterdir()}

    def _found(self, names: dict[str, int]) -> list[Packet]:
        self._count += 1
        place = self.scratch / str(self._count)
        place.mkdir()
        for name, inode in names.items():
            (place / name).write_bytes(self._files.get(inode, b""))
        with pytest.MonkeyPatch.context() as plain:
            plain.setattr(os, "fsync", self._fsync)
            plain.setattr(os, "write", self._write)
            plain.setattr(os, "rename", self._rename)
            return found_in(place)


@pytest.fixture
def platter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Platter:
    (tmp_path / "store").mkdir()
    (tmp_path / "scratch").mkdir()
    return Platter(tmp_path / "store", tmp_path / "scratch", monkeypatch)


def test_acknowledged_records_outlive_a_power_failure(platter: Platter) -> None:
    """After any step, the first and those with which the file is written anew included."""
    store = opened(platter.folder, least_garbage=SMALL)
    assert platter.found() == []
    renames = 0
    for number in range(40):
        platter.found_at_renames.clear()
        persist(store, [Latest("g", "a", number), *(counted(number) if number % 5 == 0 else [])])
        assert platter.found() == store.records()
        assert all(found == store.records() for found in platter.found_at_renames)
        renames += len(platter.found_at_renames)
    assert renames > 1, "it was not written anew"
    store.close()


def test_opening_a_new_file_syncs_its_folder(platter: Platter) -> None:
    """The one before it died between giving the file its name and knowing that it has it."""
    store = opened(platter.folder, least_garbage=SMALL)
    persist(store, [Latest("g", "a", 0)])
    platter.fails_for = "folder"
    kept = [0]
    with pytest.raises(DiskError, match="Input/output error"):
        persist_newer_and_newer(store, kept)
    assert platter.found() == [Latest("g", "a", kept[-1] + 1)]
    again = opened(platter.folder)
    persist(again, counted(1))
    assert platter.found() == [Latest("g", "a", kept[-1] + 1), *counted(1)]
    again.close()


def test_records_are_on_the_disk_before_a_process_is_given_them(platter: Platter) -> None:
    """A sync has failed. The system still shows the record, and takes it for written: only what
    is written once more will be on the disk."""
    store = opened(platter.folder)
    persist(store, counted(1))
    store.append(counted(2))
    platter.fails_for = "file"
    with pytest.raises(DiskError, match="Input/output error"):
        store.sync()
    assert platter.found() == counted(1)
    platter.written.clear()
    again = opened(platter.folder)
    assert again.records() == platter.found() == counted(1, 2)
    assert CODEC.encode(counted(2)[0]) in platter.written
    again.close()
