"""The numbers of a name: a lie costs few of them, and a name that has used many comes back."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.net.nodes import Cluster, connected, introduce, live, place_of, until

from ordercast.kernel.identity import COUNTED, LAST, most_believed
from ordercast.net import name_watch
from ordercast.types import NodeId
from ordercast.wire import greeting
from ordercast.wire.framing import FrameKind
from ordercast.wire.greeting import Refuse


@live
async def test_a_liar_cannot_use_up_the_numbers_of_a_name(cluster: Cluster) -> None:
    """Nor keep another name out: what nobody could have met is not believed, nor handed on."""
    n1 = await cluster.open("n1")
    for newest in ((1 << 21) - 1, LAST, 1 << 22, 1 << 60):
        liar = await cluster.dial(n1)
        await liar.connect("n2", newest={"n1": newest, "n3": newest})
        await until(lambda: n1.mesh.contacts["n2"].connection is not None)
        await liar.close()
        await until(lambda: n1.mesh.contacts["n2"].connection is None)
    assert n1.me == NodeId("n1")
    honest = await cluster.dial(n1)
    assert (await honest.connect("n3")).newest["n3"] == 0


@live
async def test_a_liar_that_refuses_a_node_costs_it_few_of_its_numbers(cluster: Cluster) -> None:
    n1 = await cluster.open("n1")
    for _ in range(3):
        liar = await cluster.dial(n1)
        liar.say(FrameKind.REFUSE, greeting.encode(Refuse("older", "older", LAST)))
    await until(lambda: n1.me.incarnation)
    assert n1.me.incarnation <= most_believed(0) + COUNTED + 1024
    assert n1.status()["numbers_left"] > LAST * 2 // 3


@live
async def test_a_liar_that_answers_costs_an_empty_folder_few_of_its_numbers(
    cluster: Cluster,
) -> None:
    n1, _honest = await cluster.open_met_by("n2", incarnation=41)
    liar = await cluster.open("n3")
    liar.mesh.handshake.acquaintances.known["n2"] = NodeId("n2", LAST)
    peers = {"n1": place_of(n1), "n3": place_of(liar)}
    n2 = await cluster.open("n2", data=str(cluster.folder / "empty"), peers=peers)
    assert 41 < n2.me.incarnation <= most_believed(0) + COUNTED + 8


@pytest.mark.parametrize("tellers", [1, 2])
def test_a_name_that_has_used_most_of_its_numbers_comes_back_by_itself(
    tellers: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A single node that knows it is believed step by step, two are at once."""
    used = (1 << 21) + (1 << 18)

    @live
    async def staged(cluster: Cluster) -> None:
        others = await cluster.nodes("n1", "n3")
        for other in others[:tellers]:
            former = await cluster.dial(other)
            await former.connect("n2", incarnation=used)
            await former.close()
            await until(lambda other=other: other.mesh.contacts["n2"].connection is None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(name_watch, "ABANDON_SECONDS", 0.01)
            n2 = await cluster.open("n2", data=str(cluster.folder / "empty"))
            introduce(n2, *others)
            await until(lambda: n2.me.incarnation > used and connected(n2, others[0]))
        assert n2.me.incarnation < used + COUNTED + 1024
        assert "n2 has used more than half of its numbers: " in cluster.log.text

    staged("asyncio", tmp_path, caplog)
