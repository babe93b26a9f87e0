"""A member of a group with virtual synchrony that lies, over real sockets.

n3 is a member like the others, and its node says anything in its name: packets of the family, drawn
at random and often nearly right, by link and by datagram, in the group that it is in and in another
one. What no honest member sends is refused and counted. What is believed may exclude somebody, but
the other two find together again, and what they themselves sent keeps its laws.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.net.nodes import Cluster, kill, run, until
from tests.net.ordered import Reader
from tests.protocol.transis.liar import RandomPackets

from ordercast import Group, Node, Synchrony
from ordercast.kernel.step import DATAGRAM, LINK
from ordercast.protocol.transis.packets import Hello, Probe

QUICK = Synchrony(
    silence_limit="50ms", suspicion_limit="400ms", stage_limit="200ms", rest="50ms", hello="20ms"
)
LIES = 60
NAMES = ("n1", "n2", "n3")


class Joined:
    """One group, with a reader at each of its members."""

    def __init__(self, name: str, *nodes: Node) -> None:
        names = [node.me.name for node in nodes]
        self.groups: list[Group] = [node.join(name, QUICK, names) for node in nodes]
        self.readers = [Reader() for _ in nodes]
        self._tasks = [
            asyncio.create_task(reader.read(group))
            for reader, group in zip(self.readers, self.groups, strict=True)
        ]

    async def close(self) -> None:
        for group in self.groups[:2]:  # the third node was killed
            await group.leave()
        await asyncio.gather(*self._tasks)


def say(liar: Node, target: Node, group: str, draw: Random) -> None:
    """Anything that the machine of the target might believe, as the liar's own words."""
    packet = RandomPackets(draw, liar.me, NAMES).packet(_machine(target, group))
    channel = DATAGRAM if isinstance(packet, Hello | Probe) else LINK
    seat = liar.driver.host.seats["orders"]
    liar.driver.host.act(seat, lambda step: step.send(target.me, packet, channel), 0)


def _machine(node: Node, group: str) -> Any:
    return node.driver.machine(group)


def refused(*nodes: Node) -> int:
    counted = [node.mesh.counters for node in nodes]
    return sum(one["refused_frames"] + one["refused_datagrams"] for one in counted)


@pytest.mark.parametrize("seed", range(3))
def test_the_other_members_go_on_whatever_a_liar_sends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    cluster = Cluster(tmp_path, caplog)

    async def staged() -> None:
        try:
            await attack(cluster, Random(seed))
        finally:
            await cluster.close()

    with caplog.at_level(logging.ERROR, "ordercast.net"):
        run("uvloop", staged)
    # n3 is lied to by nobody, but does not know what was said in its name: it may end itself.
    own = [one for one in caplog.records if one.levelno >= logging.ERROR and "n3" not in one.msg]
    assert not own


async def attack(cluster: Cluster, draw: Random) -> None:
    n1, n2, n3 = await cluster.nodes(*NAMES)
    ours = Joined("orders", n1, n2, n3)
    private = Joined("private", n1, n2)
    one, two, _ = ours.readers
    await until(lambda: one.names == two.names == list(NAMES))
    await until(lambda: all(reader.names == ["n1", "n2"] for reader in private.readers))
    before = _machine(n1, "private").current.cid
    sent: dict[bytes, None] = {}
    for number in range(LIES):
        for target in (n1, n2):
            group = draw.choice(["orders", "orders", "private"])
            say(n3, target, group, draw)
        if number % 5 == 0:
            for name, group, secret in zip("12", ours.groups, private.groups, strict=False):
                data = b"n%s %d" % (name.encode(), number)
                sent[data] = None
                await group.send(data, service=draw.choice(["agreed", "safe"]))
                await secret.send(data, service="safe", until="stable")
        await asyncio.sleep(0)
    await until(lambda: refused(n1, n2) > LIES // 10)
    await kill(n3)
    await until(lambda: one.names == two.names == ["n1", "n2"])
    await ours.groups[0].send(b"after", service="safe", until="stable")
    await until(lambda: one.data[-1] == two.data[-1] == b"after")
    for reader, mark in ((one, b"n1"), (two, b"n2")):
        own = [data for data in reader.data if data in sent]
        assert len(set(own)) == len(own), "a message twice"
        mine = [data for data in sent if data.startswith(mark)]
        assert [data for data in own if data.startswith(mark)] == mine, "not all, or out of order"
    common = [data for data in one.data if data in sent and data in two.data]
    assert common == [data for data in two.data if data in common]
    # The group that it is not in has noticed nothing.
    assert [reader.data for reader in private.readers] == [list(sent), list(sent)]
    assert _machine(n1, "private").current.cid == before
    assert one.error is None and two.error is None
    await private.close()
    await ours.close()
