"""Nodes that come and go: remembered within bounds, and not dialled when they are gone."""

from __future__ import annotations

import pytest
from tests.net.nodes import Cluster, live, until

from ordercast import Node
from ordercast.net import contacts as contact_module
from ordercast.net import dialler as dialler_module
from ordercast.net.contact import Contact
from ordercast.wire.framing import FrameKind


@live
async def test_a_node_that_is_flooded_with_names_remembers_a_bounded_number(
    cluster: Cluster,
) -> None:
    """And refuses nobody: the longest unused name gives way."""
    n1 = await cluster.open("n1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contact_module, "MOST_CONTACTS", 50)
        for number in range(100):
            n1.mesh.contacts.greeted(f"name{number}")
        assert len(n1.mesh.contacts) == 50
        caller = await cluster.dial(n1)
        await caller.connect("n2")
        assert len(n1.mesh.contacts) == 50
        await until(lambda: n1.mesh.contacts["n2"].connection is not None)


@live
async def test_visitors_that_are_gone_are_not_dialled(cluster: Cluster) -> None:
    """Sixty nodes come, each tells of one more that does not exist, and all of them go."""
    n1 = await cluster.open("n1")
    callers = []
    for number in range(60):
        caller = await cluster.dial(n1)
        caller.greet(f"v{number}", port=1, places={f"ghost{number}": "127.0.0.1:1"})
        assert await caller.hear(FrameKind.HELLO)
        caller.say(FrameKind.RESUME, b"\x91\x00")
        callers.append(caller)
    await until(lambda: sum(each.connection is not None for each in contacts_of(n1)) == 60)
    for caller in callers:
        caller.abort()
    await until(lambda: not any(each.connection for each in contacts_of(n1)))
    await until(lambda: not any(each.dialler for each in contacts_of(n1)))
    assert n1.mesh.counters["failed_dials"] == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dialler_module, "TOLD_BACKOFFS", 0)
        for number in range(60):
            n1.mesh.contacts.use(f"ghost{number}")
        await until(lambda: not any(each.name.startswith("ghost") for each in contacts_of(n1)))
    assert n1.mesh.counters["failed_dials"] == 60 * contact_module.MOST_FAILURES


def contacts_of(node: Node) -> list[Contact]:
    return list(node.mesh.contacts.values())
