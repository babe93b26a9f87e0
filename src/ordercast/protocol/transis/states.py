"""The application's state when sides merge: whose counts, who gives it, and who waits for it.

Rules.
 1. A member *has the state* of a configuration if it began it with the same state as others. The
    lineage of a member is the last configuration whose state it had, and which ones it passed
    since. When it is ready for the next one it says its lineage, so all who install that know who
    has the state of which side.
 2. A side gives one state: the first member that has it and is not mute gives it. If nobody has it
    any more, the members that have an earlier one in common give theirs.
 3. `merge = "largest"`: the state of one side counts, the largest; of equal ones that with the
    first name. A state of which nothing was ever delivered counts only if all are like that: so a
    newcomer gets the state, and many newcomers do not overrule a member.
 4. `merge = "all"`: the state of every side is handed to all members, and the application merges.
    If there is just one, it is as with "largest". With a quorum `inheritance.py` says which state
    counts and who takes it.
 5. The giver's application is asked right after the view, before anything of it is delivered. A
    member that needs the state holds back what follows the view until it has it. Meanwhile it
    admits nothing and casts nothing, as if its application were full.
 6. If the next view comes before the state, the members that lack it need that of the next view.
    Whichever comes counts. If it is the later one, what was held back before it is delivered first,
    after a notification that the state is lost: members that stay together deliver the same. A
    state that comes between our lineage and the view that follows counts after the view.
 7. A giver whose application does not answer within the state limit is mute until it does. If
    another member can give that state, the giver asks for a new view of the same members, where
    that one is asked. If none can, the side has no state to give: those who wait are notified of
    that, go on with what they have, and lack the state until a later view.
 8. A giver that neither gives its state nor says so has failed: one that follows these rules has
    said something after one state limit, and after two of them those who wait exclude it.

What it does not do: agree on anything. The lineages are part of the agreement on a view.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ordercast.errors import PeerError
from ordercast.kernel.clocks import Vector
from ordercast.kernel.inputs import LARGEST_STATE, StateProvided
from ordercast.kernel.step import Output, Step
from ordercast.protocol.transis.franchise import Franchise
from ordercast.protocol.transis.inheritance import Inheritance
from ordercast.protocol.transis.options import SynchronyOptions
from ordercast.protocol.transis.packets import (
    STATE_BYTES,
    ConfigurationId,
    Joint,
    Lineage,
    State,
    StatePart,
)
from ordercast.protocol.transis.suggestion import Decision
from ordercast.types import (
    Event,
    NodeId,
    SideState,
    SideStates,
    StateGiven,
    StateLost,
    StateWanted,
    Waiting,
    view_identity,
)

LATE = "no application of this side has answered in time"
OVERTAKEN = "a later view began before their state came"
OURS_COUNTS = "a later view began before their state came, and there ours counts"
TOO_LITTLE = "their state lacks what ours must not lose"
SILENT_LIMITS = 2
"""State limits after which a giver must have given its state, or said that it has none."""
MOST_GIVEN = 64
"""Views for which our application was asked for its state and has not answered."""


class StateSource(NamedTuple):
    """A state that members of one side have in common."""

    giver: NodeId
    holders: tuple[NodeId, ...]
    side: tuple[NodeId, ...]  # for whom it stands
    blank: bool  # nothing was ever delivered in it
    able: tuple[NodeId, ...]  # of the holders, those that are not mute: the giver first


class Ended(NamedTuple):
    """A configuration is over, in which so much was delivered."""

    cid: ConfigurationId
    cut: Vector


class Slot:
    """The place in what is held back where states belong."""

    def __init__(
        self,
        cid: ConfigurationId,
        sources: tuple[StateSource, ...],
        inheritance: Inheritance | None = None,
        is_ours: bool = False,
    ) -> None:
        self.cid = cid
        self.sources = sources
        self.inheritance = inheritance  # with a quorum
        self.is_ours = is_ours  # we have the one of these states that counts with a quorum
        self.parts: dict[NodeId, list[bytes]] = {}
        self.states: dict[NodeId, tuple[bytes | None, str]] = {}  # each state, or why there is none
        for source in sources:
            if not source.able:
                self.states[source.giver] = None, LATE

    @property
    def is_filled(self) -> bool:
        return len(self.states) == len(self.sources)

    def awaited(self, me: NodeId) -> list[NodeId]:
        """Those, but for us, whose states are missing."""
        givers = [source.giver for source in self.sources]
        return [node for node in givers if node not in self.states and node != me]

    @property
    def lineage(self) -> Lineage:
        return Lineage(self.cid, all(source.blank for source in self.sources))


def sources_of(
    sides: Iterable[tuple[ConfigurationId, tuple[NodeId, ...]]],
    lineages: Mapping[NodeId, Lineage],
    inheritance: Inheritance | None = None,
) -> list[StateSource]:
    """The states that there are, in the order of the sides."""
    found = []
    for cid, members in sorted(sides):
        by_lineage: dict[tuple[ConfigurationId, int], list[NodeId]] = {}
        for node in members:
            lineage = lineages[node]
            by_lineage.setdefault((lineage.cid, lineage.path), []).append(node)
        holders = by_lineage.pop((cid, 0), None)
        if holders is not None:  # the others lack it, and it stands for them
            others = [each for each in by_lineage.values() if _keep(each, holders, inheritance)]
            kept = [node for each in others for node in each]
            side = tuple(node for node in members if node not in kept)
            found.append(_source(holders, side, lineages))
        else:
            others = list(by_lineage.values())
        found += [_source(each, tuple(each), lineages) for each in others]
    return found


def _keep(lacking: list[NodeId], holders: list[NodeId], inheritance: Inheritance | None) -> bool:
    """Whether members that lack the state of their side must not give up theirs for it."""
    if inheritance is None:
        return False
    return not inheritance.may_take(lacking[0], inheritance.coverage(holders[0]))


def _source(
    holders: list[NodeId], side: tuple[NodeId, ...], lineages: Mapping[NodeId, Lineage]
) -> StateSource:
    able = tuple(node for node in holders if not lineages[node].mute)
    giver, blank = (able or holders)[0], lineages[holders[0]].blank
    return StateSource(giver, tuple(holders), side, blank, able)


def largest_of(
    sources: Iterable[StateSource], inheritance: Inheritance | None = None
) -> StateSource:
    def place(source: StateSource) -> tuple[int, bool, int, NodeId]:
        worth = inheritance.worth(source.giver) if inheritance is not None else 0
        return -worth, source.blank, -len(source.side), source.side[0]

    return min(sources, key=place)


class StateExchange:
    """All that the application hears passes through here, in order."""

    inheritance_type = Inheritance

    def __init__(
        self, group: str, me: NodeId, options: SynchronyOptions, franchise: Franchise | None = None
    ) -> None:
        self.group = group
        self.me = me
        self.rule = options.merge
        self.limit = options.state_limit
        self.franchise = franchise  # with a quorum: what our application's state covers
        self.lineage: Lineage
        self.held: deque[Slot | Ended | Output] = deque()  # what waits; the first is a slot
        self.giving: dict[ConfigurationId, tuple[NodeId, ...]] = {}  # to whom, when it is there
        self.due_at: int | None = None  # when our application must have answered; patient time
        self.waits_until: int | None = None  # when a giver must have sent something; patient time
        self._has_come = False  # something of a state, since that was set
        self._asked_for: StateSource | None = None  # which state of ours is wanted
        self._is_mute = False  # our application has not answered in time
        self._is_bound = False  # we have said our lineage, and are not in the view that follows

    def begin(self, cid: ConfigurationId) -> None:
        """A membership begins: nothing was delivered in it."""
        self.held.clear()
        self.giving.clear()
        self.due_at, self._is_mute, self._is_bound = None, False, False
        self.waits_until = None
        self.lineage = Lineage(cid, True)

    def put(self, step: Step, output: Output) -> None:
        """To the application, or behind what waits."""
        if self.held:
            self.held.append(output)
        else:
            step.outputs.append(output)

    @property
    def is_waiting(self) -> bool:
        return bool(self.held)

    def after(self, cid: ConfigurationId, cut: Vector) -> Lineage | None:
        """What we say when we are ready to end a configuration."""
        if self.rule == "none":
            return None
        self._is_bound = True
        report = None
        if self.franchise is not None:
            ends = [item for item in self.held if isinstance(item, Ended)]
            report = self.franchise.after((*ends, (cid, cut)))
        lineage = self.lineage
        blank = lineage.blank and not any(cut)
        return Lineage(lineage.cid, blank, lineage.path, self._is_mute, report)

    # --- views -------------------------------------------------------------------------------

    def end(self, cid: ConfigurationId, cut: Vector) -> None:
        """A configuration is over, in which this was delivered, or is held back."""
        if self.franchise is None:
            return
        if self.held:
            self.held.append(Ended(cid, cut))
        else:
            self.franchise.end(cid, cut)

    def installed(self, step: Step, decision: Decision, joint: Joint, time: int) -> None:
        """A view begins: some give their states, and some wait for them."""
        if self.rule == "none":
            return
        self._is_bound, self.due_at, self.waits_until = False, None, None
        lineages = {node: lineage for side in joint for node, lineage in side.lineages}
        inheritance = self._inheritance(lineages)
        every = sources_of(decision.sides, lineages, inheritance)
        sources, cid = self.choose(every, inheritance), decision.id
        takers = self._takers(sources, decision.members, inheritance)
        counts = any(self.me in source.holders for source in sources)
        if counts or self.me not in takers:
            self._release(step, everything=True)  # we go on with ours, whatever we waited for
        given = [one for one in sources if takers and one.giver == self.me and one.able]
        if given:
            self._ask(step, given[0], cid, tuple(one for one in takers if one != self.me), time)
        former = lineages[self.me]
        path = view_identity(self.group, former.path, cid.height, cid.rep, cid.serial)
        self.lineage = Lineage(former.cid, former.blank, path)
        if self.me in takers:
            on = tuple(source.giver.name for source in sources if source.giver != self.me)
            self.put(step, Waiting(self.group, on, "their applications' states come", step.now))
            is_ours = self.me in largest_of(every, inheritance).holders
            self.held.append(Slot(cid, sources, inheritance, is_ours))
            self._release(step)
            self.waits_until, self._has_come = time + SILENT_LIMITS * self.limit, False
        elif counts:
            self.lineage = Slot(cid, sources).lineage

    def _inheritance(self, lineages: Mapping[NodeId, Lineage]) -> Inheritance | None:
        if self.franchise is None:
            return None
        reports = {node: one.report for node, one in lineages.items() if one.report is not None}
        return self.inheritance_type(self.group, reports)

    def choose(
        self, sources: list[StateSource], inheritance: Inheritance | None
    ) -> tuple[StateSource, ...]:
        return tuple(sources) if self.rule == "all" else (largest_of(sources, inheritance),)

    def _takers(
        self,
        sources: tuple[StateSource, ...],
        members: tuple[NodeId, ...],
        inheritance: Inheritance | None,
    ) -> tuple[NodeId, ...]:
        if len(sources) > 1:
            return members
        [source] = sources
        others = (node for node in members if node not in source.holders)
        if inheritance is None:
            return tuple(others)
        taken = inheritance.coverage(source.giver)
        return tuple(node for node in others if inheritance.may_take(node, taken))

    # --- our application's state -------------------------------------------------------------

    def _ask(
        self,
        step: Step,
        source: StateSource,
        cid: ConfigurationId,
        takers: tuple[NodeId, ...],
        time: int,
    ) -> None:
        self.giving[cid] = takers
        while len(self.giving) > MOST_GIVEN:
            del self.giving[next(iter(self.giving))]
        self.put(step, StateWanted(self.group, cid))
        self._asked_for, self.due_at = source, time + self.limit

    def is_overdue(self, step: Step, cid: ConfigurationId, time: int) -> bool:
        """Whether another member has to give the state of this view instead of us."""
        if self.due_at is None or time < self.due_at:
            return False
        assert self._asked_for is not None
        self.due_at, self._is_mute = None, True
        if len(self._asked_for.able) > 1:
            return True
        takers = self.giving.pop(cid, ())
        if takers:
            step.send(takers, State(self.group, cid, None, late=True))
        self._fill(step, self._slot(cid, self.me), self.me, (None, LATE))
        return False

    def provide(self, step: Step, given: StateProvided) -> None:
        """Our application's state, which was asked for."""
        cid = given.token
        assert isinstance(cid, ConfigurationId)
        self._is_mute = False
        if cid in self.giving and cid == next(reversed(self.giving)):
            self.due_at = None
        takers, state = self.giving.pop(cid, ()), given.state
        if takers:
            parts = 0
            if state is not None and len(state) > STATE_BYTES:
                for place in range(0, len(state), STATE_BYTES):
                    part = state[place : place + STATE_BYTES]
                    step.send(takers, StatePart(self.group, cid, part))
                    parts += 1
                state = None
            step.send(takers, State(self.group, cid, state, given.failure, parts))
        self._fill(step, self._slot(cid, self.me), self.me, (given.state, given.failure))

    # --- states that we wait for -------------------------------------------------------------

    def receive(self, step: Step, sender: NodeId, packet: State | StatePart) -> None:
        slot = self._slot(packet.view, sender)
        if slot is None:
            return  # it comes too late
        self._has_come = True
        parts = slot.parts.get(sender, [])
        if isinstance(packet, StatePart):
            if sum(map(len, parts)) + len(packet.part) > LARGEST_STATE:
                raise PeerError(f"{sender} sends a state of more than {LARGEST_STATE} bytes")
            slot.parts.setdefault(sender, []).append(packet.part)
            return
        if packet.parts != len(parts):
            have = f"{len(parts)} have come"
            raise PeerError(f"{sender} sent a state in {packet.parts} parts, of which {have}")
        state = b"".join(parts) if parts else packet.state
        slot.parts.pop(sender, None)
        self._fill(step, slot, sender, (state, LATE if packet.late else packet.failure))

    def silent_givers(self, time: int) -> tuple[NodeId, ...]:
        """Those that have sent nothing of the state that we wait for, for much too long."""
        if self.waits_until is None or time < self.waits_until:
            return ()
        last = [item for item in self.held if isinstance(item, Slot)][-1:]
        self.waits_until = time + SILENT_LIMITS * self.limit if last else None
        has_come, self._has_come = self._has_come, False
        return () if has_come else tuple(node for slot in last for node in slot.awaited(self.me))

    @property
    def deadline(self) -> int | None:
        """When time itself changes something next."""
        return min((at for at in (self.due_at, self.waits_until) if at is not None), default=None)

    def _fill(
        self, step: Step, slot: Slot | None, giver: NodeId, state: tuple[bytes | None, str]
    ) -> None:
        if slot is not None:
            slot.states[giver] = state
            if not self._is_bound:
                self._release(step)

    def _slot(self, cid: ConfigurationId, giver: NodeId) -> Slot | None:
        """Where this state belongs, if it is still wanted."""
        for item in self.held:
            if isinstance(item, Slot) and item.cid == cid and giver not in item.states:
                return item if giver in [source.giver for source in item.sources] else None
        return None

    def _release(self, step: Step, everything: bool = False) -> None:
        """Up to the last states that are there, and on to the next that are not. `everything`:
        those that are there came too late."""
        held = list(self.held)
        filled = [
            place for place, one in enumerate(held) if isinstance(one, Slot) and one.is_filled
        ]
        last = len(held) if everything else filled[-1] if filled else -1
        for place, item in enumerate(held):
            if isinstance(item, Ended):
                assert self.franchise is not None
                self.franchise.end(item.cid, item.cut)
            elif not isinstance(item, Slot):
                if isinstance(item, Event) and self.lineage.blank:
                    self.lineage = Lineage(self.lineage.cid, False, self.lineage.path)
                step.outputs.append(item)
            elif item.is_filled and not everything:
                self._take(step, item)
            elif place < last:
                step.notify(self._lost(item, OURS_COUNTS if everything else OVERTAKEN))
            else:
                break
            self.held.popleft()

    def _take(self, step: Step, slot: Slot) -> None:
        """To the application, unless there is no state or it lacks what ours must not lose."""
        given = [one.giver for one in slot.sources if not slot.states[one.giver][1]]
        is_late = len(slot.sources) == 1 and slot.states[slot.sources[0].giver][1] == LATE
        lost = LATE if is_late else ""
        if self.franchise is not None and slot.inheritance is not None and given:
            coverage = slot.inheritance.merged(given)
            now = self.franchise.voter.coverage
            if slot.inheritance.may_take(self.me, coverage, now):
                self.franchise.take(coverage, slot.is_ours)
            else:
                lost = TOO_LITTLE
        if lost:
            step.notify(self._lost(slot, lost))
            return
        if given:
            self.lineage = slot.lineage
        step.notify(self._as_given(slot))

    def _lost(self, slot: Slot, why: str) -> StateLost:
        return StateLost(self.group, tuple(one.giver for one in slot.sources), why)

    def _as_given(self, slot: Slot) -> StateGiven | SideStates:
        if len(slot.sources) == 1:
            giver = slot.sources[0].giver
            state, why = slot.states[giver]
            failure = f"{giver} could not give its state: {why}" if why else ""
            return StateGiven(self.group, state, failure)
        return SideStates(
            self.group,
            tuple(SideState(source.side, *slot.states[source.giver]) for source in slot.sources),
        )
