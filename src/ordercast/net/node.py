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
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from enum import Enum
from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, TypeAlias, Unpack, overload

from ordercast.errors import Abandoned, DiskError, NameTaken, OrdercastError, UsageError
from ordercast.kernel.family import Family, Level, LoggedLevel, Plan
from ordercast.kernel.identity import first_incarnation
from ordercast.kernel.machines import Machines
from ordercast.levels import find_family, level_type
from ordercast.net.absence import Absence
from ordercast.net.asking import begin
from ordercast.net.committer import Committer
from ordercast.net.condition import Condition
from ordercast.net.config import Config, config_of, data_folder, former_folder
from ordercast.net.control import Control
from ordercast.net.datagrams import Datagrams
from ordercast.net.directory import Directory, OwnGroup
from ordercast.net.driver import Driver
from ordercast.net.formations import Vote
from ordercast.net.group import Group
from ordercast.net.identity import Identity, Incarnation
from ordercast.net.joining import JoinHow, Remembered, Wanted, plan_of
from ordercast.net.last_members import LastMembers
from ordercast.net.logged_group import LoggedGroup
from ordercast.net.mesh import Mesh
from ordercast.net.message import GroupClosed, Hooks
from ordercast.net.metrics import Metrics
from ordercast.net.multicast import Multicasts
from ordercast.net.name_watch import NameWatch
from ordercast.net.node_logs import NodeLogs
from ordercast.net.node_status import status_of
from ordercast.net.own_place import seeds_elsewhere
from ordercast.net.protection import Protection, is_loopback, protection_of
from ordercast.net.security import may
from ordercast.protocol.families import FAMILIES
from ordercast.store.node_store import NodeStore, opened_store
from ordercast.trace.log import RowLog
from ordercast.types import NodeId, View
from ordercast.wire.codec import Codec

log = logging.getLogger("ordercast.net")

REMEMBERED_RULES = 4096
Names: TypeAlias = list[str] | None


class NodeState(Enum):
    """NEW, then OPEN, then CLOSED. BROKEN in between: the disk has failed, another node has our
    name, or an incarnation was abandoned and the next one is not open yet."""

    NEW = "new"
    OPEN = "open"
    BROKEN = "broken"
    CLOSED = "closed"


class Node:
    """Made by `ordercast.open`. It runs while its `async with` block does."""

    def __init__(self, config: Config, families: Mapping[str, Family] = FAMILIES) -> None:
        self.config = config
        rules = config.group.values()
        elsewhere = {rule.family: find_family(rule.family) for rule in rules if ":" in rule.family}
        self.families = {**families, **elsewhere}
        self.state = NodeState.NEW
        self.me = NodeId(config.name)  # the incarnation is known once the folder is locked
        self.groups: dict[str, Group] = {}
        self.arrivals: Iterator[int] = count(1)  # what was delivered in any group, numbered
        self._broken: OrdercastError | None = None  # BROKEN, and then CLOSED: why
        # Since it was entered; what must be closed is on the stack.
        self._stack = AsyncExitStack()
        self.arrived: Condition  # notified of every arrival
        self.driver: Driver
        self.mesh: Mesh
        self.datagrams: Datagrams
        self.store: NodeStore
        self.metrics: Metrics
        self.identity: Identity
        self._seeds: list[str]  # that are not this node itself
        self._machines: Machines
        self._committer: Committer
        self._directory: Directory
        self._last_members: LastMembers
        self._protection: Protection

    # --- start and stop ----------------------------------------------------------------------

    async def __aenter__(self) -> Node:
        if self.state is not NodeState.NEW:
            raise UsageError("a node is entered once: open it again for a new incarnation")
        config = self.config
        host, _, port = config.listen.rpartition(":")
        host = host.strip("[]")
        self._protection = protection_of(config)  # before an incarnation is used up
        folder = data_folder(config)
        self._seeds = await seeds_elsewhere(config)
        self.identity = Identity(folder, config.name, config.cluster)
        self.state = NodeState.CLOSED
        self._stack.callback(self.identity.release)  # last: the folder is another's then
        try:
            peers = [place for name, place in config.peers.items() if name != config.name]
            places = [*peers, *self._seeds]
            security = self._protection.security
            cause = "empty" if self.identity.is_new else None
            us, told = await begin(self.identity, config.cluster, places, security, Random())
            self.me = us.node
            self._assemble(us)
            for teller, known in told.items():
                self.mesh.contacts.told(known, by=teller)
            if config.insecure and not is_loopback(config.listen):
                log.warning("%s is open to everybody: insecure = true", config.listen)
            await self._serve(host, int(port))
        except BaseException:
            await self._close()
            raise
        for name, place in config.peers.items():
            self.mesh.know(name, place)
        for place in config.seeds:
            self.mesh.seed(place)
        self.state = NodeState.OPEN
        self.driver.host.row("start", cause=cause)
        log.info("%s listens on %s:%s", self.me, host, self.mesh.port)
        log.info("%s keeps its data in %s", self.me, folder)
        if (former := former_folder(config)) is not None:
            doubt = (
                "%s keeps its data in %s, and not in %s, which is there too: move it, or give data"
            )
            log.warning(doubt, self.me, folder, former)
        return self

    def _assemble(self, us: Incarnation) -> None:
        """All the parts, which know each other."""
        config, stack = self.config, self._stack
        codec = Codec(self.families.values())
        self.store = opened_store(self.identity.folder, codec)
        stack.callback(self.store.close)
        trace = None if config.trace is None else RowLog(Path(config.trace))
        if trace is not None:
            stack.callback(trace.close)
        rules = lru_cache(REMEMBERED_RULES)(partial(may, config))
        self.arrived = Condition()
        self.driver = Driver(self.me, codec, trace, rules, config.peer_limit)
        self._committer = self.driver.committer = Committer(self.store, self._stop)
        stack.push_async_callback(self._committer.close)
        driver = self.driver
        driver.logs = NodeLogs(self.store, self._committer, driver.give, driver.unix_time_of_zero)
        stack.callback(driver.logs.close)
        self._machines = Machines(self.me, driver.logs.records, lambda family, plan: Random())
        security = self._protection.security
        watch = NameWatch(self._abandon, self._stop, self._is_outdated_by)
        stack.callback(watch.close)
        self.mesh = Mesh(us, config.cluster, self.driver, Random(), security, watch)
        self.mesh.handshake.advertise = config.advertise or ""
        self.mesh.contacts.believes = self._protection.may_dial
        stack.push_async_callback(self.mesh.close)
        incidents = self.mesh.incidents
        self._last_members = LastMembers(self.identity.folder, self._committer, incidents)
        stack.callback(self._last_members.close)
        wrapper = self._protection.wrapper(us)
        self.datagrams = Datagrams(self.mesh.contacts, wrapper, self.driver.receive_datagram)
        stack.callback(self.datagrams.close)
        shared = self._protection.multicast(us, self.mesh)
        multicasts = Multicasts(self.mesh.contacts, shared, self.driver.receive_multicast)
        stack.callback(multicasts.close)
        self._directory = Directory(
            self.me,
            self.mesh.contacts,
            lambda name, group: rules(name, group, "join"),
            self.mesh.send_frame,
            self.driver.give,
            lambda name, why: self.end(self.groups[name], why),
            lambda news: self.groups[news.group].take(news),
        )
        stack.callback(self._directory.close)
        self.driver.mesh, self.driver.datagrams = self.mesh, self.datagrams
        self.driver.multicasts = multicasts
        self.driver.directory = self._directory
        self.driver.backpressure.contacts = self.mesh.contacts
        self.mesh.links.viewed = self.driver.viewed
        self.mesh.links.waits = self._directory.waits
        stack.callback(self.driver.close)

    async def _serve(self, host: str, port: int) -> None:
        config = self.config
        await self.mesh.listen(host, port)
        await self.datagrams.listen(host, self.mesh.port)
        self.driver.multicasts.interface = self.datagrams.host
        if config.control is not None:
            control = Control(Path(config.control), self.status, self.forget)
            self._stack.callback(control.close)
            await control.listen()
        if config.metrics is not None:
            self.metrics = Metrics(config.metrics, self.status)
            self._stack.callback(self.metrics.close)
        self._protection.start(self.mesh)
        self._stack.callback(self._protection.stop)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await asyncio.gather(*(group.leave() for group in list(self.groups.values())))
            self._last_members.close()
            await self._committer.close()  # the steps that leave the groups may wait for the disk
            await self.mesh.drain(seconds=1.0)
        finally:
            await self._close()

    async def abort(self) -> None:
        """Ends at once, like a killed process: no peer is notified, and nothing is finished."""
        self.driver.close()
        for connection in list(self.mesh.connections):
            connection.abort()
        await self._close()

    async def _close(self) -> None:
        if self.state is NodeState.OPEN:
            self.driver.host.row("stop")
        self.state = NodeState.CLOSED
        for group in list(self.groups.values()):
            group.close(GroupClosed(f"the node {self.me} is closed"))
        await self._stack.aclose()

    def _stop(self, error: OrdercastError) -> None:
        """This node sends nothing more. The disk cannot persist what we would promise, or another
        node has our name."""
        cause = "disk" if isinstance(error, DiskError) else "taken"
        self._break(type(error)(f"{self.me} stops: {error}"), error, cause)
        if isinstance(error, NameTaken):
            closing = asyncio.get_running_loop().create_task(self.mesh.close())
            self._stack.push_async_callback(asyncio.wait, [closing])

    def _break(self, why: OrdercastError, because: Exception | None, cause: str) -> None:
        """This incarnation is over. What it delivered can still be read."""
        log.error("%s", why)
        why.__cause__ = because
        self._broken, self.state = why, NodeState.BROKEN
        self.driver.close()
        if not isinstance(why, Abandoned):  # or the groups end when the next one is there
            self._end_groups()
        self.driver.host.row("crash", cause=cause)  # last: it fails if the trace cannot be written

    def _end_groups(self) -> None:
        assert self._broken is not None
        for group in list(self.groups.values()):
            group.close(self._broken)
            self._directory.left(group.name)
            self._last_members.left(group.name)
        self.groups.clear()

    # --- another incarnation -----------------------------------------------------------------

    @property
    def is_reborn(self) -> bool:
        """Its name had a folder before this one, which was lost: peers know more of it than it."""
        return self.identity.is_reborn

    def _is_outdated_by(self, older: int) -> bool:
        """Others have met this incarnation. If it is of a folder that was lost, and we have founded
        a group alone since, nobody knows what it had in that group: ours must not go on, nor must
        we found it again from what our folder remembers."""
        if self.state is not NodeState.OPEN or not self.identity.is_foreign(older):
            return False
        entries = (group.departure.plan.entry for group in self.groups.values())
        founds = any(entry is not None and entry.founds for entry in entries)
        if founds or self._last_members.has_been_alone(self.me.name):
            return True
        self._committer.rewrite(*self.identity.note_reborn(), lambda: None)  # it founds none now
        return False

    def _abandon(self, reported: list[int]) -> None:
        """Others have met these incarnations of our name: ours ends like a crash, and what it
        promised is forgotten. Then a newer one opens; it never takes over the number."""
        if self.state is not NodeState.OPEN:
            return
        others = [NodeId(self.me.name, number) for number in reported]
        why = Abandoned(
            f"{self.me} is abandoned: others have met {max(others)}. The node "
            "goes on as a newer incarnation. Call node.join again for each of its groups"
        )
        kept = {record.group for record in self.store.records()} | set(self.groups)
        self._break(why, None, "abandoned")
        for group in sorted(kept):
            self._committer.forget(group, lambda: None)
        self._last_members.forget(partial(self._reopen, others))

    def _reopen(self, others: list[NodeId]) -> None:
        """The next incarnation begins, once nothing of the last one is on the disk."""
        if self.state is not NodeState.BROKEN or not isinstance(self._broken, Abandoned):
            return  # it was closed meanwhile, or the disk failed
        name, last = self.me.name, self.me.incarnation
        number = first_incarnation(name, others, False, Random(), last).incarnation
        try:
            us = self.identity.begin(number, reborn=True)
            us = us.reopened_from(self.mesh.handshake.us)  # it is the same process
        except UsageError as error:
            self._stop(DiskError(str(error)))
            return
        self.me = us.node
        records = self.driver.logs.records
        self._machines = Machines(self.me, records, lambda family, plan: Random())
        self.driver.become(self.me)
        self._directory.me = self.me
        self.datagrams.wrapper = self._protection.wrapper(us)
        self.driver.multicasts.wrapper = self._protection.multicast(us, self.mesh)
        self.mesh.become(us)
        self._end_groups()  # not before: an application that is notified joins again at once
        self._broken, self.state = None, NodeState.OPEN
        self.driver.host.row("start", cause="empty")
        log.warning("%s goes on as %s", name, self.me)

    def status(self) -> dict[str, Any]:
        """How the node is, as plain values: for `members`, `monitor` and metrics."""
        return status_of(self)

    async def forget(self, name: str) -> list[str]:
        """All that we know of another node, for operators. UsageError: why it is not forgotten.
        DiskError: it may be known again after a restart.

        Returns the groups that this node has joined, is not in, and may found without the other one
        once it is restarted.
        """
        if name == self.me.name:
            raise UsageError(f"{name} is this node")
        was_known, groups = self.mesh.forget(name), await self._last_members.drop(name)
        if not (self.driver.forget(name) or was_known or groups):
            raise UsageError(f"{name} is not known here")
        log.warning("%s forgets %s, as its operator wants", self.me, name)
        joined = [self.groups[group] for group in groups if group in self.groups]
        return [group.name for group in joined if not group.readiness.is_in]

    # --- groups ------------------------------------------------------------------------------

    @overload
    def join(
        self, name: str, level: LoggedLevel, members: Names = None, **how: Unpack[JoinHow]
    ) -> LoggedGroup: ...

    @overload
    def join(
        self, name: str, level: Level, members: Names = None, **how: Unpack[JoinHow]
    ) -> Group: ...

    def join(
        self,
        name: str,
        level: Level,
        members: list[str] | None = None,
        *,
        expect: int | None = None,
        of: int | None = None,
        founder: str | None = None,
        snapshot: Callable[[], bytes] | None = None,
        restore: Callable[[bytes], None] | None = None,
        vote: Vote | None = None,
        read: bool = True,
    ) -> Group:
        """Joins a group by its name. Its members find each other by the seeds of their nodes.

        `members` closes the group: exactly these names. In an open group any node of the cluster
        may join at any time. It must be clear who begins it: with `expect` the first view waits for
        so many nodes: more than half of the nodes that give it, which are `of` at most;
        `founder` names the only node that may found it. With none of these a node without seeds
        founds it, and a node with seeds waits for a member. If a node has only `peers`, and nothing
        is said about members, they are its members.

        `snapshot` returns the application's state for members that join later; `restore` takes the
        state of another member when this one joins; both are called while the group is read. They
        are for `Fifo(state=True)` in an open group, `Causal(state=True)`, `Synchrony(merge=...)`,
        and for `Total` and `Atomic`, which transfer state in every formation. In those, `vote`
        decides at once about each invitation.

        `read=False`: this member only sends. Nothing is stored for it to read, and it is never
        ejected.
        """
        if self._broken is not None:
            raise self._broken
        if self.state is not NodeState.OPEN:
            raise UsageError("join needs an open node: async with ordercast.open(...) as node")
        if name in self.groups:
            raise UsageError(f"{self.me.name} is in group {name!r} already")
        hooks = Hooks(snapshot, restore, vote, read)
        hooks.check()
        wanted = Wanted(members, expect, founder, of)
        past = Remembered(partial(self._last_members.of, name), self.is_reborn, bool(self._seeds))
        family, plan, terms = plan_of(self.config, self.families, name, level, wanted, hooks, past)
        if family.logged:
            self.driver.logs.open(family, plan)
        machine = self._machines.take(family, plan)
        group = (LoggedGroup if family.logged else Group)(
            *(self, family, plan, hooks),
            may_send=may(self.config, self.me.name, name, "send"),
            eject_after=self.config.eject_after / 1e9,
        )
        self.groups[name] = group
        if plan.entry is not None:
            self._last_members.watch(name, family.name, self.driver.host)
        self.driver.add(machine, plan, group, family.multicast)
        parts = family.formation is not None and not family.formation.unites(plan.options)
        own = OwnGroup(terms, plan.entry is not None, group.readiness, stays_parted=parts)
        self._directory.joined(name, own)
        return group

    def absence(self, plan: Plan, family: Family) -> Absence:
        seeds = (*self.config.seeds, *self.config.peers.values())
        present, refused_by = self._directory.present, self.mesh.incidents.refused_by
        others = self._directory.groups_of_others
        return Absence(
            *(plan, self.me.name, self.mesh.contacts, present),
            *(seeds, refused_by, others),
            founded=family.founded,
            alone=family.logged,
        )

    def changed(self, name: str) -> None:
        self._directory.changed(name)

    async def reform(
        self, name: str, members: list[str] | None = None, *, timeout: float | None = None
    ) -> View:
        """Re-forms a group, of all its members that are there or of these: its first view.

        The part of the group that this node is in continues; members of other parts take over its
        state. NotFormed: a member voted no, or no other member is there; nothing has changed.
        TimeoutError: the outcome is not known yet.
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
        plan = group.departure.plan
        planned = plan.members if plan.entry is None else (self.me.name, *self.mesh.contacts)
        return await group.formations.reform(planned, members, timeout)

    def leave(self, group: Group) -> None:
        """Notifies the others and forgets the group. `group.leave()` waits for stability before."""
        machine = self.driver.machine(group.name)
        forgets = group.departure.forgets_records(machine, self.me.name)
        self._over(group, GroupClosed(f"{self.me} has left {group.name}"), sound=True)
        if forgets:
            self._committer.forget(group.name, lambda: None)

    def end(self, group: Group, why: OrdercastError, *, sound: bool = True) -> None:
        """This member cannot go on in the group; the others go on without it."""
        if self._broken is None:  # otherwise the group ends with that
            log.error("%s", why)
            self._over(group, why, sound)

    def _over(self, group: Group, why: OrdercastError, sound: bool) -> None:
        group.close(why)  # first: it must send nothing after the others know that we left
        machine = self.driver.machine(group.name)
        if machine is not None:  # otherwise this incarnation is over, and the next one not there
            self.driver.leave(group.name)
            self._machines.over(group.departure.plan, machine, sound)
        self.groups.pop(group.name, None)
        self._directory.left(group.name)
        self._last_members.left(group.name)


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
    return Node(config_of(settings, more), families)
