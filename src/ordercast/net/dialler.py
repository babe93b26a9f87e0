"""Dialling: each contact that is wanted and whose place is known, and each seed.

Rules. A contact that is not connected is dialled while it is wanted (`links.py`), with backoff and
jitter. Seeds are dialled again and again (`seeds.py`). Whatever goes wrong with a try is counted
and ends that try only.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from ordercast.errors import PeerError
from ordercast.net.connection import Connection
from ordercast.net.contact import ConnectionPhase, Contact
from ordercast.net.contacts import Contacts
from ordercast.net.links import Links
from ordercast.net.seeds import (
    AGAIN_SECONDS,
    FIRST_BACKOFF_SECONDS,
    LOOK_SECONDS,
    Resolve,
    Seed,
    backoff,
    resolve,
)
from ordercast.types import NodeId

log = logging.getLogger("ordercast.net")

DIAL_SECONDS = 5.0
MOST_DOUBLINGS = 5
"""Of the time after which a seed is asked again where a member is."""
MOST_CALLING = 4
"""Contacts that are dialled at the same time only because datagrams need a greeting. An end that is
overloaded answers late: with more at a time the greetings would be too late, and all in vain."""
TOLD_BACKOFFS = 3
"""A place that we were only told is dialled a few times, the tries further apart by as many steps
of the backoff."""


class Dialler:
    def __init__(
        self,
        me: NodeId,
        contacts: Contacts,
        links: Links,
        chance: Random,
        tls: ssl.SSLContext | None,
        connection: Callable[[], Connection],
        look_up: Resolve = resolve,
    ) -> None:
        self.seeds: list[Seed] = []
        self._me = me
        self._contacts = contacts
        self._links = links
        self._chance = chance
        self._tls = tls
        self._connection = connection
        self.look_up = look_up
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()  # in no order
        self._calling = asyncio.Semaphore(MOST_CALLING)

    def keep(self, contact: Contact) -> None:
        """Dials a contact from now on, while it is wanted."""
        if contact.dialler is None:
            contact.dialler = self._begin(self._keep_dialling(contact))

    def seed(self, place: str) -> None:
        self.seeds.append(seed := Seed(place, self._chance))
        self._begin(self._keep_seed(seed))

    def greet_at(self, place: str) -> None:
        """Dials a place once: whoever is there hears something from us, or we from it."""
        self._begin(self._greet_at(place))

    async def _greet_at(self, place: str) -> None:
        await self.dial(place)

    def _begin(self, dialling: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(dialling)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- contacts ------------------------------------------------------------------------------

    async def _keep_dialling(self, contact: Contact) -> None:
        began = self._loop.time()
        # Something waits for it, and it hardly dials us in the same moment, as configured ones do.
        is_urgent = contact.is_linked and (contact.learned or contact.node is not None)
        stranger = False
        while True:
            connection = contact.connection
            if connection is not None:
                await asyncio.wait([connection.ended])
                began, is_urgent, stranger = self._loop.time(), False, False
                continue
            if not self._links.wants(contact):
                break
            steps = TOLD_BACKOFFS if contact.source == "told" else 1
            wait = backoff(steps * contact.failures, self._loop.time() - began)
            if stranger:
                wait = AGAIN_SECONDS
            # The smaller name dials first, so that two nodes rarely dial each other at once.
            elif self._me.name > contact.name:
                wait += 4 * FIRST_BACKOFF_SECONDS
            if is_urgent:
                # Members of a group that forms need each other in the same moment.
                wait = 0.0 if contact.node is not None or self._me.name < contact.name else wait
                is_urgent = False
            await asyncio.sleep(wait * self._chance.uniform(0.5, 1.5))
            if contact.phase is not ConnectionPhase.AWAY or not self._links.wants(contact):
                continue  # it was met meanwhile, or has greeted us
            if self._contacts.is_cut(contact.name):
                continue
            if self._links.only_calls(contact):
                stranger = await self._call(contact)
            else:
                stranger = await self._try(contact)
        contact.dialler = None

    async def _call(self, contact: Contact) -> bool:
        """One attempt, when its turn has come. The next one waits as long as this one took: ends
        that are overloaded get half of the calls, and what is urgent does not wait behind them."""
        async with self._calling:
            if contact.connection is not None:
                return False
            began = self._loop.time()
            stranger = await self._try(contact)
            await asyncio.sleep(self._loop.time() - began)
            return stranger

    async def _try(self, contact: Contact) -> bool:
        """One attempt. True: another node is there."""
        met = await self.dial(contact.place or "")
        if met is None or met.name != contact.name:
            self._contacts.failed(contact)
        if met is None or met.name == contact.name:
            return False
        self._contacts.incidents.count("strangers_at_places")
        self._contacts.incidents.warn("%s should be at %s, but %s is", contact, contact.place, met)
        return True

    # --- seeds -----------------------------------------------------------------------------------

    async def _keep_seed(self, seed: Seed) -> None:
        failures, looked_up = 0, -AGAIN_SECONDS
        while True:
            now = self._loop.time()
            if now - looked_up < AGAIN_SECONDS and not seed.due(now, self._is_useful):
                await asyncio.sleep(seed.next_try(now))
                continue
            try:
                seed.resolved(await self.look_up(seed.place), self._loop.time())
            except (OSError, UnicodeError) as error:
                failures += 1
                self._contacts.incidents.count("failed_lookups")
                log.debug("looking up the seed %s: %s", seed.place, error)
                await asyncio.sleep(backoff(failures, 0) * self._chance.uniform(0.5, 1.5))
                continue
            failures, looked_up = 0, self._loop.time()
            due = seed.due(looked_up, self._is_useful)
            await asyncio.gather(*(self._try_seed(seed, address) for address in due))

    async def _try_seed(self, seed: Seed, address: str) -> None:
        met = await self.dial(address)
        seed.tried(address, met, self._loop.time())

    def _is_useful(self, who: NodeId, seconds: float, times: int) -> bool:
        """Whether to dial a node again that we met by a seed, so many seconds ago."""
        # Less and less often: gossip may name a member now and then that nobody knows any more.
        asking = AGAIN_SECONDS * 2.0 ** min(times - 1, MOST_DOUBLINGS)
        if seconds >= asking and self._contacts.is_one_missing():
            return True
        return seconds >= LOOK_SECONDS and self._links.misses(who.name, seconds >= AGAIN_SECONDS)

    # --- both ------------------------------------------------------------------------------------

    async def dial(self, place: str) -> NodeId | None:
        """One attempt: the node that answers. A failure is counted, and logged at debug level."""
        host, _, port = place.rpartition(":")
        connection, is_connected = self._connection(), False
        connection.target = place
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
            if not is_connected:
                self._note(place, error)
            return None
        finally:
            if not is_connected:
                connection.connection_lost(None)  # one that we gave up: uvloop does not call it

    def _note(self, place: str, error: Exception) -> None:
        """No connection was made: what `Waiting` says of the place from now on."""
        if isinstance(error, ssl.SSLError):
            why = getattr(error, "verify_message", "") or error.reason or str(error)
            self._contacts.incidents.refused(place, f"does not pass as a node by TLS: {why}")
        else:
            self._contacts.incidents.answers_no_more(place)
