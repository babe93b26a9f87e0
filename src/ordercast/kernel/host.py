"""The host: drives the machines of one process, in the same way in every world.

Theory of operation. A world (the simulator, the live runtime, the explorer, the stage of the
interaction files) has a clock, a network, a disk and an application. The host has everything
else: which machine serves a group, which timers are valid, in which order a step takes effect,
which steps wait for the disk, and the rows that every trace has. So what is tested in one world
runs in all of them.

Rules.
 1. A step takes effect in this order: its records are durable, and then what `remember` wants
    to be; the submission is on record, its packets leave, its timers are set; the application and
    the trace hear its outputs; what it wants to read of a log is asked for.
 2. The steps of one machine take effect in the order in which they were made. A step that is behind
    one that waits for the disk waits for it. Other machines go on.
 3. A timer that a waiting step sets or cancels does not run out meanwhile.
 4. Packets that come together for one machine share a step. What came before a bad packet counts.
    Where a world says when all that came at the same time was received (`later`), packets of
    several senders share it too, for machines that allow it (`LateDraining`): the step stays open,
    and takes effect at the latest then. Any other input takes effect after it; but a submission
    joins the step, because what it sends may say what the machine would say by itself.
 5. A machine that raises, or a step that cannot be carried out, is a bug of ours: the machine is
    closed, nothing reaches it any more, and the world decides who hears of it. A PeerError is the
    peer's mistake: the machine has done nothing about that packet, and the world hears of it.

The time of an input is given by the world that calls. The host reads no clock: it asks for the
time of trace rows, which is not that of the member.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import cast

from ordercast.errors import DiskError, PeerError, UsageError
from ordercast.kernel.family import Plan
from ordercast.kernel.inputs import Input, Join, Leave, StatusResult
from ordercast.kernel.log import Entry, Reference, Stream, event_of
from ordercast.kernel.machine import Machine, Replying, Serving
from ordercast.kernel.packet import Packet
from ordercast.kernel.seat import Seat, WaitingStep
from ordercast.kernel.step import Note, Step, Timer
from ordercast.kernel.world import Commit, Journal, World
from ordercast.types import Event, NodeId, Payloads, View

WAITING_STEPS = 1000
"""Steps of a machine that may wait for the disk before its applications have to wait too."""
MOST_WAITING_STEPS = 100_000
"""Steps that packets caused wait as well. A machine with so many of them cannot go on."""


class Host:
    """The machines of one incarnation of one process."""

    __slots__ = (
        *("_cancel", "_flush", "_hear", "_later", "_opened", "_send", "_settings", "_spare"),
        *("_new_step", "_wake", "delivered", "journal", "leaving", "observe", "remember"),
        *("seated", "seats", "stepped", "submitted", "world"),
    )

    def __init__(
        self,
        world: World,
        journal: Journal | None = None,
        flush: Callable[[], None] | None = None,
        observe: Callable[[Seat, Step, Event | None], None] | None = None,
        spare: list[Step] | None = None,
        later: Callable[[], None] | None = None,
    ) -> None:
        self.world = world
        self.journal = journal
        self.observe = observe  # sees every step that is durable, before anything of it leaves
        # Sees every step with outputs when it is made. Returns what must be durable, besides its
        # records, before it takes effect.
        self.remember: Callable[[Step], Commit | None] | None = None
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
        # Asks for a call of `drain` when all that came at the same time was received.
        self._later = later
        self._opened: list[Seat] = []  # whose steps may be open; not empty: that call is to come
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
        seat.waiting, seat.open = (), None

    def end(self) -> None:
        """The incarnation is over: nothing reaches any machine any more."""
        for seat in list(self.seated):
            self.close(seat)
        self.seats.clear()
        self.leaving.clear()

    def after(self, seat: Seat, then: Callable[[], None]) -> None:
        """Does something once all steps of this machine so far have taken effect."""
        self._close_step(seat)
        if seat.waiting:
            seat.waiting.append(WaitingStep(None, then=then))
        elif not seat.closed:
            then()

    # --- inputs ------------------------------------------------------------------------------

    def accepts(self, group: str, now: int) -> bool:
        seat = self.seats[group]
        return len(seat.waiting) < WAITING_STEPS and seat.machine.accepts(group, now)

    def submit(
        self,
        group: str,
        payloads: Payloads,
        size: int,
        now: int,
        service: str = "",
        reply: Reference | None = None,
    ) -> Event:
        """The application hands in a batch, at a time at which the group `accepts` one."""
        seat = self.seats[group]
        step = self._step(seat, now)
        try:
            if service:
                event = cast("Serving", seat.machine).submit(step, group, payloads, size, service)
            elif reply is not None:
                event = cast("Replying", seat.machine).submit(step, group, payloads, size, reply)
            else:
                event = seat.machine.submit(step, group, payloads, size)
            if seat.open is not None and seat.drain is not None:
                seat.open = None
                seat.drain(step)
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
        if step.sent or step.outputs or step.timers or step.records or step.recalls:
            self._spare[0] = self._new_step(0)
            if step.records or seat.waiting or self.remember is not None:
                self._apply(seat, step)
            else:
                self._take_effect(seat, step, None)
        elif self.stepped is not None and not seat.waiting:
            self.stepped(seat)
        return True

    def receive_all(self, sender: NodeId, packets: Iterable[Packet], now: int) -> Seat | None:
        """Packets came together. Returns whose the last one was; None: nobody's.

        PeerError, by a machine or by the iterable: what came before counts.
        """
        seat: Seat | None = None
        step, seats = self._spare[0], self.seats
        try:
            for packet in packets:
                found = seats.get(packet.group)
                if found is not seat:
                    if seat is not None:
                        self._received(seat, step)
                    seat = found
                    if seat is not None:
                        step = self._step(seat, now)
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
                self._received(seat, step)
        return seat

    def _step(self, seat: Seat, now: int) -> Step:
        """The open one, or a new one."""
        step = seat.open
        if step is None:
            return self._new_step(now)
        step.now = now
        return step

    def _received(self, seat: Seat, step: Step) -> None:
        if seat.drain is None:
            self._apply(seat, step)
        elif self._later is None or not seat.gathers or seat.waiting:
            self._call(seat, seat.drain, step)
        elif seat.open is None:
            seat.open = step
            self._opened.append(seat)
            if len(self._opened) == 1:
                self._later()

    def drain(self) -> None:
        """All that came at the same time was received."""
        opened, self._opened = self._opened, []
        for seat in opened:
            self._close_step(seat)

    def _close_step(self, seat: Seat) -> None:
        if seat.open is not None and seat.drain is not None:
            step, seat.open = seat.open, None
            self._call(seat, seat.drain, step)

    def expire(self, seat: Seat, timer: Timer, setting: int, now: int) -> None:
        """A timer ran out, unless it was set again or cancelled meanwhile."""
        self._close_step(seat)
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
        self._close_step(seat)
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

    def retell(
        self, group: str, first: int, entries: Iterable[Entry], ours: Stream, submitted: int
    ) -> None:
        """Rows of what the log has from this position on: an earlier incarnation was killed when it
        was durable, and before the trace heard of it. This one delivers it. Of our own stream the
        trace has submissions up to a number."""
        if self.journal is None:
            return
        at = self.world.trace_time()
        for position, entry in enumerate(entries, first):
            if entry.is_gap or entry.is_late:
                after = entry.prev if entry.is_gap else None
                where = {"origin": entry.origin, "number": entry.number, "after": after}
                self.row("lose", group=group, cause="obsolete", **where)
                continue
            event = event_of(group, entry, position)
            if entry.stream == ours and entry.number > submitted:
                self.journal.submit(at, event)
            self.journal.deliver(at, event)
        if self._flush is not None:
            self._flush()

    # --- effects -----------------------------------------------------------------------------

    def _apply(self, seat: Seat, step: Step, event: Event | None = None) -> None:
        also = self.remember(step) if self.remember is not None and step.outputs else None
        if step.records or seat.waiting or also is not None:
            self._queue(seat, step, event, also)
        else:
            self._take_effect(seat, step, event)

    def _queue(self, seat: Seat, step: Step, event: Event | None, also: Commit | None) -> None:
        if len(seat.waiting) >= MOST_WAITING_STEPS:
            why = f"the disk does not keep up: {len(seat.waiting)} steps wait for it"
            self._break(seat, DiskError(why))
            return
        waiting = WaitingStep(step, event)
        machine = seat.machine
        waiting.stable = {group: machine.stable_up_to(group) for group in machine.groups}
        for timer, _ in step.timers:
            self._unset(seat, timer)
        seat.waiting = seat.waiting or deque()
        seat.waiting.append(waiting)
        commits: list[Commit] = []
        if step.records:
            commits.append(partial(self.world.commit, step.records))
        if also is not None:
            commits.append(also)
        waiting.commits = len(commits)

        def done() -> None:
            waiting.commits -= 1
            self._go_on(seat)

        try:
            for commit in commits:
                commit(done)
        except Exception as error:
            self._break(seat, error)

    def _go_on(self, seat: Seat) -> None:
        """Steps take effect up to the first that is not durable."""
        while seat.waiting and not seat.waiting[0].commits:
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
            for recall in step.recalls:
                self.world.recall(seat, recall)
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
