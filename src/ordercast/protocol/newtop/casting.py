"""What a member casts in one totally ordered group, how far it has come, and how it begins.

The lower half of a group; `group.py` has what is received, agreed upon and due.

Rules.
 1. Whatever is cast takes a fresh number of the process's one clock, names the number before it,
    and goes by link to all live members. It says how far its sender has delivered.
 2. The group's bound: no live member will send anything numbered up to there.
 3. A formation that came about by votes begins with a `Start` of each member. What its initiator
    casts when it has all of them, the `State`, is above all these numbers, and whatever is
    submitted comes after that. So nothing of it is ever at or below our own start.

What it does not do: read what others cast.
"""

from __future__ import annotations

from collections import deque

from ordercast.kernel.family import Plan
from ordercast.kernel.step import Step
from ordercast.protocol.newtop.flow import Window, kept_limit
from ordercast.protocol.newtop.options import Options
from ordercast.protocol.newtop.ordering import Ordering
from ordercast.protocol.newtop.packets import Data, Leave, Message, Move, Null, Start, State, Turn
from ordercast.protocol.newtop.stability import Streams
from ordercast.protocol.newtop.suspicion import PatientClock, Suspicions
from ordercast.protocol.newtop.views import Views
from ordercast.types import Event, NodeId, Payloads, event_number, label_of


class Casting:
    kind = "total"  # for people who are told what differs
    is_ordered = True  # whether its events have a place among those of other groups

    def __init__(self, me: NodeId, plan: Plan, members: tuple[NodeId, ...], order: Ordering):
        assert isinstance(plan.options, Options) and me in members
        options = plan.options
        self.me = me
        self.name = plan.group
        self.formation = ""  # of the groups that bear the name; "": it was there all the time
        self.label = plan.group  # the name with the formation
        self.options = options
        self.order = order
        self.members = frozenset(members)  # all who ever belonged; never iterated
        others = tuple(one for one in members if one != me)
        self.views = Views(plan.group, me, members)
        self.streams = Streams(me, others, kept_limit(options))
        self.suspicions = Suspicions(others)
        self.window = Window(options)
        self.replayed: deque[tuple[NodeId, Message]] = deque()  # held back, and now received
        self.told_up_to = 0  # how far we last said that we have delivered
        self.stable = 0  # all up to here is stable, and no longer kept
        self.patience = PatientClock()
        self.cast_at = 0  # when we last cast anything; patient time
        self.sleeps = 0  # what our timer is set to; 0: it is not set yet
        self.is_asked = False  # somebody solicits a number that we are not at
        self.is_full = False  # the application takes no more: we say no further what we deliver
        self.departed: dict[NodeId, None] = {}  # who said that it leaves
        self.moves: dict[NodeId, tuple[str, int]] = {}  # who goes over to which formation, and when
        # What follows is of formations that came about by votes; see `found`.
        self.initiator: NodeId | None = None  # None: the group was there from the beginning
        self.starts: dict[NodeId, int] = {}  # whose stream has begun, with how many earlier events
        self.floor = 0  # nothing of this formation is numbered up to here
        self.has_state = True  # what all begin with is here
        self.has_begun = True  # and the application has it
        self.is_over = False  # who should have given it is gone
        self.contradictions = 0  # confirmations that nobody who follows the rules could send

    # --- bounds ------------------------------------------------------------------------------

    @property
    def live(self) -> tuple[NodeId, ...]:
        return self.views.live

    def received_by_all(self) -> int:
        """No live member, we included, will send anything numbered up to here."""
        clock = self.order.clock.value
        return min(clock, self.streams.received.stable_up_to(clock))

    def deliverable_up_to(self) -> int:  # paper: D_x,i
        return self.received_by_all()

    def bound(self) -> int:
        """Nothing new will come here at or below it, the state to begin with included."""
        up_to = self.deliverable_up_to()
        if not self.has_state and self.initiator in self.live:
            up_to = min(up_to, self.streams.up_to(self.initiator))
        return max(self.floor, up_to)

    def next_cut(self) -> int | None:
        return self.views.next_cut()

    def _delivered_up_to(self) -> int:
        """What we say that we have delivered: it holds others back while we are full."""
        if self.is_full:
            return self.told_up_to
        return min(self.received_by_all(), self.order.deliverable_up_to())

    # --- a formation begins -------------------------------------------------------------------

    def found(self, step: Step, formation: str, initiator: NodeId, counter: int) -> None:
        """This is a formation that all have voted for. We have cast so many events in others."""
        self.formation = self.views.formation = formation
        self.label = label_of(self.name, formation)
        self.initiator = initiator
        self.has_state = self.has_begun = False
        self.starts[self.me] = counter
        self._cast(step, Start(self.name, *self._head(), counter))
        self.floor = self.streams.last_order

    def give_state(self, step: Step, state: bytes | None) -> None:
        """All have started: this is what they begin with."""
        message = State(self.name, *self._head(), state)
        self._cast(step, message)
        self.has_state = True
        self.order.waiting.push(self.me, message)

    def begin(self, step: Step, message: State) -> None:
        """The state comes in its place of the order, and with it the first view."""
        if not self.has_begun:
            self.has_begun = True
            if self.initiator != self.me:
                step.give_state(self.name, message.state)
            step.install(self.views.current())

    def move(self, step: Step, to: str) -> None:
        """We go over to another formation: nothing of ours comes after this here."""
        self._cast(step, Move(self.name, *self._head(), to))

    def has_undelivered(self, of: tuple[NodeId, ...]) -> bool:
        """Whether anything that we have of these is not delivered yet."""
        return self.order.waiting.holds(self.label, of)

    def exclude_soon(self, peer: NodeId, cause: str) -> None:
        """It is to be excluded, whatever others say of it."""
        if peer in self.live:
            self.suspicions.forced.setdefault(peer, cause)

    # --- casting -----------------------------------------------------------------------------

    def submit(self, step: Step, payloads: Payloads, size: int) -> Event:
        data = self._cast_event(step, payloads, size)
        self.order.waiting.push(self.me, data)
        return self.event(data, data.order)

    def _cast_event(self, step: Step, payloads: Payloads, size: int) -> Data:
        number = self.window.counter + 1
        data = Data(self.name, *self._head(), self.me, number, payloads, size)
        self._cast(step, data)
        self.window.admit(data.order, size)
        return data

    def leave(self, step: Step) -> None:
        self._cast(step, Leave(self.name, *self._head()))

    def _head(self, solicits: int = 0) -> tuple[str, int, int, int, int]:
        """The formation, a fresh number, the one before it, how far we have delivered, and what
        we ask for."""
        order = self.order.clock.tick()
        self.told_up_to = max(self.told_up_to, self._delivered_up_to())
        return self.formation, order, self.streams.last_order, self.told_up_to, solicits

    def _cast(self, step: Step, message: Message, also_to: tuple[NodeId, ...] = ()) -> None:
        self.streams.append_own(message)
        to = self.live + also_to
        if to:
            step.send(to, message)
        self.cast_at, self.is_asked = self.patience.time, False

    def _cast_null(self, step: Step, solicits: int = 0) -> None:
        self._cast(step, Null(self.name, *self._head(solicits)))

    def number_of(self, message: Data | Turn) -> int:
        """What the event is known by: numbers go on over the formations of a life."""
        before = self.starts.get(message.origin, 0)
        return event_number(message.origin.incarnation, before + message.number)

    def event(self, data: Data, order: int | None) -> Event:
        number = self.number_of(data)
        return Event(
            self.name,
            data.origin,
            number,
            data.payloads,
            order=order,
            size=data.size,
            formation=self.formation,
        )
