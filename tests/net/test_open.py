"""Open groups: a seed and a name are enough, and nodes that nobody listed join at any time."""

from __future__ import annotations

from typing import Any

import pytest
from tests.net.nodes import QUICK as FIFO
from tests.net.nodes import Cluster, introduce, live, messages_of, place_of, until
from tests.net.ordered import QUICK as TOTAL

from ordercast import (
    Atomic,
    Causal,
    Gossip,
    Group,
    Mismatch,
    Node,
    Synchrony,
    Total,
    UsageError,
)
from ordercast.kernel.family import Level
from ordercast.net.control import ask
from ordercast.protocol.families import FAMILIES

FAST = {"prompt_after": "5ms", "silence_limit": "50ms", "suspicion_limit": "400ms"}
LEVELS: dict[str, Level] = {
    "fifo": FIFO,
    "gossip": Gossip(round="10ms"),
    "causal": Causal(round="10ms", lease="400ms", tickets=4),
    "total": TOTAL,
    "sequenced": Total(by="sequencer", **FAST),
    "atomic": Atomic(**FAST),
    "synchrony": Synchrony(silence_limit="50ms", suspicion_limit="400ms"),
}
OPEN = {name: level for name, level in LEVELS.items() if FAMILIES[name].opens}
# Groups with a log wait for nobody: test_feed.py.
assert OPEN.keys() == {name for name, one in FAMILIES.items() if one.opens and not one.logged}


def in_families(*families: str) -> Any:
    def decorated(story: Any) -> Any:
        @pytest.mark.parametrize("family", families)
        def test(family: str, tmp_path, caplog) -> None:
            @live
            async def staged(cluster: Cluster) -> None:
                await story(cluster, OPEN[family])

            staged("asyncio", tmp_path, caplog)

        test.__doc__ = story.__doc__
        return test

    return decorated


def in_every_family(story: Any) -> Any:
    """Runs a story about an open group in each family that has such."""
    return in_families(*OPEN)(story)


def where_the_last_members_wait(story: Any) -> Any:
    """In each family but `synchrony`: there a member of an earlier view is a side of its own, and
    merges with others when it meets them."""
    return in_families(*(name for name in OPEN if name != "synchrony"))(story)


async def found(cluster: Cluster, level: Level) -> tuple[Node, Group]:
    node = await cluster.open("n1")
    group = node.join("orders", level)
    await group.ready()
    return node, group


async def enter(
    cluster: Cluster, name: str, seed: Node, level: Level, **more: Any
) -> tuple[Node, Group]:
    node = await cluster.open(name, seeds=[place_of(seed)])
    return node, node.join("orders", level, **more)


async def say(group: Group, data: bytes) -> None:
    if group.permit is not None and group.updating is None:
        await group.become_updater()
    await group.send(data)


@in_every_family
async def test_a_node_that_nobody_has_heard_of_joins_later(cluster: Cluster, level: Level) -> None:
    n1, first = await found(cluster, level)
    n2, second = await enter(cluster, "n2", n1, level)
    _, third = await enter(cluster, "n3", n1, level)
    for group in (second, third):
        await group.ready()
    await say(first, b"before")
    _, late = await enter(cluster, "stranger", n2, level)
    await late.ready()
    groups = (first, second, third, late)
    await until(lambda: all(len(group.members) == 4 for group in groups))
    for number, group in enumerate(groups):
        await say(group, b"from %d" % number)
    for group in groups:
        heard: set[bytes] = set()
        while len(heard - {b"before"}) < 4:
            [message] = await messages_of(group, 1)
            heard.add(message.data)
        assert heard - {b"before"} == {b"from %d" % number for number in range(4)}


@in_every_family
async def test_a_node_with_a_seed_waits_and_says_so(cluster: Cluster, level: Level) -> None:
    n1 = await cluster.open("n1")
    _, second = await enter(cluster, "n2", n1, level)
    with pytest.raises(TimeoutError, match=r"n2 is not in 'orders' after 0\.5 s: it waits"):
        await second.ready(timeout=0.5)
    first = n1.join("orders", level)
    await first.ready()
    await second.ready()


@in_families("gossip", "synchrony")
async def test_who_waits_where_nobody_founds_is_not_told_to_name_a_founder(
    cluster: Cluster, level: Level
) -> None:
    n1 = await cluster.open("n1", seeds=["127.0.0.1:1"])
    with pytest.raises(TimeoutError, match=r"nobody answers at .* only if .* join expect=1") as why:
        await n1.join("orders", level).ready(timeout=0)
    assert "founder" not in str(why.value)
    n2 = await cluster.open("n2", seeds=["127.0.0.1:1"])
    await n2.join("orders", level, expect=1).ready()


@in_families("synchrony")
async def test_what_is_sent_before_anybody_is_met_reaches_those_that_are_met(
    cluster: Cluster, level: Level
) -> None:
    n1, first = await found(cluster, level)
    late = await cluster.open("n2", seeds=["127.0.0.1:1"])
    second = late.join("orders", level)
    await second.send(b"early")
    introduce(n1, late)
    assert [message.data for message in await messages_of(first, 1)] == [b"early"]
    assert len(second.members) == 2


@in_every_family
async def test_a_seed_that_is_not_in_the_group_introduces_its_members(
    cluster: Cluster, level: Level
) -> None:
    seed = await cluster.open("seed")
    wanted = (
        {} if isinstance(level, Gossip | Synchrony) else {"founder": "n1"}
    )  # nobody founds that
    _, first = await enter(cluster, "n1", seed, level, **wanted)
    _, second = await enter(cluster, "n2", seed, level, **wanted)
    for group in (first, second):
        await group.ready()


@in_every_family
async def test_an_expected_number_founds_the_group_together(cluster: Cluster, level: Level) -> None:
    n1 = await cluster.open("n1")
    groups = [n1.join("orders", level, expect=3)]
    groups.append((await enter(cluster, "n2", n1, level, expect=3))[1])
    with pytest.raises(TimeoutError, match="expected"):
        await groups[0].ready(timeout=0.5)
    groups.append((await enter(cluster, "n3", n1, level, expect=3))[1])
    for group in groups:
        await group.ready()
    _, later = await enter(cluster, "n4", n1, level)
    await later.ready()


@in_every_family
async def test_a_number_that_others_do_not_expect_is_an_error(
    cluster: Cluster, level: Level
) -> None:
    n1 = await cluster.open("n1")
    first = n1.join("orders", level, expect=3)
    _, second = await enter(cluster, "n2", n1, level, expect=4)
    await until(lambda: first.ended or second.ended)
    why = first.ended or second.ended
    assert isinstance(why, Mismatch)
    assert "expect is" in str(why)


@where_the_last_members_wait
async def test_a_node_comes_back_to_its_group_and_does_not_found_another(
    cluster: Cluster, level: Level
) -> None:
    n1, _, n2, _ = await together(cluster, level)
    await n1.abort()
    again = await cluster.open("n1")
    group = again.join("orders", level)
    if not isinstance(level, Gossip):
        with pytest.raises(TimeoutError, match=r"n1#1 is not in 'orders' .*: it waits for n2"):
            await group.ready(timeout=0.2)
    again.mesh.know("n2", place_of(n2))
    await group.ready()
    await until(lambda: len(group.members) == 2)


async def together(cluster: Cluster, level: Level) -> tuple[Node, Group, Node, Group]:
    """n1 has founded the group, and n2 has joined it."""
    n1, first = await found(cluster, level)
    n2, second = await enter(cluster, "n2", n1, level)
    for group in (first, second):
        await until(lambda group=group: len(group.members) == 2)
    return n1, first, n2, second


async def apart(cluster: Cluster, level: Level) -> tuple[Node, Group, Node, Group]:
    """n1 has founded the group and n2 has joined it. Then they were cut off from each other."""
    n1, first, n2, second = await together(cluster, level)
    n2.mesh.set_cuts(frozenset(["n1"]), frozenset(["n1"]))
    for group in (first, second):
        await until(lambda group=group: len(group.members) == 1)
    return n1, first, n2, second


@in_families("fifo", "causal", "total", "sequenced", "atomic")
async def test_only_nodes_that_name_a_founder_must_name_the_same(
    cluster: Cluster, level: Level
) -> None:
    n1 = await cluster.open("n1")
    first = n1.join("orders", level, founder="n1")
    _, second = await enter(cluster, "n2", n1, level)
    _, third = await enter(cluster, "n3", n1, level, founder="n1")
    await until(lambda: len(first.members) == len(second.members) == len(third.members) == 3)
    _, wrong = await enter(cluster, "n4", n1, level, founder="n4")
    await until(lambda: wrong.ended)
    assert isinstance(wrong.ended, Mismatch)
    assert "founder is n4 here and n1 there" in str(wrong.ended)


@in_families("fifo", "causal", "total", "sequenced", "atomic")
async def test_a_node_that_names_a_founder_joins_a_group_where_nobody_did(
    cluster: Cluster, level: Level
) -> None:
    n1, first = await found(cluster, level)
    _, second = await enter(cluster, "n2", n1, level, founder="n1")
    await until(lambda: len(first.members) == len(second.members) == 2)


@in_families("fifo", "total", "sequenced", "atomic")
async def test_a_node_that_was_cut_off_alone_joins_the_others_when_it_restarts(
    cluster: Cluster, level: Level
) -> None:
    n1, _, n2, second = await apart(cluster, level)
    await n1.abort()
    n2.mesh.set_cuts(frozenset(), frozenset())
    again = await cluster.open("n1", seeds=[place_of(n2)])
    group = again.join("orders", level)
    view = await group.ready()
    assert view is not None
    assert [member.name for member in view.members] == ["n1", "n2"]
    await until(lambda: len(second.members) == 2)


@where_the_last_members_wait
async def test_a_group_comes_back_when_a_member_that_is_gone_for_good_is_forgotten(
    cluster: Cluster, level: Level
) -> None:
    n1, _, n2, _ = await together(cluster, level)
    await n2.abort()
    await n1.abort()
    socket = cluster.folder / "socket"
    again = await cluster.open("n1", control=str(socket))
    assert "n2" not in again.mesh.contacts, "only the members of its groups name it"
    waits = [] if again.join("orders", level).readiness.is_in else ["orders"]
    assert await ask(socket, "forget n2") == {"forgot": "n2", "restart": waits}
    assert await ask(socket, "forget n2") == {"error": "n2 is not known here"}
    await again.abort()
    alone = await cluster.open("n1")
    await alone.join("orders", level).ready()


@in_families("total", "sequenced", "atomic")
async def test_of_two_groups_that_were_founded_apart_the_younger_ends(
    cluster: Cluster, level: Level
) -> None:
    """n1 was alone when it restarted, and nobody answered it."""
    n1, _, n2, second = await apart(cluster, level)
    await n1.abort()
    again = await cluster.open("n1", listen=place_of(n1))
    group = again.join("orders", level)
    await group.ready()
    n2.mesh.set_cuts(frozenset(), frozenset())
    await until(lambda: group.ended)
    assert isinstance(group.ended, Mismatch)
    assert str(group.ended).endswith(
        "there are two groups of this name. This node has left its own: call node.join again, "
        "which joins the other"
    )
    assert second.ended is None
    back = again.join("orders", level)
    await until(lambda: len(back.members) == len(second.members) == 2)


@live
async def test_two_groups_with_several_members_go_on_and_are_told(cluster: Cluster) -> None:
    nodes, groups = [], []
    for name, other in (("n1", "n3"), ("n2", "n4")):
        node = await cluster.open(name)
        first = node.join("orders", TOTAL)
        third, second = await enter(cluster, other, node, TOTAL)
        await until(lambda first=first, second=second: len(first.members + second.members) == 4)
        nodes += [node, third]
        groups += [first, second]
    introduce(*nodes)
    for group in groups:
        await until(lambda group=group: group.waiting is not None)
        assert "there are two groups of this name. Leave one of them" in group.waiting.why
        assert group.ended is None
    await nodes[0].reform("orders")
    await until(lambda: all(len(group.members) == 4 for group in groups))


@in_every_family
async def test_a_settings_file_may_say_who_founds_a_group(cluster: Cluster, level: Level) -> None:
    rules: dict[str, Any] = {"orders": {"founder": "n1"}, "prices": {"expect": 2}}
    if isinstance(level, Gossip | Synchrony):
        del rules["orders"]  # nobody founds it
    n1 = await cluster.open("n1", group=rules)
    n2 = await cluster.open("n2", group=rules, seeds=[place_of(n1)])
    for name in rules:
        groups = [node.join(name, level) for node in (n1, n2)]
        await until(lambda groups=groups: all(len(group.members) == 2 for group in groups))


@live
async def test_a_node_with_peers_alone_has_a_closed_group_of_them(cluster: Cluster) -> None:
    n1 = await cluster.open("n1")
    n2 = await cluster.open("n2", peers={"n1": place_of(n1)})
    group = n2.join("orders", FIFO)
    assert group.departure.plan.members == ("n1", "n2")
    assert group.departure.plan.entry is None
    n1.join("orders", FIFO, ["n1", "n2"])
    await until(lambda: len(group.members) == 2)


@in_every_family
async def test_what_cannot_be_joined_is_refused_at_once(cluster: Cluster, level: Level) -> None:
    (node,) = await cluster.nodes("n1")
    for wanted, said in (
        ({"members": ["n1"], "expect": 2}, "expect is for open groups"),
        ({"members": ["n1"], "founder": "n1"}, "founder is for open groups"),
        ({"founder": "n1", "expect": 2}, "and not both"),
        ({"expect": 0}, "'orders': expect: give a number that is >= 1, not 0"),
        ({"expect": 1_000_000}, "cannot expect 1000000 members: give 1 to"),
        ({"expect": True}, "'orders': expect: expected a whole number, not true or false"),
        ({"expect": 2.5}, "'orders': expect: expected a whole number, not a number"),
        ({"expect": "3"}, "'orders': expect: expected a whole number, not text"),
        ({"founder": 5}, "'orders': founder: expected text, not a whole number"),
        ({"founder": ""}, "'orders': founder: give at least 1 character"),
        ({"founder": "f" * 101}, "'orders': founder: give at most 100 characters"),
        ({"founder": "n 1"}, "'orders': founder: 'n 1': give a name of letters"),
        ({"members": []}, "'orders': members: give at least one name, or leave members out"),
        ({"members": {"n1": 1}}, "'orders': members: expected a list, not a table"),
        ({"members": ["n1", 1]}, r"'orders': members\[2\]: expected text, not a whole number"),
        ({"members": ["n1", "n2\n"]}, r"'orders': members\[2\]: 'n2.n': give a name"),
    ):
        with pytest.raises(UsageError, match=said):
            node.join("orders", level, **wanted)
    if isinstance(level, Gossip):
        with pytest.raises(UsageError, match=r"which nobody founds.*Leave founder out"):
            node.join("orders", level, founder="n1")
