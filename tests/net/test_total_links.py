"""Links to incarnations that a node has only heard of: what was sent is there when they meet."""

from __future__ import annotations

import pytest
from tests.net.nodes import Cluster, connected, data_of, introduce, kill, live, until
from tests.net.ordered import formed
from tests.net.test_listener import secure

from ordercast import Node
from ordercast.net import contact as contact_module
from ordercast.types import NodeId
from ordercast.wire.framing import FrameKind, frame


def say(node: Node, to: NodeId, *words: bytes) -> None:
    for word in words:
        node.mesh.send(to, frame(FrameKind.DATA, word))


def hear(node: Node) -> list[bytes]:
    """All that comes to a node by links, from now on."""
    heard: list[bytes] = []

    def receive(sender: NodeId, bodies: object) -> None:
        heard.extend(bytes(body) for body in bodies)  # type: ignore[attr-defined]

    node.driver.receive = receive  # type: ignore[method-assign]
    return heard


@live
async def test_packets_sent_before_the_greeting_arrive_first(
    cluster: Cluster,
) -> None:
    n1, n2 = await cluster.open("n1"), await cluster.open("n2")
    heard = hear(n2)
    n1.mesh.know("n2", None)
    say(n1, n2.me, b"one", b"two")
    introduce(n1, n2)
    await until(lambda: connected(n1, n2))
    say(n1, n2.me, b"three")
    await until(lambda: heard == [b"one", b"two", b"three"])
    await until(lambda: n1.mesh.contacts["n2"].link.underway == 0)


@live
async def test_packets_for_another_incarnation_are_dropped(cluster: Cluster) -> None:
    n1, n2 = await cluster.open("n1"), await cluster.open("n2")
    heard = hear(n2)
    n1.mesh.know("n2", None)
    say(n1, NodeId("n2", 7), b"for a later incarnation")
    introduce(n1, n2)
    await until(lambda: connected(n1, n2))
    say(n1, n2.me, b"for this one")
    await until(lambda: heard == [b"for this one"])
    assert n1.mesh.contacts["n2"].expected is not None
    await kill(n2)
    for _ in range(6):
        await kill(await cluster.open("n2"))
    again = await cluster.open("n2")
    assert again.me == NodeId("n2", 7)
    later = hear(again)
    say(n1, n2.me, b"for the dead")
    introduce(n1, again)
    await until(lambda: later == [b"for a later incarnation"])
    assert n1.mesh.contacts["n2"].expected is None


@live
async def test_too_many_packets_for_an_absent_incarnation_break_its_link(
    cluster: Cluster,
) -> None:
    n1, n2 = await cluster.open("n1"), await cluster.open("n2")
    n1.mesh.know("n2", None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contact_module, "LINK_LIMIT", 100)
        say(n1, n2.me, b"x" * 60, b"x" * 60)
    assert n1.mesh.counters["links_broken"] == 1
    say(n1, n2.me, b"late")
    assert n1.mesh.contacts["n2"].expected is None
    introduce(n1, n2)
    await until(lambda: n1.mesh.counters["refused_greetings"])
    assert "the link to n2 is broken" in cluster.log.text


@live
async def test_a_group_forms_with_certificates_and_sealed_datagrams(cluster: Cluster) -> None:
    n1, n2, n3 = await secure(cluster, "n1", "n2", "n3")
    introduce(n1, n2, n3)
    groups = await formed(n1, n2, n3)
    await groups[0].send(b"in secret", until="stable")
    for group in groups:
        assert await data_of(group, 1) == [b"in secret"]
