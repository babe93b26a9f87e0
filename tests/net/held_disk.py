"""A disk whose syncs end when the test lets them go."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.net.nodes import GENEROUS


class Syncs:
    """Who waits for the disk, and how long."""

    def __init__(self) -> None:
        self.threads: set[int] = set()  # that called
        self._fsync = os.fsync
        self._held = threading.Event()
        self._free = threading.Event()

    def fsync(self, file: int) -> None:
        self.threads.add(threading.get_ident())
        self._held.set()
        assert self._free.wait(GENEROUS)
        self._fsync(file)

    def is_held(self) -> bool:
        return self._held.is_set()

    def let_go(self) -> None:
        self._free.set()


@contextmanager
def disk_held() -> Iterator[Syncs]:
    """Nothing that is synced from now on is durable before the test lets it go."""
    syncs = Syncs()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", syncs.fsync)
        try:
            yield syncs
        finally:
            syncs.let_go()
