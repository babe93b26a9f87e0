"""Boards of real nodes, visited by HTTP: what appears, where, and how often."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.board.boards import QUICK, board_at
from tests.board.visitors import Told
from tests.net.nodes import Cluster, live, place_of, until

import ordercast
from ordercast.board import service as service_module
from ordercast.units import MILLISECOND, Duration


def texts(told: list[Told]) -> list[str]:
    return [each.data["post"]["text"] for each in told]


@live
async def test_a_reply_appears_below_its_original_at_every_board(cluster: Cluster) -> None:
    n1 = await cluster.open("n1")
    n2 = await cluster.open("n2", seeds=[place_of(n1)])
    async with board_at(n1) as first, board_at(n2) as second:
        here, there = [await board.visitor().listen() for board in (first, second)]
        asked = await first.visitor().post("ann", "is anybody here?")
        assert asked.status == 200
        [heard] = await there.hear_all("post", 1)
        post = heard.data["post"]
        assert (post["author"], post["text"], post["origin"]) == ("ann", "is anybody here?", "n1")
        assert post["key"] == asked.json["key"]
        answered = await second.visitor().post("ben", "I am", reply_to=post["key"])
        assert answered.status == 200
        question, answer = await here.hear_all("post", 2)
        assert question.data["post"]["key"] == answer.data["post"]["below"] == post["key"]
        assert question.mark == asked.json["mark"]
        new = await second.visitor().listen()
        assert [each["text"] for each in await new.whole()] == ["is anybody here?", "I am"]
        for listener in (here, there, new):
            await listener.close()


@live
async def test_a_browser_that_comes_back_gets_what_it_missed_and_each_post_once(
    cluster: Cluster,
) -> None:
    n1 = await cluster.open("n1")
    async with board_at(n1) as board:
        visitor = board.visitor()
        listener = await visitor.listen()
        for text in ("one", "two"):
            await visitor.post("ann", text)
        assert texts(await listener.hear_all("post", 2)) == ["one", "two"]
        await listener.close()
        for text in ("three", "four"):
            await visitor.post("ann", text)
        again = await visitor.listen(listener.mark)
        await visitor.post("ann", "five")
        heard = []
        while len(heard) < 3:
            told = await again.hear()
            assert told is not None
            assert told.name in ("post", "state")
            heard += [told] * (told.name == "post")
        assert texts(heard) == ["three", "four", "five"]
        await again.close()
        at_the_end = await visitor.listen(again.mark)
        told = await at_the_end.hear()
        assert told is not None
        assert told.name == "state"
        await at_the_end.close()


@live
async def test_a_browser_that_was_away_for_too_long_gets_a_whole_page(cluster: Cluster) -> None:
    n1 = await cluster.open("n1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service_module, "MOST_STEPS", 2)
        async with board_at(n1) as board:
            visitor = board.visitor()
            listener = await visitor.listen()
            await visitor.post("ann", "one")
            await listener.hear_all("post", 1)
            await listener.close()
            for text in ("two", "three", "four"):
                await visitor.post("ann", text)
            await until(lambda: len(board.service.threads) == 4)
            for mark in (listener.mark, "0000000000000001:7:0", "no mark at all"):
                again = await visitor.listen(mark)
                posts = await again.whole()
                assert [each["text"] for each in posts] == ["one", "two", "three", "four"]
                await again.close()


@live
async def test_garbage_of_others_is_shown_as_such_and_breaks_nothing(cluster: Cluster) -> None:
    n1 = await cluster.open("n1")
    n2 = await cluster.open("n2", seeds=[place_of(n1)])
    async with board_at(n1) as first, board_at(n2) as second:
        listener = await first.visitor().listen()
        garbage = [b"", b"\xff\x00", b"[" * 100_000, b'{"author": "x", "text": ""}', b"x" * 100_000]
        for data in garbage:
            await second.feed.post(data)
        await second.feed.send_many([b"one of", b"a batch"])
        await second.visitor().post("ben", "sorry")
        told = await listener.hear_all("post", len(garbage) + 3)
        sizes = [each.data["post"]["foreign"] for each in told]
        assert sizes == [*map(len, garbage), 6, 7, -1]
        assert told[-1].data["post"]["text"] == "sorry"
        assert told[1].data["post"]["text"] == "\ufffd\\x00"
        assert len({each.data["post"]["key"] for each in told}) == len(told)
        answered = await first.visitor().post("ann", "why?", told[0].data["post"]["key"])
        assert answered.status == 200
        await listener.close()


@live
async def test_a_board_that_starts_again_shows_what_its_log_has(cluster: Cluster) -> None:
    folder = str(cluster.folder / "n1")
    for start in range(3):
        async with (
            ordercast.open(name="n1", listen="127.0.0.1:0", data=folder) as node,
            board_at(node) as board,
        ):
            listener = await board.visitor().listen()
            shown: list[str] = []
            while len(shown) < start:
                told = await listener.hear()
                assert told is not None
                if told.name == "shown":
                    shown.append(told.data["text"])
                elif told.name == "post":
                    shown += texts([told])
            assert shown == [f"start {each}" for each in range(start)]
            await board.visitor().post("ann", f"start {start}")
            [told] = await listener.hear_all("post", 1)
            assert texts([told]) == [f"start {start}"]
            await listener.close()


@live
async def test_what_the_disk_has_lost_is_waited_for_and_then_missing(cluster: Cluster) -> None:
    folder = cluster.folder / "n1"
    level = replace(QUICK, patience=Duration(1000 * MILLISECOND))
    opened = {"name": "n1", "listen": "127.0.0.1:0", "data": str(folder)}
    async with ordercast.open(**opened) as node, board_at(node, level=level) as board:
        original = await board.visitor().post("ann", "to be lost")
        await board.visitor().post("ann", "a reply", original.json["key"])
    [segment] = folder.rglob("*.segment")
    segment.write_bytes(segment.read_bytes().replace(b"to be lost", b"to be LOST"))
    async with ordercast.open(**opened) as node, board_at(node, level=level) as board:
        listener = await board.visitor().listen()
        states = [await listener.state()]
        while not states[-1]["gaps"]:
            states.append(await listener.state())
        assert any("its disk has lost an entry" in state["waiting"] for state in states)
        assert (states[-1]["waiting"], states[-1]["gap_count"]) == ("", 1)
        await until(lambda: len(board.service.threads) == 1)
        [reply] = board.service.threads
        assert (reply.text, reply.absent) == ("a reply", "lost")
        await listener.close()


@live
async def test_the_page_says_where_its_node_is(cluster: Cluster) -> None:
    n1 = await cluster.open("n1")
    async with board_at(n1) as first:
        listener = await first.visitor().listen()
        alone = await listener.state(is_root=True)
        assert (alone["node"], alone["group"], alone["place"]["parent"]) == ("n1", "board", "")
        n2 = await cluster.open("n2", seeds=[place_of(n1)])
        async with board_at(n2) as second:
            assert (await listener.state(children=["n2"]))["gaps"] == []
            there = await second.visitor().listen()
            below = await there.state(parent="n1")
            assert below["place"]["path"] == ["n1"]
            await there.close()
        await listener.close()


@live
async def test_what_browsers_read_ends_with_the_board(cluster: Cluster) -> None:
    n1 = await cluster.open("n1")
    async with board_at(n1) as board:
        listener = await board.visitor().listen()
        await listener.whole()
    last = None
    while told := await listener.hear():
        last = told
    assert last is not None
    assert last.data["ended"] == "n1 has left the board"
    await listener.close()


@live
async def test_a_board_goes_on_when_its_incarnation_is_over(cluster: Cluster) -> None:
    """Others had met a newer one: the node goes on as another, and the board with it."""
    n1 = await cluster.open("n1")
    async with board_at(n1) as board:
        listener, former = await board.visitor().listen(), board.feed
        await board.visitor().post("ann", "before")
        await listener.hear_all("post", 1)
        n1.mesh.handshake.reported(1000)
        await until(lambda: board.feed is not former)
        assert (await board.visitor().post("ann", "after")).status == 200
        shown: list[str] = []
        while "after" not in shown:
            told = await listener.hear()
            assert told is not None
            if told.name == "page":
                shown = []
            elif told.name == "shown":
                shown.append(told.data["text"])
            elif told.name == "post":
                shown += texts([told])
        assert shown == ["before", "after"]
        await listener.close()
