"""What members do in the explorer: every state of a member once, every reaction once.

Theory of operation. A `Core` is one state of one process: its machines, timers, clock, disk and
how often it submitted. Equal cores are one object (`fingerprint.py` says what equal is),
and a core never changes: a door is called on a deep copy of its machines. Machines are pure, so
what comes of one core and one call is always the same and is remembered: in a large search nearly
every reaction is looked up, and most states of the world are new combinations of few cores.

What the application and the trace hear is no part of a core. It is a log, kept by `Logs` as a tree
in which equal beginnings are shared. The log has no times: those come from the schedule that led
to it, when a trace is written of it.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple, NoReturn, TypeAlias

from ordercast.errors import UsageError, failure_line
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import DATAGRAM, LINK, Address, Note, Step, Timer
from ordercast.sim.explore.fingerprint import Frozen, Walk, digest, encode
from ordercast.sim.explore.setting import Setting
from ordercast.types import Event, NodeId, StateWanted, View

PAYLOAD = b"x"
LIVES_BITS = 10
"""The code of a life is `process << 10 | incarnation`; of a name, `~process`."""

LINKED, FLEETING, ASKED = 0, 1, 2
"""The channels: link, datagram, status."""

Door: TypeAlias = tuple[Any, ...]
"""The name of a door and its arguments, with packets and tokens as their numbers."""


class Submitted(NamedTuple):
    event: Event


class Entry(NamedTuple):
    """What one step added to the log of one life."""

    life: NodeId
    items: tuple[Submitted | Event | View | Note, ...]


class Sending(NamedTuple):
    channel: int
    to: int  # the code of a life or of a name
    packet: int
    machine: int  # who hears the answer, for status
    token: int


class Core:
    """One state of one process. Compare by identity."""

    __slots__ = (
        *("accepting", "alive", "clock", "frozen", "id", "kept", "life", "machines"),
        *("submitted", "timers"),
    )

    def __init__(self, life: NodeId, kept: tuple[Packet, ...], clock: int, submitted: int) -> None:
        self.id = -1
        self.life = life
        self.alive = False
        self.machines: list[Machine] = []
        # (machine, timer, when it would run out), in the order of their encodings
        self.timers: tuple[tuple[int, Timer, int], ...] = ()
        self.clock = clock  # nanoseconds by a true clock; stands still unless there are clocks
        self.kept = kept  # on disk
        self.submitted = submitted  # by all lives
        self.accepting: tuple[str, ...] = ()  # groups
        self.frozen: Frozen = {}


class Reaction(NamedTuple):
    core: Core
    sent: tuple[Sending, ...] = ()
    entry: int = 0  # for the log; 0 is nothing


class Failure(NamedTuple):
    """A machine raised instead of answering."""

    error: str


class TimelessStep(Step):
    """A step whose clock must not be read: the state would never be the same again."""

    __slots__ = ()

    @property
    def now(self) -> int:
        raise UsageError(
            "this machine reads its clock (step.now): explore it with clocks=True, which makes "
            "the clocks part of the state"
        )

    @now.setter
    def now(self, now: int) -> None:
        pass


class Members:
    """All cores that were met, and what each did when called."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.cores: list[Core] = []
        self.entries: list[Entry | None] = [None]
        self.things: dict[int, Any] = {}  # packets and tokens by number
        self._encodings: dict[int, bytes] = {}  # of the things
        self._core_of: dict[bytes, Core] = {}
        self._entry_of: dict[bytes, int] = {}
        self._reactions: dict[tuple[int, Door], Reaction | Failure] = {}
        self._later: dict[tuple[int, int], Core] = {}
        self._codes = {name: place for place, name in enumerate(setting.names)}
        self._clocks = {name: setting.clock_of(name) for name in setting.names}

    def unborn(self, name: str) -> Core:
        """Before the first life."""
        return self._intern(Core(NodeId(name, -1), (), 0, 0), {})

    def react(self, core: Core, door: Door) -> Reaction | Failure:
        key = core.id, door
        found = self._reactions.get(key)
        if found is None:
            try:
                found = self._call(core, door)
            except UsageError:
                raise  # the caller's mistake, not the machine's
            except Exception as failure:  # the machine broke, which is what we look for
                found = Failure(failure_line(failure))
            self._reactions[key] = found
        return found

    def later(self, core: Core, clock: int) -> Core:
        """This core when its clock has come so far and nothing else has happened to it."""
        if core.clock >= clock:
            return core
        found = self._later.get((core.id, clock))
        if found is None:
            after = Core(core.life, core.kept, clock, core.submitted)
            after.alive, after.machines, after.timers = core.alive, core.machines, core.timers
            found = self._later[core.id, clock] = self._intern(after, core.frozen)
        return found

    def local_time(self, core: Core) -> int:
        """What the core's own clock shows."""
        return self._clocks[core.life.name].read(core.clock)

    def code(self, address: Address) -> int:
        if isinstance(address, str):
            return ~self._codes[address]
        return self._codes[address.name] << LIVES_BITS | address.incarnation

    def life(self, code: int) -> NodeId:
        return NodeId(self.setting.names[code >> LIVES_BITS], code & (1 << LIVES_BITS) - 1)

    def number(self, thing: object) -> int:
        """The number of a packet or token: part of its hash, so the same in every search."""
        encoding = encode(thing)
        number = int.from_bytes(digest(encoding)[:8]) >> 1
        known = self._encodings.setdefault(number, encoding)
        assert known == encoding, "two packets with one number: 63 bits were not enough"
        self.things.setdefault(number, thing)
        return number

    # --- calling -------------------------------------------------------------------------------

    def _call(self, core: Core, door: Door) -> Reaction:
        kind, *arguments = door
        if kind == "crash":
            return self._crash(core)
        if kind == "start":
            return self._start(core)
        assert core.alive
        shared = {place: value for place, (value, _) in core.frozen.items()}
        machines = copy.deepcopy(core.machines, shared)
        after = Core(core.life, core.kept, core.clock, core.submitted)
        after.alive, after.machines = True, machines
        timers = {(machine, timer): due for machine, timer, due in core.timers}
        items: list[Any] = []
        if kind == "expire":
            place, timer = arguments
            after.clock = max(after.clock, timers.pop((place, timer)))
            step = self._step(after)
            machines[place].expire(step, timer)
        elif kind == "told":
            place, token, arrived = arguments
            step = self._step(after)
            machines[place].told(step, self.things[token], arrived)
        else:
            group = arguments[0] if kind == "submit" else self.things[arguments[1]].group
            place = next((i for i, each in enumerate(machines) if group in each.groups), -1)
            if place < 0:
                return Reaction(core)  # a packet for a group that this process does not have
            step = self._step(after)
            if kind == "submit":
                event = machines[place].submit(step, group, [PAYLOAD], len(PAYLOAD))
                after.submitted += 1
                items.append(Submitted(event))
            else:
                machines[place].receive(step, self.life(arguments[0]), self.things[arguments[1]])
        sent = self._take(after, place, step, timers, items)
        return Reaction(self._settled(after, timers, core.frozen), sent, self._entry(after, items))

    def _start(self, core: Core) -> Reaction:
        assert not core.alive
        life = NodeId(core.life.name, core.life.incarnation + 1)
        after = Core(life, core.kept, core.clock, core.submitted)
        after.alive, after.machines = True, self.setting.build(life, list(core.kept))
        items: list[Any] = [Note("start", {})]
        items += [Note("join", {"group": name}) for each in after.machines for name in each.groups]
        timers: dict[tuple[int, Timer], int] = {}
        sent: tuple[Sending, ...] = ()
        for place, machine in enumerate(after.machines):
            step = self._step(after)
            machine.start(step)
            sent += self._take(after, place, step, timers, items)
        return Reaction(self._settled(after, timers, {}), sent, self._entry(after, items))

    def _crash(self, core: Core) -> Reaction:
        after = Core(core.life, core.kept, core.clock, core.submitted)
        return Reaction(self._intern(after, {}), (), self._entry(after, [Note("crash", {})]))

    def _step(self, core: Core) -> Step:
        return Step(self.local_time(core)) if self.setting.clocks else TimelessStep(0)

    # --- effects -------------------------------------------------------------------------------

    def _take(
        self,
        core: Core,
        place: int,
        step: Step,
        timers: dict[tuple[int, Timer], int],
        items: list[Any],
    ) -> tuple[Sending, ...]:
        core.kept += tuple(step.kept)
        sent: list[Sending] = []
        for to, packet, channel, tokens in step.sent:
            number = self.number(packet)
            by = LINKED if channel is LINK else FLEETING if channel is DATAGRAM else ASKED
            for address, token in zip(to, tokens, strict=True):
                asked = self.number(token) if by == ASKED else 0
                code = self.code(address)
                assert code >= 0 or by != LINKED, "a link joins two lives, not two names"
                sent.append(Sending(by, code, number, place, asked))
        for timer, after in step.timers:
            timers.pop((place, timer), None)
            if after is not None:
                assert after >= 0, f"{timer} is set into the past"
                span = self._clocks[core.life.name].span(after)
                timers[place, timer] = core.clock + span if self.setting.clocks else 0
        for output in step.outputs:
            if isinstance(output, Note) and output.columns.get("until") is not None:
                _refuse_leases(output)
            items.append(output)
        for output in step.outputs:
            if isinstance(output, StateWanted):  # applications here have none
                answer = self._step(core)
                core.machines[place].provide(answer, output.group, output.token, None)
                sent += self._take(core, place, answer, timers, items)
        return tuple(sent)

    def _settled(self, core: Core, timers: dict[tuple[int, Timer], int], known: Frozen) -> Core:
        if len(timers) > 1:
            timers = dict(sorted(timers.items(), key=lambda item: encode(item[0])))
        core.timers = tuple((place, timer, due) for (place, timer), due in timers.items())
        return self._intern(core, known)

    def _intern(self, core: Core, known: Frozen) -> Core:
        walk = Walk(known)
        state = core.life, core.alive, core.submitted, core.clock, core.timers, core.kept
        seen = digest(walk.encode([state, core.machines]))
        found = self._core_of.get(seen)
        if found is None:
            core.id = len(self.cores)
            core.frozen = walk.frozen
            served = [(each, group) for each in core.machines for group in each.groups]
            now = self.local_time(core)
            core.accepting = tuple(group for each, group in served if each.accepts(group, now))
            self.cores.append(core)
            found = self._core_of[seen] = core
        return found

    def _entry(self, core: Core, items: list[Any]) -> int:
        if not items:
            return 0
        entry = Entry(core.life, tuple(items))
        number = self._entry_of.setdefault(encode(entry), len(self.entries))
        if number == len(self.entries):
            self.entries.append(entry)
        return number


class Logs:
    """All logs that were met. A log is a number; 0 is empty, every other adds to an earlier one."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, int], int] = {}
        self.last: list[int] = [0]  # the entry that a log ends with

    def add(self, log: int, entry: int) -> int:
        number = self._numbers.setdefault((log, entry), len(self.last))
        if number == len(self.last):
            self.last.append(entry)
        return number


def _refuse_leases(note: Note) -> NoReturn:
    raise UsageError(
        f"this machine notes a {note.kind!r} row with `until`: leases need clocks that agree, and "
        "in the explorer no two clocks do"
    )
