"""The causal graph of one configuration, as one vector an event.

What it decides: when an event is admitted, that is, has its place after all events before it; what
every member has; and what need not be retained any more.

Rules (Transis, section 3, with vectors in the place of leaf messages).
 1. An event carries how many events of each member its origin had admitted. It follows the k-th
    event of a member exactly if that entry is k or more.
 2. An event is admitted when all events before it are. Until then it is held.
 3. Its height is one above the greatest height that its origin had admitted or sent. So (height,
    origin) is an order that extends causality, and a place in it belongs to the event.
 4. The vector of an event or of a status acknowledges. An event that all members have, and that
    was delivered here, is discarded.
 5. Streams of members that do not come along to the next configuration are frozen: nothing of them
    is taken from their links, and they are admitted only as far as a proposal of our side reaches.
 6. While the application is full nothing is admitted, so nothing more is acknowledged. The same
    holds while a stream has four windows here that are not delivered, or of which we do not know
    that all have them: so what is retained has a limit, however slow a path is.
 7. The first event that is held of a member shows that nothing lower will come from it.

What it does not do: send anything, or know which of its events were delivered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import le
from typing import TypeAlias

from ordercast.kernel.buffers import Limit, Retained
from ordercast.kernel.clocks import Vector, merge
from ordercast.protocol.transis.packets import Cast, Status, Summary
from ordercast.types import NodeId

Position: TypeAlias = tuple[int, int]
"""Of an event in the order of agreed and safe events: its height, and the place of its origin."""
WINDOWS_RETAINED = 4
"""Windows of one stream that a member retains, before it admits no more."""
WINDOWS_SENT = 2
"""Windows of one stream that we have not acknowledged: one, and that of a member that leaves."""


class CausalGraph:
    def __init__(self, members: tuple[NodeId, ...], me: NodeId, window: Limit) -> None:
        """`window`: what a member may have in flight."""
        self.members = members
        self.places = {node: place for place, node in enumerate(members)}
        self.me = self.places[me]
        count = len(members)
        self.window = window.count
        limit = Limit(WINDOWS_RETAINED * window.count, WINDOWS_RETAINED * 2 * window.size)
        self.clock = 0  # the greatest height admitted or sent
        self.received = [0] * count  # by member: events admitted, without gaps
        self.store: list[Retained[Cast]] = [Retained(limit) for _ in members]
        self.hold: list[dict[int, Cast]] = [{} for _ in members]  # by seq, above `received`
        self.held = 0  # events in `hold`
        # By member: what it has, as far as we know. Of ourselves: `received`.
        self.acks: list[Vector] = [(0,) * count for _ in members]
        # By member: all that it sends later is higher. Only once its events so far are admitted.
        self.high = [0] * count
        self._later: list[tuple[int, int]] = [(0, 0)] * count  # (sent, clock) not yet in `high`
        self.frozen: dict[int, int] = {}  # by place: how far it may still be admitted
        self.is_full = False  # the application is: nothing is admitted for now
        self.is_crowded = False  # a stream is over its limit: the same
        # A cut is being decided: everything is admitted, for nobody casts any more, and a member
        # that did not reach the cut would be excluded for being slow.
        self.is_ending = False
        self.acknowledged = [0] * count  # by member: events of it that we have said we have
        # By member, of what came by its own link: the last seq, height (or clock) and number.
        self.arrived: list[tuple[int, int, int]] = [(0, 0, 0)] * count
        self.told = [0] * count  # by member: events of it that somebody has, as far as we know
        self.top = [0] * count  # by member: the height of its last event that was admitted

    # --- own events --------------------------------------------------------------------------

    def next_place(self) -> tuple[int, int, Vector]:
        """Seq, height and vector of an own event that is sent now."""
        vector = list(self.received)
        vector[self.me] += 1
        self.acknowledged = vector
        return vector[self.me], self.clock + 1, tuple(vector)

    @property
    def sent(self) -> int:
        return self.received[self.me]

    def status(self) -> tuple[int, int, Vector]:
        """What an acknowledgement says."""
        self.acknowledged = list(self.received)
        return self.received[self.me], self.clock, tuple(self.received)

    # --- others' events ----------------------------------------------------------------------

    def take(self, place: int, cast: Cast, admitted: list[tuple[int, Cast]]) -> None:
        """An event came by the link of its origin. What is admitted is appended."""
        self.arrived[place] = cast.seq, cast.height, cast.number
        if cast.seq <= self.received[place] or place in self.frozen:
            return
        self._enter(place, cast, admitted)

    def take_fetched(self, place: int, cast: Cast, admitted: list[tuple[int, Cast]]) -> None:
        """An event came from another member than its origin."""
        if cast.seq > self.received[place]:
            self._enter(place, cast, admitted)

    def _enter(self, place: int, cast: Cast, admitted: list[tuple[int, Cast]]) -> None:
        if not self._is_closed and self._is_next(place, cast):
            self.admit(place, cast)
            admitted.append((place, cast))
            if self.held:
                self.hold[place].pop(cast.seq, None)
                self._count_held()
                self.admit_held(admitted)
        elif cast.seq not in self.hold[place]:
            self.hold[place][cast.seq] = cast
            self.held += 1
            self._note_told(cast.vector)

    @property
    def _is_closed(self) -> bool:
        return (self.is_full or self.is_crowded) and not self.is_ending

    def _is_next(self, place: int, cast: Cast) -> bool:
        received = self.received
        if cast.seq != received[place] + 1 or cast.seq > self.frozen.get(place, cast.seq):
            return False
        received[place] += 1  # its own entry counts itself
        follows = all(map(le, cast.vector, received))
        received[place] -= 1
        return follows

    def admit(self, place: int, cast: Cast) -> None:
        self.received[place] = cast.seq
        self.top[place] = cast.height
        store = self.store[place]
        store.append(cast.seq, cast, cast.size)
        if store.full and place != self.me:
            self.is_crowded = True
        if cast.height > self.clock:
            self.clock = cast.height
        if cast.height > self.high[place]:
            self.high[place] = cast.height
        sent, clock = self._later[place]
        if sent and cast.seq >= sent:
            self.high[place] = max(self.high[place], clock)
            self._later[place] = 0, 0
        self.acks[place] = merge(self.acks[place], cast.vector)

    def admit_held(self, admitted: list[tuple[int, Cast]]) -> None:
        """Admits all that is held and has what it waited for."""
        moved = bool(self.held)
        while moved:
            moved = False
            for place, hold in enumerate(self.hold):
                while hold and not self._is_closed:
                    cast = hold.get(self.received[place] + 1)
                    if cast is None or not self._is_next(place, cast):
                        break
                    del hold[cast.seq]
                    self.admit(place, cast)
                    admitted.append((place, cast))
                    moved = True
        self._count_held()

    def _count_held(self) -> None:
        self.held = sum(map(len, self.hold))

    def acknowledge(self, place: int, sent: int, clock: int, vector: Vector) -> None:
        """A member has sent so many events, all later ones are higher, and it has these."""
        self.acks[place] = merge(self.acks[place], vector)
        if clock > self.high[place]:
            if self.received[place] >= sent:
                self.high[place] = clock
            elif place not in self.frozen and clock > self._later[place][1]:
                self._later[place] = sent, clock

    def take_status(self, place: int, status: Status) -> None:
        self.acknowledge(place, status.sent, status.clock, status.vector)
        self._note_told(status.vector)
        seq, height, number = self.arrived[place]
        self.arrived[place] = seq, max(height, status.clock), number

    def take_summary(self, teller: int, summary: Summary) -> bool:
        """What one member knows of all. Whether all have everything that we have."""
        for place, (sent, clock) in enumerate(zip(summary.sent, summary.clocks, strict=True)):
            if place != self.me:
                # Of itself it knows more: it also acknowledges what not all have.
                has = summary.sent if place == teller else summary.stable
                self.acknowledge(place, sent, clock, has)
        self._note_told(summary.sent)
        return all(map(le, self.received, summary.stable))

    def summary(self) -> tuple[Vector, Vector, Vector]:
        """What we know of all."""
        self.high[self.me] = self.clock
        self.acknowledged = list(self.received)
        # A height above the number of events is a lie that we were told. It does not count.
        total = sum(self.received)
        return tuple(self.received), tuple(min(one, total) for one in self.high), self.stable()

    def _note_told(self, vector: Vector) -> None:
        self.told = list(map(max, self.told, vector))

    # --- what all have -----------------------------------------------------------------------

    def stable(self) -> Vector:
        """By member: how many of its events every member has."""
        acks = self.acks
        acks[self.me] = tuple(self.received)
        return tuple(map(min, *acks)) if len(acks) > 1 else acks[0]

    def horizon(self) -> Position:
        """The first position, by (height, origin), of an event that may still be admitted."""
        self.high[self.me] = self.clock
        high = list(map(self.high_of, range(len(self.members)))) if self.held else self.high
        least = min(high)
        return least + 1, high.index(least)

    def high_of(self, place: int) -> int:
        """All that comes from this member is higher."""
        first = self.hold[place].get(self.received[place] + 1)
        return self.high[place] if first is None else max(self.high[place], first.height - 1)

    def lacks(self, place: int) -> bool:
        """Whether a member has not acknowledged all that we have, or owes us events."""
        if self.told[place] > self.received[place]:
            return True
        acks = self.acks[place]
        return not all(map(le, self.received, acks))

    def collect(self, stable: Vector, delivered: Sequence[int]) -> None:
        """Discards what all have and what was delivered here."""
        self.is_crowded = False
        for place, store in enumerate(self.store):
            oldest = store.oldest
            if oldest is None:
                continue
            up_to = min(stable[place], delivered[place])
            if oldest <= up_to:
                store.discard_up_to(up_to)
            if place != self.me and store.full:
                self.is_crowded = True

    # --- the end of the configuration --------------------------------------------------------

    def freeze(self, limits: dict[int, int]) -> None:
        """By place: how far the streams of members that do not come along may be admitted."""
        self.frozen = limits

    def forget_held(self, places: Iterable[int], cut: Vector) -> None:
        """Of these members, what is held up to the cut: it will come from others."""
        for place in places:
            self.hold[place] = {
                seq: cast for seq, cast in self.hold[place].items() if seq > cut[place]
            }
        self._count_held()

    def events(self, place: int, first: int, last: int) -> list[Cast]:
        """Of one member, as far as they are retained."""
        return [cast for cast in self.store[place].after(first - 1) if cast.seq <= last]

    def left_over(self) -> list[tuple[int, Cast]]:
        """What is held and never will be admitted."""
        return [(place, cast) for place, hold in enumerate(self.hold) for cast in hold.values()]
