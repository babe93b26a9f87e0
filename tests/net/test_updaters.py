"""Updaters that come and go between real nodes: tickets had, waited for, given back and lost."""

from __future__ import annotations

import asyncio

import pytest
from tests.net.nodes import Cluster, data_of, kill, live, until

import ordercast
from ordercast import Causal, Fifo, Gossip, Group, Joined, Node, TicketLost, Updating, UsageError
from ordercast.units import MILLISECOND, Duration

WORLD = "world/7"
ROUND = Duration(10 * MILLISECOND)
LEASE = Duration(400 * MILLISECOND)
MANY = Causal(round=ROUND, lease=LEASE, tickets=3, join_wait=ROUND)
ONE = Causal(round=ROUND, lease=LEASE, tickets=1, join_wait=ROUND)


def joined(*nodes: Node, level: Causal = MANY, name: str = WORLD) -> list[Group]:
    names = [node.me.name for node in nodes]
    return [node.join(name, level, names) for node in nodes]


async def next_word(group: Group) -> str:
    """What is next said about our ticket."""
    async for item in group:
        if isinstance(item, Updating):
            return item.cause
    raise AssertionError("the stream has ended")


def disconnect(group: Group) -> None:
    """Cuts a member off from all the others."""
    others = frozenset(name for name in group.node.mesh.contacts)
    group.node.mesh.set_cuts(others, others)


def reconnect(*groups: Group) -> None:
    for group in groups:
        group.node.mesh.set_cuts(frozenset(), frozenset())


# --- becoming an updater, and stopping ----------------------------------------------------------


@live
async def test_messages_of_a_new_updater_reach_all(cluster: Cluster) -> None:
    n1, n2, n3 = await cluster.nodes("n1", "n2", "n3")
    groups = joined(n1, n2, n3)
    assert groups[1].updating is None
    ticket = await groups[1].become_updater()
    assert groups[1].updating == ticket
    await groups[1].send(b"landed")
    for group in groups:
        assert await data_of(group, 1) == [b"landed"]


@live
async def test_the_stream_has_ticket_changes_in_order_with_messages(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    first, second = joined(n1, n2)
    ticket = await second.become_updater()
    await second.send(b"a")
    await second.stop_updating()
    assert second.updating is None
    assert await anext(second) == Joined(WORLD, n2.me)
    assert await anext(second) == Updating(WORLD, "acquired", ticket)
    message = await anext(second)
    assert isinstance(message, ordercast.Message)
    assert message.data == b"a"
    assert await anext(second) == Updating(WORLD, "released", ticket)
    assert await data_of(first, 1) == [b"a"]


@live
async def test_accepted_messages_are_sent_before_the_ticket_is_given_back(
    cluster: Cluster,
) -> None:
    """More than one round takes, so that it has to wait."""
    n1, n2 = await cluster.nodes("n1", "n2")
    first, second = joined(n1, n2, level=Causal(round=ROUND, lease=LEASE, events_per_message=2))
    await second.become_updater()
    expected = []
    for number in range(10):
        expected.append(b"%d" % number)
        await second.send(expected[-1])
        await asyncio.sleep(0)
    stopping = asyncio.create_task(second.stop_updating())
    await asyncio.sleep(0)
    with pytest.raises(UsageError, match="not an updater"):
        await second.send(b"too late")
    await stopping
    assert second.status()["waiting_out"] == 0
    assert await data_of(first, 10) == expected


@live
async def test_with_fewer_tickets_than_updaters_the_second_waits(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    first, second = joined(n1, n2, level=ONE)
    await first.become_updater()
    with pytest.raises(TimeoutError) as error:
        await second.become_updater(timeout=LEASE / 1e9)
    assert str(error.value) == (
        "n2 got no ticket of 'world/7' within 0.4 s: other members hold all of them, or too few "
        "members are connected to grant one; wait longer, or let an updater call "
        "group.stop_updating()"
    )
    waiting = asyncio.create_task(second.become_updater())
    assert first.updating == 0
    await first.send(b"mine")
    await first.stop_updating()
    assert await waiting == 0
    await second.send(b"now mine")
    assert await data_of(first, 2) == [b"mine", b"now mine"]
    assert await data_of(second, 2) == [b"mine", b"now mine"]


@live
async def test_a_cancelled_wait_withdraws_the_request_for_a_ticket(cluster: Cluster) -> None:
    n1, n2, n3 = await cluster.nodes("n1", "n2", "n3")
    first, second, third = joined(n1, n2, n3, level=ONE)
    await first.become_updater()
    with pytest.raises(TimeoutError, match=r"got no ticket of .* within"):
        await second.become_updater(timeout=LEASE / 1e9)
    assert not second.status()["updating"]["wanted"]
    waiting = asyncio.create_task(third.become_updater())
    await first.stop_updating()
    await waiting
    assert second.updating is None
    assert await next_word(third) == "acquired"


@live
async def test_a_request_stays_while_another_caller_waits(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    first, second = joined(n1, n2, level=ONE)
    await first.become_updater()
    one = asyncio.create_task(second.become_updater())
    other = asyncio.create_task(second.become_updater())
    await until(lambda: second.status()["updating"]["wanted"])
    one.cancel()
    await asyncio.wait([one])
    assert second.status()["updating"]["wanted"]
    await first.stop_updating()
    assert await other == 0
    with pytest.raises(asyncio.CancelledError):
        await one


@live
async def test_a_ticket_that_was_given_back_can_be_acquired_again(cluster: Cluster) -> None:
    (n1,) = await cluster.nodes("n1")
    (group,) = joined(n1)
    for number in range(3):
        await group.become_updater()
        assert await group.become_updater() == group.updating, "who has one has it"
        await group.send(b"%d" % number, until="delivered")
        await group.stop_updating()
        await group.stop_updating()  # there is nothing to give back, and nothing wrong with that
    assert await data_of(group, 3) == [b"0", b"1", b"2"]


@live
async def test_a_node_is_an_updater_of_one_group_and_not_of_another(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    west, _ = joined(n1, n2, name="west")
    east, other = joined(n1, n2, name="east")
    await west.become_updater()
    with pytest.raises(UsageError, match="not an updater of 'east'"):
        await east.send(b"b")
    await other.become_updater()
    await asyncio.gather(west.send(b"a"), other.send(b"b"))
    assert await data_of(west, 1) == [b"a"]
    assert await data_of(east, 1) == [b"b"]


@live
async def test_the_application_is_notified_of_ticket_changes(cluster: Cluster) -> None:
    """Neither of one that was gone before it could be used, nor of the same one's next epoch."""
    (n1,) = await cluster.nodes("n1")
    (group,) = joined(n1, level=ONE)
    for cause in ("disconnected", "released"):
        group.take(Updating(WORLD, cause, 0))
    await group.become_updater()
    group.take(Updating(WORLD, "acquired", 0))
    group.take(Updating(WORLD, "suspended", 0))
    group.take(Updating(WORLD, "acquired", 0))
    assert [await next_word(group) for _ in range(3)] == ["acquired", "suspended", "resumed"]
    await group.stop_updating()
    assert await next_word(group) == "released"


# --- what is refused ----------------------------------------------------------------------------


@live
async def test_sending_without_a_ticket_raises_with_what_to_do(cluster: Cluster) -> None:
    (n1,) = await cluster.nodes("n1")
    (group,) = joined(n1)
    for send in (group.send(b"a"), group.send_many([b"a", b"b"])):
        with pytest.raises(UsageError, match=r"await group.become_updater\(\) before it sends"):
            await send


@live
async def test_groups_without_tickets_reject_becoming_an_updater(cluster: Cluster) -> None:
    (n1,) = await cluster.nodes("n1")
    for number, (level, why) in enumerate(
        [
            (Fifo(), "is fifo, without tickets: all may send"),
            (Gossip(), "is gossip, without tickets: all may send"),
            (Causal(updaters=["n1"]), "is causal, without tickets: its updaters are named"),
        ]
    ):
        group = n1.join(f"g{number}", level, ["n1"])
        assert group.updating is None
        with pytest.raises(UsageError, match=why):
            await group.become_updater()
        with pytest.raises(UsageError, match=why):
            await group.stop_updating()
        assert (await group.send(b"a", until="delivered")).delivered


@live
async def test_a_node_that_may_not_send_gets_no_ticket(cluster: Cluster) -> None:
    rules = {WORLD: {"family": "causal", "may_send": ["n2"]}}
    n1 = await cluster.open("n1", group=rules)
    (group,) = joined(n1)
    with pytest.raises(UsageError, match="it only reads"):
        await group.become_updater()


@live
async def test_a_founder_must_be_a_member(cluster: Cluster) -> None:
    (n1,) = await cluster.nodes("n1")
    with pytest.raises(UsageError, match="the founder of 'world/7' is n9, which is no member"):
        n1.join(WORLD, Causal(founder="n9"), ["n1", "n2"])


@live
async def test_a_closed_group_has_no_tickets(cluster: Cluster) -> None:
    (n1,) = await cluster.nodes("n1")
    (group,) = joined(n1)
    await group.leave()
    for act in (group.become_updater(), group.stop_updating()):
        with pytest.raises(ordercast.GroupClosed):
            await act


# --- tickets that are suspended and lost ----------------------------------------------------------


async def three(cluster: Cluster, level: Causal) -> list[Group]:
    """Three nodes that guard the tickets together, so that none of them is missed."""
    groups = joined(*await cluster.nodes("n1", "n2", "n3"), level=level)
    await until(lambda: all(guards(group) for group in groups))
    return groups


def guards(group: Group) -> bool:
    """Whether it is one of a guard set that is no longer the founder alone."""
    return group.status()["counters"]["guards_set"] > 1


@live
async def test_a_disconnected_owner_is_suspended_and_resumes_when_it_returns(
    cluster: Cluster,
) -> None:
    groups = await three(cluster, MANY)
    third = groups[2]
    ticket = await third.become_updater()
    assert await next_word(third) == "acquired"
    disconnect(third)
    assert await next_word(third) == "suspended"
    assert third.updating == ticket, "it is still ours, for all we know"
    receipt = await third.send(b"later")
    await asyncio.sleep(0)
    assert receipt.number is None
    reconnect(third)
    assert await next_word(third) == "resumed"
    await receipt.wait("delivered")
    assert await data_of(groups[0], 1) == [b"later"]


@live
async def test_a_member_that_got_no_ticket_says_first_what_it_knows(cluster: Cluster) -> None:
    *_, third = await three(cluster, MANY)
    disconnect(third)
    wanting = asyncio.create_task(third.become_updater())
    await until(lambda: third.waiting is not None)
    with pytest.raises(TimeoutError) as error:
        await third.become_updater(timeout=0.01)
    wanting.cancel()
    said = str(error.value)
    assert said.startswith("n3 got no ticket of 'world/7' within 0.01 s: it waits for n1, n2")
    assert said.endswith(
        ". If that is not the cause, other members hold all tickets: wait longer, or let an "
        "updater call group.stop_updating()"
    )


@live
async def test_a_disconnected_owner_loses_its_ticket_to_a_waiting_member(cluster: Cluster) -> None:
    first, _, third = groups = await three(cluster, ONE)
    await third.become_updater()
    await third.send(b"before", until="delivered")
    disconnect(third)
    assert await next_word(third) == "acquired"
    assert await next_word(third) == "suspended"
    receipt = await third.send(b"never")
    asking = asyncio.create_task(receipt.wait("delivered"))
    await first.become_updater()
    await first.send(b"after")
    reconnect(third)
    assert await next_word(third) == "disconnected"
    assert third.updating is None
    with pytest.raises(TicketLost, match=r"lost ticket 0 of 'world/7', and 1 messages were not"):
        await asking
    with pytest.raises(TicketLost, match="become_updater"):
        await third.send(b"again")
    assert await data_of(first, 2) == [b"before", b"after"]
    # Nothing is sought by itself; and who asks again waits for the ticket like everybody.
    await until(lambda: not third.status()["updating"]["wanted"])
    asking = asyncio.create_task(third.become_updater())
    await first.stop_updating()
    await asking
    await third.send(b"at last")
    assert await data_of(groups[1], 3) == [b"before", b"after", b"at last"]


@live
async def test_a_blocked_send_raises_when_the_ticket_is_lost(cluster: Cluster) -> None:
    first, _, third = await three(cluster, ONE)
    await third.become_updater()
    disconnect(third)
    await until(lambda: third.status()["updating"]["suspended"])
    large = bytes(400_000)  # the credit is for one, and not for two
    await third.send(large)
    waiting = asyncio.create_task(third.send(large))
    await first.become_updater()
    reconnect(third)
    with pytest.raises(TicketLost):
        await waiting
    await until(lambda: not third.status()["updating"]["wanted"])
    await third.stop_updating()  # what was lost before is no news


@live
async def test_the_ticket_of_a_dead_owner_goes_to_another_member(cluster: Cluster) -> None:
    first, _, third = await three(cluster, ONE)
    await third.become_updater()
    await kill(third.node)
    assert await first.become_updater() == 0


# --- leaving ------------------------------------------------------------------------------------


@live
async def test_a_lease_replica_that_leaves_hands_over_its_leases(cluster: Cluster) -> None:
    """The founder guards alone, and goes: the others can still have tickets."""
    n1, n2, n3 = await cluster.nodes("n1", "n2", "n3")
    first, second, third = joined(n1, n2, n3)
    await second.become_updater()
    await first.leave()
    await third.become_updater()
    await third.send(b"we go on")
    assert await data_of(second, 1) == [b"we go on"]


@live
async def test_leaving_forgets_the_leases_but_not_the_founding(cluster: Cluster) -> None:
    first, second, _ = await three(cluster, MANY)
    for group in (second, first):
        store = group.node.store
        await until(lambda store=store: store.records(WORLD))
        await group.leave()
        if group is second:
            await until(lambda store=store: not store.records(WORLD))
    await first.node.__aexit__(None, None, None)
    assert store.records(WORLD), "who founded it would found it again"


@live
async def test_a_member_that_leaves_gives_its_ticket_back(cluster: Cluster) -> None:
    first, second, _ = await three(cluster, ONE)
    await second.become_updater()
    await second.send(b"my last")
    await second.leave()
    await first.become_updater()
    await first.send(b"my first")
    assert await data_of(first, 2) == [b"my last", b"my first"]


@live
async def test_a_member_that_left_may_join_again_and_update(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    first, second = joined(n1, n2)
    for number in range(2):
        await second.become_updater()
        await second.send(b"%d" % number)
        await second.leave()
        second = n2.join(WORLD, MANY, ["n1", "n2"])
    assert await data_of(first, 2) == [b"0", b"1"]


@live
async def test_the_last_member_leaves_at_once_and_finds_everything_again(cluster: Cluster) -> None:
    n1 = await cluster.open("n1")
    (group,) = joined(n1)
    await group.become_updater()
    await kill(n1)
    n1 = await cluster.open("n1")
    assert n1.store.records(WORLD)
    (group,) = joined(n1)
    await group.become_updater()
    assert group.permit is not None and group.permit.retire() > 0
    assert not group.permit.is_needed()
    await group.leave()
    assert n1.store.records(WORLD), "it would still have to answer for its promises"


@live
async def test_a_restarted_node_cannot_change_how_many_tickets_there_are(cluster: Cluster) -> None:
    n1 = await cluster.open("n1")
    await joined(n1)[0].become_updater()
    await kill(n1)
    n1 = await cluster.open("n1")
    with pytest.raises(UsageError, match=r"began with 3 tickets.* but its options say 1"):
        joined(n1, level=ONE)
    assert await joined(n1)[0].become_updater() in range(3)
