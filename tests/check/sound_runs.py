"""An omniscient little model that writes only correct runs.

One global log decides everything: events enter it when they are submitted, views when the
membership changes, and every member takes its groups' entries in that order, from the view that
brought it in on. So deliveries are totally and causally ordered and views are synchronous by
construction. Processes crash, leave, join late and restart; tickets pass on as they become free.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from ordercast.trace.schema import Ending, Header, Row, Trace
from ordercast.types import event_number

TICKETS = 6


class Entry(NamedTuple):
    """One place in the global log: an event, or a view if it has members."""

    group: str
    origin: str = ""
    number: int = 0
    view: int = 0
    members: tuple[str, ...] = ()


class Member:
    def __init__(self, name: str, incarnation: int) -> None:
        self.name = name
        self.incarnation = incarnation
        self.next_entry: dict[str, int] = {}  # group: where it goes on in the log
        self.counters: dict[str, int] = {}
        self.tickets: dict[str, int] = {}


class SoundRun:
    """Call `trace()` once."""

    def __init__(self, seed: int, *, faults: bool, groups: int = 1, size: int = 40) -> None:
        self.chance = Random(seed)
        self.faults = faults
        self.size = size
        self.groups = [f"g{n}" for n in range(groups)]
        self.rows: list[Row] = []
        self.steps: dict[tuple[str, int], int] = {}
        self.at = 0
        self.log: list[Entry] = []
        self.live: dict[str, Member] = {}
        self.lives: dict[str, int] = {}
        self.members: dict[str, list[str]] = {group: [] for group in self.groups}
        self.stamps: dict[tuple[str, int], int] = {}

    def trace(self) -> Trace:
        names = [f"n{n}" for n in range(1, self.chance.randint(3, 5))]
        for name in names:
            self.start(name)
        for group in self.groups:
            inside = [name for name in names if self.chance.random() < 0.8] or names
            self.change(group, inside)
        for _ in range(self.size):
            self.act()
        for member in self.live.values():
            while self.take(member):
                pass
        # Long after the last row there would be half a second in which nothing may happen.
        times = {"duration": "1s", "quiet": "1s"}
        header = Header(f"sound-{self.size}", None, times, start=0, ending=Ending.FINISHED)
        return Trace(header, self.rows)

    def act(self) -> None:
        draw = self.chance.random()
        member = self.chance.choice(list(self.live.values()))
        if self.faults and draw < 0.08:
            self.fault(member)
        elif draw < 0.35:
            inside = [group for group in self.groups if group in member.counters]
            if inside:
                self.submit(member, self.chance.choice(inside))
        else:
            for _ in range(self.chance.randint(1, 4)):
                self.take(member)

    def row(self, member: Member, kind: str, **columns: Any) -> None:
        key = member.name, member.incarnation
        self.steps[key] = self.steps.get(key, 0) + 1
        self.at += self.chance.randint(1, 1000)
        self.rows.append(Row(*key, self.steps[key], self.at, kind, **columns))

    def start(self, name: str) -> None:
        incarnation = self.lives.get(name, -1) + 1
        self.lives[name] = incarnation
        self.live[name] = Member(name, incarnation)
        self.row(self.live[name], "start")

    def change(self, group: str, members: list[str]) -> None:
        """Puts a new view into the log; newcomers begin there."""
        for name in members:
            if name not in self.members[group]:
                self.live[name].next_entry[group] = len(self.log)
        self.members[group] = sorted(members)
        view = len(self.log) + 1
        self.log.append(Entry(group, view=view, members=tuple(self.members[group])))

    def take(self, member: Member) -> bool:
        """Takes the next entry of the log that concerns the member, if there is one."""
        places = {group: self.upcoming(member, group) for group in member.next_entry}
        group = min(places, key=lambda group: places[group], default="")
        if not group or places[group] == len(self.log):
            return False
        entry = self.log[places[group]]
        member.next_entry[group] = places[group] + 1
        if entry.members:
            self.row(member, "view", group=group, view=entry.view, members=entry.members)
            if group not in member.counters:
                member.counters[group] = 0
                self.take_ticket(member, group)
        else:
            self.row(member, "deliver", group=group, origin=entry.origin, number=entry.number)
        return True

    def upcoming(self, member: Member, group: str) -> int:
        place = member.next_entry[group]
        while place < len(self.log) and self.log[place].group != group:
            place += 1
        return place

    def take_ticket(self, member: Member, group: str) -> None:
        taken = [other.tickets.get(group) for other in self.live.values()]
        index = next(index for index in range(TICKETS) if index not in taken)
        member.tickets[group] = index
        self.row(member, "ticket", group=group, index=index, cause="acquired")

    def submit(self, member: Member, group: str) -> None:
        member.counters[group] += 1
        number = event_number(member.incarnation, member.counters[group])
        index = member.tickets[group]
        self.stamps[group, index] = self.stamps.get((group, index), 0) + 1
        stamp = tuple(self.stamps.get((group, entry), 0) for entry in range(TICKETS))
        columns = {"group": group, "origin": member.name, "number": number}
        self.row(member, "submit", **columns, index=index, stamp=stamp)
        self.log.append(Entry(group, member.name, number))

    def fault(self, member: Member) -> None:
        draw = self.chance.random()
        down = [name for name in self.lives if name not in self.live]
        if down and draw < 0.4:
            name = self.chance.choice(down)
            self.start(name)
            for group in self.groups:
                if self.chance.random() < 0.6:
                    self.change(group, [*self.members[group], name])
        elif len(self.live) > 2 and draw < 0.7:
            self.crash(member)
        elif len(self.lives) < TICKETS and draw < 0.85:
            name = f"n{len(self.lives) + 1}"
            self.start(name)
            group = self.chance.choice(self.groups)
            self.change(group, [*self.members[group], name])
        else:
            self.leave(member, self.chance.choice(self.groups))

    def crash(self, member: Member) -> None:
        self.row(member, "crash")
        del self.live[member.name]
        for group in self.groups:
            rest = [name for name in self.members[group] if name != member.name]
            if len(rest) < len(self.members[group]):
                for name in rest:
                    if self.chance.random() < 0.5:
                        self.row(self.live[name], "suspect", peer=member.name)
                if rest:
                    self.change(group, rest)
                self.members[group] = rest

    def leave(self, member: Member, group: str) -> None:
        if group not in member.counters or len(self.members[group]) < 2:
            return
        self.row(member, "ticket", group=group, index=member.tickets[group], cause="released")
        self.row(member, "leave", group=group)
        del member.next_entry[group], member.counters[group], member.tickets[group]
        self.change(group, [name for name in self.members[group] if name != member.name])
