"""The pages of a board: what a browser may ask for, and what it is answered.

Nothing of a post is ever put into HTML here: pages are files, and their script puts texts into the
document as texts. The policy of the page forbids browsers everything else.
"""

from __future__ import annotations

import asyncio
import time
from importlib import resources
from typing import Any
from urllib.parse import parse_qs

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from ordercast.board.access import Access, Mistakes, is_own_origin
from ordercast.board.content import LARGEST_POST, LONGEST_AUTHOR, LONGEST_TEXT
from ordercast.board.events import BrowserStream
from ordercast.board.service import BoardService
from ordercast.errors import OrdercastError, UsageError

MOST_BROWSERS = 100
"""Pages that are open at once."""
MOST_POSTING = 32
"""Posts that wait for the disk at once."""
LARGEST_BODY = 2 * LARGEST_POST
BODY_SECONDS = 10.0
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
ALWAYS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]
WRONG = "<!-- wrong -->"


class Submission(msgspec.Struct, frozen=True):
    """What the form of a page sends."""

    author: str
    text: str
    reply_to: str = ""


class Guard:
    """Around all answers: the host that was asked for, and headers that all of them have."""

    def __init__(self, app: Any, access: Access) -> None:
        self.app, self.access = app, access

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in ALWAYS}
                kept = [each for each in message["headers"] if each[0] not in own]
                message = {**message, "headers": [*kept, *ALWAYS]}
            await send(message)

        host = Request(scope).headers.get("host", "")
        if not self.access.is_right_host(host):
            why = "this board is asked for by an address of its machine, such as 127.0.0.1\n"
            await Response(why, 421)(scope, receive, guarded)
        else:
            await self.app(scope, receive, guarded)


class Site:
    """The answers, for one board."""

    def __init__(self, service: BoardService, access: Access) -> None:
        self.service, self.access = service, access
        self._mistakes = Mistakes()
        self.browsers = self._posting = 0

    def app(self) -> Starlette:
        routes = [
            Route("/", self.page),
            Route("/board.js", self.script),
            Route("/board.css", self.style),
            Route("/events", self.events),
            Route("/post", self.post, methods=["POST"]),
            Route("/login", self.login, methods=["POST"]),
        ]
        guard = Middleware(Guard, access=self.access)
        return Starlette(routes=routes, middleware=[guard])

    async def page(self, request: Request) -> Response:
        if not self._is_signed_in(request):
            return self._login_page()
        page = _file("page.html")
        for word, limit in (("AUTHOR", LONGEST_AUTHOR), ("TEXT", LONGEST_TEXT)):
            page = page.replace(f"LONGEST_{word}", str(limit))
        return Response(page, media_type="text/html")

    async def script(self, request: Request) -> Response:
        return Response(_file("board.js"), media_type="text/javascript")

    async def style(self, request: Request) -> Response:
        return Response(_file("board.css"), media_type="text/css")

    async def events(self, request: Request) -> Any:
        self._check_signed_in(request)
        if self.browsers >= MOST_BROWSERS:
            raise HTTPException(503, f"{MOST_BROWSERS} pages of this board are open, the most")
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        # A browser that comes back by itself says it in a header, and our script in the address.
        mark = request.headers.get("last-event-id") or request.query_params.get("after", "")
        self.browsers += 1
        return BrowserStream(self.service.events(mark), self._browser_left)

    def _browser_left(self) -> None:
        self.browsers -= 1

    async def post(self, request: Request) -> Response:
        self._check_signed_in(request)
        self._check_origin(request)
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            raise HTTPException(415, "post JSON, with the content type application/json")
        if self._posting >= MOST_POSTING:
            raise HTTPException(503, f"{MOST_POSTING} posts wait for the disk: try again")
        self._posting += 1
        try:
            given = msgspec.json.decode(await _body(request), type=Submission)
            posted = await self.service.post(given.author, given.text, given.reply_to)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return JSONResponse({"error": f"this is no post: {error}"}, 400)
        except UsageError as error:
            return JSONResponse({"error": str(error)}, 400)
        except (OrdercastError, TimeoutError) as error:
            return JSONResponse({"error": str(error)}, 503)
        finally:
            self._posting -= 1
        return JSONResponse(posted)

    async def login(self, request: Request) -> Response:
        self._check_origin(request)
        if not self._mistakes.may_try(time.monotonic()):
            raise HTTPException(429, "too many wrong tokens: wait some seconds")
        given = parse_qs((await _body(request)).decode(errors="replace"), max_num_fields=4)
        if not self.access.is_token(given.get("token", [""])[0]):
            self._mistakes.add()
            return self._login_page('<p class="bad" role="alert">This is not the token.</p>')
        answer = RedirectResponse("/", 303)
        name, value = self.access.cookie_name, self.access.cookie
        answer.set_cookie(name, value, httponly=True, samesite="strict")
        return answer

    def _login_page(self, why: str = "") -> Response:
        return Response(_file("login.html").replace(WRONG, why), 401, media_type="text/html")

    # --- who asks --------------------------------------------------------------------------------

    def _is_signed_in(self, request: Request) -> bool:
        cookie = request.cookies.get(self.access.cookie_name, "")
        authorization = request.headers.get("authorization", "")
        if authorization and not self._mistakes.may_try(time.monotonic()):
            raise HTTPException(429, "too many wrong tokens: wait some seconds")
        is_right = self.access.is_signed_in(authorization, cookie)
        if authorization and not is_right:
            self._mistakes.add()
        return is_right

    def _check_signed_in(self, request: Request) -> None:
        if not self._is_signed_in(request):
            raise HTTPException(401, "sign in, or give the token: Authorization: Bearer TOKEN")

    def _check_origin(self, request: Request) -> None:
        headers = request.headers
        if not is_own_origin(headers.get("origin", ""), headers.get("host", "")):
            raise HTTPException(403, "this was sent by a page of another site")


async def _body(request: Request) -> bytes:
    found = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                found += chunk
                if len(found) > LARGEST_BODY:
                    raise HTTPException(413, f"{LARGEST_BODY} bytes at most")
    except TimeoutError:
        raise HTTPException(408, f"the request did not come in {BODY_SECONDS:.0f} s") from None
    return bytes(found)


def _file(name: str) -> str:
    return resources.files("ordercast.board").joinpath(name).read_text(encoding="utf-8")
