"""Random schedules of the published feed: one document a seed, and how often each law is broken.

The tree is r-p-{q, f-{a-x, b}}, as n1 to n7 in the order r, p, q, f, a, b, x. `crashes` has f crash
once or twice, for 200 ms or more, and come back; everything else stays up, and the next crash is
150 ms or more after it. `moves` has nodes move one after the other, each to one that is not below
it. `move_and_crash` has x move to q, and f crash within 30 ms of that. Half of the messages are
replies to the newest message of another node. Delays are lognormal around 3 ms with sigma 0.7.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from tests.studies.published_feed.runs import FAMILY, Ran, event, run

TREE = {"n3": "n2", "n4": "n2", "n5": "n4", "n6": "n4", "n7": "n5"}
FAILED = "n4"


def crashes(seed: int, **options: Any) -> dict[str, Any]:
    draw = Random(seed)
    at, found = 200, []
    for _ in range(draw.choice([1, 2])):
        at += draw.randrange(100)
        lasts = 200 + draw.randrange(200)
        found.append(_crash(at, lasts))
        at += lasts + 150
    return _document(found, options, rate=20)


def moves(seed: int, *, count: int = 3, gap: int = 250, **options: Any) -> dict[str, Any]:
    draw = Random(seed)
    parent = {"n2": "n1", **TREE}
    found = []
    for at in range(200, 200 + count * gap, gap):
        mover = draw.choice(sorted(parent))
        above = {name: _path(name, parent) for name in ("n1", *parent)}
        targets = [n for n in above if mover not in above[n] and n != parent[mover]]
        if targets:
            parent[mover] = draw.choice(targets)
            found.append(_move(at, mover, parent[mover]))
    return _document(found, options, rate=40)


def move_and_crash(seed: int, **options: Any) -> dict[str, Any]:
    draw = Random(seed)
    at = 200 + draw.randrange(60)
    found = sorted([_move(230, "n7", "n3"), _crash(at, 300)], key=lambda one: int(one["at"][:-2]))
    return _document(found, options, rate=20)


def calm(seed: int, **options: Any) -> dict[str, Any]:
    return _document([], options, rate=40)


def count(
    make: Callable[..., dict[str, Any]], seeds: Iterable[int], **options: Any
) -> Counter[str]:
    """In how many runs each law is broken, and any.

    `reply elsewhere`: reply-order is broken at another node than the one that crashes.
    """
    found: Counter[str] = Counter()
    for seed in seeds:
        one = run(make(seed, **options), seed)
        found.update(one.laws)
        found["any"] += bool(one.laws)
        found["reply elsewhere"] += _replies_elsewhere(one)
        for name in ("posted", "resent", "transitions", "recovered", "moves"):
            found[name] += one.counters[name]
    return +found


def _replies_elsewhere(ran: Ran) -> bool:
    seen: set[tuple[str, str]] = set()
    for row in ran.rows:
        if row.kind != "deliver":
            continue
        if row.process != FAILED and row.reply_origin is not None:
            number = (row.reply_number or 0) & (1 << 40) - 1
            if (row.process, f"{row.reply_origin}:{number}") not in seen:
                return True
        seen.add((row.process, event(row)))
    return False


def _path(name: str, parent: dict[str, str]) -> list[str]:
    found = [name]
    while found[-1] in parent:
        found.append(parent[found[-1]])
    return found


def _crash(at: int, lasts: int) -> dict[str, Any]:
    return {"at": f"{at}ms", "kind": "crash", "nodes": [FAILED], "for": f"{lasts}ms"}


def _move(at: int, node: str, target: str) -> dict[str, Any]:
    fault = {"at": f"{at}ms", "kind": "give", "nodes": [node], "input": "Move"}
    return {**fault, "values": {"target": target}}


def _document(faults: list[dict[str, Any]], options: dict[str, Any], rate: int) -> dict[str, Any]:
    return {
        "name": "schedule",
        "family": FAMILY,
        "processes": 7,
        "duration": "1200ms",
        "quiet": "800ms",
        "options": {"tree": TREE, **options},
        "workload": {"rate": rate},
        "network": {"delay": "3ms", "jitter": 0.7},
        "fault": faults,
    }
