"""Dialling: each contact whose place is known, and each seed, again and again.

Rules. A contact is dialled whenever it is not connected, for ever, with backoff and jitter; a seed
until somebody was met there. Whatever goes wrong with a try is counted and ends that try only.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from random import Random

from ordercast.errors import PeerError
from ordercast.net.connection import Connection
from ordercast.net.contact import Contact, Contacts
from ordercast.types import NodeId

log = logging.getLogger("ordercast.net")

DIAL_SECONDS = 5.0
FIRST_BACKOFF_SECONDS = 0.05
LONGEST_BACKOFF_SECONDS = 2.0
STRANGER_SECONDS = 30.0
"""A place where another node answers is tried again so much later: each try costs that node its
connection with us, for a newer one takes its place."""


class Dialler:
    def __init__(
        self,
        me: NodeId,
        contacts: Contacts,
        chance: Random,
        tls: ssl.SSLContext | None,
        connection: Callable[[], Connection],
    ) -> None:
        self.seeds: list[asyncio.Task[None]] = []
        self._me = me
        self._contacts = contacts
        self._chance = chance
        self._tls = tls
        self._connection = connection
        self._loop = asyncio.get_running_loop()

    def keep(self, contact: Contact) -> None:
        """Dials a contact from now on."""
        if contact.dialler is None:
            contact.dialler = self._loop.create_task(self._keep_dialling(contact))

    def seed(self, place: str) -> None:
        self.seeds.append(self._loop.create_task(self._dial_seed(place)))

    async def close(self) -> None:
        contacts = self._contacts.values()
        tasks = [*self.seeds, *(contact.dialler for contact in contacts if contact.dialler)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_dialling(self, contact: Contact) -> None:
        backoff = FIRST_BACKOFF_SECONDS
        while True:
            connection = contact.connection
            if connection is not None:
                backoff = FIRST_BACKOFF_SECONDS
                await asyncio.wait([connection.ended])
                continue
            # The smaller name dials first, so that two nodes rarely dial each other at once.
            waits = 0.0 if self._me.name < contact.name else 4 * FIRST_BACKOFF_SECONDS
            await asyncio.sleep((waits + backoff) * self._chance.uniform(0.5, 1.5))
            backoff = min(2 * backoff, LONGEST_BACKOFF_SECONDS)
            if contact.connection is None and not self._contacts.is_cut(contact.name):
                met = await self.dial(contact.place or "")
                if met is not None and met.name != contact.name:
                    self._contacts.incidents.count("strangers_at_places")
                    self._contacts.incidents.warn(
                        "%s should be at %s, but %s is", contact, contact.place, met
                    )
                    backoff = STRANGER_SECONDS

    async def _dial_seed(self, place: str) -> None:
        backoff = FIRST_BACKOFF_SECONDS
        while await self.dial(place) is None:
            await asyncio.sleep(backoff * self._chance.uniform(0.5, 1.5))
            backoff = min(2 * backoff, LONGEST_BACKOFF_SECONDS)

    async def dial(self, place: str) -> NodeId | None:
        """One attempt: the node that answers. A failure is counted, and logged at debug level."""
        host, _, port = place.rpartition(":")
        connection, is_connected = self._connection(), False
        try:
            if not 0 < int(port) < 1 << 16:  # uvloop would take it modulo 65536
                raise ValueError(f"{port} is no port")
            async with asyncio.timeout(DIAL_SECONDS):
                await self._loop.create_connection(
                    lambda: connection,
                    host.strip("[]"),
                    int(port),
                    ssl=self._tls,
                    server_hostname="" if self._tls else None,
                )
                is_connected = True
                return await asyncio.shield(connection.greeted)
        except (OSError, PeerError, TimeoutError, ValueError, ssl.SSLError) as error:
            self._contacts.incidents.count("failed_dials")
            log.debug("dialling %s: %s", place, error)
            return None
        finally:
            if not is_connected:
                connection.connection_lost(None)  # one that we gave up: uvloop does not call it
