"""Small random histories of groups, near to sound ones, for the laws about who stayed with whom.

Most members deliver most events and install most views; now and then one does not, or comes late,
crashes, leaves, stops, restarts, or suspects another. Rows of different processes often have the
same time, but no two submissions have: which came first is then no matter of taste.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from ordercast.trace.schema import Ending, Header, Row, Trace
from ordercast.types import event_number


class SmallGroups:
    """Call `trace()` once."""

    def __init__(self, seed: int, ending: Ending = Ending.FINISHED) -> None:
        times = {"duration": "10ns", "quiet": "20ns"}
        self.header = Header(f"small-{seed}", None, times, start=0, ending=ending)
        self.chance = Random(seed)
        self.names = ["n1", "n2", "n3", "n4"][: self.chance.randint(2, 4)]
        self.groups = ["g", self.chance.choice(["h", "g+n1.0.1"])][: self.chance.randint(1, 2)]
        self.incarnations = dict.fromkeys(self.names, 0)
        self.dead: set[str] = set()
        self.counters: Counter[tuple[str, int, str]] = Counter()
        self.views = 0
        self.at = 0
        self.steps: Counter[tuple[str, int]] = Counter()
        self.rows: list[Row] = []
        # Half of the runs are calm: their members miss little, and fewer of them fail.
        self.slip, self.fault = self.chance.choice([(0.01, 0.05), (0.08, 0.25)])

    def trace(self) -> Trace:
        entering = self.chance.choice(["join", "view"])
        for group in self.groups:
            self.views += 1
            for name in self.names:
                if self.chance.random() < 0.9:
                    self.enter(name, group, entering)
        for _ in range(self.chance.randint(2, 7)):
            group = self.chance.choice(self.groups)
            draw = self.chance.random()
            if draw < self.fault:
                self.fail(self.chance.choice(self.names), group)
            elif draw < 0.65:
                self.multicast(self.chance.choice(self.names), group)
            else:
                self.change_view(group)
        return Trace(self.header, self.rows)

    def write(self, name: str, kind: str, **columns: Any) -> None:
        if name in self.dead:
            return
        self.at += kind == "submit" or self.chance.randint(0, 1)
        life = name, self.incarnations[name]
        self.steps[life] += 1
        self.rows.append(Row(*life, self.steps[life], self.at, kind, **columns))

    def enter(self, name: str, group: str, kind: str) -> None:
        if kind == "join":
            self.write(name, "join", group=group)
        else:
            self.install(name, group, self.views, tuple(self.names))

    def install(self, name: str, group: str, view: int, members: tuple[str, ...]) -> None:
        if self.chance.random() < self.slip:
            view += 1
        if self.chance.random() < self.slip:
            members = members[1:]
        # A view may name lives. How it names them goes by its number: no two spell it apart.
        if view % 3 == 0:
            members = tuple(f"{member}#0" for member in members)
        self.write(name, "view", group=group, view=view, members=members)

    def multicast(self, name: str, group: str) -> None:
        if name in self.dead:
            return
        life = name, self.incarnations[name], group
        self.counters[life] += 1
        number = event_number(life[1], self.counters[life])
        event = {"group": group, "origin": name, "number": number}
        self.write(name, "submit", **event)
        for other in self.names:
            if self.chance.random() >= self.slip:
                self.write(other, "deliver", **event)
            elif self.chance.random() < 0.3:
                self.write(other, "lose", **event)

    def change_view(self, group: str) -> None:
        self.views += 1
        living = [name for name in self.names if name not in self.dead]
        inside = living if self.chance.random() < 0.8 else self.chance.sample(self.names, 2)
        for name in inside:
            if self.chance.random() >= 2 * self.slip:
                self.install(name, group, self.views, tuple(inside))

    def fail(self, name: str, group: str) -> None:
        kind = self.chance.choice(["crash", "stop", "leave", "leave", "suspect", "restart"])
        if kind in ("crash", "stop"):
            self.write(name, kind)
            self.dead.add(name)
        elif kind == "leave":
            self.write(name, "leave", group=group)
            if self.chance.random() < 0.3:
                self.enter(name, group, self.chance.choice(["join", "view"]))
        elif kind == "suspect":
            other = self.chance.choice(self.names)
            where = self.chance.choice([None, group])
            self.write(name, "suspect", group=where, peer=self.chance.choice([other, f"{other}#0"]))
        else:
            self.dead.discard(name)
            self.incarnations[name] += 1
            self.write(name, "start")
            if self.chance.random() < 0.7:
                self.enter(name, group, self.chance.choice(["join", "view"]))
