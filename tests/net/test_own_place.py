"""Which seeds are the node itself: by their addresses, not by how they are written."""

from __future__ import annotations

import asyncio
import socket

import pytest

from ordercast.net import own_place
from ordercast.net.config import Config
from ordercast.net.own_place import seeds_elsewhere

NAMES = {
    "localhost:7101": ["127.0.0.1:7101", "[::1]:7101"],
    "loopback:7101": ["127.0.0.1:7101"],
    "loopback:7102": ["127.0.0.1:7102"],
    "both:7101": ["127.0.0.1:7101", "192.0.2.7:7101"],
    "service.example:7101": ["192.0.2.1:7101"],
    "n1.service.example:7101": ["192.0.2.1:7101"],
    "n2.service.example:7101": ["192.0.2.2:7101"],
    "empty.example:7101": [],
}


async def look_up(place: str) -> list[str]:
    host = place.rpartition(":")[0].strip("[]")
    if not host.strip("0123456789.") or ":" in host:
        return [place]
    if place not in NAMES:
        raise OSError("no such name")
    return NAMES[place]


def elsewhere(*seeds: str, **settings: str) -> list[str]:
    config = Config(name="n1", seeds=list(seeds), **settings)
    return asyncio.run(seeds_elsewhere(config, look_up))


@pytest.fixture(autouse=True)
def this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "n1")
    here = ("127.0.0.1:7101", "[::1]:7101", "192.0.2.1:7101")
    monkeypatch.setattr(own_place, "is_here", lambda address: address in here)


def test_a_seed_is_ourselves_however_it_is_written() -> None:
    seeds = ("127.0.0.1:7101", "loopback:7101")
    assert elsewhere(*seeds, listen="127.0.0.1:7101") == []
    assert elsewhere(*seeds, "localhost:7101", listen="localhost:7101") == []


def test_a_name_of_which_one_address_is_not_ours_is_somebody_else() -> None:
    seeds = ("localhost:7101", "both:7101", "loopback:7102")
    assert elsewhere(*seeds, listen="127.0.0.1:7101") == list(seeds)


def test_a_node_that_listens_everywhere_has_every_address_of_its_machine() -> None:
    others = ("192.0.2.2:7101", "192.0.2.1:7102", "n2.service.example:7101")
    seeds = ("127.0.0.1:7101", "192.0.2.1:7101", "n1.service.example:7101")
    assert elsewhere(*seeds, *others, listen="0.0.0.0:7101") == list(others)


def test_a_name_that_others_may_have_too_is_somebody_else() -> None:
    """The first pod of a service finds only itself there, and a moment later all the others."""
    service = "service.example:7101"
    assert elsewhere(service, listen="192.0.2.1:7101") == [service]
    assert elsewhere(service, listen="0.0.0.0:7101") == [service]
    assert elsewhere(service, listen="0.0.0.0:7101", advertise=service) == []


def test_a_name_that_means_nothing_now_is_somebody_else() -> None:
    seeds = ["empty.example:7101", "unknown.example:7101"]
    assert elsewhere(*seeds, listen="127.0.0.1:7101") == seeds


def test_a_node_on_any_free_port_is_no_seed() -> None:
    assert elsewhere("127.0.0.1:7101", listen="127.0.0.1:0") == ["127.0.0.1:7101"]


def test_an_advertised_address_is_ours() -> None:
    seeds = ("192.0.2.1:7101", "192.0.2.2:7101")
    settings = {"listen": "10.0.0.5:7000", "advertise": "n1.service.example:7101"}
    assert elsewhere(*seeds, **settings) == ["192.0.2.2:7101"]


def test_whether_a_machine_has_an_address_is_asked_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert own_place.is_here("127.0.0.1:7101")
    assert not own_place.is_here("192.0.2.1:7101")
    assert not own_place.is_here("n1.example:7101")
