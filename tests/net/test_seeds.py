"""Seeds: every address of a name is dialled, again and again. The time is given."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from random import Random

import pytest
from tests.net.nodes import Cluster, connected, kill, live, place_of, until

from ordercast import Fifo
from ordercast.net import connection as connection_module
from ordercast.net import dialler as dialler_module
from ordercast.net.seeds import AGAIN_SECONDS, LOOK_SECONDS, PATIENT_SECONDS, Seed, backoff, resolve
from ordercast.types import NodeId

US, N1, N2 = NodeId("us"), NodeId("n1"), NodeId("n2")
POD1, POD2, POD3 = "10.0.0.1:7", "10.0.0.2:7", "10.0.0.3:7"


def later(who: NodeId, seconds: float, times: int) -> bool:
    return seconds >= AGAIN_SECONDS


def never(who: NodeId, seconds: float, times: int) -> bool:
    return False


@live
async def test_a_seed_that_is_no_node_is_told_and_logged_once(cluster: Cluster) -> None:
    dials = 0

    def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal dials
        dials += 1
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        n1 = await cluster.open("n1", seeds=[f"{host}:{port}"])
        group = n1.join("g", Fifo())
        await until(lambda: dials >= 4)  # the first asks for an incarnation
        said = f"{host}:{port} answers, but not as an ordercast node"
        with pytest.raises(TimeoutError, match=re.escape(said)):
            await group.ready(timeout=0.01)
        assert cluster.log.text.count(said) == 1
        assert "refusing" not in cluster.log.text


@live
async def test_a_seed_that_is_reached_and_says_nothing_is_told(cluster: Cluster) -> None:
    """Such as a server that waits for a line, a paused node, or one with TLS."""

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection_module, "GREETING_SECONDS", 0.1)
        host, port = server.sockets[0].getsockname()
        async with server:
            n1 = await cluster.open("n1", seeds=[f"{host}:{port}"])
            group = n1.join("g", Fifo())
            said = f"{host}:{port} can be reached, and says nothing for 0.1 s"
            await until(lambda: said in group.readiness.reason())
            assert "nobody answers" not in group.readiness.reason()
        await until(lambda: "nobody answers at" in group.readiness.reason())


@live
async def test_a_seed_that_hangs_up_is_told(cluster: Cluster) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        place = f"localhost:{server.sockets[0].getsockname()[1]}"
        n1 = await cluster.open("n1", peers={"n2": place})
        group = n1.join("g", Fifo())
        said = f"n2 is not connected; {place} ends the connection without a greeting"
        await until(lambda: said in group.readiness.reason())


def test_every_address_is_dialled_with_a_backoff_of_its_own() -> None:
    seed = Seed("pods:7", Random(1))
    seed.resolved([POD1, POD2], now=0.0)
    assert seed.due(0.0, never) == [POD1, POD2]
    seed.tried(POD1, N1, 0.1)
    seed.tried(POD2, None, 0.1)
    assert 0 < seed.next_try(0.1) < 0.2
    assert seed.next_try(5.0) == 0.0, "it is late"
    assert seed.due(1.0, never) == [POD2], "until somebody answers there"
    for _ in range(10):
        seed.tried(POD2, None, 10.0)
    assert seed.due(10.9, never) == []
    assert seed.due(14.0, never) == [POD2]


def test_an_address_that_answered_is_dialled_again_later_where_that_is_useful() -> None:
    seed = Seed("pods:7", Random(1))
    seed.resolved([POD1, POD2], now=0.0)
    seed.tried(POD1, N1, 1.0)
    seed.tried(POD2, N2, 1.0)
    assert seed.due(AGAIN_SECONDS, later) == []
    assert seed.due(AGAIN_SECONDS + 1.0, later) == [POD1, POD2]
    assert seed.due(AGAIN_SECONDS + 1.0, lambda who, *_: who == N2) == [POD2]
    assert seed.due(1000.0, never) == []
    assert seed.next_try(1000.0) == LOOK_SECONDS


def test_addresses_come_and_go_with_the_name() -> None:
    seed = Seed("pods:7", Random(1))
    seed.resolved([POD1, POD2], now=0.0)
    seed.tried(POD1, N1, 1.0)
    seed.resolved([POD1, POD3], now=2.0)
    assert seed.due(2.0, never) == [POD3]
    seed.tried(POD2, N2, 2.0)  # an answer from an address that is gone
    assert seed.due(2.0, never) == [POD3]


def test_a_seed_knows_when_it_is_only_ourselves() -> None:
    seed = Seed("pods:7", Random(1))
    assert not seed.is_only(US)
    seed.resolved([POD1, POD2], now=0.0)
    seed.tried(POD1, US, 1.0)
    assert not seed.is_only(US)
    seed.tried(POD2, US, 1.0)
    assert seed.is_only(US)
    seed.resolved([POD1, POD2, POD3], now=2.0)
    assert not seed.is_only(US)


def test_tries_grow_apart() -> None:
    waits = [backoff(failures, 1.0) for failures in range(10)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (0.05, 2.0)
    assert backoff(10_000, PATIENT_SECONDS + 1) == AGAIN_SECONDS


def test_addresses_are_not_looked_up() -> None:
    for place in ("127.0.0.1:7", "[::1]:7"):
        assert asyncio.run(resolve(place)) == [place]
    assert "127.0.0.1:7" in asyncio.run(resolve("localhost:7"))


@live
async def test_all_nodes_behind_one_name_are_met(cluster: Cluster) -> None:
    """As behind a headless service: the name means them all, and one more later."""
    pods = [await cluster.open(name) for name in ("n1", "n2")]
    lookups = 0

    async def look_up(place: str) -> list[str]:
        nonlocal lookups
        lookups += 1
        if lookups < 3:
            raise OSError("no such name yet")
        return [place_of(pod) for pod in pods]

    n9 = await cluster.open("n9")
    n9.mesh.dialler.look_up = look_up
    n9.mesh.seed("pods.example:7101")
    await until(lambda: all(connected(n9, pod) for pod in pods))
    assert n9.mesh.counters["failed_lookups"] == 2


@live
async def test_a_seed_whose_address_changed_is_found(cluster: Cluster) -> None:
    first, second = await cluster.open("n1"), await cluster.open("n2")
    meant = first

    async def look_up(place: str) -> list[str]:
        return [place_of(meant)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dialler_module, "AGAIN_SECONDS", 0.05)
        n9 = await cluster.open("n9")
        n9.mesh.dialler.look_up = look_up
        n9.mesh.seed("pods.example:7101")
        await until(lambda: connected(n9, first))
        meant = second
        await until(lambda: connected(n9, second))


@live
async def test_a_node_learns_of_the_others_from_a_seed(cluster: Cluster) -> None:
    seed = await cluster.open("n1")
    n2 = await cluster.open("n2", seeds=[place_of(seed)])
    await until(lambda: connected(seed, n2))
    n3 = await cluster.open("n3", seeds=[place_of(seed)])
    await until(lambda: connected(seed, n3))
    assert n3.mesh.contacts["n2"].place == place_of(n2)
    assert n3.mesh.contacts["n2"].dialler is None, "it has no use for n2 yet"
    await cluster.join(seed, n2, n3)
    await until(lambda: connected(n2, n3))


@live
async def test_a_node_may_be_among_its_own_seeds(cluster: Cluster) -> None:
    """So that all nodes of a cluster can have the same settings."""
    seed = await cluster.open("n1")
    seed.mesh.seed(place_of(seed))
    await until(lambda: seed.mesh.dialler.seeds[0].is_only(seed.me))
    await until(lambda: not seed.mesh.connections)
    assert not seed.mesh.contacts
    assert not cluster.log.text
    assert not seed.mesh.counters


@live
async def test_a_seed_that_is_not_there_yet_is_tried_until_it_is(cluster: Cluster) -> None:
    first = await cluster.open("n1")
    place = place_of(first)
    await kill(first)
    n2 = await cluster.open("n2", seeds=[place])
    await until(lambda: n2.mesh.counters["failed_dials"] > 1)
    n1 = await cluster.open("n1", listen=place)
    await until(lambda: connected(n1, n2))
