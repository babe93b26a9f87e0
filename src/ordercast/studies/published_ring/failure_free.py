"""Algorithm 1: tickets on a ring, where nothing fails and no message is lost.

Gidenstam, Koldehofe, Papatriantafilou, Tsigas: Scalable group communication supporting
configurable levels of consistency (2011), section 4.1. Every coordinator owns a ticket and gives
away those between its own and its successor's.

  join   CJOIN → ACKCJOIN: the granter's successor is the newcomer at once. NEWSUCC → ACKSUCC: the
         newcomer notifies its successor, and is a coordinator when that has answered.
  leave  CLEAVE → ACKCLEAVE: the predecessor takes over, and notifies its new successor (NEWSUCC). A
         successor that leaves too answers CLEAVE to every NEWSUCC instead.

Rules.
 1. What is asked of a coordinator is served in the order in which it came, one at a time: while an
    ACKSUCC is awaited, only a CLEAVE of that very successor is.
 2. NEWSUCC may overtake the ACKCJOIN that makes its receiver a coordinator; then it waits.
 3. A coordinator that is alone stays: there is no process to leave its tickets to.
 4. Packets to one process arrive in the order in which they were sent: the next leaves when the
    status of the one before is there. Nothing is sent twice, as nothing is lost.

Two things in it are wrong even so: docs/tickets-published.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from random import Random
from typing import Literal, NamedTuple

from ordercast.errors import PeerError
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import STATUS, Step
from ordercast.protocol.tickets.interface import TicketNews, TicketPacket
from ordercast.studies.published_ring.packets import (
    Ackcjoin,
    Ackcleave,
    Acksucc,
    Ask,
    Cjoin,
    Cleave,
    Newsucc,
    Reject,
    Ring,
    RingSeat,
    View,
    tickets_in,
)
from ordercast.studies.published_ring.ring import Cview, coordinated
from ordercast.studies.published_ring.seeking import Seeking
from ordercast.types import NodeId

MOST_QUEUED = 4096
State = Literal["idle", "joining", "coordinator", "leaving"]
FOREVER = 1 << 62


class Letter(NamedTuple):
    """The token of a packet that is underway."""

    to: str


class FailureFree:
    def __init__(
        self,
        me: NodeId,
        group: str,
        tickets: int,
        period: int,
        known: Callable[[], Sequence[str]],
        chance: Random,
        *,
        founder: bool = False,
        preferred: int | None = None,
        begins: int = 0,
    ) -> None:
        assert tickets >= 1 and period >= 1
        self.me = me
        self.group = group
        self.tickets = tickets
        self.period = period
        self.founder = founder
        self.wanted = False
        self.state: State = "idle"
        self.ticket: int | None = None
        self.epoch = 0
        self.base = 0  # no granting process knows of entries
        self.keeps_entries = False  # two owners take the same epoch, and so the same entries
        self.view = Cview(tickets)
        self.successor: RingSeat | None = None  # ImmedSucc
        self.predecessor: str | None = None  # ImmedPred
        self.awaited: RingSeat | None = None  # whose ACKSUCC is to come
        self._performs = False  # an ACKSUCC has made us a coordinator in full
        self._asked_to_join = False  # a CJOIN is on its way, or its answer is
        self._seeking = Seeking(me.name, group, tickets, preferred, known, chance, period, begins)
        self._chance = chance
        self._requests: deque[tuple[str, Cjoin | Cleave]] = deque()
        self._early: deque[tuple[str, Newsucc]] = deque()  # rule 2
        self._to_ourselves: deque[Ring] = deque()
        self._letters: dict[str, deque[Ring]] = {}  # the first of each is on its way
        self._highest: dict[int, int] = {}  # epochs, by ticket
        self._acquired = False
        self._counters = dict.fromkeys("acquired granted rejected served released".split(), 0)

    # --- inputs -------------------------------------------------------------------------------

    def start(self, step: Step) -> TicketNews:
        if self.founder:
            own = RingSeat(self._seeking.preferred or 0, self.me.name)
            self.state, self.ticket, self.epoch = "coordinator", own.ticket, 1
            self.view.put(own.ticket, own.name)
            self.successor, self.predecessor = own, own.name
            self.wanted = True
            self._perform()
        return self._news()

    def seek(self, step: Step, wanted: bool, sequence: int, clock: tuple[int, ...]) -> TicketNews:
        was_wanted, self.wanted = self.wanted, wanted
        if wanted and self.state == "idle":
            self.state = "joining"
            self._ask(step)
        elif wanted and not was_wanted and self.state == "coordinator" and self._performs:
            self._begin_anew()  # before we came to leave
        elif not wanted and self.state == "joining" and not self._asked_to_join:
            self.state = "idle"
        self._go_on(step)
        return self._news()

    def tick(self, step: Step, sequence: int) -> TicketNews:
        if self.state == "joining" and not self._asked_to_join and step.now >= self._seeking.again:
            self._ask(step)
        self._go_on(step)
        return self._news()

    def receive(self, step: Step, sender: NodeId, packet: TicketPacket) -> TicketNews:
        if any(ticket >= self.tickets for ticket in tickets_in(packet)):
            raise PeerError(f"{sender} speaks of a ticket that does not exist")
        self._receive(step, sender.name, packet)
        self._go_on(step)
        return self._news()

    def acknowledged(self, step: Step, token: Hashable, arrived: bool) -> TicketNews:
        """Not OK says nothing here: nothing is lost, so it did or will arrive."""
        assert isinstance(token, Letter)
        letters = self._letters[token.to]
        letters.popleft()
        if letters:
            step.send(token.to, letters[0], STATUS, token)
        return self._news()

    def heard(self, step: Step, ticket: int, epoch: int, owner: NodeId | None) -> TicketNews:
        self._highest[ticket] = max(epoch, self._highest.get(ticket, 0))
        if owner is not None and owner.name != self.me.name and ticket != self.ticket:
            self.view.put(ticket, owner.name)
        return self._news()

    def may_create(self, now: int) -> bool:
        """A process that wants to leave may share its ticket from now on."""
        return self._performs and self.wanted and self.state == "coordinator"

    def valid_until(self) -> int | None:
        return None

    def retire(self, step: Step) -> None:
        return  # the ticket is released already

    def may_go(self) -> bool:
        """The last coordinator has no process to leave its tickets to."""
        return self.state == "idle" or self._is_alone

    def has_heirs(self, now: int) -> bool:
        return True  # the ring does not know who is there

    def counters(self) -> dict[str, int]:
        return dict(self._counters)

    # --- packets ------------------------------------------------------------------------------

    def _receive(self, step: Step, name: str, packet: Packet) -> None:
        if isinstance(packet, Ask):
            seats = self.view.seats() if self.state == "coordinator" else ()
            self._post(step, name, View(self.group, seats))
        elif isinstance(packet, View):
            wanting = self.state == "joining" and not self._asked_to_join
            if wanting and (found := self._seeking.choose(step.now, name, packet)):
                self._asked_to_join = True
                self._post(step, *found)
        elif isinstance(packet, Cjoin):
            self._on_cjoin(step, name, packet)
        elif isinstance(packet, Ackcjoin):
            self._on_ackcjoin(step, name, packet)
        elif isinstance(packet, Reject):
            self._asked_to_join = False
            self._seeking.deny(step.now)
            if not self.wanted:
                self.state = "idle"
        elif isinstance(packet, Newsucc):
            self._on_newsucc(step, name, packet)
        elif isinstance(packet, Acksucc):
            self._on_acksucc(name)
        elif isinstance(packet, Cleave):
            self._on_cleave(step, name, packet)
        elif isinstance(packet, Ackcleave):
            self._on_ackcleave()
        else:
            raise PeerError(f"{name} sent {type(packet).__name__}, which this ring does not know")

    # --- joining ------------------------------------------------------------------------------

    def _ask(self, step: Step) -> None:
        if found := self._seeking.ask(step.now, FOREVER):
            self._post(step, *found)

    def _on_ackcjoin(self, step: Step, granter: str, packet: Ackcjoin) -> None:
        if self.state != "joining" or not self._asked_to_join:
            raise PeerError(f"{granter} gives a ticket that we did not ask for")
        self._asked_to_join = False
        self.state, self.ticket = "coordinator", packet.ticket
        self.epoch = max(packet.epoch, self._highest.get(packet.ticket, 0) + 1)
        self._highest[packet.ticket] = self.epoch
        self.view = Cview(self.tickets, packet.view)
        self.view.put(packet.ticket, self.me.name)
        self.predecessor = granter
        self._performs = False
        self._turn_to(step, packet.successor)
        while self._early:
            self._on_newsucc(step, *self._early.popleft())

    def _turn_to(self, step: Step, successor: RingSeat) -> None:
        assert self.ticket is not None
        self.successor = self.awaited = successor
        self._post(step, successor.name, Newsucc(self.group, self.ticket))

    def _on_newsucc(self, step: Step, name: str, packet: Newsucc) -> None:
        if self.state == "joining":
            _refuse_a_flood(name, len(self._early))
            self._early.append((name, packet))
        elif self.state == "leaving":
            assert self.successor is not None
            self._post(step, name, Cleave(self.group, self.successor))
        elif self.state == "coordinator":
            self._post(step, name, Acksucc(self.group))
            self.predecessor = name

    def _on_acksucc(self, name: str) -> None:
        if self.awaited is not None and self.awaited.name == name:
            self.awaited = None
            if not self._performs:
                self._perform()

    def _perform(self) -> None:
        assert self.ticket is not None
        self._performs = True
        self._highest[self.ticket] = self.epoch
        if self.wanted:
            self._acquired = True
            self._counters["acquired"] += 1

    def _begin_anew(self) -> None:
        """We wanted to leave, and want no longer: a lease of its own."""
        self.epoch += 1
        self._perform()

    # --- serving --------------------------------------------------------------------------------

    def _on_cjoin(self, step: Step, name: str, packet: Cjoin) -> None:
        if self.state != "coordinator" or len(self._requests) >= MOST_QUEUED:
            self._counters["rejected"] += 1
            self._post(step, name, Reject(self.group))
        else:
            self._requests.append((name, packet))

    def _on_cleave(self, step: Step, name: str, packet: Cleave) -> None:
        if self.state == "coordinator":
            if self.awaited is not None and self.awaited.name == name:
                self._serve_cleave(step, name, packet)
            else:
                _refuse_a_flood(name, len(self._requests))
                self._requests.append((name, packet))

    def _go_on(self, step: Step) -> None:
        """Serves what waits, then leaves if that is wanted."""
        while True:
            if self._to_ourselves:
                self._receive(step, self.me.name, self._to_ourselves.popleft())
            elif self.state != "coordinator" or self.awaited is not None:
                return
            elif self._requests:
                name, packet = self._requests.popleft()
                if isinstance(packet, Cjoin):
                    self._serve_cjoin(step, name, packet)
                else:
                    self._serve_cleave(step, name, packet)
            else:
                if not self.wanted and not self._is_alone:
                    self._leave(step)
                return

    def _serve_cjoin(self, step: Step, name: str, packet: Cjoin) -> None:
        assert self.ticket is not None and self.successor is not None
        free = coordinated(self.tickets, self.ticket, self.successor.ticket)[1:]
        if not free:
            self._counters["rejected"] += 1
            self._post(step, name, Reject(self.group))
            return
        ticket = packet.preferred if packet.preferred in free else self._chance.choice(free)
        assert ticket is not None
        self.view.put(ticket, name)
        epoch = self._highest.get(ticket, 0) + 1
        self._counters["granted"] += 1
        answer = Ackcjoin(self.group, ticket, self.successor, self.view.seats(), epoch)
        self.successor = RingSeat(ticket, name)
        self._post(step, name, answer)

    def _serve_cleave(self, step: Step, name: str, packet: Cleave) -> None:
        """Only our successor's: from anybody else it is not answered at all."""
        if self.successor is None or self.successor.name != name:
            return
        self._counters["served"] += 1
        self.view.remove((self.successor.ticket,))
        self._post(step, name, Ackcleave(self.group))
        self._turn_to(step, packet.successor)

    # --- leaving --------------------------------------------------------------------------------

    @property
    def _is_alone(self) -> bool:
        return self.successor is not None and self.successor.name == self.me.name

    def _leave(self, step: Step) -> None:
        assert self.successor is not None and self.predecessor is not None
        self.state = "leaving"
        self._post(step, self.predecessor, Cleave(self.group, self.successor))

    def _on_ackcleave(self) -> None:
        if self.state == "leaving":
            self._counters["released"] += 1
            self.ticket, self.epoch, self._performs = None, 0, False
            self.successor = self.predecessor = None
            self.state = "joining" if self.wanted else "idle"
            self._seeking.again = 0

    # --- small things -----------------------------------------------------------------------------

    def _post(self, step: Step, to: str, packet: Ring) -> None:
        if to == self.me.name:
            self._to_ourselves.append(packet)
            return
        letters = self._letters.setdefault(to, deque())
        assert len(letters) < MOST_QUEUED, f"{to} never answers, where nothing fails"
        letters.append(packet)
        if len(letters) == 1:
            step.send(to, packet, STATUS, Letter(to))

    def _news(self) -> TicketNews:
        acquired, self._acquired = self._acquired, False
        return TicketNews(acquired)


def _refuse_a_flood(name: str, waiting: int) -> None:
    """In a ring no process waits in such a queue twice, and no ring is so large."""
    if waiting >= MOST_QUEUED:
        raise PeerError(f"{name} sends more than a coordinator can serve")
