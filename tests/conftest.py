"""What holds for every test: no deadlines, one Spark session, slow tests before quick ones, and no
data of nodes in the home folder."""

from __future__ import annotations

import gc
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4
from zlib import crc32

import pytest
from hypothesis import settings

settings.register_profile("ordercast", deadline=None)  # a deadline would read the clock
settings.load_profile("ordercast")

QUICK_SECONDS, SLOW_SECONDS, LONG_SECONDS = 0.3, 5, 20
DISK_BYTES = 20 << 20
SPREAD_OVER = 0.6  # of the time that the others take
MEMORY = Path("/dev/shm")


@pytest.fixture(autouse=True)
def data_of_nodes(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Nodes that are not told where their data is keep it in a folder of this test."""
    folder = tmp_path_factory.getbasetemp() / f"nodes-{uuid4()}"
    monkeypatch.setenv("ORDERCAST_DATA", str(folder))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 20 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("a small disk can be had only where mounting is allowed")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder on which a sync costs nothing, for tests that sync thousands of times."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One for all tests of a process: starting one costs more than most of them.

    Light: none of them repeats a query often enough for Java's fast code to pay.
    """
    from ordercast.spark.session import open_session

    with open_session("local[2,4]", light=True, **{"spark.sql.shuffle.partitions": "2"}) as session:
        yield session


def pytest_collection_finish(session: pytest.Session) -> None:
    """Modules and thousands of test items stay to the end. The garbage collector need not look at
    them again and again: that saves seven percent of the time."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests come early, so that no worker is left with one at the end.

    The longest ones start Java, which keeps all processors busy: they are spread over the first
    part of the others. The files with quick tests are mixed: tests of one folder that wait for
    sockets run beside those of another that compute, and the processors are never idle.
    """
    items.sort(key=lambda item: (-seconds_of(item), crc32(item.path.name.encode())))
    longest = [item for item in items if seconds_of(item) >= LONG_SECONDS]
    others = items[len(longest) :]
    every = SPREAD_OVER * sum(map(seconds_of, others)) / max(1, len(longest))
    items.clear()
    spent = due = 0.0
    for item in others:
        if longest and spent >= due:
            items.append(longest.pop(0))
            due += every
        items.append(item)
        spent += seconds_of(item)
    items.extend(longest)


def seconds_of(item: pytest.Item) -> float:
    """About how long it takes, as its marker says."""
    slow = item.get_closest_marker("slow")
    return QUICK_SECONDS if slow is None else slow.args[0] if slow.args else SLOW_SECONDS
