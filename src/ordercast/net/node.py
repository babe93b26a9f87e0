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
import ipaddress
import logging
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any

import msgspec

from ordercast.errors import DiskError, OrdercastError, UsageError
from ordercast.kernel.family import Family, Level, Plan
from ordercast.levels import chosen, find_family, level_type
from ordercast.net.committer import Committer
from ordercast.net.condition import Condition
from ordercast.net.config import Config, objection_to, table_of
from ordercast.net.control import Control
from ordercast.net.datagrams import Datagrams, Plain, Wrapper
from ordercast.net.driver import Driver
from ordercast.net.formations import Vote
from ordercast.net.group import Group
from ordercast.net.handshake import INSECURE, Security
from ordercast.net.identity import Identity
from ordercast.net.machines import Machines
from ordercast.net.mesh import Mesh
from ordercast.net.message import Ejected, GroupClosed, Hooks
from ordercast.net.metrics import Metrics
from ordercast.net.security import Sealed, Tls, may
from ordercast.protocol.families import FAMILIES
from ordercast.settings import Source, convert, dotted, located, read_source
from ordercast.store.file import FileStore
from ordercast.trace.log import RowLog
from ordercast.types import NodeId, View
from ordercast.units import Quantity
from ordercast.wire.codec import Codec
from ordercast.wire.framing import Kind

log = logging.getLogger("ordercast.net")

SECURITY_SECONDS = 2.0
REMEMBERED_RULES = 4096


class Node:
    """Made by `ordercast.open`. It runs while its `async with` block does."""

    def __init__(self, config: Config, families: Mapping[str, Family] = FAMILIES) -> None:
        self.config = config
        rules = config.group.values()
        elsewhere = {rule.family: find_family(rule.family) for rule in rules if ":" in rule.family}
        self.families = {**families, **elsewhere}
        self.me = NodeId(config.name)  # the incarnation is known once the folder is locked
        self.groups: dict[str, Group] = {}
        self.arrivals = count(1)  # what was delivered in any group, numbered
        self.arrived: Condition  # notified of each of them
        self.driver: Driver
        self.mesh: Mesh
        self.datagrams: Datagrams
        self._machines: Machines
        # Of the groups that we are in.
        self._plans: dict[str, tuple[Family, Plan]] = {}
        self._identity: Identity | None = None
        self._trace: RowLog | None = None
        self._codec = Codec(self.families.values())
        self._store: FileStore | None = None
        self._broken: DiskError | None = None
        self._control: Control | None = None
        self._metrics: Metrics | None = None
        self._tls: Tls | None = None
        self._sealed: Sealed | None = None
        self._security_timer: asyncio.TimerHandle | None = None
        self._open = False

    # --- life --------------------------------------------------------------------------------

    async def __aenter__(self) -> Node:
        if self._identity is not None:
            raise UsageError("a node is entered once: ordercast.open makes another, a new life")
        config = self.config
        host, _, port = config.listen.rpartition(":")
        host = host.strip("[]")
        if config.tls is None and not config.insecure and not _is_loopback(host):
            raise UsageError(
                f"{config.listen} can be reached from elsewhere: say where the certificates are "
                "([tls]), or insecure = true"
            )
        self._load_certificates()  # before a life is used up
        self._identity = Identity(Path(config.data or f".ordercast/{config.name}"), config.name)
        self.me = self._identity.life
        try:
            self._store = _opened_store(self._identity.folder, self._codec)
            if config.trace is not None:
                self._trace = RowLog(Path(config.trace))
        except BaseException:
            self._release()
            raise
        self._connect_parts()
        if config.insecure and not _is_loopback(host):
            log.warning("%s is open to everybody: insecure = true", config.listen)
        try:
            await self._serve(host, int(port))
        except BaseException:
            await self._close()
            raise
        for name, place in config.peers.items():
            self.mesh.know(name, place)
        for place in config.seeds:
            self.mesh.seed(place)
        self._open = True
        self.driver.host.row("start")
        self._keep_secure()
        log.info("%s listens on %s:%s", self.me, host, self.mesh.port)
        return self

    def _load_certificates(self) -> None:
        files = self.config.tls
        if files is not None:
            self._tls = Tls(
                files.authority,
                files.certificate,
                files.key,
                cluster=self.config.cluster,
                name=self.config.name,
            )
            self._sealed = Sealed()

    def _connect_parts(self) -> None:
        """Driver, mesh and datagrams, which know each other."""
        config, tls, sealed = self.config, self._tls, self._sealed
        rules = lru_cache(REMEMBERED_RULES)(partial(may, config))
        self.arrived = Condition()
        self.driver = Driver(self.me, self._codec, self._trace, rules, config.peer_limit)
        assert self._store is not None
        self._committer = self.driver.committer = Committer(self._store, self._stop)
        self._machines = Machines(self.me, self._store.records, self.driver.start)
        self.mesh = Mesh(
            self.me,
            config.cluster,
            self.driver,
            Random(),
            Security(tls.server, tls.client, tls.certified_name, sealed.new_key)
            if tls and sealed
            else INSECURE,
        )
        wrapper: Wrapper = sealed or Plain(self.me, config.cluster)
        self.datagrams = Datagrams(self.mesh.contacts, wrapper, self.driver.receive_datagram)
        self.driver.mesh, self.driver.datagrams = self.mesh, self.datagrams
        self.driver.crowd.contacts = self.mesh.contacts

    async def _serve(self, host: str, port: int) -> None:
        await self.mesh.listen(host, port)
        await self.datagrams.listen(host, self.mesh.port)
        if self.config.control is not None:
            self._control = Control(Path(self.config.control), self.status)
            await self._control.listen()
        if self.config.metrics is not None:
            self._metrics = Metrics(self.config.metrics, self.status)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await asyncio.gather(*(group.leave() for group in list(self.groups.values())))
            await self._committer.close()  # last words may wait for the disk
            await self.mesh.drain(seconds=1.0)
        finally:
            await self._close()

    def _keep_secure(self) -> None:
        """Every few seconds: takes renewed certificates, and hands out keys that are due."""
        if self._tls is None or self._sealed is None:
            return
        loop = asyncio.get_running_loop()
        self._security_timer = loop.call_later(SECURITY_SECONDS, self._keep_secure)
        self._tls.maybe_reload()
        for contact in self.mesh.contacts.values():
            if contact.connection is not None and self._sealed.needs_rotation(contact):
                self.mesh.send_frame(contact, Kind.KEY, self._sealed.rotate(contact))

    async def _close(self) -> None:
        if self._open:
            self.driver.host.row("stop")
        self._open = False
        if self._security_timer is not None:
            self._security_timer.cancel()
        for group in list(self.groups.values()):
            group.close(GroupClosed(f"the node {self.me} is closed"))
        self.driver.close()
        self.datagrams.close()
        if self._control is not None:
            self._control.close()
        if self._metrics is not None:
            self._metrics.close()
        try:
            await self.mesh.close()
            if self._trace is not None:
                trace, self._trace = self._trace, None
                trace.close()
        finally:
            self._release()

    def _release(self) -> None:
        """The folder is another's: a new life's, perhaps."""
        if self._store is not None:
            self._store.close()
        if self._identity is not None:
            self._identity.release()

    def _stop(self, error: DiskError) -> None:
        """The disk does not keep what we would promise: we say nothing more to anybody."""
        log.error("%s stops: %s", self.me, error)
        self._broken = DiskError(f"{self.me} stops: {error}")
        self._broken.__cause__ = error
        self.driver.host.row("crash", cause="disk")
        self._open = False
        self.driver.close()
        for group in list(self.groups.values()):
            group.close(self._broken)
        self.groups.clear()

    def status(self) -> dict[str, Any]:
        """How the node is, as plain values: for `members`, `monitor` and metrics."""
        peers = {
            contact.name: {
                "life": str(contact.life) if contact.life else None,
                "place": contact.place,
                "connected": contact.connection is not None,
                "link_bytes": contact.link.size if contact.link else 0,
                "full": contact.name in self.driver.crowd.full,
            }
            for contact in list(self.mesh.contacts.values())
        }
        return {
            "node": str(self.me),
            "cluster": self.config.cluster,
            "listens": f"{self.config.listen.rpartition(':')[0]}:{self.mesh.port}",
            "secure": self._tls is not None,
            "groups": {name: group.status() for name, group in list(self.groups.items())},
            "peers": peers,
            "counters": dict(self.mesh.counters),
            "loop_lag_seconds": self.mesh.keepalive.loop_lag / 1e9,
        }

    # --- groups ------------------------------------------------------------------------------

    def join(
        self,
        name: str,
        level: Level,
        members: list[str] | None = None,
        *,
        snapshot: Callable[[], bytes] | None = None,
        restore: Callable[[bytes], None] | None = None,
        vote: Vote | None = None,
    ) -> Group:
        """Joins a group. Its members are those given, those configured, or all known nodes.

        `snapshot` tells the application's state to who comes later, and `restore` takes another's
        when we come; both are called while the group is read. They are for `Causal(state=True)`,
        and for `Total` and `Atomic` groups, which hand it over whenever they are formed anew. There
        `vote` says whether we come, at any time and at once.
        """
        if self._broken is not None:
            raise self._broken
        if not self._open:
            raise UsageError("join needs an open node: async with ordercast.open(...) as node")
        if objection := objection_to(name):
            raise UsageError(objection)
        if name in self.groups:
            raise UsageError(f"{self.me.name} is in group {name!r} already")
        family, options = chosen(_checked(level, self.families), self.families)
        rules = self.config.group.get(name)
        names = members or (rules.members if rules else None)
        if family.not_live:
            raise UsageError(f"{name!r}: {family.not_live}")
        if unfit := family.objection(name, options, names):
            raise UsageError(unfit.why)
        hooks = Hooks(snapshot, restore, vote)
        _check_hooks(name, family, options, hooks)
        if vote is not None and family.formation is not None:
            options = family.formation.asking(options)
        names = names or [self.me.name, *self.config.peers]
        self._check_members(name, names, family.largest_group)
        plan = Plan(name, tuple(sorted(set(names))), options)
        for told in family.advice(plan, 0.0):
            log.warning("%s: %s", name, told)
        machine, seat = self._machines.take(family, plan)
        may_send = may(self.config, self.me.name, name, "send")
        group = Group(self, family, plan, may_send, hooks)
        self.groups[name] = group
        self._plans[name] = family, plan
        self.driver.add(machine, plan, group, seat)
        return group

    def _check_members(self, name: str, names: list[str], most: int) -> None:
        if not may(self.config, self.me.name, name, "join"):
            raise UsageError(f"{self.me.name} may not be in {name!r}: {table_of(name)} members")
        if self.me.name not in names:
            raise UsageError(f"{self.me.name} is not a member of {name!r}: {', '.join(names)}")
        strangers = [other for other in names if not may(self.config, other, name, "join")]
        if strangers:
            who = ", ".join(strangers)
            raise UsageError(f"{who} may not be in {name!r}: {table_of(name)} members has others")
        if len(names) > most:
            raise UsageError(f"{name!r} would have {len(names)} members: at most {most} members")

    async def reform(
        self, name: str, members: list[str] | None = None, *, timeout: float | None = None
    ) -> View:
        """Forms a group anew, of all its members who are there or of these: its first view.

        The part of the group that this node is in goes on: who comes from elsewhere takes over its
        state. NotFormed: somebody does not want it, or nobody else is there; nothing has changed.
        TimeoutError: nobody knows yet.
        """
        group = self.groups.get(name)
        if group is None:
            raise UsageError(f"{self.me.name} is not in group {name!r}: join it first")
        if group.formations is None:
            formed = {
                level_type(each).__name__ for each in self.families.values() if each.formation
            }
            kinds = " and ".join(sorted(formed, reverse=True))
            raise UsageError(f"{name!r} is {group.family}: only {kinds} groups are formed")
        planned = self._plans[name][1].members
        for one in members or ():
            if one not in planned:
                raise UsageError(f"{one} is not a member of {name!r}: {', '.join(planned)}")
        if members is not None and self.me.name not in members:
            raise UsageError(f"{self.me.name} forms {name!r}, and so is in it: give it too")
        wanted = None if members is None else tuple(sorted(set(members)))
        async with asyncio.timeout(timeout):
            return await group.formations.reform(wanted)

    def leave(self, group: Group) -> None:
        """Tells the others and forgets the group. `group.leave()` waits for stability before."""
        family, plan = self._plans[group.name]
        nobody_needs_us = self.driver.may_go(group.name)
        self._over(group, GroupClosed(f"{self.me} has left {group.name}"))
        # A founder that forgot its cluster could begin it a second time.
        permit = family.permit if family.needs_permit(plan) else None
        if permit is not None and nobody_needs_us and permit.founder(plan) != self.me.name:
            self._forget_records(group.name)

    def _forget_records(self, group: str) -> None:
        """We are nobody's guardian there. If we come again it is as somebody new."""
        self._committer.forget(group, lambda: None)

    def eject(self, group: Group, why: str) -> None:
        log.error("%s is put out of %s: %s", self.me, group.name, why)
        self._over(group, Ejected(f"put out of {group.name}: {why}"))

    def refuse(self, group: Group, why: OrdercastError) -> None:
        log.error("%s is not taken into %s: %s", self.me, group.name, why)
        self._over(group, why)

    def fail(self, group: Group, error: Exception) -> None:
        """Something of ours went wrong in the middle: this member stops, the others go on."""
        log.error("%s cannot go on in %s: %s", self.me, group.name, error)
        why = OrdercastError(f"{self.me} cannot go on in {group.name}: {error}")
        why.__cause__ = error
        self._over(group, why, sound=False)

    def _over(self, group: Group, why: OrdercastError, sound: bool = True) -> None:
        group.close(why)  # first: nothing of it may follow the word that we are gone
        machine = self.driver.machine(group.name)
        assert machine is not None
        self.driver.leave(group.name)
        self.groups.pop(group.name, None)
        self._machines.over(self._plans.pop(group.name)[1], machine, sound)


def _checked(level: Level, families: Mapping[str, Family]) -> Level:
    """What a constructor takes as it comes: numbers in their bounds, quantities with a unit."""
    kind = type(level)
    if kind not in map(level_type, families.values()):
        raise UsageError(f"{level!r} is no level: give an object, such as ordercast.Fifo()")
    given = {
        name: str(value) if isinstance(value, Quantity) else value
        for name in level.__struct_fields__
        if (value := getattr(level, name)) is not None
    }
    try:
        return convert(given, kind)
    except msgspec.ValidationError as error:
        where, what = located(str(error), kind)
        raise UsageError(f"{kind.__name__}: {dotted(where)}: {what}") from error


def _check_hooks(name: str, family: Family, options: Any, given: Hooks) -> None:
    """What an application may be asked, and what it must be able to answer."""
    hooks = (given.snapshot is not None) + (given.restore is not None)
    state, formation = family.state, family.formation
    if hooks == 1 or (hooks == 0 and state is not None and state.needed(options)):
        raise UsageError(f"{name!r} hands over its state: give join a snapshot and a restore")
    if hooks and (state is None or not state.possible(options)):
        more = f": {state.hint}" if state is not None else ""
        raise UsageError(f"{name!r} hands over no state{more}")
    if given.vote is not None and formation is None:
        raise UsageError(f"{name!r} is not formed by invitations: there is nothing to vote on")
    if given.vote is None and formation is not None and formation.asks(options):
        raise UsageError(f"{name!r} asks its application about invitations: give join a vote")


def _opened_store(folder: Path, codec: Codec) -> FileStore:
    try:
        return FileStore(folder, codec)
    except DiskError as error:
        raise UsageError(str(error)) from error


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def open_node(
    settings: str | Path | Config | None = None,
    *,
    families: Mapping[str, Family] = FAMILIES,
    **more: object,
) -> Node:
    """A node, to be entered with `async with`: from a TOML file, or from keyword arguments.

    The keywords are the keys of the file (docs/node.md), and overrule it. `families` are those
    whose groups it can join, if they are not those of this version.
    """
    if isinstance(settings, Config):
        if more:
            raise UsageError("give a Config or keywords, not both")
        return Node(settings, families)
    if settings is None:
        return Node(Source("ordercast.open", "", dict(more)).struct(Config, "a node"), families)
    source = read_source(Path(settings), "a node's settings")
    merged = source._replace(document={**source.document, **more})
    return Node(merged.struct(Config, "a node"), families)
