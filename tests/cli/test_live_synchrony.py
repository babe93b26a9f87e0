"""Virtual synchrony with real processes: three sides part and merge, cut by the kernel or not.

These runs take the seconds of their scenario. No test sleeps.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ordercast.live.namespaces import Namespaces, Unavailable
from ordercast.trace.lake import read_lake

PARTITION = "scenarios/synchrony-partition.toml"
SIDES = {("n1", "n4"), ("n2", "n5"), ("n3", "n6")}


@pytest.fixture
def namespaces() -> None:
    network = Namespaces(("n1", "n2"))
    try:
        network.open()
    except Unavailable as error:
        pytest.skip(str(error))
    finally:
        network.close()


def split_and_merge(ordercast: Any, lake: Path) -> str:
    """Runs it, and returns what was said about the cuts."""
    lived = ordercast("live", PARTITION, "--json", "--out", lake)
    assert lived.code == 0, lived.out + lived.err
    (trace,) = read_lake(lake)
    everybody = tuple(f"n{number}" for number in range(1, 7))
    for name in everybody:
        seen = [
            row.members
            for row in trace.rows
            if (row.process, row.kind, row.cause) == (name, "view", None)
        ]
        whole = [place for place, members in enumerate(seen) if members == everybody]
        apart = [place for place, members in enumerate(seen) if members in SIDES]
        # From a view of all to a side of the partition, and back to a view of all.
        assert any(whole[0] < place < whole[-1] for place in apart), f"{name}: {seen}"
        assert seen[-1] == everybody
        assert not [members for members in seen[whole[0] :] if name not in (members or ())]
    for side in SIDES:  # its first member asks what the other two delivered apart
        [told] = re.findall(f"apart from {' '.join(side)}, (.*)", lived.err)
        found = re.findall(r"(n\d n\d) delivered (\d+) events", told)
        assert {tuple(names.split()) for names, _ in found} == SIDES - {side}, told
        assert all(int(count) > 0 for _, count in found), told
    said: str = lived.err
    return said


@pytest.mark.slow
def test_three_sides_part_and_merge_in_network_namespaces(
    ordercast, tmp_path: Path, namespaces: None
) -> None:
    said = split_and_merge(ordercast, tmp_path / "lake")
    assert "cuts are made by the kernel" in said


@pytest.mark.slow
def test_three_sides_part_and_merge_by_their_own_switches(
    ordercast, tmp_path: Path, no_namespaces: None
) -> None:
    said = split_and_merge(ordercast, tmp_path / "lake")
    assert "cuts are made by the members themselves" in said


@pytest.mark.slow
def test_a_group_that_multicasts_parts_and_merges(ordercast, tmp_path: Path) -> None:
    """In namespaces where there are any: the kernel's rules do not cut what is multicast."""
    lived = ordercast("live", "scenarios/synchrony-multicast.toml", "--json", "--out", tmp_path)
    assert lived.code == 0, lived.out + lived.err
    assert "links carry" not in lived.err
    (trace,) = read_lake(tmp_path)
    views = [row.members for row in trace.rows if (row.process, row.kind) == ("n4", "view")]
    assert ("n4",) in views
    assert views[-1] == ("n1", "n2", "n3", "n4")
