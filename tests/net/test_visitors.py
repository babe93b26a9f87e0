"""Nodes that come and go: remembered within bounds, and not dialled when they are gone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.net.nodes import Cluster, kill, live, place_of, until

from ordercast import Fifo, Group, Node
from ordercast.net import authority
from ordercast.net import contacts as contact_module
from ordercast.net import dialler as dialler_module
from ordercast.net.contact import Contact
from ordercast.protocol.fifo import candidates as candidate_module
from ordercast.units import SECOND
from ordercast.wire.framing import FrameKind

HASTY = Fifo(heartbeat="10ms", suspicion_limit="50ms")
"""Drops a member half a second after it has gone."""
Ending = Callable[[Node, Group], Awaitable[None]]


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


async def leave(node: Node, group: Group) -> None:
    await group.leave()
    await kill(node)


async def crash(node: Node, group: Group) -> None:
    await kill(node)


async def open_sealed(cluster: Cluster, name: str, **settings: Any) -> Node:
    """A node with a certificate: its datagrams need a key, and so a connection."""
    authority.issue(cluster.folder, name)
    files = {"authority": "ca.pem", "certificate": f"{name}.pem", "key": f"{name}.key"}
    tls = {what: str(cluster.folder / file) for what, file in files.items()}
    return await cluster.open(name, cluster="shop", tls=tls, **settings)


def visitors_that(end: Ending, is_sealed: bool) -> Callable[[Cluster], Awaitable[None]]:
    """Five nodes join an open group of n1, one after the other, and each goes as it does."""

    async def story(cluster: Cluster) -> None:
        if is_sealed:
            authority.init(cluster.folder, "shop")

        async def open_node(name: str, **settings: Any) -> Node:
            if is_sealed:
                return await open_sealed(cluster, name, **settings)
            return await cluster.open(name, **settings)

        n1 = await open_node("n1")
        own = n1.join("orders", HASTY)
        await own.ready()
        for number in range(5):
            visitor = await open_node(f"v{number}", seeds=[place_of(n1)])
            group = visitor.join("orders", HASTY)
            await group.ready()
            await until(lambda name=f"v{number}": name in named(own))
            await end(visitor, group)
        machine: Any = n1.driver.machine("orders")
        await until(lambda: not machine.peers.by_name)
        contacts = n1.mesh.contacts
        await until(lambda: not any(contacts.in_use(each) for each in contacts_of(n1)))
        await until(lambda: not any(each.dialler for each in contacts_of(n1)))
        assert not machine.membership.candidates.names
        assert {each.name for each in contacts_of(n1)} <= {f"v{number}" for number in range(5)}

    return story


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize("end", [leave, crash])
def test_visitors_of_an_open_group_that_are_gone_are_called_a_number_of_times(
    end: Ending, is_sealed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, caplog: Any
) -> None:
    """They were sent a heartbeat every suspicion limit, for ever: that kept them in use, and where
    datagrams are sealed each was dialled too."""
    monkeypatch.setattr(contact_module, "USED", 2 * SECOND)
    monkeypatch.setattr(candidate_module, "TRIES", 3)
    live(visitors_that(end, is_sealed))("asyncio", tmp_path, caplog)


def test_members_that_have_given_each_other_up_meet_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, caplog: Any
) -> None:
    """When the network is whole again their nodes connect, and name each other to them."""

    async def story(cluster: Cluster) -> None:
        n1 = await cluster.open("n1")
        n2 = await cluster.open("n2", seeds=[place_of(n1)])
        groups = [node.join("orders", HASTY) for node in (n1, n2)]
        await until(lambda: all(named(group) == ["n1", "n2"] for group in groups))
        n2.mesh.set_cuts(frozenset(["n1"]), frozenset(["n1"]))
        machines: list[Any] = [node.driver.machine("orders") for node in (n1, n2)]
        await until(lambda: not any(each.peers.by_name for each in machines))
        await until(lambda: not any(each.membership.candidates.names for each in machines))
        n2.mesh.set_cuts(frozenset(), frozenset())
        await until(lambda: all(named(group) == ["n1", "n2"] for group in groups))

    monkeypatch.setattr(candidate_module, "TRIES", 3)
    live(story)("asyncio", tmp_path, caplog)


def named(group: Group) -> list[str]:
    return [member.name for member in group.members]


def contacts_of(node: Node) -> list[Contact]:
    return list(node.mesh.contacts.values())
