"""Feeds under every kind of fault keep their laws, and what should have happened did happen.

`FLOORS`: how often, at least, in the seeds of a test. Long runs of the same kinds are marked
`long`; what was run with many more seeds is in docs/feed.md.
"""

from __future__ import annotations

import pytest
from tests.protocol.feed.storms import weathered

FLOORS: dict[str, dict[str, int]] = {
    "feed-moves": {"moves": 10, "compared": 30, "recalls": 10},
    "feed-crash": {"adoptions": 10, "silences": 5, "moves": 1, "resumed": 1},
    "feed-net": {"silences": 10, "adoptions": 10, "roots": 1, "resumed": 1},
    "feed-long": {"roots": 3, "abdications": 2, "outbids": 1},
    "feed-chaos": {"adoptions": 10, "moves": 1, "recalls": 5, "resumed": 1},
    "feed-buckets": {"compared": 10, "recalls": 5},
    "feed-tree": {"descents": 10, "recalls": 5},
    "feed-small": {"recalls": 500, "adoptions": 10},
    "feed-full": {"adoptions": 5},
    "feed-commits": {"told later": 3, "adoptions": 10},
    "feed-anchors": {"adoptions": 10, "roots": 1},
    "feed-retain": {"trims": 50, "forced_trims": 10, "gaps": 10, "stalls": 10},
    "feed-rot": {"repaired": 1, "recalls": 50},
    "feed-lost": {"adoptions": 10, "compared": 20},
    "feed-directed": {"moves": 1, "adoptions": 10, "silences": 5},
    "feed-fifteen": {"adoptions": 20, "moves": 1},
    "feed-many": {"adoptions": 40, "roots": 1},
}
# tests/scenarios runs every file; here are those in which most has to happen.
ALWAYS = {
    "feed-chaos",
    "feed-commits",
    "feed-retain",
    "feed-rot",
    "feed-small",
    "feed-tree",
    "feed-lost",
}
LONG = [pytest.param(name, marks=pytest.mark.long) for name in FLOORS]
SHORT = [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.long) for name in FLOORS]


@pytest.mark.parametrize("name", SHORT)
def test_a_storm_keeps_the_laws(name: str) -> None:
    happened = weathered(name, (3,))
    too_few = {
        what: happened[what] for what, floor in FLOORS[name].items() if happened[what] < floor
    }
    assert not too_few, f"{name}: {too_few}"


@pytest.mark.parametrize("name", LONG)
def test_storms_keep_the_laws(name: str) -> None:
    happened = weathered(name, range(101, 121))
    for what, floor in FLOORS[name].items():
        assert happened[what] >= 10 * floor, what
