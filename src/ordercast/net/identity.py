"""The identity of a node: its name and its incarnation, persisted in the node's folder.

Every start has a higher number than the last one of its folder, and makes it durable before the
node sends anything, so two incarnations of a name are never mistaken for one. The first number of
an empty folder comes from elsewhere (`asking.py`). Each start also has a birth, its time and some
random bytes, which tells it from a rival with the same number: a copied folder, or one that was
lost. A lock on the folder keeps a second process from running as the same node, and the file
`owner` another node or cluster from taking over what is promised there.

A copy of a folder must not count like the original: two nodes would have one number. The file
`original` says which lock file lies beside it. A copied lock is another file, so the copy leaves
out some numbers. Where a file system gives files new marks (a restored backup, changed owners),
this costs some numbers, and nothing else.

The file `incarnation` has the number of the last start. A second line, `reborn`, says that the name
had a folder before this one, which was lost. Instead it may say `drawn` and the first number, which
was drawn because nobody knew the name: an incarnation below it, if others have met one, is that of
a lost folder.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import time
from pathlib import Path
from typing import NamedTuple

from ordercast.errors import UsageError
from ordercast.kernel.identity import COUNTED, LAST
from ordercast.store.log import PRIVATE, PRIVATE_FOLDER, replace_file
from ordercast.types import NodeId
from ordercast.wire.greeting import BIRTH_BYTES, Bearer

log = logging.getLogger("ordercast.net")

REBORN, DRAWN = "reborn", "drawn"
BIRTH_TIME_BYTES = 5
BIRTH_TICK = 10_000_000
"""Nanoseconds: the unit of the time in a birth. Five bytes last for three hundred years."""
COPIES = 64
"""A copied folder goes on at one of so many numbers: two copies rarely take the same."""


class Incarnation(NamedTuple):
    """One run of a node."""

    node: NodeId
    birth: bytes = b""
    opened_at: int = 0  # nanoseconds, of the monotonic clock

    def reopened_from(self, last: Incarnation) -> Incarnation:
        """The same in a process that had another incarnation before: it is as old as that."""
        birth = last.birth[:BIRTH_TIME_BYTES] + self.birth[BIRTH_TIME_BYTES:]
        return self._replace(birth=birth, opened_at=last.opened_at)

    def bearer(self, company: int = 0) -> Bearer:
        age = (time.monotonic_ns() - self.opened_at) // 1_000_000
        return Bearer(self.node, self.birth, age, company)


def new_birth(now: int | None = None) -> bytes:
    """Of a node that is opened now: when that is, by the clock of its machine, and random bytes.

    So births have the order in which nodes were opened, as far as their clocks agree.
    """
    tick = (time.time_ns() if now is None else now) // BIRTH_TICK
    return tick.to_bytes(BIRTH_TIME_BYTES) + os.urandom(BIRTH_BYTES - BIRTH_TIME_BYTES)


class Identity:
    def __init__(self, folder: Path, name: str, cluster: str) -> None:
        """Locks the folder, and reads what the last start has written there."""
        self.folder = folder
        self.name = name
        self._counter, self._original = folder / "incarnation", folder / "original"
        self._owner, self._us = folder / "owner", f"{name} of cluster {cluster}"
        _is_ours(self._owner, self._us)  # first: nothing is touched in the folder of another
        try:
            folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
            if not (folder / "lock").exists():
                (folder / "lock").touch(PRIVATE)  # not again: it would be marked as changed
            self._lock = (folder / "lock").open("a", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{folder} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._is_owned = _is_ours(self._owner, self._us)
            self._last, self._origin = _read(self._counter)
            self._mark = _mark(self._lock.fileno())
            self._is_copy = _is_copy(self._original, self._mark)
        except BlockingIOError as error:
            self._lock.close()
            raise UsageError(f"{folder} is in use: is {name} running already?") from error
        except OSError as error:
            self._lock.close()
            raise UsageError(f"{folder} cannot be locked: {error.strerror}") from error
        except BaseException:
            self._lock.close()
            raise

    @property
    def is_new(self) -> bool:
        """The folder remembers no incarnation."""
        return self._last is None

    @property
    def is_reborn(self) -> bool:
        """The name had another folder before, so others know more of it than this one."""
        return self._origin == REBORN

    @property
    def numbers_left(self) -> int:
        """Of the name."""
        return LAST - (self._last or 0)

    def is_foreign(self, number: int) -> bool:
        """Whether this incarnation of our name is of another folder, as far as we can know."""
        word, _, first = self._origin.partition(" ")
        return word == DRAWN and number < int(first)

    def next(self) -> Incarnation:
        """The next incarnation of a folder that remembers one."""
        assert self._last is not None
        if not self._is_copy:
            return self._begin(self._last + 1, self._origin)
        log.warning(
            "%s was copied, or restored: %s goes on with a higher number than its next one, in "
            "case the original is in use",
            *(self.folder, self.name),
        )
        number = self._last + COUNTED + secrets.randbelow(COPIES)
        return self._begin(min(number, LAST), self._origin)

    def draw(self, number: int) -> Incarnation:
        """The first incarnation of a name that nobody knows."""
        return self._begin(number, f"{DRAWN} {number}")

    def begin(self, number: int, *, reborn: bool) -> Incarnation:
        """The incarnation with this number. Reborn: it is above that of another folder."""
        return self._begin(number, REBORN if reborn else "")

    def note_reborn(self) -> tuple[Path, bytes]:
        """The name had another folder before, as others have said. Returns the file that is to be
        written, and what is to be in it: machines run, and none of them should wait for it."""
        self._origin = REBORN
        return self._counter, _text(self._last or 0, REBORN).encode()

    def _begin(self, number: int, origin: str) -> Incarnation:
        """Durably: this folder will not use the number again."""
        if not (-1 if self._last is None else self._last) < number <= LAST:
            raise UsageError(
                f"{self._counter} cannot hold {number}, which is no incarnation above {self._last} "
                f"and up to {LAST}{_out_of_numbers(self._last)}"
            )
        if not self._is_owned:  # before there is anything else that another could take for its own
            write_durably(self._owner, f"{self._us}\n")
            self._is_owned = True
        self._write(number, origin)
        if self._is_copy is not False:
            write_durably(self._original, f"{self._mark}\n")
            self._is_copy = False
        if self.numbers_left < LAST // 2:
            log.warning(
                "%s has used more than half of its numbers: %d of %d are left. Before they are "
                "used up, stop it, let all nodes forget it, and delete its folder",
                *(self.name, self.numbers_left, LAST),
            )
        return Incarnation(NodeId(self.name, number), new_birth(), time.monotonic_ns())

    def _write(self, number: int, origin: str) -> None:
        write_durably(self._counter, _text(number, origin))
        self._last, self._origin = number, origin

    def release(self) -> None:
        self._lock.close()


def number_from_zero(folder: Path) -> None:
    """The first incarnation in this folder will be 0: for runs that know all their nodes."""
    folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
    write_durably(folder / "incarnation", "-1\n")


def _text(number: int, origin: str) -> str:
    return f"{number}\n{origin}\n" if origin else f"{number}\n"


def _is_ours(file: Path, us: str) -> bool:
    """False: it is nobody's, or of a version that did not say whose. UsageError: another's."""
    try:
        if not file.exists():
            return False
        found = file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error
    if found != us:
        raise UsageError(
            f"{file.parent} holds the data of {found or 'an unknown node'}: {us} needs another "
            "folder (data)"
        )
    return True


def _read(counter: Path) -> tuple[int | None, str]:
    """The number of the last start, and what is known of the first. None: there was no start."""
    try:
        if not counter.exists():
            return None, ""
        number, _, more = counter.read_text(encoding="ascii").partition("\n")
        last, origin = int(number), more.strip()
        if origin.startswith(DRAWN):
            int(origin.removeprefix(DRAWN))
    except ValueError as error:
        raise UsageError(f"{counter} is damaged: it should hold a number") from error
    except OSError as error:
        raise UsageError(f"{counter} cannot be read: {error.strerror}") from error
    if not -1 <= last < LAST:
        raise UsageError(
            f"{counter} holds {last}, which is no incarnation that another one can "
            f"follow{_out_of_numbers(last)}"
        )
    return last, origin


def _out_of_numbers(last: int | None) -> str:
    if last != LAST:
        return ""
    return ": the numbers of this name are used up. Let all nodes forget it, and delete its folder"


def _mark(file: int) -> str:
    """What no copy of the file has, and what stays the same while it lies where it is."""
    found = os.fstat(file)
    return f"{found.st_ino} {found.st_ctime_ns}"


def _is_copy(original: Path, mark: str) -> bool | None:
    """Whether the folder was copied from elsewhere. None: it does not say."""
    try:
        return original.read_text(encoding="ascii").strip() != mark if original.exists() else None
    except ValueError:
        return True


def write_durably(path: Path, text: str) -> None:
    try:
        replace_file(path, text.encode())
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
