"""The identity of a node: its name and its incarnation, persisted in the node's folder.

Every start has a higher number than the last one of its folder, and makes it durable before the
node sends anything, so two incarnations of a name are never mistaken for one. The first number of
an empty folder comes from elsewhere (`asking.py`). Each start also has a birth, some random bytes,
which tells it from a rival with the same number: a copied folder, or one that was lost. A lock on
the folder keeps a second process from running as the same node.

The file `incarnation` has the number of the last start. A second line, `reborn`, says that the name
had a folder before this one, which was lost.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import NamedTuple

from ordercast.errors import UsageError
from ordercast.store.log import PRIVATE, PRIVATE_FOLDER, flush, sync_folder
from ordercast.types import INCARNATION_BITS, NodeId
from ordercast.wire.greeting import BIRTH_BYTES, Bearer

LAST = (1 << INCARNATION_BITS) - 1
REBORN = "reborn"


class Incarnation(NamedTuple):
    """One run of a node."""

    node: NodeId
    birth: bytes = b""
    opened_at: int = 0  # nanoseconds, of the monotonic clock

    def bearer(self) -> Bearer:
        age = (time.monotonic_ns() - self.opened_at) // 1_000_000
        return Bearer(self.node, self.birth, age)


class Identity:
    def __init__(self, folder: Path, name: str) -> None:
        """Locks the folder, and reads what the last start has written there."""
        self.folder = folder
        self.name = name
        self._counter = folder / "incarnation"
        try:
            folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
            (folder / "lock").touch(PRIVATE)
            self._lock = (folder / "lock").open("a", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{folder} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._last, self.is_reborn = _read(self._counter)
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

    def next(self) -> Incarnation:
        """The next incarnation of a folder that remembers one."""
        assert self._last is not None
        return self.begin(self._last + 1, reborn=self.is_reborn)

    def begin(self, number: int, *, reborn: bool) -> Incarnation:
        """The incarnation with this number, durably: this folder will not use the number again.

        Reborn: the name had another folder before, so others know more of it than this one.
        """
        if not (-1 if self._last is None else self._last) < number <= LAST:
            raise UsageError(f"{self._counter} cannot hold {number}, which is no incarnation")
        _write(self._counter, f"{number}\n{REBORN}\n" if reborn else f"{number}\n")
        self._last, self.is_reborn = number, reborn
        birth = os.urandom(BIRTH_BYTES)
        return Incarnation(NodeId(self.name, number), birth, time.monotonic_ns())

    def release(self) -> None:
        self._lock.close()


def number_from_zero(folder: Path) -> None:
    """The first incarnation in this folder will be 0: for runs that know all their nodes."""
    folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
    (folder / "incarnation").write_text("-1\n", encoding="ascii")


def _read(counter: Path) -> tuple[int | None, bool]:
    """The number of the last start, and whether the name was reborn. None: there was no start."""
    try:
        if not counter.exists():
            return None, False
        number, _, more = counter.read_text(encoding="ascii").partition("\n")
        last = int(number)
    except ValueError as error:
        raise UsageError(f"{counter} is damaged: it should hold a number") from error
    except OSError as error:
        raise UsageError(f"{counter} cannot be read: {error.strerror}") from error
    if not -1 <= last < LAST:
        raise UsageError(f"{counter} holds {last}, which is no incarnation")
    return last, more.strip() == REBORN


def _write(counter: Path, text: str) -> None:
    fresh = counter.with_suffix(".tmp")
    try:
        fresh.touch(PRIVATE)
        with fresh.open("w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            flush(file.fileno())
        fresh.rename(counter)
        sync_folder(counter.parent)
    except OSError as error:
        raise UsageError(f"{counter} cannot be written: {error.strerror}") from error
