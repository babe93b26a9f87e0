"""Sound runs spoilt in every way that a few rows allow, and views whose orders were scrambled."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
from tests.check.mutations import renumbered
from tests.check.sound_runs import SoundRun

from ordercast.trace.schema import Ending, Header, Row, Trace


def with_header(trace: Trace, **fields: Any) -> Trace:
    return Trace(msgspec.structs.replace(trace.header, **fields), trace.rows)


def sound(seed: int, *, size: int = 0, faults: bool | None = None) -> Trace:
    faulty = bool(seed % 2) if faults is None else faults
    return SoundRun(seed, faults=faulty, groups=1 + seed % 3, size=size or 15 + seed % 50).trace()


def scrambled_views(seed: int) -> Trace:
    """Members of a few views deliver the same events, in nearly the same order; some do it again,
    and some live twice."""
    chance = Random(seed)
    groups = ["g", "h"][: chance.randint(1, 2)]
    events = [(chance.choice(groups), "n1", number) for number in range(1, chance.randint(4, 12))]
    rows: list[Row] = []
    for group, origin, number in events:
        event = {"group": group, "origin": origin, "number": number}
        rows.append(Row("n1", 0, len(rows), len(rows), "submit", **event))
    for name in ("n1", "n2", "n3", "n4")[: chance.randint(2, 4)]:
        for life in range(chance.choice([1, 1, 2])):
            order = [one for one in events if chance.random() < 0.9]
            for _ in range(chance.choice([0, 0, 1, 2])):
                at = chance.randrange(max(1, len(order) - 1))
                order[at : at + 2] = reversed(order[at : at + 2])
            if chance.random() < 0.3:
                order += chance.sample(order, min(2, len(order)))
            for place, (group, origin, number) in enumerate(order):
                if chance.random() < (0.9 if place == 0 else 0.15):
                    view = {"view": chance.randint(1, 2), "members": ("n1", "n2")}
                    where = chance.choice(groups)
                    rows.append(Row(name, life, len(rows), len(rows), "view", group=where, **view))
                event = {"group": group, "origin": origin, "number": number}
                rows.append(Row(name, life, len(rows), len(rows), "deliver", **event))
    if chance.random() < 0.5:
        chance.shuffle(rows)  # local order is in the steps
    family = chance.choice(["feed", "total"])
    return Trace(Header(f"scrambled-{seed}", family=family, ending=Ending.FINISHED), rows)


def drop(rows: list[Row], chance: Random) -> None:
    del rows[chance.randrange(len(rows))]


def double(rows: list[Row], chance: Random) -> None:
    rows.insert(chance.randrange(len(rows)), chance.choice(rows))


def swap(rows: list[Row], chance: Random) -> None:
    """Two rows of one process change places."""
    one = chance.randrange(len(rows))
    same = [at for at, row in enumerate(rows) if row.process == rows[one].process]
    other = same[max(0, same.index(one) - chance.randint(1, 3))]
    rows[one], rows[other] = rows[other], rows[one]


def move(rows: list[Row], chance: Random) -> None:
    row = rows.pop(chance.randrange(len(rows)))
    rows.insert(chance.randrange(len(rows) + 1), row)


def copy_to_another(rows: list[Row], chance: Random) -> None:
    row, other = chance.choice(rows), chance.choice(rows)
    rows.append(msgspec.structs.replace(row, process=other.process, at=rows[-1].at + 1))


def pick(rows: list[Row], chance: Random, *kinds: str) -> int:
    places = [at for at, row in enumerate(rows) if not kinds or row.kind in kinds]
    return chance.choice(places or range(len(rows)))


def replaced(rows: list[Row], place: int, **columns: Any) -> None:
    rows[place] = msgspec.structs.replace(rows[place], **columns)


def renumber(rows: list[Row], chance: Random) -> None:
    at = pick(rows, chance, "submit", "deliver", "lose")
    number = rows[at].number or 0
    replaced(rows, at, number=chance.choice([number + 1, number - 1, number + (1 << 40), 1 << 50]))


def restamp(rows: list[Row], chance: Random) -> None:
    at, other = pick(rows, chance, "submit"), pick(rows, chance, "submit")
    stamp = chance.choice([rows[other].stamp, None, (), (1, 2)])
    index = chance.choice([rows[other].index, None, 1, 7, -1])
    replaced(rows, at, index=index, stamp=stamp)


def change_view(rows: list[Row], chance: Random) -> None:
    at, other = pick(rows, chance, "view"), pick(rows, chance, "view")
    members = chance.choice([rows[other].members, rows[at].members, ("n1#0", "n2")])
    replaced(rows, at, view=chance.choice([rows[other].view, -1]), members=members)


def rename(rows: list[Row], chance: Random) -> None:
    at = pick(rows, chance)
    column = chance.choice(["process", "group", "origin", "kind", "peer", "incarnation"])
    value: Any = getattr(chance.choice(rows), column)
    if column == "incarnation":
        value = rows[at].incarnation + 1
    elif value is None and column in ("process", "kind"):
        return
    replaced(rows, at, **{column: value})


def retime(rows: list[Row], chance: Random) -> None:
    at = pick(rows, chance)
    replaced(rows, at, at=chance.choice(rows).at + chance.randint(-2, 2))


def remove_a_value(rows: list[Row], chance: Random) -> None:
    column = chance.choice(["group", "origin", "number", "view", "members", "cause", "index"])
    replaced(rows, pick(rows, chance), **{column: None})


def happen(rows: list[Row], chance: Random) -> None:
    """Somebody crashes, stops, leaves, suspects or loses something; or an odd thing happens."""
    at = pick(rows, chance, "deliver", "submit")
    kind = chance.choice(["crash", "stop", "leave", "suspect", "lose", "lose", "exclude", "dance"])
    peer = chance.choice(rows).process
    rows.insert(at, msgspec.structs.replace(rows[at], kind=kind, peer=peer))


WAYS: list[Callable[[list[Row], Random], None]] = [
    drop, double, swap, swap, move, copy_to_another, renumber, restamp, change_view, rename,
    retime, remove_a_value, happen,
]  # fmt: skip


def spoilt(seed: int) -> Trace:
    chance = Random(seed)
    trace = sound(seed)
    rows = list(trace.rows)
    for _ in range(chance.choice([1, 1, 2, 3])):
        chance.choice(WAYS)(rows, chance)
    family = chance.choice([None, None, "feed", "causal", "total"])
    ending = chance.choice([Ending.FINISHED, Ending.FINISHED, Ending.CUT])
    rows = renumbered(rows) if chance.random() < 0.97 else rows
    return with_header(Trace(trace.header, rows), family=family, ending=ending)
