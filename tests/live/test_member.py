"""The program of a live member, without a process of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.net.nodes import until

from ordercast.live.member import GroupPlan, LiveMember, LoadPlan, Settings
from ordercast.net.identity import number_from_zero
from ordercast.net.node import open_node
from ordercast.trace.log import read_log

BOUND_SECONDS = 60


def test_an_application_joins_again_when_its_incarnation_is_abandoned(tmp_path: Path) -> None:
    group = GroupPlan(name="g", family="fifo", members=["n1"], rate=50)
    trace, data = tmp_path / "rows", tmp_path / "n1"
    settings = Settings(node={}, groups=[group], load=LoadPlan(senders=["n1"]))
    number_from_zero(data)

    async def scene() -> None:
        async with open_node(name="n1", data=str(data), trace=str(trace)) as node:
            member = LiveMember(settings, node)
            member.start(BOUND_SECONDS, frozenset())
            await until(lambda: has_delivered(0))
            node.mesh.handshake.reported(6, "n2")  # as somebody says who greets us
            await until(lambda: has_delivered(7))
            tasks = list(member.tasks)  # a member never closes its node: it would die of that
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def has_delivered(least: int) -> bool:
        """Whether an incarnation from this number on has delivered what it sent."""
        rows = read_log(trace) if trace.exists() else ()
        return any(row.kind == "deliver" and row.incarnation >= least for row in rows)

    asyncio.run(asyncio.wait_for(scene(), BOUND_SECONDS))
    rows = list(read_log(trace))
    ends = [(row.incarnation, row.cause) for row in rows if row.kind == "crash"]
    assert ends == [(0, "abandoned")]
    assert {row.incarnation for row in rows if row.kind == "join"} > {0}
