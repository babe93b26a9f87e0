"""A node: one process in a cluster, in as many groups as it likes.

    async with ordercast.open(name="n1", listen="127.0.0.1:7001", peers={...}) as node:
        async with node.join("orders", ordercast.Fifo()) as group:
            await group.send(b"hello")
            async for event in group:
                ...

Leaving the block leaves every group, closes every connection and ends every task that it began.
"""

from __future__ import annotations

import asyncio
import fcntl
import ipaddress
import logging
import os
from pathlib import Path
from random import Random
from types import TracebackType
from typing import IO

from ordercast.errors import OrdercastError, UsageError
from ordercast.kernel.machine import Plan
from ordercast.levels import Fifo
from ordercast.net.config import Config
from ordercast.net.datagrams import Datagrams, Plain
from ordercast.net.driver import Driver
from ordercast.net.group import Ejected, Group, GroupClosed
from ordercast.net.mesh import Mesh
from ordercast.protocol.families import FAMILIES
from ordercast.trace.journal import Journal
from ordercast.types import NodeId
from ordercast.wire.codec import Codec

log = logging.getLogger("ordercast.net")

LEVELS = {Fifo: "fifo"}


class Node:
    """Made by `ordercast.open`. It runs while its `async with` block does."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.me = NodeId(config.name)  # the incarnation is known once the folder is locked
        self.groups: dict[str, Group] = {}
        self.driver: Driver
        self.mesh: Mesh
        self._datagrams: Datagrams
        self._left: set[str] = set()  # groups of this life that are over; only asked, not iterated
        self._lock: IO[str] | None = None
        self._open = False

    # --- life --------------------------------------------------------------------------------

    async def __aenter__(self) -> Node:
        config = self.config
        host, _, port = config.listen.rpartition(":")
        host = host.strip("[]")
        if config.tls is None and not config.insecure and not _is_loopback(host):
            raise UsageError(
                f"{config.listen} can be reached from elsewhere: say where the certificates are "
                "([tls]), or insecure = true"
            )
        self.me = NodeId(config.name, self._next_incarnation())
        codec = Codec(FAMILIES.values())
        self.driver = Driver(self.me, codec, self._journal())
        self.mesh = Mesh(self.me, config.cluster, self.driver, Random())
        self._datagrams = Datagrams(
            self.mesh, Plain(self.me, config.cluster), self.driver.receive_datagram
        )
        self.driver.mesh, self.driver.datagrams = self.mesh, self._datagrams
        if config.insecure and not _is_loopback(host):
            log.warning("%s is open to everybody: insecure = true", config.listen)
        try:
            await self.mesh.listen(host, int(port))
            await self._datagrams.listen(host, self.mesh.port)
        except BaseException:
            await self._close()
            raise
        for name, place in config.peers.items():
            self.mesh.know(name, place)
        for place in config.seeds:
            self.mesh.seed(place)
        self._open = True
        log.info("%s listens on %s:%s", self.me, host, self.mesh.port)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            for group in list(self.groups.values()):
                await group.leave()
            await self.mesh.drain(seconds=1.0)
        finally:
            await self._close()

    async def _close(self) -> None:
        self._open = False
        for group in list(self.groups.values()):
            group.close(GroupClosed(f"the node {self.me} is closed"))
        self.driver.close()
        self._datagrams.close()
        await self.mesh.close()
        if self._lock is not None:
            self._lock.close()

    # --- groups ------------------------------------------------------------------------------

    def join(self, name: str, level: Fifo, members: list[str] | None = None) -> Group:
        """Joins a group. Its members are those given, those configured, or all known nodes."""
        if not self._open:
            raise UsageError("join needs an open node: async with ordercast.open(...) as node")
        if name in self.groups:
            raise UsageError(f"{self.me.name} is in group {name!r} already")
        if name in self._left:
            raise UsageError(f"{self.me} has left {name!r}: only a new life can join it again")
        family = FAMILIES[LEVELS[type(level)]]
        rules = self.config.group.get(name)
        names = members or (rules.members if rules else None)
        names = names or [self.me.name, *self.config.peers]
        if self.me.name not in names:
            raise UsageError(f"{self.me.name} is not a member of {name!r}: {', '.join(names)}")
        if len(names) > family.largest_group:
            raise UsageError(f"a {family.name} group has at most {family.largest_group} members")
        plan = Plan(name, tuple(sorted(set(names))), level)
        (machine,) = family.build(self.me, (plan,), Random(), ())
        group = Group(self, name, self.config.eject_after / 1e9)
        self.groups[name] = group
        self.driver.add(machine, group)
        return group

    def leave(self, group: Group) -> None:
        """Tells the others and forgets the group. `group.leave()` waits for stability before."""
        self.driver.leave(group.name)
        self._over(group, GroupClosed(f"{self.me} has left {group.name}"))

    def eject(self, group: Group, why: str) -> None:
        log.error("%s is put out of %s: %s", self.me, group.name, why)
        self.driver.leave(group.name)
        self._over(group, Ejected(f"put out of {group.name}: {why}"))

    def _over(self, group: Group, why: OrdercastError) -> None:
        self.driver.remove(group.name)
        self.groups.pop(group.name, None)
        self._left.add(group.name)
        group.close(why)

    # --- files -------------------------------------------------------------------------------

    def _next_incarnation(self) -> int:
        """One more than at the last start of this name, written before anything is said."""
        folder = Path(self.config.data or f".ordercast/{self.config.name}")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = (folder / "lock").open("a", encoding="utf-8")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(f"{folder} is in use: is {self.config.name} running?") from error
        except OSError as error:
            raise UsageError(f"{folder} cannot be used: {error.strerror}") from error
        counter = folder / "incarnation"
        try:
            last = int(counter.read_text(encoding="utf-8")) if counter.exists() else -1
        except ValueError as error:
            raise UsageError(f"{counter} is damaged: it holds no number") from error
        fresh = counter.with_suffix(".tmp")
        with fresh.open("w", encoding="utf-8") as file:
            file.write(f"{last + 1}\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(counter)
        return last + 1

    def _journal(self) -> Journal | None:
        return None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def open_node(config: Config | None = None, **settings: object) -> Node:
    """A node with these settings, to be entered with `async with`."""
    asyncio.get_running_loop()
    if config is None:
        import msgspec

        config = msgspec.convert(settings, Config)
    return Node(config)
