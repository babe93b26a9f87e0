"""Who may see a board and post on it. Pure: headers come as text.

Without a token whoever reaches the address may do all. So it has to be an address of this machine
alone, and the page must be asked for by such an address: a site that lets its own name lead to this
machine is refused. With a token a browser signs in and has a cookie from then on, and a program
gives the token with each request.
"""

from __future__ import annotations

import hmac
from hashlib import sha256

from ordercast.errors import UsageError
from ordercast.net.protection import is_loopback

SHORTEST_TOKEN = 16
TOKEN_VARIABLE = "ORDERCAST_BOARD_TOKEN"
MOST_MISTAKES = 10
"""Wrong tokens that are taken at once; then one more a second."""


def check_web(place: str, token: str | None) -> tuple[str, int]:
    """Host and port of the page. UsageError: what is wrong with the address or the token."""
    host, colon, port = place.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise UsageError(f"--web {place}: give an address with a port, such as 127.0.0.1:8001")
    bare = host.removeprefix("[").removesuffix("]")
    if ":" in bare and bare == host:
        raise UsageError(f"--web {place}: an IPv6 address stands in brackets, as in [::1]:8001")
    if token is None:
        if not is_loopback(place):
            raise UsageError(
                f"--web {place} can be reached from elsewhere: give --token, or {TOKEN_VARIABLE}, "
                "or an address of this machine alone, such as 127.0.0.1:8001"
            )
    elif len(token) < SHORTEST_TOKEN or not (token.isascii() and token.isprintable()):
        raise UsageError(
            f"the token has {len(token)} characters: give {SHORTEST_TOKEN} or more letters, digits "
            "and signs that nobody can guess"
        )
    return bare, int(port)


class Access:
    """Judges requests to one page."""

    def __init__(self, token: str | None, port: int) -> None:
        self._token = token
        # Cookies are for a host, whatever the port: several boards of one machine need one each.
        self.cookie_name = f"ordercast_board_{port}"
        # Known only to those that know the token, and says nothing about it.
        key = (token or "").encode()
        self.cookie = hmac.new(key, b"a browser of a board", sha256).hexdigest()

    @property
    def is_open(self) -> bool:
        """Whether no token is asked for."""
        return self._token is None

    def is_token(self, given: str) -> bool:
        return self._token is not None and _same(given, self._token)

    def is_signed_in(self, authorization: str, cookie: str) -> bool:
        """By the header `Authorization: Bearer TOKEN`, or by the cookie."""
        if self._token is None:
            return True
        kind, _, given = authorization.partition(" ")
        by_header = kind.lower() == "bearer" and self.is_token(given.strip())
        return by_header or _same(cookie, self.cookie)

    def is_right_host(self, host: str) -> bool:
        """Whether the browser asked for an address of this machine. With a token any will do: a
        page of another name has not got the cookie."""
        named = host if host.rpartition(":")[2].isdigit() else f"{host}:80"
        return self._token is not None or is_loopback(named)


def is_own_origin(origin: str, host: str) -> bool:
    """Whether a page of ours sends this. No `Origin`: it was no browser's page.

    The scheme is not compared: a proxy may speak TLS to browsers, and does not to us.
    """
    return not origin or origin.partition("://")[2] == host


def _same(given: str, right: str) -> bool:
    """In a time that does not say how much of it is right, nor how long the right one is."""
    one, other = (sha256(each.encode(errors="replace")).digest() for each in (given, right))
    return hmac.compare_digest(one, other)


class Mistakes:
    """How many wrong tokens may still be tried: a few at once, then one a second."""

    def __init__(self, most: int = MOST_MISTAKES) -> None:
        self._most, self._left, self._last = most, float(most), 0.0

    def may_try(self, now: float) -> bool:
        """`now`: seconds, on any clock that does not go back."""
        self._left = min(self._most, self._left + max(0.0, now - self._last))
        self._last = now
        return self._left >= 1

    def add(self) -> None:
        self._left -= 1
