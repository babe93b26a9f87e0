"""A seed: a place of the settings where somebody of the cluster is, perhaps at several addresses.

Rules. Its name is looked up before every try, and every address that it has is dialled, each with a
backoff of its own: a headless service of Kubernetes names all its pods. An address where nobody was
met is dialled until somebody answers. One that answered is dialled again if that is of use: when we
have few links and lost the one to it, or do not know where a member is. A seed is never done, and
an address that the name no longer has is forgotten.

Pure: the time is given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from socket import SOCK_STREAM
from typing import TypeAlias

from ordercast.net.sockets import literal_host
from ordercast.types import NodeId

FIRST_BACKOFF_SECONDS = 0.05
LONGEST_BACKOFF_SECONDS = 2.0
PATIENT_SECONDS = 300.0
"""After so long without an answer, tries are as far apart as `AGAIN_SECONDS`."""
AGAIN_SECONDS = 30.0
"""How long after an answer a place is dialled again. Each try costs the node there its connection
with us, for a newer one takes its place. So long, at the most, a name is not looked up."""
LOOK_SECONDS = 1.0
"""How often we look whether an address that answered has to be dialled again."""

Resolve: TypeAlias = Callable[[str], Awaitable[list[str]]]
"""The addresses of a place, each as host:port. OSError: it has none now."""


async def resolve(place: str) -> list[str]:
    if literal_host(place) is not None:
        return [place]
    host, _, port = place.rpartition(":")
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=SOCK_STREAM)
    hosts = dict.fromkeys(str(address[0]) for _, _, _, _, address in found)
    return [f"[{each}]:{port}" if ":" in each else f"{each}:{port}" for each in hosts]


def backoff(failures: int, failing_for: float) -> float:
    """Seconds to wait after so many failed dials in a row, the first of them so long ago."""
    if failing_for > PATIENT_SECONDS:
        return AGAIN_SECONDS
    return min(FIRST_BACKOFF_SECONDS * 2.0 ** min(failures, 10), LONGEST_BACKOFF_SECONDS)


class _Address:
    __slots__ = ("answered_at", "answers", "due", "failing_since", "failures", "who")

    def __init__(self, now: float) -> None:
        self.due = now
        self.failures = 0
        self.failing_since = now
        self.who: NodeId | None = None  # that answered last
        self.answered_at = now
        self.answers = 0


class Seed:
    def __init__(self, place: str, chance: Random) -> None:
        self.place = place
        self._chance = chance
        self._addresses: dict[str, _Address] = {}

    def resolved(self, addresses: list[str], now: float) -> None:
        """What its name means now."""
        self._addresses = {
            address: self._addresses.get(address) or _Address(now) for address in addresses
        }

    def due(self, now: float, is_useful: Callable[[NodeId, float, int], bool]) -> list[str]:
        """The addresses to dial. Useful: whether to dial a node again that answered so many seconds
        ago, and so often so far."""
        return [
            address
            for address, known in self._addresses.items()
            if known.due <= now
            and (known.who is None or is_useful(known.who, now - known.answered_at, known.answers))
        ]

    def tried(self, address: str, who: NodeId | None, now: float) -> None:
        """This node answered there, or nobody."""
        known = self._addresses.get(address)
        if known is None:
            return
        if who is not None:
            known.who, known.failures = who, 0
            known.answered_at = known.due = now
            known.answers += 1
            return
        if not known.failures:
            known.failing_since = now
        wait = backoff(known.failures, now - known.failing_since)
        known.failures += 1
        known.due = now + wait * self._chance.uniform(0.5, 1.5)

    def next_try(self, now: float) -> float:
        """Seconds until an address may be due."""
        known = self._addresses.values()
        waits = [each.due - now for each in known if each.who is None or each.due > now]
        return max(0.0, min([LOOK_SECONDS, *waits]))

    def is_only(self, node: NodeId) -> bool:
        """Whether this node answered at all of its addresses, in any incarnation, and no other."""
        known = self._addresses.values()
        return bool(known) and all(each.who and each.who.name == node.name for each in known)
