"""One configuration as one of its members has it: what is cast, delivered and acknowledged in it.

Rules.
 1. Events are cast while the window has room, and until a proposal of ours. Between two proposals
    those that wait are cast too, unless we are ready for a decision: then its cut binds us.
 2. An acknowledgement that others wait for leaves at once, after all packets that came together,
    unless an event carries it; the next one `prompt_after` later. One that nobody waits for leaves
    when a quarter of a window is unacknowledged, or a little later.
    In a large group it goes to the senders of what it acknowledges only. A sender that knows that
    all have its event tells all of them: so a message costs three packets for each member, and not
    one for each two of them. If that does not come, the acknowledgement goes to all.
 3. An idle member sends a heartbeat to its two neighbours, and to nobody else.
 4. At the end, what those who come along know together says what belongs to the regular part of
    the view. The rest comes after a transitional view, and what is beyond the cut is lost.

What it does not do: agree on the end, which is `change.py`, or install the next configuration.
"""

from __future__ import annotations

from ordercast.kernel.clocks import Vector
from ordercast.kernel.step import Note, Step
from ordercast.protocol.transis.change import ConfigurationChange
from ordercast.protocol.transis.flow import OwnEvents
from ordercast.protocol.transis.graph import CausalGraph
from ordercast.protocol.transis.history import DeliveryHistory
from ordercast.protocol.transis.options import SynchronyOptions
from ordercast.protocol.transis.packets import (
    Cast,
    ConfigurationId,
    Joint,
    Status,
    Summary,
)
from ordercast.protocol.transis.patience import Patience
from ordercast.protocol.transis.services import ANY_HEIGHT, Deliveries
from ordercast.protocol.transis.states import StateExchange
from ordercast.protocol.transis.suggestion import Decision
from ordercast.types import Event, NodeId, View, event_number, view_identity

LARGE = 8
"""Groups with more members gather acknowledgements at the sender of a message."""
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
        time: int,  # patient time, as all times here
    ) -> None:
        self.me = me
        self.group = group
        self.options = options
        self.cid = cid
        self.members = members
        self.others = tuple(node for node in members if node != me)
        self.own = own
        self.history = history
        self.states = states
        self.graph = CausalGraph(members, me, own.limit)
        self.deliveries = self.deliveries_type(len(members))
        self.change = self.change_type(me, cid, members, options)
        self.patience = Patience(me, members, options, time)
        self.leaving: dict[NodeId, int] = {}  # who leaves, after so many events
        self._basic: list[tuple[int, Cast]] = []  # basic events that wait for the installation
        self._look_at = time + options.suspicion_limit // LOOKS_A_LIMIT
        self._beat_at = time + options.silence_limit
        self._status_at: int | None = None  # an acknowledgement to all
        self._spoke_at = time - options.prompt_after  # to all
        self._unacknowledged = 0  # events that we have admitted since
        self._is_awaited = False  # others wait for an acknowledgement of them
        self._is_large = len(members) > LARGE
        self._senders: dict[NodeId, None] = {}  # of what we have not acknowledged
        self._untold_at: int | None = None  # when all hear what only the senders have heard so far
        self._was_told = False  # members have acknowledged to us, perhaps to nobody else
        self._stable = 0  # own events that all have
        self._summarised = 0  # of them, those that all know of

    def view(self, came_with: tuple[NodeId, ...]) -> View:
        identity = view_identity(self.group, *_words(self.cid))
        return View(self.group, identity, self.members, came_with=came_with)

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
                step.send(self.others, cast)
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

    def take_summary(self, summary: Summary) -> None:
        if self.graph.take_summary(summary):  # then everybody knows what we have
            self._are_told()

    def take_fetched(self, step: Step, origin: NodeId, cast: Cast) -> None:
        admitted: list[tuple[int, Cast]] = []
        self.graph.take_fetched(self.graph.places[origin], cast, admitted)
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
                self._is_awaited = True
            self._enqueue(step, place, cast)

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

    def _deliver_due(self, step: Step) -> None:
        graph = self.graph
        stable = graph.stable()
        if self.deliveries.waiting:
            self._run(step, graph.least_high(), stable)
        done = self.deliveries.done(graph.received)
        graph.collect(stable, done)
        self._stable = stable[graph.me]
        self.own.discard_up_to(min(self._stable, done[graph.me]))

    def _run(self, step: Step, least_high: int, stable: Vector) -> None:
        for place, cast in self.deliveries.take_due(self.graph.received, least_high, stable):
            self._deliver(step, place, cast)

    def _deliver(self, step: Step, place: int, cast: Cast) -> None:
        origin = self.members[place]
        is_ordered = cast.service in ("agreed", "safe")
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
        if self._is_large and self._was_told and self._stable > self._summarised:
            # Those that have told it to us alone need not tell it to others.
            self._was_told, self._summarised = False, self._stable
            step.send(self.others, Summary(self.group, self.cid, *self.graph.summary()))
            self._spoke(time)
        elif self._untold_at is not None and self._untold_at <= time:
            step.send(self.others, self._status())
            self._spoke(time)
        if not self._unacknowledged or not self.others:
            return
        if self._is_awaited or 4 * self._unacknowledged >= self.options.window:
            self._status_at = self._spoke_at + self.options.prompt_after
        elif self._status_at is None:
            self._status_at = time + self.options.silence_limit // 4
        if self._status_at > time:
            return
        if self._is_large:
            step.send(tuple(self._senders), self._status())
            untold_at = self._untold_at or time + self.options.silence_limit // 2
            self._are_told()
            self._spoke_at, self._untold_at = time, untold_at
        else:
            step.send(self.others, self._status())
            self._spoke(time)

    def _spoke(self, time: int) -> None:
        """To all others."""
        self._spoke_at = time
        self._beat_at = time + self.options.silence_limit
        self._are_told()

    def _are_told(self) -> None:
        """Others have heard what we have admitted."""
        self._unacknowledged, self._is_awaited, self._status_at = 0, False, None
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

    def silent(self, time: int) -> list[NodeId]:
        """Members that are suspected now, and were not before."""
        if time < self._look_at:
            return []
        soonest = self.patience.watch(self.graph, time)
        silent = [one for one in self.patience.silent(time) if not self.change.is_failed(one)]
        later = time + self.options.suspicion_limit // LOOKS_A_LIMIT
        self._look_at = later
        if soonest is not None and time < soonest < later:
            self._look_at = soonest
        return silent

    def deadline(self, time: int) -> int:
        """When time itself changes something next."""
        soonest = min(self._look_at, self._beat_at)
        for at in (self._status_at, self._untold_at, self.change.deadline(time)):
            if at is not None and at < soonest:
                soonest = at
        return soonest

    # --- the end -----------------------------------------------------------------------------

    def end(self, step: Step, decision: Decision, joint: Joint, is_shown: bool) -> None:
        """Delivers all of the cut. A transitional view says where members are missing."""
        least_high, stable = self._knowledge(decision, joint)
        for place, cast in self._basic:
            self._deliver(step, place, cast)
        self._run(step, least_high, stable)
        together = decision.came_with
        if together != self.members and is_shown:
            parts = (*_words(decision.id), *_words(self.cid))
            identity = view_identity(self.group, "transitional", *parts)
            view = View(self.group, identity, together, came_with=together, transitional=True)
            self.states.put(step, view)
            for place, cast in self.deliveries.take_rest(self.graph.received):
                self._deliver(step, place, cast)
        assert not self.deliveries.waiting, "a view ends when all of its cut was delivered"
        for place, cast in self.graph.left_over():
            origin = self.members[place]
            self.lose(step, origin, cast.number)
        self.own.install()

    def _knowledge(self, decision: Decision, joint: Joint) -> tuple[int, Vector]:
        """How far the order is known, and what all have, by what those who come along know
        together: exactly that, for each of them may know more."""
        high, acks = [ANY_HEIGHT], [decision.cut]
        for side in joint:
            if side.side == self.cid:
                for one in side.known:
                    high.append(one.high)
                    acks.append(one.acks)
        return min(high), tuple(map(min, *acks)) if len(acks) > 1 else decision.cut

    def lose(self, step: Step, origin: NodeId, counter: int) -> None:
        number = event_number(origin.incarnation, counter)
        columns = {"origin": origin.name, "number": number, "cause": "discarded"}
        self.states.put(step, Note("lose", {"group": self.group, **columns}))


def _words(cid: ConfigurationId) -> tuple[object, ...]:
    return cid.height, cid.rep.name, cid.rep.incarnation, cid.serial
