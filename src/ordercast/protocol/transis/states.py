"""The application's state when sides merge: whose counts, who gives it, and who waits for it.

Rules.
 1. A member *has the state* of a configuration if it began it with the same state as others. The
    lineage of a member is the last configuration whose state it had. When it is ready for the next
    one it says its lineage, so all who install that know who has the state of which side.
 2. A side gives one state: the first member that has it gives it. If nobody has it any more, the
    members that have an earlier one in common give theirs.
 3. `merge = "largest"`: the state of one side counts, the largest; of equal ones that with the
    first name. A state of which nothing was ever delivered counts only if all are like that: so a
    newcomer gets the state, and many newcomers do not overrule a member.
 4. `merge = "all"`: the state of every side is handed to all members, and the application merges.
    If there is just one, it is as with "largest".
 5. The giver's application is asked right after the view, before anything of it is delivered. A
    member that needs the state holds back what follows the view until it has it. Meanwhile it
    admits nothing and casts nothing, as if its application were full.
 6. If the next view comes before the state, the members that lack it need that of the next view.
    Whichever comes counts. If it is the later one, what was held back before it is delivered first,
    after a notification that the state is lost: members that stay together deliver the same.

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
)

MOST_GIVEN = 64
"""Views for which our application was asked for its state and has not answered."""


class StateSource(NamedTuple):
    """A state that members of one side have in common."""

    giver: NodeId
    holders: tuple[NodeId, ...]
    side: tuple[NodeId, ...]  # for whom it stands
    blank: bool  # nothing was ever delivered in it


class Slot:
    """The place in what is held back where states belong."""

    def __init__(self, cid: ConfigurationId, sources: tuple[StateSource, ...]) -> None:
        self.cid = cid
        self.sources = sources
        self.parts: dict[NodeId, list[bytes]] = {}
        self.states: dict[NodeId, tuple[bytes | None, str]] = {}  # each state, or why there is none

    @property
    def is_filled(self) -> bool:
        return len(self.states) == len(self.sources)

    @property
    def lineage(self) -> Lineage:
        return Lineage(self.cid, all(source.blank for source in self.sources))


def sources_of(
    sides: Iterable[tuple[ConfigurationId, tuple[NodeId, ...]]],
    lineages: Mapping[NodeId, Lineage],
) -> list[StateSource]:
    """The states that there are, in the order of the sides."""
    found = []
    for cid, members in sorted(sides):
        by_lineage: dict[ConfigurationId, list[NodeId]] = {}
        for node in members:
            by_lineage.setdefault(lineages[node].cid, []).append(node)
        if cid in by_lineage:  # the others lack it, and it stands for them
            holders = by_lineage[cid]
            blank = lineages[holders[0]].blank
            found.append(StateSource(holders[0], tuple(holders), members, blank))
            continue
        for holders in by_lineage.values():
            blank = lineages[holders[0]].blank
            found.append(StateSource(holders[0], tuple(holders), tuple(holders), blank))
    return found


def largest_of(sources: Iterable[StateSource]) -> StateSource:
    return min(sources, key=lambda source: (source.blank, -len(source.side), source.side[0]))


class StateExchange:
    """All that the application hears passes through here, in order."""

    def __init__(self, group: str, me: NodeId, rule: str) -> None:
        self.group = group
        self.me = me
        self.rule = rule
        self.lineage: Lineage
        self.held: deque[Slot | Output] = deque()  # what waits; the first is a slot
        self.giving: dict[ConfigurationId, tuple[NodeId, ...]] = {}  # to whom, when it is there

    def begin(self, cid: ConfigurationId) -> None:
        """A membership begins: nothing was delivered in it."""
        self.held.clear()
        self.giving.clear()
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

    def after(self, cut: Vector) -> Lineage | None:
        """What we say when we are ready to end a configuration."""
        if self.rule == "none":
            return None
        return Lineage(self.lineage.cid, self.lineage.blank and not any(cut))

    # --- views -------------------------------------------------------------------------------

    def installed(self, step: Step, decision: Decision, joint: Joint) -> None:
        """A view begins: some give their states, and some wait for them."""
        if self.rule == "none":
            return
        lineages = {node: lineage for side in joint for node, lineage in side.lineages}
        sources = self.choose(sources_of(decision.sides, lineages))
        cid, takers = decision.id, decision.members
        if len(sources) == 1:
            takers = tuple(node for node in takers if node not in sources[0].holders)
        if any(self.me in source.holders for source in sources):
            self._release(step, everything=True)  # ours counts, whatever we still waited for
        if takers and self.me in [source.giver for source in sources]:
            self.giving[cid] = tuple(node for node in takers if node != self.me)
            while len(self.giving) > MOST_GIVEN:
                del self.giving[next(iter(self.giving))]
            self.put(step, StateWanted(self.group, cid))
        slot = Slot(cid, sources)
        if self.me in takers:
            on = tuple(source.giver.name for source in sources if source.giver != self.me)
            self.put(step, Waiting(self.group, on, "their applications' states come", step.now))
            self.held.append(slot)
            self.lineage = lineages[self.me]
        else:
            self.lineage = slot.lineage

    def choose(self, sources: list[StateSource]) -> tuple[StateSource, ...]:
        return tuple(sources) if self.rule == "all" else (largest_of(sources),)

    # --- states ------------------------------------------------------------------------------

    def provide(self, step: Step, given: StateProvided) -> None:
        """Our application's state, which was asked for."""
        cid = given.token
        assert isinstance(cid, ConfigurationId)
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
        slot = self._slot(cid, self.me)
        if slot is not None:
            slot.states[self.me] = given.state, given.failure
            self._release(step)

    def receive(self, step: Step, sender: NodeId, packet: State | StatePart) -> None:
        slot = self._slot(packet.view, sender)
        if slot is None:
            return  # it comes too late
        parts = slot.parts.get(sender, [])
        if isinstance(packet, StatePart):
            if sum(map(len, parts)) + len(packet.part) > LARGEST_STATE:
                raise PeerError(f"{sender} sends a state of more than {LARGEST_STATE} bytes")
            slot.parts.setdefault(sender, []).append(packet.part)
            return
        if packet.parts != len(parts):
            have = f"{len(parts)} have come"
            raise PeerError(f"{sender} sent a state in {packet.parts} parts, of which {have}")
        slot.states[sender] = b"".join(parts) if parts else packet.state, packet.failure
        slot.parts.pop(sender, None)
        self._release(step)

    def _slot(self, cid: ConfigurationId, giver: NodeId) -> Slot | None:
        """Where this state belongs, if it is still wanted."""
        for item in self.held:
            if isinstance(item, Slot) and item.cid == cid and giver not in item.states:
                return item if giver in [source.giver for source in item.sources] else None
        return None

    def _release(self, step: Step, everything: bool = False) -> None:
        """Up to the last states that are there, and on to the next that are not."""
        held = list(self.held)
        filled = [
            place for place, one in enumerate(held) if isinstance(one, Slot) and one.is_filled
        ]
        last = len(held) if everything else filled[-1] if filled else -1
        for place, item in enumerate(held):
            if not isinstance(item, Slot):
                if isinstance(item, Event) and self.lineage.blank:
                    self.lineage = Lineage(self.lineage.cid, False)
                step.outputs.append(item)
            elif item.is_filled:
                self.lineage = item.lineage
                step.notify(self._as_given(item))
            elif place < last:
                step.notify(StateLost(self.group, tuple(one.giver for one in item.sources)))
            else:
                break
            self.held.popleft()

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
