"""Runs of a durable feed: correct ones, and the same spoilt by one or two rows.

Every process keeps a log. Now and then one takes from another what it lacks, in the order of the
other's log; entries that the other keeps no longer come as gaps. Processes answer events, restart,
lose their folders, and hang below each other in a tree. In the end all logs that are left hold the
same, but for what was given up.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from tests.check.mutations import change, renumbered

from ordercast.trace.schema import Ending, Header, Row, Trace
from ordercast.types import event_number

GROUP = "g"
TIMES = {"duration": "1s", "quiet": "1s"}


class Entry(NamedTuple):
    """An event, with the stream that it is in, by origin and number of its folder; or a gap, which
    ends with this number."""

    origin: str
    folder: int
    number: int
    reply: tuple[str, int] | None = None
    is_gap: bool = False


class Process:
    def __init__(self, name: str) -> None:
        self.name = name
        self.incarnation = 0
        self.folder = 0
        self.alive = True
        self.counter = 0
        self.log: list[Entry] = []  # all that it took, whether delivered or not
        self.kept = 0  # the place of the oldest entry that it still has
        self.received: dict[tuple[str, int], int] = {}  # by stream: the last number
        self.newest: dict[str, int] = {}  # by origin: the folder of which it delivered last
        self.parent: Process | None = None


class FeedRun:
    def __init__(self, seed: int, size: int = 60, *, trims: bool = True) -> None:
        self.chance = Random(seed)
        self.seed, self.size, self.trims = seed, size, trims
        self.rows: list[Row] = []
        self.at = 0
        self.processes = [Process(f"n{n}") for n in range(1, self.chance.randint(3, 5))]

    def trace(self) -> Trace:
        for one in self.processes:
            self.begin(one)
        for _ in range(self.size):
            self.act()
        self.settle()
        header = Header(
            f"feed-{self.seed}",
            "feed",
            TIMES,
            seed=self.seed,
            start=0,
            ending=Ending.FINISHED,
        )
        return Trace(header, renumbered(self.rows))

    def row(self, one: Process, kind: str, **columns: Any) -> None:
        self.at += self.chance.randint(0, 1000)
        self.rows.append(Row(one.name, one.incarnation, 0, self.at, kind, **columns))

    def act(self) -> None:
        live = [one for one in self.processes if one.alive]
        draw, one = self.chance.random(), self.chance.choice(live)
        if draw < 0.3:
            self.submit(one)
        elif draw < 0.75 and len(live) > 1:
            other = self.chance.choice([other for other in live if other is not one])
            self.take(one, other, self.chance.randint(1, 6))
        elif draw < 0.82:
            self.move(one)
        elif draw < 0.88 and self.trims:
            one.kept = self.chance.randint(one.kept, len(one.log))
        elif draw < 0.94 and len(live) > 2:
            self.row(one, "crash")
            one.alive = False
            for other in self.processes:
                if other.alive and other.parent is one:
                    self.hang(other, None)
        else:
            for other in self.processes:
                if not other.alive:
                    self.restart(other)

    # --- lives ---

    def begin(self, one: Process, cause: str | None = None) -> None:
        self.row(one, "start", cause=cause)
        self.row(one, "join", group=GROUP)
        self.hang(one, None)

    def restart(self, one: Process) -> None:
        is_lost = self.chance.random() < 0.4
        drawn = is_lost and self.chance.random() < 0.3
        one.incarnation += 20 if drawn else 1
        one.alive, one.counter = True, 0
        if is_lost:
            one.folder += 1
            one.log, one.kept, one.received, one.newest = [], 0, {}, {}
        self.begin(one, "empty" if is_lost else None)

    # --- events ---

    def submit(self, one: Process) -> None:
        one.counter += 1
        number = event_number(one.incarnation, one.counter)
        known = [
            entry
            for entry in one.log
            if entry.folder == one.newest.get(entry.origin) and not entry.is_gap
        ]
        reply = None
        if known and self.chance.random() < 0.5:
            original = self.chance.choice(known)
            reply = original.origin, original.number
        entry = Entry(one.name, one.folder, number, reply)
        self.row(one, "submit", **columns_of(entry))
        self.append(one, entry)

    def append(self, one: Process, entry: Entry) -> None:
        one.log.append(entry)
        if entry.is_gap:
            event = {"group": GROUP, "origin": entry.origin, "number": entry.number}
            had = one.received.get((entry.origin, entry.folder), 0)
            self.row(one, "lose", **event, after=had, cause="obsolete")
            one.received[entry.origin, entry.folder] = entry.number
            return
        one.received[entry.origin, entry.folder] = entry.number
        if entry.folder < one.newest.get(entry.origin, 0):
            event = {"group": GROUP, "origin": entry.origin, "number": entry.number}
            self.row(one, "lose", **event, cause="obsolete")
        else:
            one.newest[entry.origin] = entry.folder
            self.row(one, "deliver", **columns_of(entry))

    def take(self, one: Process, other: Process, count: int) -> None:
        """The next entries of the other log that this one lacks."""
        self.take_gaps(one, other)
        lacking = [
            entry
            for entry in other.log[other.kept :]
            if entry.number > one.received.get((entry.origin, entry.folder), 0)
        ]
        for entry in lacking[:count]:
            self.append(one, entry)

    def take_gaps(self, one: Process, other: Process) -> None:
        """What the other one has had, and keeps no longer: up to which number, by stream."""
        gone: dict[tuple[str, int], int] = {}
        for entry in other.log[: other.kept]:
            gone[entry.origin, entry.folder] = entry.number
        for (origin, folder), number in gone.items():
            if number > one.received.get((origin, folder), 0):
                self.append(one, Entry(origin, folder, number, is_gap=True))

    # --- the tree ---

    def hang(self, one: Process, parent: Process | None) -> None:
        one.parent = parent
        peer = None if parent is None else f"{parent.name}#{parent.incarnation}"
        self.row(one, "parent", group=GROUP, peer=peer)

    def move(self, one: Process) -> None:
        above = [other for other in self.processes if other.alive and not is_below(other, one)]
        self.hang(one, self.chance.choice([*above, None]))

    def settle(self) -> None:
        self.at += 2_000_000_000
        live = [one for one in self.processes if one.alive]
        for _ in range(2):
            for one in live:
                for other in live:
                    self.take(one, other, len(other.log))
        root, *others = live
        self.hang(root, None)
        for one in others:
            self.hang(one, root)
        for one in live:
            self.row(one, "stop")


def columns_of(entry: Entry) -> dict[str, Any]:
    columns: dict[str, Any] = {"group": GROUP, "origin": entry.origin, "number": entry.number}
    if entry.reply is not None:
        columns["reply_origin"], columns["reply_number"] = entry.reply
    return columns


def is_below(one: Process | None, other: Process) -> bool:
    while one is not None:
        if one is other:
            return True
        one = one.parent
    return False


# --- mistakes ---


def spoilt_feed(seed: int) -> Trace:
    """A run in which one to three rows are not as they were."""
    chance = Random(seed)
    trace = FeedRun(seed, chance.randint(15, 60), trims=seed % 3 > 0).trace()
    rows = trace.rows
    for _ in range(chance.randint(1, 3)):
        rows = chance.choice(MISTAKES)(list(rows), chance)
    header = change(trace.header, family=chance.choice(["feed", "feed", "feed", "causal"]))
    if chance.random() < 0.2:
        header = change(header, ending=Ending.CUT)
    if chance.random() < 0.3:
        header = change(header, seed=None)
    return Trace(header, renumbered(rows))


def place(rows: list[Row], chance: Random, *kinds: str, **columns: object) -> int:
    """Where a row of these kinds stands that has something in these columns; 0: there is none."""
    found = [
        at
        for at, row in enumerate(rows)
        if row.kind in kinds and all(getattr(row, name) is not None for name in columns)
    ]
    return chance.choice(found or [0])


def leave_out(rows: list[Row], chance: Random) -> list[Row]:
    del rows[place(rows, chance, "deliver", "lose", "parent", "submit", "start")]
    return rows


def move_later(rows: list[Row], chance: Random) -> list[Row]:
    at = place(rows, chance, "deliver", "lose")
    row = rows.pop(at)
    to = chance.randint(at, len(rows))
    rows.insert(to, change(row, at=rows[to - 1].at))
    return rows


def shrink_a_range(rows: list[Row], chance: Random) -> list[Row]:
    at = place(rows, chance, "lose", after=True)
    if rows[at].after is not None:
        rows[at] = change(rows[at], after=rows[at].after + chance.randint(1, 2))
    return rows


def widen_a_loss(rows: list[Row], chance: Random) -> list[Row]:
    at = place(rows, chance, "lose")
    if rows[at].number is not None:
        rows[at] = change(rows[at], after=max(0, rows[at].number - chance.randint(0, 3)))
    return rows


def deliver_what_was_given_up(rows: list[Row], chance: Random) -> list[Row]:
    at = place(rows, chance, "lose")
    if rows[at].kind == "lose":
        rows[at] = change(rows[at], kind="deliver", after=None, cause=None)
    return rows


def give_up_a_delivery(rows: list[Row], chance: Random) -> list[Row]:
    at = place(rows, chance, "deliver")
    rows[at] = change(rows[at], kind="lose", reply_origin=None, reply_number=None)
    return rows


def answer_another(rows: list[Row], chance: Random) -> list[Row]:
    at, other = place(rows, chance, "deliver"), place(rows, chance, "submit")
    answered = {"reply_origin": rows[other].origin, "reply_number": rows[other].number}
    if chance.random() < 0.1:
        answered["reply_origin"] = chance.choice([None, "n99"])
    rows[at] = change(rows[at], **answered)
    return rows


def forget_what_is_answered(rows: list[Row], chance: Random) -> list[Row]:
    at = place(rows, chance, "deliver", reply_number=True)
    rows[at] = change(rows[at], reply_origin=None, reply_number=None)
    return rows


def lose_the_folder(rows: list[Row], chance: Random) -> list[Row]:
    at = place(rows, chance, "start")
    rows[at] = change(rows[at], cause=None if rows[at].cause else "empty")
    return rows


def hang_elsewhere(rows: list[Row], chance: Random) -> list[Row]:
    at, other = place(rows, chance, "parent"), place(rows, chance, "parent")
    named = f"{rows[other].process}#{rows[other].incarnation}"
    rows[at] = change(rows[at], peer=chance.choice([named, named, named, rows[other].process]))
    return rows


MISTAKES = [
    *(leave_out, leave_out, move_later, move_later, shrink_a_range, widen_a_loss),
    *(deliver_what_was_given_up, give_up_a_delivery, answer_another, forget_what_is_answered),
    *(lose_the_folder, hang_elsewhere, hang_elsewhere),
]
