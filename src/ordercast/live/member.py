"""The program of one member of a live scenario: `python -m ordercast.live.member`.

`supervisor.py` starts it and sends it lines. The first line on its standard input is its
`Settings`; it opens its node, prints `READY` with its incarnation and address, and then obeys one
`Command` a line:

  meet   is connected with everybody at these places, and then prints `MET`
  start  joins its groups and sends for so many seconds
  cut    nothing passes from and to these names any more, but for what the last cut named
  reform asks for a group to be re-formed
  leave  leaves a group as an application does, after what was sent is with the others
  join   joins a group that it is not in
  give   gives a group an input of its family's
  stop-reading, read-on   takes nothing of what a group delivers, and takes it again
  stop   writes the `stop` row and ends, without leaving a group

When views merge, the first member of each side asks what the other sides delivered apart, and
prints a line `SAYS`. Where it takes a ticket to send, it wants one as the simulator's load does:
all the time, or now and then for a while. When its input ends it ends too, at once: its supervisor
is gone. Whatever goes wrong ends it with a sentence or a traceback on standard error and exit
code 1: a member that goes on after a bug would prove nothing.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress
from random import Random
from typing import Any, Literal

import msgspec

from ordercast import levels
from ordercast.errors import Abandoned, OrdercastError, UsageError
from ordercast.kernel.family import Level
from ordercast.kernel.inputs import named_input
from ordercast.kernel.log import Reference
from ordercast.levels import Choice, find_family
from ordercast.net.formations import NotFormed
from ordercast.net.group import Group
from ordercast.net.logged_group import LoggedGroup
from ordercast.net.merges import DifferenceLost
from ordercast.net.message import GroupClosed
from ordercast.net.node import Node, open_node
from ordercast.net.primary_view import NoQuorum
from ordercast.net.receipt import Receipt
from ordercast.net.send_permit import TicketLost
from ordercast.protocol.families import FAMILIES
from ordercast.scenario.schema import BACKLOG_LIMIT
from ordercast.settings import located
from ordercast.trace.log import ToldOf
from ordercast.types import Event, Merged

READY = "READY "
MET = "MET"
SAYS = "SAYS "
MEETING_SECONDS = 0.01
CATCH_UP_SECONDS = 0.1
"""A sender that is late by more was stopped meanwhile: what it would have made is not made."""
LARGEST_LINE = 1 << 20
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


class _JsonLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What travels between the supervisor and a member, as one line of JSON."""


class GroupPlan(_JsonLine, frozen=True):
    name: str
    family: str
    members: list[str]
    options: dict[str, Any] = {}  # as a scenario file has them
    rate: float = 0.0  # messages a second and sender
    open: bool = False  # nobody is told the members: they run the group, and know the anchors
    anchors: list[str] = []
    expect: int = 0
    of: int = 0
    founder: str = ""


class LoadPlan(_JsonLine, frozen=True):
    senders: list[str] = []
    payload: int = 100  # bytes of a message
    batch: int = 1
    pattern: Literal["poisson", "steady"] = "poisson"
    seed: int = 0
    hold_for: float | None = None  # seconds for which a ticket is wanted, about; None: always
    begins: dict[str, float] = {}  # who begins late: so many seconds before the load is over
    services: list[str] = []  # that are drawn from; none: the group's own
    replies: float = 0.0  # a share of the batches reply to the last event that was read


class Settings(_JsonLine, frozen=True):
    node: dict[str, Any]  # the keys of a node's settings
    groups: list[GroupPlan]  # those that the member is in
    load: LoadPlan = LoadPlan()
    told: dict[str, ToldOf] = {}  # what its earlier traces know of groups with logs (`told_in`)


class MemberReady(_JsonLine, frozen=True):
    incarnation: int
    place: str


class Command(_JsonLine, frozen=True):
    do: Literal[
        "meet",
        "start",
        "cut",
        "reform",
        "join",
        "leave",
        "give",
        "stop-reading",
        "read-on",
        "stop",
    ]
    places: dict[str, str] = {}  # meet and start: where everybody is
    seconds: float = 0.0  # start: how long the load runs
    incoming: list[str] = []  # cut: who must not reach us
    outgoing: list[str] = []  # cut: whom we must not reach
    multicast: bool = False  # cut: only what is multicast, for the kernel cuts everything else
    absent: list[str] = []  # start: which groups it is not in
    group: str = ""  # reform and what follows: which
    word: str = ""  # give: the name of the input
    values: dict[str, Any] = {}


class Session:
    """The application in one group, from joining to leaving."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.reads = asyncio.Event()  # cleared while it takes nothing of what is delivered
        self.reads.set()
        self.tasks: list[asyncio.Task[None]] = []  # its load
        self.last: Reference | None = None  # the first message of the last event that it has read

    async def consume(self, begin: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        """It takes what comes, as fast as it comes, until the group is left."""
        with suppress(GroupClosed):
            while True:
                await self.reads.wait()
                item = await self.group.next_batch()
                if isinstance(item, Event) and item.birth:
                    self.last = Reference(item.origin.name, item.birth, item.number)
                if isinstance(item, Merged) and item.sides[0][0] == self.group.node.me:
                    begin(self._compare(item))  # once for our side: its members are alike

    async def _compare(self, merged: Merged) -> None:
        """What the other sides of a merge delivered apart."""
        told = []
        with suppress(GroupClosed):
            for side in merged.sides[1:]:
                names = " ".join(map(str, side))
                try:
                    found = await merged.difference(side)
                except DifferenceLost:
                    told.append(f"of {names} nobody is there any more")
                else:
                    more = "" if found.complete else " (not all is known any more)"
                    told.append(f"{names} delivered {len(found.events)} events{more}")
            ours = " ".join(map(str, merged.sides[0]))
            print(f"{SAYS}{merged.group}: apart from {ours}, {'; '.join(told)}", flush=True)

    async def leave(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.group.leave()


class LiveMember:
    def __init__(self, settings: Settings, node: Node) -> None:
        self._node = node
        self._load = settings.load
        self._levels = {group.name: (group, asked_for(group)[0]) for group in settings.groups}
        self._sessions: dict[str, Session] = {}  # of the groups that it is in
        self._turns = {name: asyncio.Lock() for name in self._levels}  # to join and to leave
        self._until = 0.0  # when the load ends, on the loop's clock
        self._earliest = 0.0  # when our part of it begins
        self.tasks: set[asyncio.Task[None]] = set()  # that are not done

    async def obey(self, commands: asyncio.StreamReader) -> None:
        """Until the input ends or says stop. Ends the process, and so never returns."""
        mesh = self._node.mesh
        host = self._node.config.listen.rpartition(":")[0]
        ready = MemberReady(incarnation=self._node.me.incarnation, place=f"{host}:{mesh.port}")
        print(READY + msgspec.json.encode(ready).decode(), flush=True)
        while line := await commands.readline():
            command = msgspec.json.decode(line, type=Command)
            if command.do == "stop":
                self._stop()
            for name, place in command.places.items():
                mesh.know(name, place)
            if command.do == "meet":
                self._begin(self._meet(list(command.places)))
            elif command.do == "start":
                self.start(command.seconds, frozenset(command.absent))
            elif command.do == "reform":
                self._begin(self._reform(command.group))
            elif command.do == "join":
                self._begin(self._join_again(command.group))
            elif command.do == "leave":
                self._begin(self._leave(command.group))
            elif command.do == "give":
                self._give(command.group, command.word, command.values)
            elif command.do == "stop-reading":
                self._read(command.group, False)
            elif command.do == "read-on":
                self._read(command.group, True)
            elif command.multicast:
                self._node.driver.multicasts.cut_from = frozenset(command.incoming)
            else:
                mesh.set_cuts(frozenset(command.incoming), frozenset(command.outgoing))
        os._exit(1)

    async def _meet(self, names: list[str]) -> None:
        contacts = self._node.mesh.contacts
        while any(name in contacts and contacts[name].connection is None for name in names):
            await asyncio.sleep(MEETING_SECONDS)
        print(MET, flush=True)

    def start(self, seconds: float, absent: frozenset[str]) -> None:
        load, me = self._load, self._node.me.name
        self._until = asyncio.get_running_loop().time() + seconds
        self._earliest = self._until - load.begins.get(me, seconds)
        for name in self._levels:
            if name not in absent:
                self._join(name)

    def _join(self, name: str) -> None:
        node, load = self._node, self._load
        plan, level = self._levels[name]
        members = None if plan.open else plan.members
        group = node.join(
            plan.name,
            level,
            members,
            expect=plan.expect or None,
            of=plan.of or None,
            founder=plan.founder or None,
        )
        session = self._sessions[name] = Session(group)
        self._begin(self._consume(name, session))
        if plan.rate and node.me.name in load.senders and group.may_send:
            place = f"{plan.name}/{node.me.name}"
            draw = Random(f"{load.seed}/workload/{place}")
            work = send(session, load, plan.rate, draw, self._until)
            session.tasks.append(self._begin(work, self._earliest))
            if group.permit is not None:
                draw = Random(f"{load.seed}/wishes/{place}/{node.me.incarnation}")
                work = want_a_ticket(group, load.hold_for, draw, self._until)
                session.tasks.append(self._begin(work, self._earliest))

    async def _consume(self, name: str, session: Session) -> None:
        """Until the group is left. An incarnation that is abandoned joins again as the next one."""
        try:
            await session.consume(self._begin)
        except Abandoned:
            for task in session.tasks:
                task.cancel()
            if self._sessions.get(name) is session:
                del self._sessions[name]
                await self._join_again(name)

    async def _join_again(self, name: str) -> None:
        async with self._turns[name]:
            if name not in self._sessions:
                self._join(name)

    async def _leave(self, name: str) -> None:
        """In the way in which an application leaves the block of its group."""
        async with self._turns[name]:
            if name in self._sessions:
                await self._sessions.pop(name).leave()

    def _read(self, name: str, reads: bool) -> None:
        if name in self._sessions:
            ready = self._sessions[name].reads
            ready.set() if reads else ready.clear()

    def _give(self, name: str, word: str, values: dict[str, Any]) -> None:
        machine = self._node.driver.machine(name)
        if name in self._sessions and machine is not None:
            self._sessions[name].group.give(named_input(machine.takes, word, values))

    async def _reform(self, group: str) -> None:
        """As in the simulator, nothing has gone wrong if the others do not want it."""
        with suppress(NotFormed):
            await self._node.reform(group)

    def _begin(self, work: Coroutine[Any, Any, None], earliest: float = 0.0) -> asyncio.Task[None]:
        task = asyncio.create_task(_or_die(work, earliest))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def _stop(self) -> None:
        self._node.driver.host.row("stop")
        self._node.driver.flush()
        os._exit(0)


async def want_a_ticket(group: Group, hold_for: float | None, draw: Random, until: float) -> None:
    """For about so long, then for about as long none, and so on while the load runs."""
    loop = asyncio.get_running_loop()
    while True:
        span = None if hold_for is None else draw.expovariate(1 / hold_for)
        if span is not None and loop.time() + span >= until:
            span = None
        with suppress(TimeoutError):
            async with asyncio.timeout(span):
                await update_again_and_again(group)
        with suppress(TicketLost):
            await group.stop_updating()
        pause = draw.expovariate(1 / (hold_for or 1))
        if loop.time() + pause >= until:
            return
        await asyncio.sleep(pause)


async def update_again_and_again(group: Group) -> None:
    """An application that loses its ticket wants another."""
    while True:
        await group.become_updater()
        while group.updating is not None:
            await group.change()


async def send(session: Session, load: LoadPlan, rate: float, draw: Random, until: float) -> None:
    """The load. It waits when the group has no room, and gives up what it would make meanwhile."""
    loop = asyncio.get_running_loop()
    group, gap = session.group, load.batch / rate
    messages = [bytes(b"x" * load.payload)] * load.batch
    receipt: Receipt | None = None
    backlog = 0  # messages that share the last receipt, which has no number before there is room
    due = loop.time()
    while True:
        after = gap if load.pattern == "steady" else draw.expovariate(1 / gap)
        due = max(due + after, loop.time() - CATCH_UP_SECONDS)
        if max(due, loop.time()) >= until:
            return
        await asyncio.sleep(due - loop.time())
        if group.permit is not None and group.updating is None:
            continue
        if receipt is None or receipt.number is not None or receipt.failure is not None:
            backlog = 0
        if backlog < BACKLOG_LIMIT:
            service = draw.choice(load.services) if load.services else ""
            with suppress(TicketLost, NoQuorum):
                if isinstance(group, LoggedGroup):
                    is_reply = load.replies and draw.random() < load.replies
                    original = session.last if is_reply else None
                    receipt = await group.send_many(messages, reply_to=original)
                else:
                    receipt = await group.send_many(messages, service=service)
                backlog += load.batch


def asked_for(group: GroupPlan) -> tuple[Level, Choice]:
    """The guarantee that a group's family and options stand for, and who keeps it."""
    family = find_family(group.family)
    try:
        level = levels.level_of(group.family, group.options)
        choice = levels.chosen(level, {group.family: family, **FAMILIES})
    except msgspec.ValidationError as error:
        what = located(str(error), levels.level_type(family))[1]
        raise UsageError(f"the options of group {group.name!r}: {what}") from error
    if choice.family.not_live:
        raise UsageError(f"group {group.name!r}: {choice.family.not_live}")
    return level, choice


async def run() -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_give_up)
    commands = asyncio.StreamReader(limit=LARGEST_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    settings = msgspec.json.decode(await commands.readline(), type=Settings)
    named = {group.family: find_family(group.family) for group in settings.groups}
    node = open_node(**settings.node, families={**FAMILIES, **named})
    member = LiveMember(settings, node)
    async with node:  # which is never left, for that would leave the groups
        node.driver.told = settings.told
        await _or_die(member.obey(commands))


async def _or_die(work: Coroutine[Any, Any, None], earliest: float = 0.0) -> None:
    try:
        await asyncio.sleep(earliest - asyncio.get_running_loop().time())
        await work
    except asyncio.CancelledError:
        work.close()  # the group is left, perhaps before this began
    except Abandoned:
        pass  # whoever reads the group joins it again
    except BaseException as error:
        _die(error)


def _give_up(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An exception that no code caught: a bug, unless it is only a connection that broke."""
    error = context.get("exception")
    if error is None:
        print(context.get("message"), file=sys.stderr, flush=True)
    elif not isinstance(error, OSError):
        _die(error)


def _die(error: BaseException) -> None:
    if isinstance(error, OrdercastError):
        print(error, file=sys.stderr, flush=True)
    else:
        traceback.print_exception(error)
    os._exit(1)


def _die_with_parent() -> None:
    """Even a member that is stopped goes when its supervisor does. Only Linux knows how."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


def main() -> None:
    _die_with_parent()
    try:
        try:
            import uvloop
        except ModuleNotFoundError:
            asyncio.run(run())
        else:
            uvloop.run(run())
    except BaseException as error:
        _die(error)


if __name__ == "__main__":
    main()
