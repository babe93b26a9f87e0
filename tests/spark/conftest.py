"""One Spark session for all tests of a process: starting one costs more than most of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ordercast.spark.session import open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    with open_session("local[2,4]", **{"spark.sql.shuffle.partitions": "2"}) as session:
        yield session
