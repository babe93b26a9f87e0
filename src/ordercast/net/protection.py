"""How a node proves who it is and knows who others are: by certificates, or not at all.

Renewed certificates are taken, and keys for datagrams are replaced, while the node runs.
"""

from __future__ import annotations

import asyncio
import ipaddress
from functools import lru_cache

from ordercast.errors import UsageError
from ordercast.net.config import Config
from ordercast.net.datagrams import PlainDatagrams, Wrapper
from ordercast.net.handshake import INSECURE, Security
from ordercast.net.identity import Incarnation
from ordercast.net.mesh import Mesh
from ordercast.net.multicast import MulticastWrapper, PlainMulticast
from ordercast.net.multicast_keys import SealedMulticast
from ordercast.net.security import SealedDatagrams, Tls
from ordercast.wire.framing import FrameKind

UPKEEP_SECONDS = 2.0
REMEMBERED_PLACES = 4096
"""Of which we know whether they are on this machine: every datagram may name a dozen again."""


class Protection:
    """None: everybody who reaches this node is who they say."""

    security = INSECURE

    def __init__(self, cluster: str, anywhere: bool = True) -> None:
        self._cluster = cluster
        self._anywhere = anywhere  # not only on this machine

    def may_dial(self, place: str) -> bool:
        return self._anywhere or is_loopback(place)

    def wrapper(self, us: Incarnation) -> Wrapper:
        return PlainDatagrams(us.node, self._cluster, us.birth)

    def multicast(self, us: Incarnation, mesh: Mesh) -> MulticastWrapper:
        return PlainMulticast(PlainDatagrams(us.node, self._cluster, us.birth))

    def start(self, mesh: Mesh) -> None:
        """There is nothing to renew."""

    def stop(self) -> None:
        """Nor to stop."""


class Certified(Protection):
    def __init__(self, cluster: str, tls: Tls) -> None:
        super().__init__(cluster)
        self._tls = tls
        self._sealed = SealedDatagrams()
        self._multicast: SealedMulticast | None = None
        self._timer: asyncio.TimerHandle | None = None  # between `start` and `stop`
        sealed = self._sealed
        self.security = Security(
            tls.server, tls.client, tls.certified_name, sealed.new_key, sealed.forget
        )

    def wrapper(self, us: Incarnation) -> Wrapper:
        return self._sealed

    def multicast(self, us: Incarnation, mesh: Mesh) -> MulticastWrapper:
        self._multicast = SealedMulticast(mesh.contacts, mesh.send_frame)
        return self._multicast

    def start(self, mesh: Mesh) -> None:
        """From now on every few seconds: takes renewed certificates, and hands out keys."""
        self._timer = asyncio.get_running_loop().call_later(UPKEEP_SECONDS, self.start, mesh)
        self._tls.maybe_reload()
        mesh.counters["datagram_counters_forgotten"] = self._sealed.forgotten
        if self._multicast is not None:
            self._multicast.tend()
        for contact in mesh.contacts.values():
            if contact.connection is not None and self._sealed.needs_rotation(contact):
                mesh.send_frame(contact, FrameKind.KEY, self._sealed.rotate(contact))

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def protection_of(config: Config) -> Protection:
    """UsageError: without certificates, and it would use a network in clear."""
    files = config.tls
    if files is None:
        if not config.insecure:
            _check_loopback(config)
        return Protection(config.cluster, anywhere=config.insecure)
    tls = Tls(
        files.authority,
        files.certificate,
        files.key,
        cluster=config.cluster,
        name=config.name,
    )
    return Certified(config.cluster, tls)


@lru_cache(REMEMBERED_PLACES)
def is_loopback(place: str) -> bool:
    """Whether only this machine has an address (`host:port`)."""
    host = place.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_loopback(config: Config) -> None:
    say = "say where the certificates are ([tls]), or insecure = true"
    if not is_loopback(config.listen):
        raise UsageError(f"{config.listen} can be reached from elsewhere: {say}")
    named = [(f"the peer {name}", place) for name, place in config.peers.items()]
    for what, place in [*named, *(("the seed", place) for place in config.seeds)]:
        if not is_loopback(place):
            raise UsageError(
                f"{what} at {place} is on another machine, and connections to it would not be "
                f"encrypted: {say}"
            )
