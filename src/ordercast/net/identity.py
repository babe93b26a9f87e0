"""The identity of a node: its name and its incarnation, persisted in the node's folder.

Every start increases the incarnation by one and makes it durable before the node sends anything, so
two incarnations of a name are never mistaken for one. A lock on the folder keeps a second process
from running as the same node.
"""

from __future__ import annotations

import fcntl
from pathlib import Path

from ordercast.errors import UsageError
from ordercast.store.log import PRIVATE, PRIVATE_FOLDER, flush, sync_folder
from ordercast.types import INCARNATION_BITS, NodeId


class Identity:
    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        try:
            folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
            (folder / "lock").touch(PRIVATE)
            self._lock = (folder / "lock").open("a", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{folder} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.node = NodeId(name, _next_incarnation(folder / "incarnation"))
        except BlockingIOError as error:
            self._lock.close()
            raise UsageError(f"{folder} is in use: is {name} running already?") from error
        except OSError as error:
            self._lock.close()
            raise UsageError(f"{folder} cannot be locked: {error.strerror}") from error
        except BaseException:
            self._lock.close()
            raise

    def release(self) -> None:
        self._lock.close()


def _next_incarnation(counter: Path) -> int:
    try:
        last = int(counter.read_text(encoding="ascii")) if counter.exists() else -1
    except ValueError as error:
        raise UsageError(f"{counter} is damaged: it should hold a number") from error
    except OSError as error:
        raise UsageError(f"{counter} cannot be read: {error.strerror}") from error
    if not -1 <= last < (1 << INCARNATION_BITS) - 1:
        raise UsageError(f"{counter} holds {last}, which is no incarnation")
    fresh = counter.with_suffix(".tmp")
    try:
        fresh.touch(PRIVATE)
        with fresh.open("w", encoding="ascii") as file:
            file.write(f"{last + 1}\n")
            file.flush()
            flush(file.fileno())
        fresh.rename(counter)
        sync_folder(counter.parent)
    except OSError as error:
        raise UsageError(f"{counter} cannot be written: {error.strerror}") from error
    return last + 1
