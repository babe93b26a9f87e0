"""The gossip that the planner plans for, by brute force: many events at once, every copy drawn.

Slow and obvious. It shares no line with the model that it is compared with.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple


class Seen(NamedTuple):
    """What was counted, over all events that were made early enough to end."""

    events: float
    missed: float  # live processes an event
    reach_all: float
    mean: float  # rounds from creation
    p99: float
    doubles: float  # share of deliveries that were the second of their event
    message_events: float


class Crowd:
    def __init__(
        self,
        processes: int,
        fan_out: int,
        hops: int,
        *,
        loss: float = 0.0,
        room: int = 10**9,
        history: int = 10**9,
        dead: int = 0,
        in_step: bool = False,
        youngest: bool = False,
        seed: int = 1,
    ) -> None:
        self.chance = Random(seed)
        self.fan_out, self.hops, self.loss = fan_out, hops, loss
        self.room, self.history, self.in_step, self.youngest = room, history, in_step, youngest
        self.processes = processes
        self.live = processes - dead  # the last ones are dead
        self.phase = sorted(0.0 if in_step else self.chance.random() for _ in range(self.live))
        self.chance.shuffle(self.phase)
        self.order = sorted(range(self.live), key=self.phase.__getitem__)
        self.active: list[dict[int, int]] = [{} for _ in range(self.live)]  # age by event
        self.known: list[dict[int, None]] = [{} for _ in range(self.live)]
        self.made: list[float] = []  # when each event was made
        self.had: list[dict[int, int]] = []  # by event: who had it, and how often
        self.delays: list[list[float]] = []
        self.messages = self.entries = 0

    def run(self, events_per_round: float, rounds: int) -> Seen:
        inbox: list[tuple[float, int, list[tuple[int, int]]]] = []
        for turn in range(rounds):
            for place in self.order:
                now = turn + self.phase[place]
                if turn < rounds - self.hops - 1:
                    self._make(place, now, events_per_round / self.live)
                batch = self._relay(place)
                for target in self.chance.sample(range(self.processes - 1), self.fan_out):
                    target += target >= place
                    if target >= self.live or self.chance.random() < self.loss:
                        continue
                    if self.in_step:
                        inbox.append((now, target, batch))
                    else:
                        self._receive(now, target, batch)
            for message in inbox:
                self._receive(*message)
            inbox.clear()
        return self._seen()

    def _make(self, place: int, now: float, chance: float) -> None:
        while self.chance.random() < chance:
            event = len(self.made)
            self.made.append(now - self.chance.random())  # since then it waited for this round
            self.had.append({})
            self.delays.append([])
            self._take(place, event, 0)
            self.had[event][place] = 1
            chance -= 1

    def _relay(self, place: int) -> list[tuple[int, int]]:
        mine = self.active[place]
        batch = [(event, age + 1) for event, age in mine.items()]
        if len(batch) > self.room:
            self.chance.shuffle(batch)
            batch.sort(key=lambda each: each[1])
            del batch[self.room :]
        self.messages += 1
        self.entries += len(batch)
        self.active[place] = {e: age + 1 for e, age in mine.items() if age < self.hops}
        return batch

    def _receive(self, now: float, place: int, batch: list[tuple[int, int]]) -> None:
        mine, known = self.active[place], self.known[place]
        for event, age in batch:
            old = mine.get(event)
            if old is not None:
                kept = min(old, age) if self.youngest else max(old, age)
                mine[event] = kept
                if kept > self.hops:
                    del mine[event]
            elif event not in known:
                self._take(place, event, age)
                had = self.had[event]
                had[place] = had.get(place, 0) + 1
                if had[place] == 1:
                    self.delays[event].append(now - self.made[event])

    def _take(self, place: int, event: int, age: int) -> None:
        known = self.known[place]
        known[event] = None
        if len(known) > self.history:
            del known[next(iter(known))]
        if age <= self.hops:
            self.active[place][event] = age

    def _seen(self) -> Seen:
        count = len(self.made)
        missed = [self.live - len(had) for had in self.had]
        delays = sorted(delay for each in self.delays for delay in each)
        deliveries = sum(sum(had.values()) for had in self.had)
        return Seen(
            events=count,
            missed=sum(missed) / count,
            reach_all=missed.count(0) / count,
            mean=sum(delays) / len(delays),
            p99=delays[int(0.99 * len(delays))],
            doubles=1 - sum(map(len, self.had)) / deliveries,
            message_events=self.entries / self.messages,
        )
