"""What holds for every test: no deadlines, one Spark session, slow tests before quick ones, and no
data of nodes in the home folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4
from zlib import crc32

import pytest
from hypothesis import settings

settings.register_profile("ordercast", deadline=None)  # a deadline would read the clock
settings.load_profile("ordercast")

SLOW_SECONDS = 5


@pytest.fixture(autouse=True)
def data_of_nodes(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Nodes that are not told where their data is keep it in a folder of this test."""
    folder = tmp_path_factory.getbasetemp() / f"nodes-{uuid4()}"
    monkeypatch.setenv("ORDERCAST_DATA", str(folder))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One for all tests of a process: starting one costs more than most of them.

    Light: none of them repeats a query often enough for Java's fast code to pay.
    """
    from ordercast.spark.session import open_session

    with open_session("local[2,4]", light=True, **{"spark.sql.shuffle.partitions": "2"}) as session:
        yield session


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests come first, so that no worker is left with one at the end.

    The files with quick ones are mixed: tests of one folder that wait for sockets run beside those
    of another that compute, and the processors are never idle.
    """
    items.sort(key=lambda item: (-seconds_of(item), crc32(item.path.name.encode())))


def seconds_of(item: pytest.Item) -> int:
    """About how long it takes, as its marker says; 0 for tests that are not slow."""
    slow = item.get_closest_marker("slow")
    return 0 if slow is None else slow.args[0] if slow.args else SLOW_SECONDS
