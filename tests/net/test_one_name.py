"""Two running nodes with one name: the second is refused, and the first is undisturbed."""

from __future__ import annotations

import re
import shutil

import pytest
from tests.net.nodes import GROUP, QUICK, Cluster, connected, data_of, kill, live, place_of, until
from tests.net.test_lost_folder import ended

from ordercast.errors import NameTaken
from ordercast.net import incidents, name_watch
from ordercast.wire import greeting
from ordercast.wire.framing import FrameKind
from ordercast.wire.greeting import Hello, Refuse


@live
async def test_the_second_node_of_a_name_is_refused_and_the_first_is_undisturbed(
    cluster: Cluster,
) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    first, other = await cluster.join(n1, n2)
    before = n2.mesh.contacts["n1"].connection
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name_watch, "TAKEN_SECONDS", 0.3)
        patch.setattr(incidents, "PASSING", 0)
        second = await cluster.open(
            "n1", data=str(cluster.folder / "elsewhere"), peers={"n2": place_of(n2)}
        )
        group = second.join(GROUP, QUICK, ["n1", "n2"])
        with pytest.raises(NameTaken, match=r"n1#\d+ stops: two nodes are named n1: n1 at 127"):
            await ended(group)
    with pytest.raises(NameTaken):
        second.join("another", QUICK, ["n1"])
    assert n2.mesh.contacts["n1"].connection is before
    await first.send(b"still here", until="stable")
    assert await data_of(other, 1) == [b"still here"]
    said = "two nodes are named n1: n1 at 127.0.0.1:"
    assert f"{place_of(n2)} refuses this node: {said}" in cluster.log.text
    assert re.search(f"refusing 127.*: {re.escape(said)}", cluster.log.text)


@live
async def test_one_that_may_be_restarted_is_not_told_of_two_nodes_at_once(cluster: Cluster) -> None:
    """Its former incarnation may be gone, and not be missed yet."""
    n1, n2 = await cluster.nodes("n1", "n2")
    await until(lambda: connected(n1, n2))
    second = await cluster.open(
        "n1", data=str(cluster.folder / "elsewhere"), peers={"n2": place_of(n2)}
    )
    await until(lambda: second.mesh.counters["refused_by_peers"] >= 2)
    assert f"{place_of(n2)} refuses this node: two nodes" not in cluster.log.text
    said = second.mesh.incidents.refused_by[place_of(n2)]
    assert said.startswith("does not talk to this node yet: it heard the former one")


@live
async def test_a_refusal_is_logged_once_until_something_changes(cluster: Cluster) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(incidents, "PASSING", 0)
        await refused_again_and_again(cluster)


async def refused_again_and_again(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    await until(lambda: connected(n1, n2))
    second = await cluster.open(
        "n1", data=str(cluster.folder / "elsewhere"), peers={"n2": place_of(n2)}
    )
    await until(lambda: second.mesh.counters["refused_by_peers"] >= 4)
    said = f"{place_of(n2)} refuses this node: two nodes"
    assert sum(said in line for line in cluster.log.messages) == 1
    said = "refusing 127.0.0.1: two nodes"  # by n2, and by n1 itself, to which n2 sends it
    assert sum(said in line for line in cluster.log.messages) == 2
    await kill(n1)
    await until(lambda: connected(second, n2))
    again = await cluster.open("n1", peers={"n2": place_of(n2)})
    await until(lambda: again.mesh.counters["refused_by_peers"] >= 2)
    assert sum(said in line for line in cluster.log.messages) >= 3


@live
async def test_a_node_with_a_copied_folder_is_refused(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    first, other = await cluster.join(n1, n2)
    shutil.copytree(cluster.folder / "n1", cluster.folder / "copy")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name_watch, "TAKEN_SECONDS", 0.3)
        copy = await cluster.open(
            "n1", data=str(cluster.folder / "copy"), peers={"n2": place_of(n2)}
        )
        group = copy.join(GROUP, QUICK, ["n1", "n2"])
        with pytest.raises(NameTaken):
            await ended(group)
    assert connected(n1, n2)
    await first.send(b"still here", until="stable")
    assert await data_of(other, 1) == [b"still here"]


@live
async def test_two_nodes_of_a_name_that_meet_each_other_agree_which_is_the_second(
    cluster: Cluster,
) -> None:
    first = await cluster.open("n1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name_watch, "TAKEN_SECONDS", 0.3)
        patch.setattr(greeting, "SAME_AGE", 0)
        await until(lambda: first.mesh.handshake.us.bearer().age > 50)
        second = await cluster.open(
            "n1", data=str(cluster.folder / "elsewhere"), seeds=[place_of(first)]
        )
        group = second.join(GROUP, QUICK, ["n1"])
        with pytest.raises(NameTaken):
            await ended(group)
    first.join(GROUP, QUICK, ["n1"])


@live
async def test_a_name_is_free_again_when_its_node_is_gone(cluster: Cluster) -> None:
    """The second one tries on meanwhile, and nobody has to do anything."""
    n1, n2 = await cluster.nodes("n1", "n2")
    await until(lambda: connected(n1, n2))
    second = await cluster.open(
        "n1", data=str(cluster.folder / "elsewhere"), peers={"n2": place_of(n2)}
    )
    await until(lambda: second.mesh.counters["refused_by_peers"])
    await kill(n1)
    await until(lambda: connected(second, n2))
    assert 8 <= second.me.incarnation < 16


@live
async def test_one_that_is_refused_as_older_is_told_the_newest(cluster: Cluster) -> None:
    n1, former = await cluster.open_met_by("n2", incarnation=5, birth=b"a birth")
    await former.close()
    await until(lambda: n1.mesh.contacts["n2"].connection is None)
    rival = await cluster.dial(n1)
    rival.greet("n2", incarnation=5, birth=b"another")
    assert await rival.refuse() == Refuse("n2#5 is an older incarnation: n2#5 was here", "older", 5)
    again = await cluster.dial(n1)
    again.greet("n2", incarnation=6, birth=b"a third")
    heard = await again.hear(FrameKind.HELLO)
    assert heard is not None
    assert greeting.decode(heard[1], Hello).newest["n2"] == 5, "what was known before"
