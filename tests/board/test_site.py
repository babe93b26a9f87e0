"""What a board answers: to its own pages, to programs, and to pages of other sites."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import suppress
from typing import Any

import pytest
from tests.board.boards import Board, board_at
from tests.board.visitors import Answer
from tests.net.nodes import Cluster, live, until

from ordercast.board import events as events_module
from ordercast.board import server as server_module
from ordercast.board import site as site_module
from ordercast.board.access import MOST_MISTAKES
from ordercast.board.content import LONGEST_TEXT, Content, encoded
from ordercast.board.site import LARGEST_BODY

TOKEN = "correct-horse-battery"
JSON = {"Content-Type": "application/json"}


def a_post(**more: Any) -> bytes:
    return json.dumps({"author": "ann", "text": "hello", **more}).encode()


async def sign_in(board: Board, token: str, **headers: str) -> Answer:
    body = f"token={token}".encode()
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    return await board.visitor().ask("POST", "/login", body, **form, **headers)


@live
async def test_every_answer_forbids_what_the_page_does_not_need(cluster: Cluster) -> None:
    async with board_at(await cluster.open("n1")) as board:
        visitor = board.visitor()
        for path, kind in (("/", "html"), ("/board.js", "javascript"), ("/board.css", "css")):
            answer = await visitor.ask("GET", path)
            assert answer.status == 200
            assert answer.headers["content-type"] == f"text/{kind}; charset=utf-8"
            policy = answer.headers["content-security-policy"]
            for rule in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"):
                assert rule in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"
            assert "server" not in answer.headers
        assert "LONGEST" not in (await visitor.ask("GET", "/")).body
        missing = await visitor.ask("GET", "/service.py")
        assert missing.status == 404
        assert "content-security-policy" in missing.headers


@live
async def test_with_a_token_nothing_is_told_without_it(cluster: Cluster) -> None:
    async with board_at(await cluster.open("n1"), TOKEN) as board:
        visitor = board.visitor()
        page = await visitor.ask("GET", "/")
        assert page.status == 401
        assert "Sign in" in page.body
        assert (await visitor.ask("GET", "/events")).status == 401
        assert (await visitor.ask("POST", "/post", a_post(), **JSON)).status == 401
        assert (await board.visitor(Authorization=f"Bearer {TOKEN}x").ask("GET", "/")).status == 401
        program = board.visitor(Authorization=f"Bearer {TOKEN}", Host="board.example")
        assert (await program.ask("POST", "/post", a_post(), **JSON)).status == 200
        listener = await program.listen()
        await listener.close()


@live
async def test_a_browser_signs_in_and_has_a_cookie_from_then_on(cluster: Cluster) -> None:
    async with board_at(await cluster.open("n1"), TOKEN) as board:
        wrong = await sign_in(board, "wrong-horse-battery")
        assert wrong.status == 401
        assert "This is not the token." in wrong.body
        assert "set-cookie" not in wrong.headers
        right = await sign_in(board, TOKEN, Origin=f"http://127.0.0.1:{board.port}")
        assert (right.status, right.headers["location"]) == (303, "/")
        cookie, *rules = right.headers["set-cookie"].split("; ")
        assert {"httponly", "samesite=strict"} <= {rule.lower() for rule in rules}
        assert TOKEN not in cookie
        browser = board.visitor(Cookie=cookie)
        assert 'id="threads"' in (await browser.ask("GET", "/")).body
        assert (await browser.ask("POST", "/post", a_post(), **JSON)).status == 200
        assert (await board.visitor(Cookie=f"{cookie}x").ask("GET", "/")).status == 401


@live
async def test_tokens_cannot_be_tried_for_long(cluster: Cluster) -> None:
    async with board_at(await cluster.open("n1"), TOKEN) as board:
        statuses = [(await sign_in(board, "wrong")).status for _ in range(4 * MOST_MISTAKES)]
        assert statuses[:MOST_MISTAKES] == [401] * MOST_MISTAKES
        assert 429 in statuses
        guess = board.visitor(Authorization="Bearer wrong")
        tries = [(await guess.ask("GET", "/events")).status for _ in range(4 * MOST_MISTAKES)]
        assert 429 in tries


@live
async def test_pages_of_other_sites_can_neither_read_nor_post(cluster: Cluster) -> None:
    async with board_at(await cluster.open("n1")) as board:
        visitor = board.visitor()
        for origin in ("http://evil.example", "null", f"http://127.0.0.1:{board.port + 1}"):
            answer = await visitor.ask("POST", "/post", a_post(), **JSON, Origin=origin)
            assert (answer.status, "another site" in answer.body) == (403, True)
        for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
            answer = await visitor.ask("POST", "/post", a_post(), Content_Type=kind)
            assert answer.status == 415
        for host in ("evil.example", f"evil.example:{board.port}"):
            for path in ("/", "/events", "/board.js"):
                assert (await board.visitor(Host=host).ask("GET", path)).status == 421
        assert (await visitor.ask("GET", "/post")).status == 405
        own = {"Origin": f"http://127.0.0.1:{board.port}"}
        assert (
            await visitor.ask("POST", "/post", a_post(text="ours"), **JSON, **own)
        ).status == 200
        await until(lambda: [post.text for post in board.service.threads][-1:] == ["ours"])
        assert len(board.service.threads) == 1, "nothing else was posted"


@live
async def test_what_is_wrong_with_a_post_is_a_sentence(cluster: Cluster) -> None:
    async with board_at(await cluster.open("n1")) as board:
        for body, said in (
            (b"", "this is no post"),
            (b"[" * 5000, "this is no post"),
            (b'{"author": "\xff"}', "this is no post"),
            (a_post(text=" "), "the text is empty"),
            (a_post(author="a\nb"), "the author is one line"),
            (a_post(text="x" * 4001), "the text has 4001 characters, 4000 at most"),
            (a_post(reply_to="nothing"), "'nothing' names no post"),
            (a_post(reply_to="n9~7~5~0"), "has no event 5 of n9 here"),
        ):
            answer = await board.visitor().ask("POST", "/post", body, **JSON)
            assert (answer.status, said in answer.json["error"]) == (400, True), answer
        answer = await board.visitor().ask("POST", "/post", b"x" * (LARGEST_BODY + 1), **JSON)
        assert answer.status == 413


@live
async def test_open_pages_and_waiting_posts_are_bounded(cluster: Cluster) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site_module, "MOST_BROWSERS", 2)
        async with board_at(await cluster.open("n1")) as board:
            visitor = board.visitor()
            first, second = await visitor.listen(), await visitor.listen()
            assert (await visitor.ask("GET", "/events")).status == 503
            await first.close()
            await until(lambda: board.site.browsers < 2)
            assert (await visitor.ask("HEAD", "/events")).status == 200
            again = await visitor.listen()
            await again.whole()
            for listener in (second, again):
                await listener.close()
            patch.setattr(site_module, "MOST_POSTING", 0)
            assert (await visitor.ask("POST", "/post", a_post(), **JSON)).status == 503


@live
async def test_a_connection_that_asks_for_nothing_is_ended(cluster: Cluster) -> None:
    async with board_at(await cluster.open("n1")) as board:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(server_module, "HEAD_SECONDS", 0.05)
            for begun in (b"", b"GET / HTTP/1.1\r\nHost: 127.0.0.1:1\r\n"):
                reader, writer = await asyncio.open_connection("127.0.0.1", board.port)
                writer.write(begun)
                with suppress(ConnectionError):
                    assert await reader.read() == b""
                writer.close()
                with suppress(ConnectionError):
                    await writer.wait_closed()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(site_module, "BODY_SECONDS", 0.05)
            part = {"Content-Length": "1000", **JSON}
            assert (await board.visitor().ask("POST", "/post", b"{", **part)).status == 408
        assert (await board.visitor().post("ann", "hello")).status == 200


@live
async def test_connections_are_bounded(cluster: Cluster) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server_module, "MOST_CONNECTIONS", 1)
        async with board_at(await cluster.open("n1")) as board:
            listener = await board.visitor().listen()
            await listener.whole()
            with pytest.raises((ConnectionError, IndexError)):
                await board.visitor().ask("GET", "/")
            await listener.close()


@live
async def test_a_browser_that_takes_nothing_is_cut_off(cluster: Cluster) -> None:
    loop = asyncio.get_running_loop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(events_module, "SEND_SECONDS", 0.2)
        async with board_at(await cluster.open("n1")) as board:
            long = encoded(Content("ann", "\U0001f600" * LONGEST_TEXT))
            for _ in range(5):  # threads with so many replies that no socket holds the page
                original = (await board.feed.post(long)).reference
                replies = (board.feed.post(long, reply_to=original) for _ in range(180))
                await asyncio.gather(*replies)
            await until(lambda: len([*board.service.threads]) == 5 * 181)
            with socket.socket() as browser:
                browser.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                browser.setblocking(False)
                await loop.sock_connect(browser, ("127.0.0.1", board.port))
                head = f"GET /events HTTP/1.1\r\nHost: 127.0.0.1:{board.port}\r\n\r\n"
                await loop.sock_sendall(browser, head.encode())
                assert (await loop.sock_recv(browser, 12)).startswith(b"HTTP/1.1 200")
                await until(lambda: board.site.browsers == 0)
