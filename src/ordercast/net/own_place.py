"""Which seeds are this node itself: all nodes may have one list of seeds.

Rules. A seed is ourselves if it is written like our own place, or if all its addresses are ours:
those of `listen` and `advertise`, and every address of this machine with the port of a `listen`
that is open to all of them. A name that is not this machine's own may be shared: a headless service
of Kubernetes has one address while its first pod starts, and more a moment later. So it counts as
somebody else's, whatever it means now.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Iterable

from ordercast.net.config import Config
from ordercast.net.seeds import Resolve, resolve
from ordercast.net.sockets import literal_host

log = logging.getLogger("ordercast.net")

LOOK_UP_SECONDS = 1.0


async def seeds_elsewhere(config: Config, look_up: Resolve = resolve) -> list[str]:
    """The seeds that are not this node itself, as far as that can be known now."""
    written = (config.listen, config.advertise)
    seeds = [seed for seed in config.seeds if seed not in written]
    if not seeds or _port(config.listen) == "0":
        return seeds
    found = await asyncio.gather(
        *(_addresses(place, look_up) for place in (config.listen, config.advertise, *seeds))
    )
    ours, addresses = {*found[0], *found[1]}, found[2:]
    everywhere = any(_is_unspecified(address) for address in found[0])
    port = _port(config.listen)

    def is_ours(seed: str, meant: Iterable[str]) -> bool:
        return (
            bool(meant)
            and all(
                address in ours or (everywhere and _port(address) == port and is_here(address))
                for address in meant
            )
            and not _may_be_shared(seed, meant)
        )

    return [seed for seed, meant in zip(seeds, addresses, strict=True) if not is_ours(seed, meant)]


async def _addresses(place: str | None, look_up: Resolve) -> list[str]:
    if place is None:
        return []
    try:
        async with asyncio.timeout(LOOK_UP_SECONDS):
            return await look_up(place)
    except (OSError, UnicodeError, TimeoutError) as error:
        log.debug("looking up %s: %s", place, error)
        return []


def _port(place: str) -> str:
    return place.rpartition(":")[2]


def _is_unspecified(address: str) -> bool:
    host = literal_host(address)
    return host is not None and ipaddress.ip_address(host).is_unspecified


def _may_be_shared(seed: str, addresses: Iterable[str]) -> bool:
    """Whether it is a name that other machines may have too."""
    if literal_host(seed) is not None:
        return False
    hosts = [literal_host(address) for address in addresses]
    if all(host is not None and ipaddress.ip_address(host).is_loopback for host in hosts):
        return False
    name = seed.rpartition(":")[0].partition(".")[0]
    return name.lower() != socket.gethostname().partition(".")[0].lower()


def is_here(address: str) -> bool:
    """Whether this machine has the address."""
    host = literal_host(address)
    if host is None:
        return False
    kind = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(kind, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True
