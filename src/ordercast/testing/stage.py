"""A stage: a few members of one family, and a network that moves only when a test says so.

    stage = Stage.of("fifo", "n1 n2 n3", window=2)
    stage.settle(ticks=2)
    stage.submit("n1", [b"hello"])
    stage.deliver(stage.underway("n1", "n2")[0])

Every packet that a step sent waits here until the test delivers, drops or doubles it; timers run
out when the test says so, and time moves with them. Members are driven by the kernel's own host.

The stage keeps the promises of the three channels, so that whatever a test makes it do could
have happened:

  datagram  may be dropped, doubled, and delivered in any order
  link      is delivered in order and loses nothing, until an end dies; what a dead sender left
            underway may still arrive, up to any point
  status    if it is dropped, the sender's status result is "not OK"; if it is delivered, it is OK,
            unless the answer is lost on the way back

What a member wants to read of its log is read when the test says so (`read`), or the stage settles.
While a path is cut nothing on it arrives: what was underway waits, new datagrams are lost.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple, Self

from ordercast.errors import UsageError, unknown_word
from ordercast.kernel.family import Family, FoundingRule, Plan
from ordercast.kernel.inputs import (
    Acquainted,
    Backpressure,
    Form,
    Input,
    Join,
    Seek,
    StateProvided,
    Vote,
)
from ordercast.kernel.log import Reference
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.kernel.seat import Seat
from ordercast.kernel.step import (
    DATAGRAM,
    Address,
    Channel,
    Note,
    Step,
    Timer,
)
from ordercast.kernel.wording import GROUP
from ordercast.protocol.families import FAMILIES
from ordercast.scenario import chance
from ordercast.scenario.file import options_for
from ordercast.testing.actor import Actor, Logged, Received
from ordercast.types import Event, Invitation, NodeId, Payloads, StateWanted

MOST_DELIVERIES = 100_000
"""A stage that is not at rest after so many packets never will be."""


class StageError(UsageError):
    """The test asked for what cannot happen here, such as delivering a packet that was not sent."""


class InFlight(NamedTuple):
    """One packet underway to one receiver."""

    number: int  # in the order of posting, over the whole stage
    sender: NodeId
    to: Address
    packet: Packet
    channel: Channel
    token: Hashable

    @property
    def target(self) -> str:
        return self.to if isinstance(self.to, str) else self.to.name

    @property
    def path(self) -> tuple[str, str]:
        return self.sender.name, self.target


class Stage:
    def __init__(self, family: Family, plans: Sequence[Plan], seed: int = 0) -> None:
        self.family = family
        self.plans = tuple(plans)
        self.seed = seed
        self.now = 0  # nanoseconds, the same for everybody
        self.log: list[tuple[NodeId, Logged]] = []
        self.cuts: dict[tuple[str, str], None] = {}  # one-way paths
        self.actors = {name: Actor(name, self) for plan in plans for name in plan.members}
        self._identities = 0  # of logs that began
        self._underway: dict[int, InFlight] = {}  # by number, so oldest first
        self._posted = 0

    @classmethod
    def of(
        cls,
        family: str | Family,
        names: str,
        seed: int = 0,
        formed: bool = True,
        beside: Sequence[tuple[Family, str]] = (),
        **options: object,
    ) -> Self:
        """A started stage with one group. Options as in a scenario file, durations as text.

        Groups `beside` it, of families that share its machines, are called h, i and so on.
        """
        known = FAMILIES[family] if isinstance(family, str) else family
        groups = [(known, names), *beside]
        plans = [
            Plan(chr(ord(GROUP) + at), tuple(sorted(who.split())), options_for(of, options), formed)
            for at, (of, who) in enumerate(groups)
        ]
        stage = cls(known, plans, seed)
        stage.start()
        return stage

    @classmethod
    def open(
        cls, family: str | Family, entries: Mapping[str, FoundingRule], **options: object
    ) -> Self:
        """A stage with an open group, which each of these may enter in its own way. None has."""
        known = FAMILIES[family] if isinstance(family, str) else family
        given = options_for(known, options)
        return cls(
            known, [Plan(GROUP, (name,), given, False, entry) for name, entry in entries.items()]
        )

    # --- start and stop ----------------------------------------------------------------------

    def enter(self, name: str, *known: str) -> None:
        """Starts a process that knows these nodes, which may be in its open group."""
        self.start(name)
        if known:
            self.give(name, Acquainted(GROUP, known))

    def start(self, name: str | None = None) -> None:
        """Starts a new incarnation of one process, or of everybody."""
        if name is None:
            for each in self.actors:
                self.start(each)
            return
        actor = self._actor(name)
        if actor.alive:
            raise StageError(f"{actor.node} is already there")
        actor.start()

    def build(self, node: NodeId, records: Sequence[Packet]) -> list[Machine]:
        """The machines of a new incarnation."""
        plans = tuple(plan for plan in self.plans if node.name in plan.members)
        draw = chance.stream(self.seed, "member", self.family.name, node)
        return self.family.build(node, plans, draw, records)

    def logged_groups(self, name: str) -> list[str]:
        """The groups of this process that have a log."""
        if not self.family.logged:
            return []
        return [plan.group for plan in self.plans if name in plan.members]

    def new_identity(self) -> int:
        self._identities += 1
        return self._identities

    def lose_disk(self, name: str) -> None:
        """The folder of a process that is down is lost."""
        actor = self._actor(name)
        if actor.alive:
            raise StageError(f"{actor.node} is there: crash it first")
        actor.disk.erase()

    def rot(self, name: str, share: float, group: str = GROUP) -> None:
        """The entry at this share of a log cannot be read any more."""
        log = self._actor(name).disk.logs.get(group)
        if log is None:
            raise StageError(f"{name} has no log of group {group!r}")
        log.spoil(share)

    def crash(self, name: str) -> None:
        """Ends an incarnation. What it left underway stays; what was on a link to it is gone."""
        actor = self._living(name)
        actor.crash()
        for message in list(self._underway.values()):
            if message.to == actor.node:
                self._take(message)

    def cut(self, source: str, target: str, *, one_way: bool = False) -> None:
        """Cuts the path between two processes, in both directions or from source to target."""
        self.cuts.update(dict.fromkeys(self._paths(source, target, one_way)))

    def mend(self, source: str, target: str, *, one_way: bool = False) -> None:
        for path in self._paths(source, target, one_way):
            self.cuts.pop(path, None)

    # --- inputs ------------------------------------------------------------------------------

    def accepts(self, name: str, group: str = GROUP) -> bool:
        return self.machine(name, group).accepts(group, self.now)

    def submit(
        self, name: str, payloads: Payloads, group: str = GROUP, service: str = ""
    ) -> Event | None:
        """Submits one batch, by the group's own service or another one of its family. None: the
        member does not accept one now."""
        if service and service not in self.family.services:
            name, known = self.family.name, self.family.services
            what = unknown_word(f"service of {name}", service, known)
            raise StageError(what if known else f"{name} has no services")
        if not self.accepts(name, group):
            return None
        size = sum(map(len, payloads))
        return self.actors[name].host.submit(group, payloads, size, self.now, service)

    def reply(self, name: str, to: Event, payloads: Payloads, group: str = GROUP) -> Event | None:
        """Submits one batch that replies to an event. None: the member does not accept one now."""
        if not self.family.replies:
            raise StageError(f"messages of {self.family.name} reply to nothing")
        if not self.accepts(name, group):
            return None
        size, reply = sum(map(len, payloads)), Reference(to.origin.name, to.birth, to.number)
        return self.actors[name].host.submit(group, payloads, size, self.now, "", reply)

    def give(self, name: str, given: Input, group: str = GROUP) -> None:
        """Any other input, such as what the application of a member wants."""
        seat = self._seat(name, group)
        if not self.actors[name].host.give(seat, given, self.now):
            raise StageError(f"members of group {group!r} take no {type(given).__name__}")

    def leave(self, name: str, group: str = GROUP) -> None:
        """The application of a member leaves the group."""
        self._seat(name, group)
        self.actors[name].host.leave(group, self.now)

    def rejoin(self, name: str, group: str = GROUP) -> None:
        """A member that left joins again in the same incarnation, with the machine that it had."""
        machine = self.machine(name, group)
        self.leave(name, group)
        host = self.actors[name].host
        host.start(host.seat(machine), self.now)

    def act(self, name: str, act: Callable[[Step], None], group: str = GROUP) -> None:
        """Makes a member do something, in a step that takes effect like any other."""
        self._living(name).host.act(self._seat(name, group), act, self.now)

    def join(self, name: str, plan: Plan) -> None:
        """A member whose machine serves many groups joins one more, or one again."""
        host = self._living(name).host
        (seat,) = [seat for seat in host.seated if Join in seat.takes]
        host.join(seat, plan, self.now)

    def throttle(self, name: str, full: bool, group: str = GROUP) -> None:
        """The application of a member cannot take more, or can again."""
        self.give(name, Backpressure(group, full), group)

    def seek(self, name: str, wanted: bool, group: str = GROUP) -> None:
        """The application of a member wants to send, or no longer does: that takes a permit."""
        self.give(name, Seek(group, wanted), group)

    def form(self, name: str, members: tuple[str, ...] | None = None, group: str = GROUP) -> None:
        """The application of a member wants the group re-formed."""
        self.give(name, Form(group, members), group)

    def answer(self, name: str, yes: bool, group: str = GROUP) -> None:
        """The application of a member votes on the invitation that it heard of last."""
        node = self._living(name).node
        heard = [what for who, what in self.log if who == node]
        invited = [what for what in heard if isinstance(what, Invitation) and what.group == group]
        if not invited:
            raise StageError(f"{name} was not invited")
        self.give(name, Vote(group, invited[-1].formation, yes), group)

    def provide(self, name: str, state: bytes | None, group: str = GROUP) -> None:
        """The application answers the oldest question for its state that it has not answered."""
        actor = self._living(name)
        asked = [what for who, what in self.log if who == actor.node]
        wanted = [what for what in asked if isinstance(what, StateWanted)]
        if len(wanted) <= actor.answered:
            raise StageError(f"{name} was not asked for its state")
        token = wanted[actor.answered].token
        actor.answered += 1
        self.give(name, StateProvided(group, token, state), group)

    def deliver(self, message: InFlight, *, answered: bool = True) -> None:
        """One message arrives. PeerError: the receiver found fault with it, and did nothing.

        A status whose answer gets lost arrives without being `answered`.
        """
        if message.number not in self._underway:
            raise StageError(f"message {message.number} is not underway")
        if message.path in self.cuts:
            raise StageError(f"the path from {message.sender.name} to {message.target} is cut")
        first = self._rest_of_link(message)[0]
        if first != message:
            raise StageError(f"a link is FIFO: message {first.number} comes first")
        self._take(message)
        actor = self.actors.get(message.target)  # who bears a name that was told may be nobody
        there = actor is not None and (actor.alive and message.to in (actor.node, actor.node.name))
        try:
            if there:
                self.inject(message.sender, message.target, message.packet, message.channel)
        finally:
            if message.channel.answered:
                back = (message.target, message.sender.name) not in self.cuts
                self._report_status(message, there and answered and back)

    def inject(
        self, sender: NodeId, target: str, packet: Packet, channel: Channel = DATAGRAM
    ) -> None:
        """A packet arrives that need not have been sent by anybody here."""
        actor = self._living(target)
        self.log.append((actor.node, Received(sender, packet, channel)))
        actor.host.receive(sender, packet, self.now)

    def drop(self, message: InFlight) -> None:
        """One message never arrives. On the link of a dead sender, nor does what is behind it."""
        if message.channel.in_order:
            if self._is_alive(message.sender):
                raise StageError("a link loses nothing while both ends live: cut it, or crash one")
            for behind in self._rest_of_link(message):
                if behind.number >= message.number:
                    self._take(behind)
            return
        self._take(message)
        if message.channel.answered:
            self._report_status(message, False)

    def double(self, message: InFlight) -> InFlight:
        """A second copy of a datagram, behind everything else."""
        if not message.channel.fleeting:
            raise StageError(f"a {message.channel.value} is never doubled: only datagrams are")
        self._posted += 1
        copy = self._underway[self._posted] = message._replace(number=self._posted)
        return copy

    def fire(self, name: str, timer: Timer = None) -> Timer:
        """A timer of this member runs out: the one named, or the next that is due."""
        actor = self._living(name)
        due = [each for each in actor.timers() if timer is None or each[2] == timer]
        if not due:
            what = "no timer" if timer is None else f"no timer {timer!r}"
            raise StageError(f"{actor.node} has {what} set")
        at, seat, fired, setting = due[0]
        self.now = max(self.now, at)
        actor.host.expire(seat, fired, setting, self.now)
        return fired

    def read(self, name: str) -> None:
        """The oldest read of this member's log comes back."""
        actor = self._living(name)
        if not actor.reads:
            raise StageError(f"{actor.node} reads nothing")
        actor.answer_read()

    def settle(self, ticks: int = 0) -> None:
        """Delivers everything that can arrive, oldest first. Then so many rounds, each of which
        fires every member's next timer and delivers everything again."""
        self._deliver_everything()
        for _ in range(ticks):
            for name, actor in self.actors.items():
                if actor.alive and actor.timers():
                    self.fire(name)
            self._deliver_everything()

    # --- looking -----------------------------------------------------------------------------

    def machine(self, name: str, group: str = GROUP) -> Machine:
        return self._seat(name, group).machine

    def _seat(self, name: str, group: str) -> Seat:
        seat = self._living(name).host.seats.get(group)
        if seat is None:
            raise StageError(f"{name} is not in group {group!r}")
        return seat

    def timers(self, name: str) -> list[Timer]:
        """The timers that are set, the next that is due first."""
        return [timer for _, _, timer, _ in self._living(name).timers()]

    def node(self, name: str) -> NodeId:
        return self._actor(name).node

    def underway(self, source: str | None = None, target: str | None = None) -> list[InFlight]:
        """What waits on a path, from a process, to one, or anywhere: oldest first."""
        for name in (source, target):
            if name is not None:
                self._actor(name)
        return [
            message
            for message in self._underway.values()
            if source in (None, message.sender.name) and target in (None, message.target)
        ]

    def deliveries(self, node: NodeId) -> list[Event]:
        """What one incarnation's application heard, in order."""
        return [what for who, what in self.log if who == node and isinstance(what, Event)]

    def notes(self, node: NodeId, kind: str) -> list[Note]:
        return [
            what
            for who, what in self.log
            if who == node and isinstance(what, Note) and what.kind == kind
        ]

    # --- effects -----------------------------------------------------------------------------

    def post(
        self, sender: NodeId, to: Address, packet: Packet, channel: Channel, token: Hashable
    ) -> None:
        assert not channel.in_order or isinstance(to, NodeId), (
            "a link joins two incarnations, not names"
        )
        self._posted += 1
        message = InFlight(self._posted, sender, to, packet, channel, token)
        lost = channel.fleeting and message.path in self.cuts
        lost = lost or message.target not in self.actors  # a name that somebody made up
        if isinstance(to, NodeId) and not channel.answered:
            lost = lost or not self._is_alive(to)
        if not lost:
            self._underway[message.number] = message

    def _take(self, message: InFlight) -> None:
        if self._underway.pop(message.number, None) is None:
            raise StageError(f"message {message.number} is not underway")

    def _report_status(self, message: InFlight, arrived: bool) -> None:
        host = self.actors[message.sender.name].host
        seat = host.seats.get(message.packet.group) if self._is_alive(message.sender) else None
        if seat is not None:  # otherwise the sender has left the group
            host.status(seat, message.token, arrived, self.now)

    def _deliver_everything(self) -> None:
        for _ in range(MOST_DELIVERIES):
            messages = self._underway.values()
            message = next((each for each in messages if each.path not in self.cuts), None)
            if message is not None:
                self.deliver(message)
                continue
            reader = next((one for one in self.actors.values() if one.alive and one.reads), None)
            if reader is not None:
                reader.answer_read()
                continue
            # A status is answered within a bound, cut or not.
            message = next((each for each in messages if each.channel.answered), None)
            if message is None:
                return
            self.drop(message)
        raise StageError(f"not at rest after {MOST_DELIVERIES} packets")

    # --- who and where -----------------------------------------------------------------------

    def _rest_of_link(self, message: InFlight) -> list[InFlight]:
        """All that is underway on the link of this message, or the message alone."""
        if not message.channel.in_order:
            return [message]
        return [
            each
            for each in self._underway.values()
            if each.channel.in_order and each.sender == message.sender and each.to == message.to
        ]

    def _actor(self, name: str) -> Actor:
        actor = self.actors.get(name)
        if actor is None:
            raise StageError(f"there is no process {name!r}: they are {', '.join(self.actors)}")
        return actor

    def _living(self, name: str) -> Actor:
        actor = self._actor(name)
        if not actor.alive:
            raise StageError(f"{name} is down")
        return actor

    def _is_alive(self, node: NodeId) -> bool:
        actor = self._actor(node.name)
        return actor.alive and actor.node == node

    def _paths(self, source: str, target: str, one_way: bool) -> list[tuple[str, str]]:
        paths = [(self._actor(source).node.name, self._actor(target).node.name)]
        return paths if one_way else [*paths, (target, source)]
