"""What members do in the explorer: every state of a member once, every reaction once.

Theory of operation. A `Core` is one state of one process: its machines, timers, clock and disk, how
often it submitted, and the states of its applications. Equal cores are one object (`fingerprint.py`
says what equal is), and a core never changes: an input is called on a deep copy of its machines.
Machines are pure, so what comes of one core and one call is always the same and is remembered: in a
large search nearly every reaction is looked up, and most states of the world are new combinations
of few cores.

What the application and the trace hear is no part of a core. It is a log, kept by `Logs` as a tree
in which equal beginnings are shared. The log has no times: those come from the schedule that led
to it, when a trace is written of it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from ordercast.errors import UsageError, failure_line
from ordercast.kernel.host import Host
from ordercast.kernel.inputs import Backpressure, Input, Join, Leave, Seek, StateProvided, Vote
from ordercast.kernel.log import Recall
from ordercast.kernel.machine import Machine
from ordercast.kernel.machines import Machines, seat_of
from ordercast.kernel.packet import Packet
from ordercast.kernel.seat import Seat
from ordercast.kernel.step import Address, Heard, Note, Sent, Step, Timer
from ordercast.sim.explore.fingerprint import Frozen, Walk, digest, encode
from ordercast.sim.explore.setting import Setting
from ordercast.store.memory_log import replayed
from ordercast.trace.schema import NOTED_TIMES
from ordercast.types import Event, Invitation, NodeId, StateWanted, View

PAYLOAD = b"x"
INCARNATIONS_BITS = 10
"""The code of an incarnation is `process << 10 | incarnation`; of a name, `~process`."""

LINKED, FLEETING, ASKED = 0, 1, 2
"""The channels: link, datagram, status."""

MachineInput: TypeAlias = tuple[Any, ...]
"""The name of an input and its arguments, with packets and tokens as their numbers."""


class Submitted(NamedTuple):
    event: Event


class LogEntry(NamedTuple):
    """What one step added to the log of one incarnation."""

    node: NodeId
    items: tuple[Submitted | Event | View | Note, ...]
    at: int = 0  # where rows have times


class Sending(NamedTuple):
    channel: int
    to: int  # the code of an incarnation or of a name
    packet: int
    machine: int  # who hears the answer, for status
    token: int


class Core:
    """One state of one process. Compare by identity."""

    __slots__ = (
        *("accepting", "alive", "clock", "frozen", "full", "id", "records", "node", "machines"),
        *("reads", "states", "submitted", "timers"),
    )

    def __init__(
        self, node: NodeId, records: tuple[Packet, ...], clock: int, submitted: int
    ) -> None:
        self.id = -1
        self.node = node
        self.alive = False
        self.machines: list[Any] = []  # machines, or what is left of one
        # (machine, timer, when it would run out), in the order of their encodings
        self.timers: tuple[tuple[int, Timer, int], ...] = ()
        self.clock = clock  # nanoseconds by a true clock; stands still unless there are clocks
        self.records = records  # on disk
        self.submitted = submitted  # by all incarnations
        self.reads: tuple[tuple[int, int], ...] = ()  # of logs under way: machine, recall
        self.states: dict[str, bytes] = {}  # of applications, by group
        self.full: tuple[str, ...] = ()  # groups whose applications take no more for now; sorted
        self.accepting: tuple[str, ...] = ()  # groups
        self.frozen: Frozen = {}


class ClosedMachine:
    """In the place of a machine whose only group was left."""

    groups: tuple[str, ...] = ()
    takes: tuple[type[Input], ...] = ()

    def __init__(self, group: str, machine: Machine | None) -> None:
        self.group = group
        self.machine = machine  # where the group may be joined again with it


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


class Call:
    """The world around a host for one call: it records what comes of the call."""

    def __init__(self, members: Members, core: Core) -> None:
        self._members = members
        node = core.node if core.alive else NodeId(core.node.name, core.node.incarnation + 1)
        self.core = Core(node, core.records, core.clock, core.submitted)  # what it becomes
        self.core.alive = True
        self.core.states, self.core.full = dict(core.states), core.full
        self.core.reads = core.reads if core.alive else ()
        self.sent: list[Sending] = []
        self.items: list[Any] = []  # for the log
        self.seats: list[Seat] = []
        self._answers: list[tuple[Seat, Input]] = []
        spare = Step(0) if members.setting.clocks else TimelessStep(0)
        self.host = Host(self, observe=self._observe, spare=[spare])

    def now(self) -> int:
        return self._members.local_time(self.core)

    def start(self, machines: list[Machine]) -> None:
        self.go_on(machines, ())
        self.items.append(Note("start", {}))
        self.items += [Note("join", {"group": group}) for group in self.host.seats]
        for seat in self.seats:
            self.host.start(seat, self.now())

    def go_on(self, machines: list[Machine], timers: tuple[tuple[int, Timer, int], ...]) -> None:
        self.core.machines = machines
        self.seats = [self.host.seat(machine) for machine in machines]
        for number, (place, timer, due) in enumerate(timers):
            self.seats[place].timers[timer] = -1 - number, due

    def give(self, given: Any) -> None:
        """One of the inputs of the setting, as a process of the other worlds gives it."""
        if isinstance(given, Leave):
            self._leave(given.group)
            return
        self.host.give(self.host.seats[given.group], given, self.now())
        if isinstance(given, Backpressure):
            others = [one for one in self.core.full if one != given.group]
            self.core.full = tuple(sorted([*others, given.group] if given.full else others))

    def _leave(self, group: str) -> None:
        setting, name = self._members.setting, self.core.node.name
        family, _ = setting.plan_of(name, group)
        returns = family.rejoins and group in setting.joins.get(name, ())
        self.host.leave(group, self.now())
        self.items.append(Note("leave", {"group": group}))
        self.core.states.pop(group, None)
        self.core.full = tuple(one for one in self.core.full if one != group)
        for place, seat in enumerate(self.seats):
            if seat.closed and not isinstance(seat.machine, ClosedMachine):
                left = ClosedMachine(group, seat.machine if returns else None)
                self.core.machines[place] = left

    def join(self, group: str) -> None:
        """The rules are those of all worlds. What only a new incarnation could join is not joined,
        as in the simulator."""
        setting, me = self._members.setting, self.core.node
        family, plan = setting.plan_of(me.name, group)
        machines = Machines(
            me, lambda group: self.core.records, lambda *which: setting.draw(me, *which)
        )
        places: dict[int, int] = {}  # of machines that were left
        for place, machine in enumerate(self.core.machines):
            if isinstance(machine, ClosedMachine):
                earlier = setting.plan_of(me.name, machine.group)[1]
                left: Any = machine.machine or machine
                machines.over(earlier, left, sound=left is not machine)
                places[id(left)] = place
            elif Join in machine.takes:
                machines.share(family, machine)
        try:
            machine = machines.take(family, plan._replace(formed=False))
        except UsageError:
            return
        seat = seat_of(self.host, machine) or self._enter(machine, places.get(id(machine)))
        if family.one_machine:
            self.items.append(Note("join", {"group": group}))
            self.host.join(seat, plan._replace(formed=False), self.now())
        self.seek(group)

    def _enter(self, machine: Machine, place: int | None) -> Seat:
        seat = self.host.seat(machine)
        if place is None:
            self.seats.append(seat)
            self.core.machines.append(machine)
        else:
            self.seats[place], self.core.machines[place] = seat, machine
        self.items += [Note("join", {"group": group}) for group in machine.groups]
        self.host.start(seat, self.now())
        return seat

    def seek(self, group: str) -> None:
        """Where it takes a permit to send, applications here always want to."""
        family, plan = self._members.setting.plan_of(self.core.node.name, group)
        if family.needs_permit(plan):
            self.host.give(self.host.seats[group], Seek(group, True), self.now())

    def _observe(self, seat: Seat, step: Step, event: Event | None) -> None:
        if event is not None:
            self.items.append(Submitted(event))
        for output in step.outputs:
            if isinstance(output, Note) and not self._members.setting.timed:
                _refuse_times(output)
            self.items.append(output)

    # --- the world of the host -------------------------------------------------------------------

    def send(self, seat: Seat, sent: Sent) -> None:
        to, packet, channel, tokens = sent
        members, place = self._members, self.seats.index(seat)
        number = members.number(packet)
        by = LINKED if channel.in_order else ASKED if channel.answered else FLEETING
        for address, token in zip(to, tokens, strict=True):
            asked = members.number(token) if by == ASKED else 0
            code = members.code(address)
            assert code >= 0 or by != LINKED, "a link joins two incarnations, not two names"
            self.sent.append(Sending(by, code, number, place, asked))

    def wake(self, seat: Seat, timer: Timer, setting: int, after: int) -> int:
        """Returns when it would run out, which is nothing to those who have no clocks."""
        if not self._members.setting.clocks:
            return 0
        return self.core.clock + self._members.span(self.core.node.name, after)

    def cancel(self, alarm: int) -> None:
        """Nothing to do: the timers that are left are part of the core."""

    def commit(self, records: list[Packet], done: Callable[[], None]) -> None:
        self.core.records += tuple(records)
        done()

    def recall(self, seat: Seat, recall: Recall) -> None:
        self.core.reads += ((self.seats.index(seat), self._members.number(recall)),)

    def read(self, which: int) -> None:
        """A read of a log comes back: with what is on disk by now."""
        place, number = self.core.reads[which]
        self.core.reads = self.core.reads[:which] + self.core.reads[which + 1 :]
        recall = self._members.things[number]
        node, setting = self.core.node, self._members.setting
        log = replayed(recall.group, setting.log_of(node.name, recall.group), self.core.records)
        self.host.give(self.seats[place], log.answer(recall), self.now())

    def hear(self, seat: Seat, output: Heard) -> None:
        group, states, application = (
            output.group,
            self.core.states,
            self._members.setting.application,
        )
        if application is not None:
            states[group] = application(states.get(group, b""), output)
        if isinstance(output, StateWanted):
            self._answers.append((seat, StateProvided(group, output.token, states.get(group))))
        elif isinstance(output, Invitation):
            self._answers.append((seat, Vote(output.group, output.formation, True)))

    def stepped(self, seat: Seat) -> None:
        answers, self._answers = self._answers, []
        for asked, given in answers:
            self.host.give(asked, given, self.now())

    def broke(self, seat: Seat, error: Exception) -> None:
        raise error

    def trace_time(self) -> int:
        raise AssertionError("the log has no times")

    def on_trace_scale(self, local: int) -> int:
        raise AssertionError("the log has no times")


class Members:
    """All cores that were met, and what each did when called."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.cores: list[Core] = []
        self.entries: list[LogEntry | None] = [None]
        self.things: dict[int, Any] = {}  # packets and tokens by number
        self._encodings: dict[int, bytes] = {}  # of the things
        self._core_of: dict[bytes, Core] = {}
        self._entry_of: dict[bytes, int] = {}
        self._reactions: dict[tuple[int, MachineInput], Reaction | Failure] = {}
        self._later: dict[tuple[int, int], Core] = {}
        self._codes = {name: place for place, name in enumerate(setting.names)}
        self._clocks = {name: setting.clock_of(name) for name in setting.names}

    def unborn(self, name: str) -> Core:
        """Before the first incarnation."""
        return self._intern(Core(NodeId(name, -1), (), 0, 0), {})

    def react(self, core: Core, machine_input: MachineInput) -> Reaction | Failure:
        key = core.id, machine_input
        found = self._reactions.get(key)
        if found is None:
            try:
                found = self._call(core, machine_input)
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
            after = Core(core.node, core.records, clock, core.submitted)
            after.alive, after.machines, after.timers = core.alive, core.machines, core.timers
            after.states, after.full, after.reads = core.states, core.full, core.reads
            found = self._later[core.id, clock] = self._intern(after, core.frozen)
        return found

    def local_time(self, core: Core) -> int:
        """What the core's own clock shows."""
        return self._clocks[core.node.name].read(core.clock)

    def span(self, name: str, after: int) -> int:
        """How long it takes by a true clock until so much time has passed on one's own."""
        return self._clocks[name].span(after)

    def code(self, address: Address) -> int:
        if isinstance(address, str):
            return ~self._codes[address]
        return self._codes[address.name] << INCARNATIONS_BITS | address.incarnation

    def node(self, code: int) -> NodeId:
        return NodeId(
            self.setting.names[code >> INCARNATIONS_BITS],
            code & (1 << INCARNATIONS_BITS) - 1,
        )

    def number(self, thing: object) -> int:
        """The number of a packet or token: part of its hash, so the same in every search."""
        encoding = encode(thing)
        number = int.from_bytes(digest(encoding)[:8]) >> 1
        known = self._encodings.setdefault(number, encoding)
        assert known == encoding, "two packets with one number: 63 bits were not enough"
        self.things.setdefault(number, thing)
        return number

    # --- calling -------------------------------------------------------------------------------

    def _call(self, core: Core, machine_input: MachineInput) -> Reaction:
        kind, *arguments = machine_input
        if kind == "crash":
            after = Core(core.node, core.records, core.clock, core.submitted)
            return Reaction(self._intern(after, {}), (), self._entry(after, [Note("crash", {})]))
        call = Call(self, core)
        if kind == "start":
            call.start(self.setting.build(call.core.node, list(core.records)))
            for group in list(call.host.seats):
                call.seek(group)
            return self._reaction(call, {})
        assert core.alive
        shared = {place: value for place, (value, _) in core.frozen.items()}
        call.go_on(copy.deepcopy(core.machines, shared), core.timers)
        host, seats = call.host, call.seats
        if kind == "expire":
            place, timer = arguments
            setting, due = seats[place].timers[timer]
            call.core.clock = max(call.core.clock, due)
            host.expire(seats[place], timer, setting, call.now())
        elif kind == "status":
            place, token, arrived = arguments
            host.status(seats[place], self.things[token], arrived, call.now())
        elif kind == "give":
            call.give(self.setting.inputs_of(core.node.name)[arguments[0]])
        elif kind == "read":
            call.give(Backpressure(arguments[0], False))
        elif kind == "recall":
            call.read(arguments[0])
        elif kind == "join":
            call.join(arguments[0])
        elif kind == "submit":
            host.submit(arguments[0], [PAYLOAD], len(PAYLOAD), call.now())
            call.core.submitted += 1
        elif not host.receive(self.node(arguments[0]), self.things[arguments[1]], call.now()):
            return Reaction(core)  # a packet for a group that this process does not have
        return self._reaction(call, core.frozen)

    def _reaction(self, call: Call, known: Frozen) -> Reaction:
        timers = {
            (place, timer): due
            for place, seat in enumerate(call.seats)
            for timer, (_, due) in seat.timers.items()
        }
        core = self._settled(call.core, timers, known)
        return Reaction(core, tuple(call.sent), self._entry(call.core, call.items))

    def _settled(self, core: Core, timers: dict[tuple[int, Timer], int], known: Frozen) -> Core:
        if len(timers) > 1:
            timers = dict(sorted(timers.items(), key=lambda item: encode(item[0])))
        core.timers = tuple((place, timer, due) for (place, timer), due in timers.items())
        return self._intern(core, known)

    def _intern(self, core: Core, known: Frozen) -> Core:
        walk = Walk(known)
        state = core.node, core.alive, core.submitted, core.clock, core.timers, core.records
        heard = core.full, sorted(core.states.items())
        reads = [core.reads] if core.reads else []
        seen = digest(walk.encode([state, heard, core.machines, *reads]))
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
        entry = LogEntry(core.node, tuple(items), core.clock if self.setting.timed else 0)
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


def _refuse_times(note: Note) -> None:
    for name in NOTED_TIMES:
        if note.columns.get(name) is not None:
            raise UsageError(
                f"this machine notes a {note.kind!r} row with `{name}`: leases need clocks that "
                "agree, and in the explorer no two clocks do, but for timed=True"
            )
