"""Who may see a board: addresses, tokens, cookies, and pages of other sites."""

from __future__ import annotations

import msgspec
import pytest

from ordercast import UsageError
from ordercast.board.access import MOST_MISTAKES, Access, Mistakes, check_web, is_own_origin
from ordercast.board.events import server_event

TOKEN = "correct-horse-battery"


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("127.0.0.1:8001", ("127.0.0.1", 8001)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:8001", ("::1", 8001)),
    ],
)
def test_this_machine_needs_no_token(place: str, found: tuple[str, int]) -> None:
    assert check_web(place, None) == found
    assert check_web(place, TOKEN) == found


@pytest.mark.parametrize("place", ["0.0.0.0:8001", "[::]:8001", "10.0.0.1:80", "board.example:80"])
def test_any_other_address_needs_a_token(place: str) -> None:
    with pytest.raises(UsageError, match="can be reached from elsewhere: give --token"):
        check_web(place, None)
    assert check_web(place, TOKEN)[1] in (80, 8001)


@pytest.mark.parametrize("place", ["8001", ":8001", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536"])
def test_an_address_has_a_host_and_a_port(place: str) -> None:
    with pytest.raises(UsageError, match="give an address with a port"):
        check_web(place, TOKEN)


def test_an_ipv6_address_stands_in_brackets() -> None:
    with pytest.raises(UsageError, match="in brackets"):
        check_web("::1:8001", None)


@pytest.mark.parametrize("token", ["", "short", "x" * 15, "é" * 20, "with\nline breaks in it"])
def test_a_token_that_can_be_guessed_or_not_be_sent_is_refused(token: str) -> None:
    with pytest.raises(UsageError, match="give 16 or more letters"):
        check_web("127.0.0.1:8001", token)


def test_a_token_or_the_cookie_it_gives_lets_in_and_nothing_else() -> None:
    access = Access(TOKEN, 8001)
    assert access.is_signed_in(f"Bearer {TOKEN}", "")
    assert access.is_signed_in(f"bearer  {TOKEN} ", "")
    assert access.is_signed_in("", access.cookie)
    for authorization in ("", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer ", "Bearer é"):
        assert not access.is_signed_in(authorization, "")
    assert not access.is_signed_in("", TOKEN)
    assert not access.is_signed_in(f"Bearer {access.cookie}", "")
    assert TOKEN not in access.cookie


def test_a_board_without_a_token_lets_in_whoever_reaches_it_but_has_no_token() -> None:
    access = Access(None, 8001)
    assert access.is_open
    assert access.is_signed_in("", "")
    assert not access.is_token("")


def test_cookies_are_of_one_board() -> None:
    """Browsers send them to all ports of a host."""
    here, there = Access(TOKEN, 8001), Access("another-token-of-many", 8002)
    assert here.cookie_name != there.cookie_name
    assert not there.is_signed_in("", here.cookie)
    assert Access(TOKEN, 8001).cookie == here.cookie, "it outlasts a restart"


@pytest.mark.parametrize("host", ["127.0.0.1:8001", "localhost:8001", "[::1]:8001", "127.0.0.1"])
def test_this_machine_is_asked_for_by_its_own_addresses(host: str) -> None:
    assert Access(None, 8001).is_right_host(host)


@pytest.mark.parametrize("host", ["", "evil.example:8001", "evil.example", "127.0.0.1.evil:80"])
def test_a_name_that_leads_here_is_refused_without_a_token(host: str) -> None:
    """A page of that name would be allowed to read what we answer."""
    assert not Access(None, 8001).is_right_host(host)
    assert Access(TOKEN, 8001).is_right_host(host)


def test_only_our_own_pages_may_post() -> None:
    assert is_own_origin("http://127.0.0.1:8001", "127.0.0.1:8001")
    assert is_own_origin("https://board.example", "board.example")
    assert is_own_origin("", "127.0.0.1:8001")
    for origin in ("null", "http://evil.example", "http://127.0.0.1:8002", "http://127.0.0.1"):
        assert not is_own_origin(origin, "127.0.0.1:8001")


def test_wrong_tokens_are_few_at_once_and_then_one_a_second() -> None:
    mistakes = Mistakes()
    for _ in range(MOST_MISTAKES):
        assert mistakes.may_try(100.0)
        mistakes.add()
    assert not mistakes.may_try(100.9)
    assert mistakes.may_try(101.0)
    mistakes.add()
    assert not mistakes.may_try(101.5)
    assert mistakes.may_try(10_000.0)


def test_an_event_is_one_line_of_data_whatever_a_post_says() -> None:
    text = "one\n\ndata: two\r\nid: 3\u2028\u0085"
    event = server_event("post", {"text": text}, "mark")
    name, number, data, *rest = event.decode().split("\n")
    assert (name, number, rest) == ("event: post", "id: mark", ["", ""])
    assert "\r" not in data
    assert msgspec.json.decode(data.removeprefix("data: ")) == {"text": text}
    assert server_event("state", {}) == b"event: state\ndata: {}\n\n"
