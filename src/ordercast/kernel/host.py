"""The host: drives the machines of one process, in the same way in every world.

Theory of operation. A world (the simulator, the live runtime, the explorer, the stage of the
interaction files) has a clock, a network, a disk and an application. The host has everything
else: which machine serves a group, which timers are valid, in which order a step takes effect,
which steps wait for the disk, and the rows that every trace has. So what is tested in one world
runs in all of them.

Rules.
 1. A step takes effect in this order: its records are durable; the submission is on record, its
    packets leave, its timers are set; the application and the trace hear its outputs.
 2. The steps of one machine take effect in the order in which they were made. A step that is behind
    one whose records are not durable yet waits for it. Other machines go on.
 3. A timer that a waiting step sets or cancels does not run out meanwhile.
 4. Packets that come together for one machine share a step. What came before a bad packet counts.
 5. A machine that raises, or a step that cannot be carried out, is a bug of ours: the machine is
    closed, nothing reaches it any more, and the world decides who hears of it. A PeerError is the
    peer's mistake: the machine has done nothing about that packet, and the world hears of it.

The time of an input is given by the world that calls. The host reads no clock: it asks for the
time of trace rows, which is not that of the member.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Protocol, cast

from ordercast.errors import DiskError, PeerError, UsageError
from ordercast.kernel.family import Plan
from ordercast.kernel.inputs import Input, Join, Leave, StatusResult
from ordercast.kernel.machine import Machine, Serving
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Heard, Note, Sent, Step, Timer
from ordercast.types import Event, NodeId, Payloads, View

WAITING_STEPS = 1000
"""Steps of a machine that may wait for the disk before its applications have to wait too."""
MOST_WAITING_STEPS = 100_000
"""Steps that packets caused wait as well. A machine with so many of them cannot go on."""


class Journal(Protocol):
    """Where the rows of one incarnation go."""

    def row(self, at: int, kind: str, **columns: Any) -> None: ...
    def note(
        self, at: int, kind: str, columns: Mapping[str, Any], on_trace_scale: Callable[[int], int]
    ) -> None: ...
    def submit(self, at: int, event: Event) -> None: ...
    def deliver(self, at: int, event: Event) -> None: ...
    def view(self, at: int, view: View) -> None: ...


class World(Protocol):
    """What a host needs around it."""

    def send(self, seat: Seat, sent: Sent) -> None:
        """One packet leaves. Each STATUS send is answered by `Host.status` with its token."""

    def wake(self, seat: Seat, timer: Timer, setting: int, after: int) -> Any:
        """Calls `Host.expire` with these after so many nanoseconds of the member's clock.

        What it returns is handed to `cancel` if the timer is not wanted any more.
        """

    def cancel(self, alarm: Any) -> None:
        """A timer was set again or cancelled. The host ignores it if it runs out all the same."""

    def commit(self, records: list[Packet], done: Callable[[], None]) -> None:
        """Makes records durable, then calls `done`; at once, or later in the order of the calls."""

    def hear(self, seat: Seat, output: Heard) -> None:
        """The application hears something. Its reactions come after this step."""

    def stepped(self, seat: Seat) -> None:
        """A step has taken effect: perhaps there is room now, or something has become stable."""

    def broke(self, seat: Seat, error: Exception) -> None:
        """A machine broke, and was closed. All its groups fail."""

    def trace_time(self) -> int:
        """Now, as the trace has it."""

    def on_trace_scale(self, local: int) -> int:
        """A time on the member's own clock, as the trace has it."""


class Seat:
    """One machine in its host."""

    __slots__ = (
        *("blocked_by", "closed", "drain", "has_left", "machine", "stable", "takes", "timers"),
        "waiting",
    )

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.takes = machine.takes
        self.drain: Callable[[Step], None] | None = getattr(machine, "drain", None)
        self.blocked_by: Callable[[str], str] | None = getattr(machine, "blocked_by", None)
        self.closed = False
        self.has_left = False  # its only group: it is closed when its last step has taken effect
        self.timers: dict[Timer, tuple[int, Any]] = {}  # the valid setting of each, and its alarm
        # Steps that have not taken effect. A queue is made for the first: most never need one.
        self.waiting: deque[_Waiting] | tuple[()] = ()
        # How far own events were stable at the last effect, once steps had to wait for the disk.
        self.stable: dict[str, int] | None = None


class _Waiting:
    """A step that has not taken effect, or what was to be done after those before it."""

    __slots__ = ("durable", "event", "stable", "step", "then")

    def __init__(
        self,
        step: Step | None,
        event: Event | None = None,
        then: Callable[[], None] | None = None,
    ) -> None:
        self.step = step
        self.event = event
        self.then = then
        self.durable = step is None or not step.records
        self.stable: dict[str, int] = {}


class Host:
    """The machines of one incarnation of one process."""

    __slots__ = (
        *("_cancel", "_flush", "_hear", "_send", "_settings", "_spare", "_wake", "delivered"),
        *("_new_step", "journal", "leaving", "observe", "seated", "seats", "stepped", "submitted"),
        "world",
    )

    def __init__(
        self,
        world: World,
        journal: Journal | None = None,
        flush: Callable[[], None] | None = None,
        observe: Callable[[Seat, Step, Event | None], None] | None = None,
        spare: list[Step] | None = None,
    ) -> None:
        self.world = world
        self.journal = journal
        self.observe = observe  # sees every step that is durable, before anything of it leaves
        self.seats: dict[str, Seat] = {}  # by group
        # Groups whose last step has not taken effect: whose they are, and what is done then.
        self.leaving: dict[str, tuple[Seat, Callable[[], None] | None]] = {}
        self.seated: list[Seat] = []  # all that are not closed
        self.submitted = 0  # events
        self.delivered = 0
        # Whom to tell that a step has taken effect. A world to which that is nothing sets None.
        self.stepped: Callable[[Seat], None] | None = world.stepped
        self._settings = 0  # how often any timer was set
        # Rows so far must outlive this process: before it sends, and after a machine's notes.
        self._flush = flush
        # Bound once, for millions of packets.
        self._send, self._wake, self._cancel = world.send, world.wake, world.cancel
        self._hear = world.hear
        # The one element is a step that recorded nothing. It serves again, which saves most of the
        # cost of the many packets that a machine only takes note of. Hosts of one thread may share
        # it: with a thousand of them in a simulation it stays in the processor's cache.
        self._spare = spare if spare is not None else [Step(0)]
        self._new_step = type(self._spare[0])

    # --- machines and groups -----------------------------------------------------------------

    def seat(self, machine: Machine) -> Seat:
        """A place for a machine, which serves its groups from now on. It is not started yet."""
        seat = Seat(machine)
        self.seated.append(seat)
        for group in machine.groups:
            self._route(group, seat)
        return seat

    def _route(self, group: str, seat: Seat) -> None:
        assert group not in self.seats, f"{group!r} is served already"
        self.seats[group] = seat
        self.row("join", group=group)

    def start(self, seat: Seat, now: int) -> None:
        self._call(seat, seat.machine.start, self._new_step(now))

    def join(self, seat: Seat, plan: Plan, now: int) -> None:
        """One more group for a machine that serves many (`Join`)."""
        self._route(plan.group, seat)
        self.give(seat, Join(plan), now)

    def leave(self, group: str, now: int, then: Callable[[], None] | None = None) -> None:
        """The group is left: the machine tells the others, and packets of it are for nobody.

        It is over, and may be joined again, when the last step has taken effect: `then` is called.
        """
        seat = self.seats[group]
        self.give(seat, Leave(group), now)
        if self.seats.pop(group, None) is None:
            return  # the machine broke, which has ended all its groups
        self.leaving[group] = seat, then
        if Join not in seat.takes:  # one that many groups share may serve others later
            seat.has_left = True
        if seat.closed:
            self._part(group)
        else:
            self.after(seat, lambda: self._part(group))

    def _part(self, group: str) -> None:
        seat, then = self.leaving.pop(group)
        self.row("leave", group=group)
        if seat.has_left:
            self.close(seat)
        if then is not None:
            then()

    def close(self, seat: Seat) -> None:
        """Nothing reaches this machine any more, and steps that wait never take effect."""
        if not seat.closed:
            seat.closed = True
            self.seated.remove(seat)
        for _, alarm in seat.timers.values():
            self._cancel(alarm)
        seat.timers.clear()
        seat.waiting = ()

    def end(self) -> None:
        """The incarnation is over: nothing reaches any machine any more."""
        for seat in list(self.seated):
            self.close(seat)
        self.seats.clear()
        self.leaving.clear()

    def after(self, seat: Seat, then: Callable[[], None]) -> None:
        """Does something once all steps of this machine so far have taken effect."""
        if seat.waiting:
            seat.waiting.append(_Waiting(None, then=then))
        elif not seat.closed:
            then()

    # --- inputs ------------------------------------------------------------------------------

    def accepts(self, group: str, now: int) -> bool:
        seat = self.seats[group]
        return len(seat.waiting) < WAITING_STEPS and seat.machine.accepts(group, now)

    def submit(
        self, group: str, payloads: Payloads, size: int, now: int, service: str = ""
    ) -> Event:
        """The application hands in a batch, at a time at which the group `accepts` one."""
        seat, step = self.seats[group], self._new_step(now)
        try:
            if service:
                event = cast("Serving", seat.machine).submit(step, group, payloads, size, service)
            else:
                event = seat.machine.submit(step, group, payloads, size)
        except UsageError:  # the machine refuses it, and has done nothing
            raise
        except Exception as error:
            self._break(seat, error)
            raise
        self.submitted += 1
        self._apply(seat, step, event)
        return event

    def receive(self, sender: NodeId, packet: Packet, now: int) -> bool:
        """A packet arrived. False: nobody here serves its group."""
        seat = self.seats.get(packet.group)
        if seat is None:
            return False
        step = self._spare[0]
        step.now = now
        try:
            seat.machine.receive(step, sender, packet)
            if seat.drain is not None:
                seat.drain(step)
        except PeerError:
            self._spare[0] = self._new_step(0)
            raise
        except Exception as error:
            self._spare[0] = self._new_step(0)
            self._break(seat, error)
            return True
        if step.sent or step.outputs or step.timers or step.records:
            self._spare[0] = self._new_step(0)
            if step.records or seat.waiting:
                self._queue(seat, step, None)
            else:
                self._take_effect(seat, step, None)
        elif self.stepped is not None and not seat.waiting:
            self.stepped(seat)
        return True

    def receive_all(self, sender: NodeId, packets: Iterable[Packet], now: int) -> Seat | None:
        """Packets came together. Returns whose the last one was; None: nobody's.

        PeerError, by a machine or by the iterable: what came before has taken effect.
        """
        seat: Seat | None = None
        step, seats = self._new_step(now), self.seats
        try:
            for packet in packets:
                found = seats.get(packet.group)
                if found is not seat:
                    if seat is not None:
                        self._drain(seat, step)
                        step = self._new_step(now)
                    seat = found
                    if seat is not None:
                        receive = seat.machine.receive
                if seat is None:
                    continue
                try:
                    receive(step, sender, packet)
                except PeerError:
                    raise
                except Exception as error:
                    self._break(seat, error)
                    seat = None  # others go on: what came for them is not lost
        finally:
            if seat is not None:
                self._drain(seat, step)
        return seat

    def _drain(self, seat: Seat, step: Step) -> None:
        if seat.drain is None:
            self._apply(seat, step)
        else:
            self._call(seat, seat.drain, step)

    def expire(self, seat: Seat, timer: Timer, setting: int, now: int) -> None:
        """A timer ran out, unless it was set again or cancelled meanwhile."""
        found = seat.timers.get(timer)
        if found is not None and found[0] == setting:
            del seat.timers[timer]
            if seat.has_left:
                return
            self._call(seat, seat.machine.expire, self._new_step(now), timer)

    def status(self, seat: Seat, token: Hashable, arrived: bool, now: int) -> None:
        """The answer to a STATUS send."""
        self.give(seat, StatusResult(token, arrived), now)

    def give(self, seat: Seat, given: Input, now: int) -> bool:
        """Any other input. False: this machine does not take such."""
        if seat.closed or seat.has_left or type(given) not in seat.takes:
            return False
        self._call(seat, seat.machine.on, self._new_step(now), given)
        return True

    def _call(self, seat: Seat, call: Callable[..., None], step: Step, *arguments: object) -> None:
        try:
            call(step, *arguments)
        except Exception as error:
            self._break(seat, error)
        else:
            self._apply(seat, step)

    def act(self, seat: Seat, act: Callable[[Step], None], now: int) -> None:
        """Anything that is done to a machine in a step of its own: for tests that play a part."""
        self._call(seat, act, self._new_step(now))

    def _break(self, seat: Seat, error: Exception) -> None:
        self.close(seat)
        self.world.broke(seat, error)
        for group in [group for group, other in self.seats.items() if other is seat]:
            self.leaving[group] = self.seats.pop(group), None
        for group in [group for group, (other, _) in self.leaving.items() if other is seat]:
            self._part(group)

    # --- questions ---------------------------------------------------------------------------

    def stable_up_to(self, group: str) -> int:
        """As the machine has it, but never ahead of what has taken effect."""
        seat = self.seats[group]
        if seat.waiting:
            return seat.stable.get(group, 0) if seat.stable is not None else 0
        return seat.machine.stable_up_to(group)

    def blocked(self, group: str) -> None:
        """The application has to wait: a row says so, and why."""
        seat = self.seats[group]
        cause = seat.blocked_by(group) if seat.blocked_by is not None else "window"
        self.row("blocked", group=group, cause=cause)

    def row(self, kind: str, **columns: object) -> None:
        """A row of what happens to the process or to a group as a whole."""
        if self.journal is not None:
            self.journal.row(self.world.trace_time(), kind, **columns)

    # --- effects -----------------------------------------------------------------------------

    def _apply(self, seat: Seat, step: Step, event: Event | None = None) -> None:
        if step.records or seat.waiting:
            self._queue(seat, step, event)
        else:
            self._take_effect(seat, step, event)

    def _queue(self, seat: Seat, step: Step, event: Event | None) -> None:
        if len(seat.waiting) >= MOST_WAITING_STEPS:
            why = f"the disk does not keep up: {len(seat.waiting)} steps wait for it"
            self._break(seat, DiskError(why))
            return
        waiting = _Waiting(step, event)
        machine = seat.machine
        waiting.stable = {group: machine.stable_up_to(group) for group in machine.groups}
        for timer, _ in step.timers:
            self._unset(seat, timer)
        seat.waiting = seat.waiting or deque()
        seat.waiting.append(waiting)
        if step.records:

            def done() -> None:
                waiting.durable = True
                self._go_on(seat)

            try:
                self.world.commit(step.records, done)
            except Exception as error:
                self._break(seat, error)

    def _go_on(self, seat: Seat) -> None:
        """Steps take effect up to the first that is not durable."""
        while seat.waiting and seat.waiting[0].durable:
            waiting = seat.waiting.popleft()
            if waiting.step is not None:
                seat.stable = waiting.stable
                self._take_effect(seat, waiting.step, waiting.event)
            if waiting.then is not None:
                waiting.then()

    def _take_effect(self, seat: Seat, step: Step, event: Event | None) -> None:
        journal, at = self.journal, 0
        try:
            if journal is not None and (step.outputs or event is not None):
                # The time of all its rows: nobody may hear that a permit is free before it is so.
                at = self.world.trace_time()
                if event is not None:
                    journal.submit(at, event)
            if self._flush is not None and (step.sent or event is not None):
                self._flush()
            if self.observe is not None:
                self.observe(seat, step, event)
            if step.sent:
                send = self._send
                for sent in step.sent:
                    send(seat, sent)
            if step.timers:
                self._set_timers(seat, step)
            if step.outputs:
                self._hand_over(seat, step, at)
            if self.stepped is not None:
                self.stepped(seat)
        except Exception as error:
            # The machine believes in what did not happen. Better no member than a wrong one.
            self._break(seat, error)

    def _set_timers(self, seat: Seat, step: Step) -> None:
        for timer, after in step.timers:
            if after is None:
                self._unset(seat, timer)
                continue
            assert after >= 0, f"{timer} is set into the past"
            found = seat.timers.get(timer)
            if found is not None:
                self._cancel(found[1])
            self._settings = setting = self._settings + 1
            seat.timers[timer] = setting, self._wake(seat, timer, setting, after)

    def _hand_over(self, seat: Seat, step: Step, at: int) -> None:
        """The trace and the application hear what the machine said, in order."""
        journal, hear, noted = self.journal, self._hear, False
        for output in step.outputs:
            # Nobody derives from these classes, and to ask for the type is far faster.
            if type(output) is Event:
                self.delivered += 1
                if journal is not None:
                    journal.deliver(at, output)
            elif type(output) is View:
                if journal is not None:
                    journal.view(at, output)
            elif isinstance(output, Note):
                if journal is not None:
                    scale = self.world.on_trace_scale  # the machine knows its own clock only
                    journal.note(at, output.kind, output.columns, scale)
                    noted = True
                continue
            hear(seat, output)
        if noted and self._flush is not None:
            self._flush()  # others may act on it already, as on a permit that was given back

    def _unset(self, seat: Seat, timer: Timer) -> None:
        found = seat.timers.pop(timer, None)
        if found is not None:
            self._cancel(found[1])
