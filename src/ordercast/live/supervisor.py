"""Runs a live scenario: one operating system process a member, and real faults on the wall clock.

Theory of operation. The supervisor starts `member.py` once a member, waits until all are
there and connected, and begins the load everywhere at one instant, which is time 0 of the plan.
Then it plays the faults: a crash is SIGKILL, a restart a new process on the same folder, a pause
SIGSTOP, a cut the kernel's (`namespaces.py`) or, where that cannot be had, the runtime's own. At
the end of the load it ends every fault, waits for the quiet phase, and stops all members.

What a fault does is defined once, for the simulator and for live runs (`scenario/faults`): the
supervisor has the `FaultControls`, whose operations are signals, commands to members and cuts.

Rules. Every process is in `members` from its first moment, and no process outlives `run`, whatever
happens. Every wait has a bound. A member that ends without a command to do so ends the run. A
killed process cannot write its `crash` row: the supervisor adds it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import randrange
from typing import Any, NamedTuple

import msgspec

from ordercast.errors import OrdercastError
from ordercast.live.member import (
    MET,
    READY,
    SAYS,
    Command,
    GroupPlan,
    LoadPlan,
    MemberReady,
    Settings,
)
from ordercast.live.namespaces import Namespaces, Unavailable
from ordercast.net.identity import number_from_zero
from ordercast.scenario.faults.active import ActiveFaults
from ordercast.scenario.faults.fault import DiskFound, Fault, Pair
from ordercast.trace.log import ToldOf, read_log, told_in
from ordercast.trace.schema import Row

PROGRAM = (sys.executable, "-P", "-m", "ordercast.live.member")
READY_SECONDS = 120.0
END_SECONDS = 15.0
START_TRIES = 10
PORTS = (20_000, 32_000)


class LivePlan(NamedTuple):
    names: tuple[str, ...]
    groups: tuple[GroupPlan, ...]
    load: LoadPlan
    faults: tuple[Fault, ...]
    duration: int  # nanoseconds
    quiet: int


class Gathered(NamedTuple):
    """What a run left."""

    rows: list[Row]
    began: int | None  # Unix time in nanoseconds; None: the load never began
    ended: int
    error: str | None  # why it ended early


class LiveError(OrdercastError):
    """A live run that cannot go on."""


class MemberProcess:
    """One incarnation of a member: an operating system process, from its start to its end."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, stem: Path) -> None:
        self.name = name
        self.process = process
        self.trace = stem.with_suffix(".rows")
        self.errors = stem.with_suffix(".err")
        self.started = False  # it got the command to start, and so takes others
        self.killed_at: int | None = None  # Unix time in nanoseconds
        self.may_end = False

    @property
    def alive(self) -> bool:
        return self.process.returncode is None and self.killed_at is None

    def send(self, line: Settings | Command) -> None:
        """The pipe holds far more than all commands of a run, so writing never blocks."""
        assert self.process.stdin is not None
        if self.alive:
            self.process.stdin.write(msgspec.json.encode(line) + b"\n")

    async def hear(self, word: str) -> str:
        """The rest of the line that begins so. LiveError: no such line came, or it ended."""
        assert self.process.stdout is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(READY_SECONDS):
                while line := (await self.process.stdout.readline()).decode():
                    if line.startswith(word):
                        return line[len(word) :]
                await self.process.wait()
                raise LiveError(self.how_it_ended())
        within = f"{READY_SECONDS:.0f} s"
        raise LiveError(f"{self.name} printed no {word.strip()} within {within}: is it overloaded?")

    async def place(self) -> str:
        """Where it listens, once it does."""
        return msgspec.json.decode(await self.hear(READY), type=MemberReady).place

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    def kill(self) -> None:
        self.may_end = True
        self.signal(signal.SIGKILL)

    def crash(self) -> None:
        """As part of the plan. A process that has ended stays as it is."""
        if self.alive:
            self.kill()
            self.killed_at = time.time_ns()

    def how_it_ended(self) -> str:
        """Its exit code, and the last line of its standard error."""
        text = self.errors.read_text("utf-8", "replace") if self.errors.exists() else ""
        words = text.strip().rpartition("\n")[2]
        code = self.process.returncode
        return f"{self.name} ended with code {code}" + (f": {words}" if words else "")


class Supervisor:
    def __init__(
        self,
        plan: LivePlan,
        folder: Path,
        network: Namespaces | None = None,  # None: loopback, and members that cut by themselves
        narrate: Callable[[str], None] = lambda text: None,
        watch: Callable[[Fault, bool], None] = lambda fault, begins: None,
    ) -> None:
        self.plan = plan
        self.names = plan.names
        self._narrate = narrate
        self._faults = ActiveFaults(self, watch)
        self._cuts: Counter[Pair] = Counter()  # how many lie on each path
        self._cuts_made: frozenset[Pair] = frozenset()
        self._absent: set[tuple[str, str]] = set()  # who is not in which group
        self.members: list[MemberProcess] = []  # all incarnations
        self._folder = folder
        self._network = network
        self._places: dict[str, str] = {}
        self._current: dict[str, MemberProcess] = {}
        self._turns = {name: asyncio.Lock() for name in plan.names}  # one restart at a time
        self._watchers: list[asyncio.Task[None]] = []
        self._restarts: list[asyncio.Task[None]] = []
        self._broken: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._began: int | None = None
        self._zero = 0.0  # on the loop's clock

    async def run(self) -> Gathered:
        error = None
        try:
            await self._start_all()
            await self._play()
            await self._stop_all()
        except (LiveError, Unavailable) as failure:
            error = str(failure)
        finally:
            await asyncio.shield(asyncio.create_task(self._end_all()))
        return Gathered(self._gather(), self._began, time.time_ns(), error)

    # --- beginning and end -------------------------------------------------------------------

    async def _start_all(self) -> None:
        anchors = dict.fromkeys(name for group in self.plan.groups for name in group.anchors)
        for name in anchors:  # one by one: the others start with their addresses
            await self._start_first(name)
        await _all(self._start_first(name) for name in self.plan.names if name not in anchors)
        for member in self._current.values():
            member.send(Command(do="meet", places=self._known_to(member.name)))
        await _all(member.hear(MET) for member in self._current.values())
        self._faults.prepare(self.plan.faults)
        self._began = time.time_ns()
        self._zero = asyncio.get_running_loop().time()
        for member in self._current.values():
            self._begin(member)
        self._narrate(f"{len(self._current)} processes have begun")

    async def _start_first(self, name: str) -> None:
        """On a port below those that the system hands out, or a peer could dial from it while the
        member is down. Somebody may have it: then another is tried."""
        host = self._network.address(name) if self._network else "127.0.0.1"
        for left in reversed(range(START_TRIES)):
            number_from_zero(self._folder / name)
            member = await self._spawn(name, f"{host}:{randrange(*PORTS)}")
            try:
                self._places[name] = await member.place()
                return
            except LiveError as error:
                member.kill()
                if not left or "cannot listen" not in str(error):
                    raise
                shutil.rmtree(self._folder / name)  # no other member knows that incarnation

    async def _spawn(self, name: str, listen: str) -> MemberProcess:
        stem = self._folder / f"{name}-{len(self.members)}"
        inside = self._network.command(name) if self._network else []
        with stem.with_suffix(".err").open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                *inside,
                *PROGRAM,
                str(stem),  # for people who look at the list of processes
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                # A family may be in a module that only this process knows where to find.
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,  # Ctrl-C is for the supervisor, which ends the members
            )
        member = MemberProcess(name, process, stem)
        self.members.append(member)
        self._current[name] = member
        data, trace = str(self._folder / name), str(member.trace)
        node = {"name": name, "listen": listen, "data": data, "trace": trace, "insecure": True}
        groups = self._groups_of(name)
        if any(group.open for group in groups):
            node["seeds"] = [place for _, place in sorted(self._anchors_of(name).items())]
        elif not (self._folder / name).exists():
            node["peers"] = self._reachable(name)  # whom it asks for its number
        told: dict[str, ToldOf] = {}
        for earlier in self.members:
            if earlier.name == name and earlier.trace.exists():
                told = told_in(read_log(earlier.trace), name, told)
        member.send(Settings(node=node, groups=groups, load=self.plan.load, told=told))
        return member

    def _groups_of(self, name: str) -> list[GroupPlan]:
        return [group for group in self.plan.groups if name in group.members]

    def _anchors_of(self, name: str) -> dict[str, str]:
        """Where the anchors of its open groups are, but for itself."""
        anchors = {one for group in self._groups_of(name) for one in group.anchors} - {name}
        return {one: place for one, place in self._places.items() if one in anchors}

    def _known_to(self, name: str) -> dict[str, str]:
        """Which addresses it is told: of all, unless it has to find the others by itself."""
        groups = self._groups_of(name)
        is_told = not groups or any(not group.open for group in groups)
        return self._places if is_told else self._anchors_of(name)

    def _reachable(self, name: str) -> dict[str, str]:
        """Where the others are; but a member that cuts by itself must not dial whom it is cut from,
        and it knows of no cuts yet."""
        cuts = frozenset() if self._network else self._cuts_made
        return {
            other: place
            for other, place in self._places.items()
            if other != name and (name, other) not in cuts and (other, name) not in cuts
        }

    def _begin(self, member: MemberProcess) -> None:
        """It joins, and sends for as long as the load still runs."""
        left = self.plan.duration / 1e9 - (asyncio.get_running_loop().time() - self._zero)
        member.started = True
        self._send_cuts(member)  # first: a member that is cut off must not even be dialled
        absent = [group for name, group in sorted(self._absent) if name == member.name]
        seconds = max(0.0, left)
        places = self._known_to(member.name)
        member.send(Command(do="start", places=places, seconds=seconds, absent=absent))
        self._watchers.append(asyncio.create_task(self._watch(member)))

    async def _watch(self, member: MemberProcess) -> None:
        assert member.process.stdout is not None
        while line := (await member.process.stdout.readline()).decode():
            if line.startswith(SAYS):
                self._narrate(f"{member.name}: {line[len(SAYS) :].rstrip()}")
        await member.process.wait()
        if not member.may_end:
            self._end_run(member.how_it_ended())

    def _end_run(self, why: str) -> None:
        if not self._broken.done():
            self._broken.set_result(why)

    async def _stop_all(self) -> None:
        standing = [member for member in self._current.values() if member.alive]
        for member in standing:
            member.may_end = True
            member.send(Command(do="stop"))
        try:
            async with asyncio.timeout(END_SECONDS):
                for member in standing:
                    if await member.process.wait():
                        raise LiveError(member.how_it_ended())
        except TimeoutError as error:
            raise LiveError(f"a member did not stop within {END_SECONDS:.0f} s") from error

    async def _end_all(self) -> None:
        """Whatever happened: no process of ours is left."""
        tasks = [*self._watchers, *self._restarts]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for member in self.members:
            member.kill()
        for member in self.members:
            with suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await member.process.communicate()

    # --- time --------------------------------------------------------------------------------

    async def _play(self) -> None:
        plan, faults = self.plan, self._faults
        moments: list[tuple[int, Callable[[Fault], None], Fault]] = []
        for fault in plan.faults:  # at one time in the order of the simulator's event queue
            moments.append((fault.at, faults.begin, fault))
            if fault.until is not None and fault.until < plan.duration:
                moments.append((fault.until, faults.end, fault))
        for at, act, fault in sorted(moments, key=lambda moment: moment[0]):
            await self._wait_until(at)
            act(fault)
            await self._update_cuts()
        await self._wait_until(plan.duration)
        faults.heal()
        await self._update_cuts()
        await self._wait_until(plan.duration + plan.quiet)
        if self._restarts:
            await asyncio.wait(self._restarts, timeout=READY_SECONDS)
        await self._wait_until(plan.duration + plan.quiet)

    async def _wait_until(self, at: int) -> None:
        """Until so many nanoseconds after the beginning. LiveError as soon as a member is lost."""
        left = self._zero + at / 1e9 - asyncio.get_running_loop().time()
        await asyncio.wait([self._broken], timeout=max(0.0, left))
        if self._broken.done():
            raise LiveError(self._broken.result())

    # --- faults ------------------------------------------------------------------------------

    physics = None  # the network, disk and clock of this machine cannot be changed

    def crash(self, name: str) -> None:
        self._current[name].crash()

    def restart(self, name: str, disk: DiskFound, is_down: Callable[[], bool]) -> None:
        if not self._current[name].alive:
            restart = self._restart_in_time(name, disk, is_down)
            self._restarts.append(asyncio.create_task(restart))

    def pause(self, name: str) -> None:
        if self._current[name].alive:
            self._current[name].signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self._current[name].signal(signal.SIGCONT)

    def cut(self, paths: Sequence[Pair]) -> None:
        self._cuts.update(paths)

    def mend(self, paths: Sequence[Pair]) -> None:
        self._cuts.subtract(paths)

    def form(self, name: str, group: str) -> None:
        self._send_if_started(name, Command(do="reform", group=group))

    def keep_out(self, name: str, group: str) -> None:
        self._absent.add((name, group))

    def join(self, name: str, group: str) -> None:
        self._absent.discard((name, group))
        self._send_if_started(name, Command(do="join", group=group))

    def leave(self, name: str, group: str) -> None:
        self._absent.add((name, group))
        self._send_if_started(name, Command(do="leave", group=group))

    def give(self, name: str, group: str, word: str, values: Mapping[str, Any]) -> None:
        self._send_if_started(name, Command(do="give", group=group, word=word, values=dict(values)))

    def stop_reading(self, name: str, group: str) -> None:
        self._send_if_started(name, Command(do="stop-reading", group=group))

    def read_on(self, name: str, group: str) -> None:
        self._send_if_started(name, Command(do="read-on", group=group))

    def _send_if_started(self, name: str, command: Command) -> None:
        """A member that starts later learns then which groups it is in, and what is cut."""
        if self._current[name].started:
            self._current[name].send(command)

    async def _restart_in_time(
        self, name: str, disk: DiskFound, is_down: Callable[[], bool]
    ) -> None:
        try:
            async with self._turns[name], asyncio.timeout(READY_SECONDS + END_SECONDS):
                await self._start_again(name, disk, is_down)
        except LiveError as error:
            self._end_run(str(error))
        except TimeoutError:
            within = f"{READY_SECONDS + END_SECONDS:.0f} s"
            self._end_run(f"{name} did not restart within {within}: is it overloaded?")

    async def _start_again(self, name: str, disk: DiskFound, is_down: Callable[[], bool]) -> None:
        if self._current[name].alive:
            return  # another of its crashes ended at the same time
        await self._current[name].process.wait()
        if disk == "lost":
            shutil.rmtree(self._folder / name, ignore_errors=True)  # another crash may have done so
        if is_down():
            return
        member = await self._spawn(name, self._places[name])
        if is_down():
            member.crash()  # meanwhile the next crash began, and found no process
        try:
            await member.place()
            self._begin(member)
        except LiveError:
            if member.killed_at is None:  # otherwise it was killed before it could print
                raise

    async def _update_cuts(self) -> None:
        """Makes and mends what the faults have changed, if they have."""
        paths = frozenset(path for path, cuts in self._cuts.items() if cuts > 0)
        if paths == self._cuts_made:
            return
        self._cuts_made = paths
        if self._network is not None:
            await self._network.set_cuts(paths)
        for member in self._current.values():
            if member.started:
                self._send_cuts(member)

    def _send_cuts(self, member: MemberProcess) -> None:
        """Its own switch, where no network of the kernel's does it. The kernel's rules do not apply
        to what is multicast."""
        paths = sorted(self._cuts_made)
        incoming = [one for one, two in paths if two == member.name]
        outgoing = [two for one, two in paths if one == member.name]
        if self._network is None:
            member.send(Command(do="cut", incoming=incoming, outgoing=outgoing))
        else:
            member.send(Command(do="cut", incoming=incoming, multicast=True))

    # --- what is left ------------------------------------------------------------------------

    def _gather(self) -> list[Row]:
        rows: list[Row] = []
        for member in self.members:
            own = list(read_log(member.trace)) if member.trace.exists() else []
            if member.killed_at is not None and own:
                last = own[-1]
                at = max(member.killed_at, last.at)
                own.append(Row(member.name, last.incarnation, last.step + 1, at, "crash"))
            rows += own
        return rows


async def _all(works: Iterable[Coroutine[Any, Any, object]]) -> None:
    """All of them; or the first failure, with none of the others still underway."""
    try:
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(work)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
