"""One configuration as one of its members has it: what is cast, delivered and acknowledged in it.

Rules.
 1. Events are cast while the window has room, and until a proposal of ours. Between two proposals
    those that wait are cast too, unless we are ready for a decision: then its cut binds us.
 2. An acknowledgement that others wait for leaves at once, after all packets that came together,
    unless an event carries it. A few of them may follow each other, and on average there is one in
    `prompt_after`: so a lone message never waits, and a stream of them does not cost an
    acknowledgement each. One of an agreed event that is not above all that we have said waits a
    little: the order of the event does not depend on it. One that nobody waits for leaves when a
    quarter of a window is unacknowledged, or a little later.
    In a large group it goes to the senders of what it acknowledges only. A sender that knows that
    all have its event tells all of them: so a message costs three packets for each member, and not
    one for each two of them. If that does not come, the acknowledgement goes to all.
 3. An idle member sends a heartbeat to its two neighbours, and to nobody else.
 4. At the end, what those who come along know together says what belongs to the regular part of
    the view. The rest comes after a transitional view, and what is beyond the cut is lost.

What it does not do: agree on the end, which is `change.py`, or install the next configuration.
"""

from __future__ import annotations

from collections.abc import Callable

from ordercast.kernel.clocks import Vector
from ordercast.kernel.step import DATAGRAM, Note, Step
from ordercast.protocol.transis.carrier import Carriage
from ordercast.protocol.transis.change import ConfigurationChange
from ordercast.protocol.transis.flow import OwnEvents
from ordercast.protocol.transis.graph import Position
from ordercast.protocol.transis.history import DeliveryHistory
from ordercast.protocol.transis.options import SynchronyOptions
from ordercast.protocol.transis.packets import (
    Cast,
    ConfigurationId,
    Fetch,
    Fetched,
    GoneMember,
    Joint,
    Probe,
    Status,
    Summary,
)
from ordercast.protocol.transis.patience import Patience
from ordercast.protocol.transis.services import THE_END, Deliveries
from ordercast.protocol.transis.states import StateExchange
from ordercast.protocol.transis.suggestion import Decision
from ordercast.types import Event, NodeId, View, event_number, view_identity

ACKNOWLEDGEMENTS_AHEAD = 4
"""Acknowledgements without an event that may leave together, before each waits `prompt_after`."""
LOOKS_A_LIMIT = 8
"""How often a busy member looks who is silent, in a suspicion limit."""


class OpenConfiguration:
    change_type = ConfigurationChange
    deliveries_type = Deliveries

    def __init__(
        self,
        me: NodeId,
        group: str,
        options: SynchronyOptions,
        cid: ConfigurationId,
        members: tuple[NodeId, ...],
        own: OwnEvents,
        history: DeliveryHistory,
        states: StateExchange,
        carriage: Carriage,
        time: int,  # patient time, as all times here
    ) -> None:
        self.me = me
        self.group = group
        self.options = options
        self.cid = cid
        self.members = members
        self.others = tuple(node for node in members if node != me)
        self.own = own
        self.came_from: dict[NodeId, ConfigurationId] = {}  # where members were before
        self.history = history
        self.states = states
        self.carrier = carriage.open(me, group, options, cid, members, own)
        self.graph = self.carrier.graph
        self.deliveries = self.deliveries_type(len(members))
        self.change = self.change_type(me, cid, members, options)
        self.patience = Patience(me, members, options, time)
        self.leaving: dict[NodeId, int] = {}  # who leaves, after so many events
        self._basic: list[tuple[int, Cast]] = []  # basic events that wait for the installation
        self._look_at = time + options.suspicion_limit // LOOKS_A_LIMIT
        self._beat_at = time + options.silence_limit
        self._status_at: int | None = None  # an acknowledgement to all
        self._spent_until = time  # each acknowledgement without an event costs `prompt_after`
        self._unacknowledged = 0  # events that we have admitted since
        self._least_urgent = options.silence_limit // 4
        self._may_wait = self._least_urgent  # how long before others hear of these events
        self._told_clock = 0  # all know that what we send later is higher
        self.gathers = options.gathers(len(members))
        self._senders: dict[NodeId, None] = {}  # of what we have not acknowledged
        self._untold_at: int | None = None  # when all hear what only the senders have heard so far
        self._was_told = False  # members have acknowledged to us, perhaps to nobody else
        self._stable = 0  # own events that all have
        self._summarised = 0  # of them, those that all know of
        self._delivered = 0  # events, by all members
        self._collected: tuple[Vector, int] = (), 0  # what was stable and delivered at the last one

    def view(self, came_with: tuple[NodeId, ...]) -> View:
        identity = view_identity(self.group, *_words(self.cid))
        return View(self.group, identity, self.members, came_with=came_with)

    def counters(self) -> dict[str, int]:
        return {
            "present": len(self.members),
            "held": self.graph.held,
            "undelivered": self.deliveries.waiting,
            "stage": self.change.stage,
            **self.carrier.counters(),
        }

    # --- own events --------------------------------------------------------------------------

    def cast_waiting(self, step: Step, time: int, everything: bool = False) -> None:
        """Casts what waits, as far as the window goes."""
        if not self.may_cast():
            return
        own, graph = self.own, self.graph
        while own.may_cast or (everything and own.waiting):
            seq, height, vector = graph.next_place()
            uncast = own.take(seq)
            cast = Cast(
                self.group,
                self.cid,
                seq,
                height,
                vector,
                uncast.service,
                uncast.number,
                uncast.payloads,
                uncast.size,
            )
            graph.admit(graph.me, cast)
            if self.others:
                self.carrier.send(step, cast)
                self._spoke(time)
            self._enqueue(step, graph.me, cast)

    def may_cast(self) -> bool:
        """Whether no cut binds us, and our application has the state of this view."""
        return not self.change.readied and not self.states.is_waiting

    # --- others' packets ---------------------------------------------------------------------

    def take(self, step: Step, place: int, cast: Cast) -> None:
        admitted: list[tuple[int, Cast]] = []
        self.graph.take(place, cast, admitted)
        self._admitted(step, admitted)

    def take_status(self, place: int, status: Status) -> None:
        self.graph.take_status(place, status)
        self._was_told = True

    def take_summary(self, place: int, summary: Summary) -> None:
        if self.graph.take_summary(place, summary):  # then everybody knows what we have
            self._are_told()

    def take_fetched(self, step: Step, sender: NodeId, fetched: Fetched) -> None:
        admitted: list[tuple[int, Cast]] = []
        if self.carrier.expects(sender, fetched):
            place = self.graph.places[fetched.origin]
            self.graph.take_fetched(place, fetched.cast, admitted)
        self._admitted(step, admitted)

    def admit_held(self, step: Step) -> None:
        admitted: list[tuple[int, Cast]] = []
        self.graph.admit_held(admitted)
        self._admitted(step, admitted)

    def _admitted(self, step: Step, admitted: list[tuple[int, Cast]]) -> None:
        for place, cast in admitted:
            self._unacknowledged += 1
            self._senders[self.members[place]] = None
            if cast.service in ("agreed", "safe"):
                self._may_wait = min(self._may_wait, self._urgency(cast))
            self._enqueue(step, place, cast)

    def _urgency(self, cast: Cast) -> int:
        """How long the acknowledgement of an agreed or safe event may wait."""
        if cast.service == "safe" or self.gathers or cast.height > self._told_clock:
            return 0
        return self.options.prompt_after * ACKNOWLEDGEMENTS_AHEAD

    def _enqueue(self, step: Step, place: int, cast: Cast) -> None:
        service, is_bound = cast.service, bool(self.change.readied)
        if service == "basic" and is_bound:
            self._basic.append((place, cast))
        elif service == "basic" or (
            # All that it follows is admitted, and nothing that is admitted waits.
            service == "causal" and not is_bound and not self.deliveries.waiting
        ):
            self._deliver(step, place, cast)
        else:
            self.deliveries.add(place, cast)

    # --- delivery ----------------------------------------------------------------------------

    def follow_up(self, step: Step, time: int) -> None:
        """All that follows from what was admitted and acknowledged."""
        own = self.own
        if not self.change.readied:
            self._deliver_due(step)
            while self.graph.held and not self.graph.is_crowded:
                before = self.graph.held
                self.admit_held(step)
                self._deliver_due(step)
                if self.graph.held == before:
                    break
            if own.waiting and self.change.stage < 2:
                self.cast_waiting(step, time)
                self._deliver_due(step)
        self._acknowledge(step, time)
        if self.carrier.follow_up(step, time):
            self._spoke(time)

    def _deliver_due(self, step: Step) -> None:
        graph = self.graph
        stable = graph.stable()
        if self.deliveries.waiting:
            self._run(step, graph.horizon(), stable)
        state = stable, self._delivered
        if state == self._collected:
            return  # nothing was delivered, and nothing more is stable
        self._collected = state
        done = self.deliveries.done(graph.received)
        graph.collect(stable, done)
        self._stable = stable[graph.me]
        self.own.discard_up_to(min(self._stable, done[graph.me]))

    def _run(self, step: Step, horizon: Position, stable: Vector) -> None:
        for place, cast in self.deliveries.take_due(self.graph.received, horizon, stable):
            self._deliver(step, place, cast)

    def _deliver(self, step: Step, place: int, cast: Cast) -> None:
        origin = self.members[place]
        is_ordered = cast.service in ("agreed", "safe")
        self._delivered += 1
        self.history.add(place, cast)
        self.states.put(
            step,
            Event(
                self.group,
                origin,
                event_number(origin.incarnation, cast.number),
                cast.payloads,
                order=cast.height if is_ordered else None,
                size=cast.size,
                service=cast.service,
            ),
        )

    # --- acknowledgements --------------------------------------------------------------------

    def _acknowledge(self, step: Step, time: int) -> None:
        if self.gathers and self._was_told and self._stable > self._summarised:
            # Those that have told it to us alone need not tell it to others.
            self._was_told, self._summarised = False, self._stable
            self.carrier.send(step, Summary(self.group, self.cid, *self.graph.summary()))
            self._spoke(time)
        elif self._untold_at is not None and self._untold_at <= time:
            self.carrier.send(step, self._status())
            self._spoke(time)
        if not self._unacknowledged or not self.others:
            return
        if not self._may_wait or 4 * self._unacknowledged >= self.options.window:
            ahead = (ACKNOWLEDGEMENTS_AHEAD - 1) * self.options.prompt_after
            self._status_at = self._spent_until - ahead
        elif self._status_at is None or self._status_at > time + self._may_wait:
            self._status_at = time + self._may_wait
        if self._status_at > time:
            return
        self._spent_until = max(self._spent_until, time) + self.options.prompt_after
        if self.gathers:
            step.send(tuple(self._senders), self._status())
            untold_at = self._untold_at or time + self.options.silence_limit // 2
            self._are_told()
            self._untold_at = untold_at
        else:
            self.carrier.send(step, self._status())
            self._spoke(time)

    def _spoke(self, time: int) -> None:
        """To all others."""
        self._told_clock = self.graph.clock
        self._beat_at = time + self.options.silence_limit
        self._are_told()

    def _are_told(self) -> None:
        """Others have heard what we have admitted."""
        self._unacknowledged, self._may_wait, self._status_at = 0, self._least_urgent, None
        self._untold_at = None
        self._senders.clear()

    def _status(self) -> Status:
        return Status(self.group, self.cid, *self.graph.status())

    def take_leavers(self) -> tuple[NodeId, ...]:
        """Members that leave, and whose last event we have."""
        received, places = self.graph.received, self.graph.places
        gone = [one for one, sent in self.leaving.items() if received[places[one]] >= sent]
        for one in gone:
            del self.leaving[one]
        return tuple(gone)

    # --- time --------------------------------------------------------------------------------

    def beat(self, step: Step, time: int) -> None:
        if self._beat_at <= time:
            if self.patience.neighbours:
                step.send(self.patience.neighbours, self._status())
            self._beat_at = time + self.options.silence_limit

    def silent(self, step: Step, time: int) -> list[NodeId]:
        """Members that are suspected now, and were not before. Doubtful ones are probed."""
        if time < self._look_at:
            return []
        patience = self.patience
        soonest = patience.watch(self.graph, time)
        silent = [one for one in patience.silent(time) if not self.change.is_failed(one)]
        self._probe(step, [one for one in patience.doubtful(time) if one not in silent])
        later = time + self.options.suspicion_limit // LOOKS_A_LIMIT
        self._look_at = later
        if soonest is not None and time < soonest < later:
            self._look_at = soonest
        return silent

    def late(
        self, step: Step, time: int, view_of: Callable[[NodeId], tuple[NodeId, ...]]
    ) -> list[NodeId]:
        """Those that a change waits for in vain. Doubtful ones are probed."""
        late = self.change.late(time, self.patience.last_sign, view_of)
        self._probe(step, [one for one in self.change.doubtful(time) if one not in late])
        return late

    def _probe(self, step: Step, doubtful: list[NodeId]) -> None:
        to = tuple(node for node in doubtful if not self.change.is_failed(node))
        if to:
            step.send(to, Probe(self.group, self.cid, True), DATAGRAM)

    def take_probe(self, step: Step, sender: NodeId, probe: Probe, time: int) -> None:
        """A sign of life. It counts if its sender is where we take it to be, or on its way."""
        if probe.asks:
            step.send(sender, Probe(self.group, self.cid, False), DATAGRAM)
        expected = self.change.suggestion.joined.get(sender)
        if expected is None:
            return
        # Of two that install a view one is there first.
        is_behind = expected == self.cid and probe.cid == self.came_from.get(sender)
        if probe.cid == expected or is_behind or probe.cid in self.change.readied:
            self.patience.answered[sender] = time

    def acknowledges_by(self) -> int:
        """When an acknowledgement leaves that waits."""
        at, untold_at, due = self._status_at, self._untold_at, self.carrier.due
        if at is None or due < at:
            at = due
        return at if untold_at is None else min(at, untold_at)

    def deadline(self, time: int) -> int:
        """When time itself changes something next."""
        soonest = min(self._look_at, self._beat_at, self.carrier.due)
        for at in (self._status_at, self._untold_at, self.change.deadline(time)):
            if at is not None and at < soonest:
                soonest = at
        return soonest

    # --- the end -----------------------------------------------------------------------------

    def propose(self, step: Step, serial: int, time: int) -> None:
        """What we suggest as the next configuration, to all who are in it."""
        self.cast_waiting(step, time)
        if not self.graph.is_ending:
            self.graph.is_ending = True
            self.admit_held(step)
        proposal = self.change.propose(self.group, serial, self.graph, time)
        to = dict.fromkeys((*(node for node, _ in proposal.joined), *proposal.failed))
        to.pop(self.me, None)
        if to:
            step.send(tuple(to), proposal)

    def is_short(self, step: Step, decision: Decision, time: int) -> bool:
        """Whether we lack something of the cut, which we ask for."""
        change, graph = self.change, self.graph
        if not change.lacking(graph, decision):
            return False
        self.carrier.reach(decision.cut)
        if change.is_contradictory(graph, decision):
            graph.forget_held(graph.frozen, decision.cut)
        for helper, place, first, last in change.helpers(graph, decision, time):
            step.send(helper, Fetch(self.group, self.cid, self.members[place], first, last))
        return True

    def end(self, step: Step, decision: Decision, joint: Joint, is_shown: bool) -> None:
        """Delivers all of the cut. A transitional view says where members are missing."""
        horizon, stable = self._knowledge(decision, joint)
        cut = decision.cut
        beyond = [(place, cast) for place, cast in self._basic if cast.seq > cut[place]]
        beyond += self.deliveries.cut_off(cut)
        for place, cast in self._basic:
            if cast.seq <= cut[place]:
                self._deliver(step, place, cast)
        self._run(step, horizon, stable)
        together = decision.came_with
        if together != self.members and is_shown:
            parts = (*_words(decision.id), *_words(self.cid))
            identity = view_identity(self.group, "transitional", *parts)
            view = View(self.group, identity, together, came_with=together, transitional=True)
            self.states.put(step, view)
            for place, cast in self.deliveries.take_rest(self.graph.received):
                self._deliver(step, place, cast)
        assert not self.deliveries.waiting, "a view ends when all of its cut was delivered"
        for place, cast in (*beyond, *self.graph.left_over()):
            origin = self.members[place]
            self.lose(step, origin, cast.number)
        self.own.install()

    def _knowledge(self, decision: Decision, joint: Joint) -> tuple[Position, Vector]:
        """How far the order is known, and what all have, by what those who come along know
        together: exactly that, for each of them may know more."""
        gone = [node for node in self.members if node not in decision.came_with]
        nothing = (0,) * len(self.members)
        known = {node: GoneMember(node, nothing, 0) for node in gone}
        for side in joint:
            if side.side == self.cid:
                for one in side.known:
                    if one.node in known and len(one.acks) == len(nothing):
                        known[one.node] = one  # else it is a lie that was passed on
        places = self.graph.places
        positions = [(one.high + 1, places[one.node]) for one in known.values()]
        stable = decision.cut
        for one in known.values():
            stable = tuple(map(min, stable, one.acks))
        return min(positions, default=THE_END), stable

    def lose(self, step: Step, origin: NodeId, counter: int) -> None:
        number = event_number(origin.incarnation, counter)
        columns = {"origin": origin.name, "number": number, "cause": "discarded"}
        self.states.put(step, Note("lose", {"group": self.group, **columns}))


def _words(cid: ConfigurationId) -> tuple[object, ...]:
    return cid.height, cid.rep.name, cid.rep.incarnation, cid.serial
