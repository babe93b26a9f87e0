"""A large state on a slow line: the connection that carries it is neither idle nor silent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.net.nodes import Cluster, live, place_of, until
from tests.net.test_open import say

from ordercast import Causal, Message, Total
from ordercast.kernel.family import Level
from ordercast.net import contact, keepalive, links
from ordercast.net.connection import Connection
from ordercast.net.keepalive import Keepalive
from ordercast.units import MILLISECOND

STATE = bytes(range(256)) * (8 << 12)  # 8 MiB
LEVELS = {
    "causal": Causal(updaters=["n1"], round="10ms", state=True),
    "total": Total(),
}


@contextmanager
def slow_line() -> Iterator[None]:
    """Whoever has read a large piece reads on at somebody's next ping, so that a state takes some
    thirty of them. A connection is idle after five, dead after fifty, and none is kept idle."""
    reads, pings, waiting = Connection.data_received, Keepalive.ping, []

    def read(self: Connection, data: bytes) -> None:
        reads(self, data)
        if len(data) > 1 << 14 and not self.transport.is_closing():
            self.transport.pause_reading()
            waiting.append(self.transport)

    def ping(self: Keepalive) -> None:
        while waiting:
            if not (transport := waiting.pop()).is_closing():
                transport.resume_reading()
        pings(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "data_received", read)
        patch.setattr(Keepalive, "ping", ping)
        patch.setattr(keepalive, "PING_SECONDS", 0.02)
        patch.setattr(keepalive, "SILENCE", 1000 * MILLISECOND)
        patch.setattr(contact, "LIVE", 1000 * MILLISECOND)
        patch.setattr(links, "IDLE", 100 * MILLISECOND)
        patch.setattr(links, "GREETED", 100 * MILLISECOND)
        patch.setattr(links, "FEW_LINKS", 0)
        patch.setattr(links, "MOST_IDLE", 0)
        yield


@pytest.mark.parametrize("family", LEVELS)
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_large_state_reaches_a_member_that_joins(
    loop: str, family: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @live
    async def staged(cluster: Cluster) -> None:
        level: Level = LEVELS[family]
        restored: list[bytes] = []
        n1 = await cluster.open("n1")
        hooks = {"snapshot": lambda: STATE, "restore": restored.append}
        first = n1.join("orders", level, founder="n1", **hooks)
        tasks = [asyncio.create_task(first.run(lambda item: None))]
        await first.ready()
        with slow_line():
            n2 = await cluster.open("n2", seeds=[place_of(n1)])
            second = n2.join("orders", level, founder="n1", **hooks)
            heard: list[Any] = []
            tasks.append(asyncio.create_task(second.run(heard.append)))
            await until(lambda: restored)
        assert restored == [STATE]
        await say(first, b"after the state")
        await until(lambda: [item.data for item in heard if isinstance(item, Message)])
        assert not cluster.log.messages
        for group in (first, second):
            await group.leave()
        await asyncio.wait(tasks)

    staged(loop, tmp_path, caplog)
