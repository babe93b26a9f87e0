"""A member of a gossip group: rounds, whom they go to, and what fits into a message.

Rules.
 1. Once a round, what is to be spread goes to `fan_out` members that the sampler chooses. With
    `eager` an own event leaves for the first time at once.
 2. A member makes at most so many events a round as a message holds: more would only drive the
    older ones out. Then its application waits.
 3. A packet too long for a datagram goes by status, and so does every one where that is set: to
    members of the active set (active_set.py), for it needs connections.
 4. A member whose application cannot take more gives up what comes meanwhile, and reports it: a
    slow consumer of gossip slows no other.

Plain gossip (the family `gossip`) promises that nothing is made up and nothing comes twice: what
the history has forgotten `SeenRumours` still knows.

What it does not do: order anything, ask for what was missed, or know which member has what.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from random import Random
from typing import Generic, TypeVar

from ordercast.errors import PeerError, UsageError
from ordercast.kernel import inputs
from ordercast.kernel.family import Plan, machine_per_group
from ordercast.kernel.inputs import Input
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import DATAGRAM, STATUS, Channel, Step, Timer
from ordercast.protocol.cluster.active_set import ActiveSet
from ordercast.protocol.cluster.advice import doubts
from ordercast.protocol.cluster.cyclon import Cyclon
from ordercast.protocol.cluster.gossip import News, SeenRumours, Spreading
from ordercast.protocol.cluster.lpbcast import Lpbcast
from ordercast.protocol.cluster.options import CausalOptions, GossipOptions
from ordercast.protocol.cluster.packets import Gossip, Membership, Rumour, Update
from ordercast.protocol.cluster.presence import Presence
from ordercast.protocol.cluster.sampler import Everybody, Letter, Roster, Sampler
from ordercast.types import Event, Joined, Left, NodeId, Payloads, event_number
from ordercast.units import SECOND

ROUND = "round"
DATAGRAM_ROOM = 48_000
"""Bytes of events in one datagram, by our estimate, which is on the safe side."""
STATUS_ROOM = 4 << 20
SILENT_VIEWS = 3
"""A member that is not heard of for so many rounds as three views have members may be gone."""
CONTACTS = 5
"""Members that a partial view begins with."""

E = TypeVar("E", Rumour, Update)


class Spreader(Generic[E]):
    """What gossip and causal clusters have in common."""

    takes: Collection[type[Input]] = (
        inputs.StatusResult,
        inputs.Backpressure,
        inputs.Acquainted,
        inputs.Leave,
    )

    def __init__(self, me: NodeId, plan: Plan, chance: Random) -> None:
        assert isinstance(plan.options, GossipOptions)
        self.me = me
        self.group = plan.group
        self.groups: tuple[str, ...] = (plan.group,)
        self.settings = plan.options
        self.is_open = plan.entry is not None
        self.sampler = sampler_for(me, plan, chance)
        most = max(plan.options.links, plan.options.fan_out)
        self.active_set = ActiveSet(self.sampler, most, chance)
        # Where every member knows all others, none tells who is there.
        self.presence: Presence | None = None
        self._is_in = False  # and its application is notified who else is
        self.spreading: Spreading[E] = Spreading(
            plan.options.hops,
            plan.options.events_per_message,
            plan.options.history,
            chance,
            keep_oldest=plan.options.keep == "oldest",
        )
        self.made = 0  # own events of this incarnation
        self.made_this_round = 0
        self.bytes_this_round = 0
        self.full = False  # the application cannot take more
        self.lost = 0
        self.first_round = chance.randrange(1, plan.options.round + 1)  # members out of step

    # --- inputs ------------------------------------------------------------------------------

    def start(self, step: Step) -> None:
        self.full = self._is_in = False
        if not isinstance(self.sampler, Everybody):
            self.presence = Presence(self.me, self.group, SILENT_VIEWS * self.settings.view_size)
        self._post(step, self.sampler.start())
        step.set_timer(ROUND, self.first_round)

    def accepts(self, group: str, now: int) -> bool:
        return self._has_room()

    def _has_room(self) -> bool:
        return (
            self.made_this_round < self.settings.events_per_message
            and self.bytes_this_round < self.settings.window_size
        )

    def stable_up_to(self, group: str) -> int:
        return 0  # no member knows what others have

    def expire(self, step: Step, timer: Timer) -> None:
        assert timer == ROUND
        self.made_this_round = self.spreading.unsent
        self.bytes_this_round = 0
        self._post(step, self.sampler.round())
        self.active_set.round()
        if self.presence is not None:
            self._tell(step, self.presence.round())
        self._spread(step, self.spreading.round())
        step.set_timer(ROUND, self.settings.round)

    def on(self, step: Step, given: Input) -> None:
        match given:
            case inputs.StatusResult(token, arrived):
                if not arrived:
                    self.sampler.failed(str(token))
                    self.active_set.failed(str(token))
            case inputs.Backpressure(full=full):
                self.full = full
            case inputs.Acquainted(names=names):
                if self.is_open:
                    self._post(step, self.sampler.acquainted(names))
            case inputs.Leave():
                self._spread(step, self.spreading.round())
                self._post(step, self.sampler.leave())

    def counters(self, group: str) -> dict[str, int]:
        return {
            "known": len(self.sampler.known()),
            "spreading": self.spreading.active,
            "copies": self.spreading.again,
            "not_relayed": self.spreading.not_relayed,
            "lost": self.lost,
        }

    # --- sending -----------------------------------------------------------------------------

    def _count(self, size: int) -> None:
        self.made += 1
        self.made_this_round += 1
        self.bytes_this_round += size

    def _begin_spreading(self, step: Step, event: E) -> None:
        eager = self.settings.eager
        self.spreading.start(event, sent=eager)
        if eager:
            self._spread(step, [(event, 1)])

    def _spread(self, step: Step, entries: list[tuple[E, int]]) -> None:
        roster = self.sampler.piggyback()
        if not entries and roster is None:
            return
        to = self.sampler.sample(self.settings.fan_out)
        connected: tuple[str, ...] | None = None  # all that goes by connection goes to the same
        for part, channel in parts(entries, self.settings.transport == "status"):
            packet = self._packet(part, roster)
            if channel is DATAGRAM:
                step.send(to, packet, DATAGRAM)
            else:
                if connected is None:
                    connected = self.active_set.instead_of(to)
                step.send(connected, packet, STATUS, connected)
            roster = None

    def _packet(self, entries: list[tuple[E, int]], roster: Roster | None) -> Packet:
        raise NotImplementedError

    def _post(self, step: Step, letters: list[Letter]) -> None:
        for name, roster in letters:
            step.send(name, self.about_members(roster), DATAGRAM)

    def about_members(self, roster: Roster) -> Packet:
        raise NotImplementedError

    # --- receiving ---------------------------------------------------------------------------

    def _receive_roster(
        self, step: Step, sender: NodeId, roster: Roster, are_members: bool = True
    ) -> None:
        """`are_members`: whether we are in one group with those that it names."""
        self._post(step, self.sampler.receive(sender, roster))
        presence = self.presence
        if presence is not None and are_members:
            self._present(step, sender)
            news = presence.heard(roster.here)
            if news:
                self._tell(step, news)
            if roster.gone:
                self._tell(step, presence.left(roster.gone))

    def _present(self, step: Step, sender: NodeId) -> None:
        """A packet came from this member."""
        if self.presence is not None:
            news = self.presence.spoke(sender)
            if news:
                self._tell(step, news)

    def _tell(self, step: Step, news: Iterable[Joined | Left]) -> None:
        told = step.notify if self._is_in else _to_nobody
        for one in news:
            told(one)

    def _enter(self, step: Step) -> None:
        """We are in the group, and can tell who else is."""
        self._is_in = True
        step.notify(Joined(self.group, self.me))
        if self.presence is not None:
            for member in self.presence.members():
                step.notify(Joined(self.group, member))

    def _refuse_ages(self, sender: NodeId, news: News[E]) -> None:
        oldest = self.settings.hops + 1
        for entries in (news.unknown, news.changed):
            for _, age in entries:
                if not 1 <= age <= oldest:
                    raise PeerError(
                        f"{sender} sent an event of age {age}; {self.settings.hops} hops are set"
                    )

    def _refuse_size(self, size: int) -> None:
        if size > self.settings.window_size:
            raise UsageError(
                f"a batch of {size} bytes does not fit the window of "
                f"{self.settings.window_size} (window_size) of group {self.group!r}"
            )


class GossipMember(Spreader[Rumour]):
    """A member of the family `gossip`."""

    def __init__(self, me: NodeId, plan: Plan, chance: Random) -> None:
        super().__init__(me, plan, chance)
        self.seen = SeenRumours()
        # Others that must be there before we are in.
        self._others_needed = 0
        if plan.entry is not None and not plan.entry.founds:
            expect = 0 if plan.entry.lost else plan.entry.expect  # it may have been in it before
            self._others_needed = max(1, expect - 1)

    def start(self, step: Step) -> None:
        super().start(step)
        self._enter_once(step)

    def _enter_once(self, step: Step) -> None:
        """We are in, unless we are to find others first and have not found enough."""
        there = len(self.presence) if self.presence is not None else 0
        if there >= self._others_needed:
            self._enter(step)

    def accepts(self, group: str, now: int) -> bool:
        return self._is_in and self._has_room()  # before, it would reach nobody

    def submit(self, step: Step, group: str, payloads: Payloads, size: int) -> Event:
        assert self._has_room(), "the driver asks first"
        self._refuse_size(size)
        self._count(size)
        rumour = Rumour(self.me, self.made, payloads, size)
        event = self._event(rumour, 0)
        step.deliver(event)
        self._begin_spreading(step, rumour)
        return event

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        if isinstance(packet, Gossip):
            news = self.spreading.news(packet.rumours)
            self._refuse_ages(sender, news)
            for rumour, _ in news.unknown:
                if rumour.number < 1 or (rumour.origin == self.me and rumour.number > self.made):
                    raise PeerError(f"{sender} spreads what {rumour.origin} never made")
            if packet.roster is not None:
                self._receive_roster(step, sender, packet.roster)
            self.sampler.heard(sender)
            self._present(step, sender)
            self.spreading.add(news)
            for rumour, age in news.unknown:
                self._take(step, rumour, age)
        elif isinstance(packet, Membership):
            self._receive_roster(step, sender, packet.roster)
        else:
            raise PeerError(f"{sender} sent {type(packet).__name__}, which gossip does not know")
        if not self._is_in:
            self._enter_once(step)

    def _take(self, step: Step, rumour: Rumour, age: int) -> None:
        if rumour.origin == self.me or not self.seen.first_time(rumour.origin, rumour.number):
            return  # older than the history
        if self.full:
            self.lost += 1
            step.note(
                "lose",
                group=self.group,
                origin=rumour.origin.name,
                number=event_number(rumour.origin.incarnation, rumour.number),
                cause="overflow",
            )
        else:
            step.deliver(self._event(rumour, age))

    def about_members(self, roster: Roster) -> Packet:
        return Membership(self.group, roster)

    def _packet(self, entries: list[tuple[Rumour, int]], roster: Roster | None) -> Packet:
        return Gossip(self.group, entries, roster)

    def _event(self, rumour: Rumour, hops: int) -> Event:
        number = event_number(rumour.origin.incarnation, rumour.number)
        return Event(
            self.group, rumour.origin, number, rumour.payloads, hops=hops, size=rumour.size
        )


def advice(plan: Plan, events_per_second: float) -> list[str]:
    """What is doubtful about a group's options, in sentences. Nothing is refused."""
    options = plan.options
    assert isinstance(options, GossipOptions)
    if len(plan.members) == 1:
        return []
    return doubts(
        processes=len(plan.members),
        fan_out=min(options.fan_out, max(1, len(plan.members) - 1)),
        hops=options.hops,
        events_per_message=options.events_per_message,
        history=options.history,
        events_per_round=events_per_second * options.round / SECOND or None,
        recovery_buffer=options.recovery_buffer if isinstance(options, CausalOptions) else None,
    )


def sampler_for(me: NodeId, plan: Plan, chance: Random) -> Sampler:
    options = plan.options
    assert isinstance(options, GossipOptions)
    if options.members == "all" and plan.entry is None:
        return Everybody(me, plan.members, chance)
    others = [name for name in plan.members if name != me.name]
    contacts = tuple(chance.sample(others, min(CONTACTS, len(others))))
    kind = Cyclon if options.sampler == "cyclon" else Lpbcast
    return kind(me, contacts, chance, options.view_size)


def parts(
    entries: list[tuple[E, int]], by_status: bool
) -> list[tuple[list[tuple[E, int]], Channel]]:
    """Entries as messages that fit their channel: datagrams, or status where one is too long."""
    if by_status:
        return [(part, STATUS) for part in _filled(entries, STATUS_ROOM)] or [([], DATAGRAM)]
    small = [entry for entry in entries if entry[0].weight <= DATAGRAM_ROOM]
    large = [entry for entry in entries if entry[0].weight > DATAGRAM_ROOM]
    found: list[tuple[list[tuple[E, int]], Channel]]
    found = [(part, DATAGRAM) for part in _filled(small, DATAGRAM_ROOM)]
    found += [(part, STATUS) for part in _filled(large, STATUS_ROOM)]
    return found or [([], DATAGRAM)]


def _filled(entries: list[tuple[E, int]], room: int) -> list[list[tuple[E, int]]]:
    found: list[list[tuple[E, int]]] = []
    left = 0
    for entry in entries:
        size = entry[0].weight
        if not found or size > left:
            found.append([])
            left = room
        found[-1].append(entry)
        left -= size
    return found


def _to_nobody(news: Joined | Left) -> None:
    """A member that is not in yet tells nobody who comes and goes."""


build = machine_per_group(GossipMember)
