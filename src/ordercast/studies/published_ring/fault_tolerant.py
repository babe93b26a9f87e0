"""Algorithms 2 to 4: tickets on a ring, with failures, as published. It can give a ticket to two.

Gidenstam, Koldehofe, Papatriantafilou, Tsigas: Scalable group communication supporting
configurable levels of consistency (2011), section 4.2. docs/tickets-published.md lists how each gap
was read, and the runs in which two processes own one ticket. Nothing is repaired here: this is for
the simulator, to be studied. leased.py is what a cluster should use.

Every coordinator, once a round (of its own, which began when it became one):
 1. Has it heard ALIVE in this round from k + 1 of those in L? If not, it stops being one.
 2. ALIVE goes to its 2k + 1 closest successors.
 3. UPDATE goes to its successor: the 2k closest of L, and itself. If that arrived, it is R; if not,
    the successor is excluded with probability p_exclude (exclusion.py).
 4. A temporary coordinator does not do 3, and gives no tickets: it counts rounds.

A Send of the paper waits for its status, so a process that waits begins no round and serves no
CJOIN. Everything else is taken as it comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from random import Random
from typing import Literal

from ordercast.errors import PeerError
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import STATUS, Step
from ordercast.protocol.tickets.interface import TicketNews, TicketPacket
from ordercast.studies.published_ring.exclusion import Exclusion
from ordercast.studies.published_ring.packets import (
    Ackcjoin,
    Ackcoord,
    Ackexclude,
    Alive,
    Ask,
    Cjoin,
    Exclude,
    Gone,
    Refused,
    Reject,
    Reqcoord,
    Ring,
    RingSeat,
    Update,
    View,
    tickets_in,
)
from ordercast.studies.published_ring.ring import (
    Cview,
    between,
    closest,
    coordinated,
    distance,
)
from ordercast.studies.published_ring.rules import PendingSend, RingRules, Sent
from ordercast.studies.published_ring.seeking import Seeking
from ordercast.types import NodeId

TICKS_A_ROUND = 40
MOST_WAITING = 64
"""CJOINs that wait while a status is awaited. What comes beyond is rejected."""
State = Literal["idle", "joining", "coordinator"]


class FaultTolerant:
    def __init__(
        self,
        me: NodeId,
        group: str,
        rules: RingRules,
        known: Callable[[], Sequence[str]],
        chance: Random,
        *,
        founder: bool = False,
        preferred: int | None = None,
        begins: int = 0,
    ) -> None:
        self.me = me
        self.group = group
        self.rules = rules.checked()
        self.period = max(1, rules.round // TICKS_A_ROUND)
        self.founder = founder  # begins with all tickets: one incarnation of one process
        self.wanted = False
        self.state: State = "idle"
        self.ticket: int | None = None
        self.epoch = 0
        self.base = 0  # no granting process knows of entries
        self.keeps_entries = False  # two owners take the same epoch, and so the same entries
        self.known_before: tuple[RingSeat, ...] = ()  # L: those whose ALIVE counts
        self.sent_next: tuple[RingSeat, ...] = ()  # R: what our successor has, as far as we know
        self.alive: dict[str, None] = {}  # processes that were heard in this round
        self.view = Cview(rules.tickets)
        self.successor: RingSeat | None = None  # ImmedSucc, with its ticket: ours ends before it
        self.temporary = 0  # TempRounds
        self.exclusion: Exclusion | None = None
        self._seeking = Seeking(
            me.name, group, rules.tickets, preferred, known, chance, rules.round // 8, begins
        )
        self._chance = chance
        self._waiting: PendingSend | None = None
        self._cjoins: deque[tuple[str, Cjoin]] = deque()
        self._serial = 0
        self._next_round = 0
        self._checked_from = 0  # when hearing too few begins to matter
        self._highest: dict[int, int] = {}  # epochs, by ticket
        self._frozen: dict[int, int] = {}  # by ticket: until when Cview does not take it up
        self._acquired = False
        self._lost: int | None = None
        self._counters = dict.fromkeys(
            "acquired granted rejected disconnected exclusions agreed".split(), 0
        )

    # --- inputs -------------------------------------------------------------------------------

    def start(self, step: Step) -> TicketNews:
        if self.founder:
            own = self._seeking.preferred or 0
            seat = RingSeat(own, self.me.name)
            self._become(step, own, 1, seat, (seat,), ())
        return self._news()

    def seek(self, step: Step, wanted: bool, sequence: int, clock: tuple[int, ...]) -> TicketNews:
        self.wanted = wanted
        if wanted and self.state == "idle":
            self.state = "joining"
            self._ask(step)
        elif not wanted and self.state != "idle":
            # Algorithms 2 to 4 have no cleave: a process that leaves is silent, and is excluded.
            self._stop(step)
        return self._news()

    def tick(self, step: Step, sequence: int) -> TicketNews:
        if self.state == "joining":
            if step.now >= self._seeking.again:
                self._ask(step)
        elif self.state == "coordinator":
            if self.exclusion is not None and self._waiting is None:
                self._look_at_exclusion(step, self.exclusion)
            if step.now >= self._next_round and not self._is_busy and self.ticket is not None:
                while self._next_round <= step.now:
                    self._next_round += self.rules.round
                self._round(step, self.ticket)
        elif self.wanted:
            self.state = "joining"
            self._ask(step)
        return self._news()

    def receive(self, step: Step, sender: NodeId, packet: TicketPacket) -> TicketNews:
        if any(ticket >= self.rules.tickets for ticket in tickets_in(packet)):
            raise PeerError(f"{sender} speaks of a ticket that does not exist")
        name = sender.name
        if isinstance(packet, Alive):
            self.alive[name] = None
        elif isinstance(packet, Update):
            self._on_update(step, name, packet)
        elif isinstance(packet, Ask):
            seats = self.view.seats() if self.state == "coordinator" else ()
            self._post(step, name, View(self.group, seats))
        elif isinstance(packet, View):
            if self.state == "joining" and (found := self._seeking.choose(step.now, name, packet)):
                self._post(step, *found, "seek")
        elif isinstance(packet, Cjoin):
            self._on_cjoin(step, name, packet)
        elif isinstance(packet, Ackcjoin):
            self._on_ackcjoin(step, name, packet)
        elif isinstance(packet, Reject):
            self._seeking.deny(step.now)
        else:
            self._receive_exclusion(step, name, packet)
        return self._news()

    def _receive_exclusion(self, step: Step, name: str, packet: Packet) -> None:
        exclusion = self.exclusion
        if isinstance(packet, Exclude):
            if self.ticket == packet.to:
                self._post(step, name, Ackexclude(self.group, self.known_before))
            else:
                self._post(step, name, Gone(self.group, "exclude"))
        elif isinstance(packet, Ackexclude):
            if exclusion is not None and exclusion.awaits(name):
                exclusion.known = packet.known
                if self._waiting is None:
                    self._look_at_exclusion(step, exclusion)
        elif isinstance(packet, Reqcoord):
            if self._agree(step, packet):
                self._post(step, name, Ackcoord(self.group))
        elif isinstance(packet, Ackcoord):
            if exclusion is not None:
                exclusion.agree(name)
        elif isinstance(packet, Gone):
            self._on_gone(step, name, packet.refused)
        else:
            raise PeerError(f"{name} sent {type(packet).__name__}, which this ring does not know")

    def acknowledged(self, step: Step, token: Hashable, arrived: bool) -> TicketNews:
        assert isinstance(token, Sent)
        if token.what == "seek" and not arrived and self.state == "joining":
            self._seeking.deny(step.now)
        if self._waiting is not None and self._waiting.sent == token:
            self._on_status(step, arrived)
        return self._news()

    def heard(self, step: Step, ticket: int, epoch: int, owner: NodeId | None) -> TicketNews:
        """PrCast: a process became a coordinator."""
        self._highest[ticket] = max(epoch, self._highest.get(ticket, 0))
        if (
            owner is not None
            and owner.name != self.me.name
            and ticket != self.ticket
            and step.now >= self._frozen.get(ticket, 0)
        ):
            self.view.put(ticket, owner.name)
        return self._news()

    def may_create(self, now: int) -> bool:
        return self.state == "coordinator"

    def valid_until(self) -> int | None:
        return None

    def retire(self, step: Step) -> None:
        return  # the ticket is released already

    def may_go(self) -> bool:
        return True

    def has_heirs(self, now: int) -> bool:
        return True  # the ring does not know who is there

    def counters(self) -> dict[str, int]:
        return dict(self._counters)

    # --- becoming a coordinator -----------------------------------------------------------------

    def _ask(self, step: Step) -> None:
        if found := self._seeking.ask(step.now, self.rules.round):
            self._post(step, *found, "seek")

    def _on_ackcjoin(self, step: Step, granter: str, packet: Ackcjoin) -> None:
        if self.state != "joining":
            self._post(step, granter, Gone(self.group, "ackcjoin"))
            return
        epoch = max(packet.epoch, self._highest.get(packet.ticket, 0) + 1)
        self._become(step, packet.ticket, epoch, packet.successor, packet.view, packet.known)

    def _become(
        self,
        step: Step,
        ticket: int,
        epoch: int,
        successor: RingSeat,
        view: tuple[RingSeat, ...],
        known: tuple[RingSeat, ...],
    ) -> None:
        self.state, self.ticket, self.epoch = "coordinator", ticket, epoch
        self._highest[ticket] = epoch
        self.view = Cview(self.rules.tickets, view)
        self.view.put(ticket, self.me.name)
        self.known_before, self.sent_next = self._without_us(known), ()
        self.successor, self.temporary, self.exclusion = successor, 0, None
        self.alive = {}
        self._next_round = step.now + self.rules.round
        self._checked_from = step.now + self.rules.grace * self.rules.round
        self._acquired = True
        self._count("acquired")
        self._say_alive(step, ticket)

    def _on_cjoin(self, step: Step, name: str, packet: Cjoin) -> None:
        if self._is_busy and len(self._cjoins) < MOST_WAITING:
            self._cjoins.append((name, packet))
        else:
            self._serve(step, name, packet)

    def _serve(self, step: Step, name: str, packet: Cjoin) -> None:
        own, successor = self.ticket, self.successor
        free: tuple[int, ...] = ()
        if own is not None and successor is not None and not self.temporary and not self._is_busy:
            free = coordinated(self.rules.tickets, own, successor.ticket)[1:]
        if not free:
            self._count("rejected")
            self._post(step, name, Reject(self.group))
            return
        assert own is not None and successor is not None
        ticket = packet.preferred if packet.preferred in free else self._chance.choice(free)
        assert ticket is not None
        self.view.put(ticket, name)
        self.successor = RingSeat(ticket, name)
        given = self._given(own)
        epoch = self._highest.get(ticket, 0) + 1
        view = self.view.seats()
        self._count("granted")
        answer = Ackcjoin(self.group, ticket, successor, view, epoch, given)
        self._send_and_wait(step, name, answer, "ackcjoin", given)

    def _serve_waiting(self, step: Step) -> None:
        while self._cjoins and not self._is_busy:
            self._serve(step, *self._cjoins.popleft())

    # --- rounds ---------------------------------------------------------------------------------

    def _round(self, step: Step, own: int) -> None:
        heard = sum(seat.name in self.alive for seat in self.known_before)
        self.alive = {}
        # Where fewer than k + 1 are known, all of them: or no ring could ever begin.
        needed = min(self.rules.k + 1, len(self.known_before))
        if step.now >= self._checked_from and heard < needed:
            self._disconnect(step)
            return
        self._say_alive(step, own)
        if self.temporary:
            self.temporary -= 1
            return
        successor = self.successor
        if successor is not None and successor.name != self.me.name:
            given = self._given(own)
            update = Update(self.group, successor.ticket, given)
            self._send_and_wait(step, successor.name, update, "update", given)

    def _say_alive(self, step: Step, own: int) -> None:
        names: dict[str, None] = {}
        for seat in self.view.successors(own):
            if seat.name != self.me.name and len(names) < 2 * self.rules.k + 1:
                names[seat.name] = None
        for name in names:
            self._post(step, name, Alive(self.group))

    def _given(self, own: int) -> tuple[RingSeat, ...]:
        """R: ourselves, and the 2k closest of those that we know before us."""
        before = closest(self.rules.tickets, own, self.known_before, 2 * self.rules.k)
        return (RingSeat(own, self.me.name), *before)

    def _on_update(self, step: Step, name: str, packet: Update) -> None:
        if self.ticket == packet.to:
            self.known_before = self._without_us(packet.known)
        else:
            self._post(step, name, Gone(self.group, "update"))

    def _without_us(self, known: tuple[RingSeat, ...]) -> tuple[RingSeat, ...]:
        """In a small core, those before us are also those behind us; no process hears itself."""
        return tuple(seat for seat in known if seat.name != self.me.name)

    # --- what became of a Send --------------------------------------------------------------------

    def _on_gone(self, step: Step, name: str, refused: Refused) -> None:
        """A process that is no coordinator counts as one that was not reached."""
        waiting = self._waiting
        if waiting is not None and waiting.to == name and waiting.sent.what == refused:
            self._on_status(step, False)
            return
        successor, exclusion = self.successor, self.exclusion
        if successor is None or successor.name != name:
            return
        if refused == "exclude" and exclusion is not None and not exclusion.asked:
            self._exclude_next(step, exclusion)
        elif refused != "exclude" and not self._is_busy and not self.temporary:
            self._suspect(step)

    def _on_status(self, step: Step, arrived: bool) -> None:
        assert self._waiting is not None
        waiting, self._waiting = self._waiting, None
        if waiting.sent.what == "exclude":
            assert self.exclusion is not None
            self.exclusion.reached = arrived
            if arrived:
                self.exclusion.until = step.now + 2 * self.rules.delay
                self._look_at_exclusion(step, self.exclusion)
            else:
                self._exclude_next(step, self.exclusion)
        elif arrived:
            self.sent_next = waiting.given
        else:
            self._suspect(step)
        self._serve_waiting(step)

    def _suspect(self, step: Step) -> None:
        """Our successor is weakly detected as faulty."""
        if self._chance.random() < self.rules.p_exclude and self.ticket is not None:
            exclusion = Exclusion(self.rules.tickets, self.ticket, self.rules.k + 1)
            self.exclusion = exclusion
            self._exclude_next(step, exclusion)

    # --- exclusion ----------------------------------------------------------------------------

    def _exclude_next(self, step: Step, exclusion: Exclusion) -> None:
        assert self.successor is not None
        seat = next(self.view.successors(self.successor.ticket), None)
        if seat is None or seat.name == self.me.name:
            self._disconnect(step)
            return
        self.successor = seat
        exclusion.turn_to(seat)
        ask = Exclude(self.group, seat.ticket)
        self._send_and_wait(step, seat.name, ask, "exclude", ())

    def _look_at_exclusion(self, step: Step, exclusion: Exclusion) -> None:
        """Goes on if it can, and ends it when time is over."""
        if exclusion.may_request:
            self._request(step, exclusion)
        elif step.now >= exclusion.until:
            if exclusion.asked and exclusion.succeeded:
                self._take_over(step, exclusion)
            else:
                self._disconnect(step)
            self._serve_waiting(step)

    def _request(self, step: Step, exclusion: Exclusion) -> None:
        successor = exclusion.successor
        assert successor is not None and self.ticket is not None
        exclusion.until = step.now + 2 * self.rules.delay
        taken = {seat.ticket for seat in self.view.seats()}
        exclusion.out = tuple(
            RingSeat(ticket, self.view.owner(ticket) or "")
            for ticket in exclusion.interval
            if ticket in taken
        )
        request = Reqcoord(self.group, self.ticket, successor.ticket)
        for name in exclusion.request(self.sent_next):
            if name != self.me.name:
                self._post(step, name, request)
            elif self._agree(step, request):
                exclusion.agree(name)

    def _agree(self, step: Step, request: Reqcoord) -> bool:
        """A process that is not concerned agrees, whatever its state, and whoever asks."""
        rules = self.rules
        interval = between(rules.tickets, request.after, request.before)
        if self.ticket is not None and self.ticket in interval:
            return False
        self._count("agreed")
        self.view.remove(interval)
        until = step.now + distance(rules.tickets, request.after, request.before) * rules.round
        for ticket in interval:
            self._frozen[ticket] = until
        return True

    def _take_over(self, step: Step, exclusion: Exclusion) -> None:
        assert self.ticket is not None and exclusion.successor is not None
        rounds = distance(self.rules.tickets, self.ticket, exclusion.successor.ticket) - 1
        self.temporary, self.exclusion = rounds + self.rules.more_rounds, None
        self._count("exclusions")
        for seat in exclusion.out:
            step.note("exclude", group=self.group, index=seat.ticket, peer=seat.name)

    # --- ends -----------------------------------------------------------------------------------

    def _disconnect(self, step: Step) -> None:
        """The others seem to take us for failed."""
        self._lost = self.ticket
        self._count("disconnected")
        self._stop(step)

    def _stop(self, step: Step) -> None:
        self.state, self.ticket, self.epoch = "idle", None, 0
        self.successor = self.exclusion = self._waiting = None
        self.temporary = 0
        while self._cjoins:
            self._post(step, self._cjoins.popleft()[0], Reject(self.group))

    # --- small things -----------------------------------------------------------------------------

    @property
    def _is_busy(self) -> bool:
        return self._waiting is not None or self.exclusion is not None

    def _post(
        self, step: Step, to: str, packet: Ring, what: Literal["seek", "ring"] = "ring"
    ) -> None:
        step.send(to, packet, STATUS, Sent(what, 0))

    def _send_and_wait(
        self,
        step: Step,
        to: str,
        packet: Ring,
        what: Refused,
        given: tuple[RingSeat, ...],
    ) -> None:
        self._serial += 1
        sent = Sent(what, self._serial)
        self._waiting = PendingSend(sent, to, given)
        step.send(to, packet, STATUS, sent)

    def _count(self, what: str) -> None:
        self._counters[what] += 1

    def _news(self) -> TicketNews:
        acquired, lost = self._acquired, self._lost
        self._acquired, self._lost = False, None
        return TicketNews(acquired, lost)
