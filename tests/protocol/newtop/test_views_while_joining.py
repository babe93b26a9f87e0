"""While members join one after the other, and the group is formed anew for each, nobody that is
healthy sees a view of itself alone."""

from __future__ import annotations

import pytest

from ordercast.protocol.newtop import FAMILIES
from ordercast.scenario.file import parse_scenario
from ordercast.testing import simulate
from ordercast.types import View


@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("family", [family.name for family in FAMILIES])
def test_views_only_grow_while_members_join(family: str, seed: int) -> None:
    names = ["n1", "n2", "n3", "n4", "n5"]
    joins = [
        {"at": f"{number}s", "kind": "join", "nodes": [name]}
        for number, name in enumerate(names[1:], 1)
    ]
    group = {"name": "g", "members": names, "open": True, "anchors": ["n1"]}
    scenario = parse_scenario(
        {
            "name": "joins",
            "family": family,
            "processes": 5,
            "duration": "6s",
            "quiet": "2s",
            "workload": {"rate": 50},
            "network": {"delay": "2ms", "jitter": 0.5, "loss": 0.01, "reorder": 0.05},
            "group": [group],
            "fault": joins,
        }
    )
    run = simulate(scenario, seed)
    assert not run.broken
    for name in names:
        sizes = [len(item.members) for item in run.heard[name] if isinstance(item, View)]
        assert sizes == sorted(sizes)
        assert sizes[-1] == 5
        assert sizes.count(1) == (name == "n1"), "only the founder begins alone"
