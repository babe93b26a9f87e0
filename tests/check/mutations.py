"""Ways to spoil a correct run, each with the law that must notice.

A mutation gets the rows of a sound run in which nothing failed, and chance. It returns the rows
of the spoilt run, or None if the run offers no place for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import TypeAlias

import msgspec

from ordercast.trace.schema import Row

Mutation: TypeAlias = Callable[[list[Row], Random], "list[Row] | None"]

MUTATIONS: list[tuple[str, Mutation]] = []
"""(law, mutation)"""


def breaks(*laws: str) -> Callable[[Mutation], Mutation]:
    def note(mutation: Mutation) -> Mutation:
        MUTATIONS.extend((law, mutation) for law in laws)
        return mutation

    return note


def change(row: Row, **columns: object) -> Row:
    return msgspec.structs.replace(row, **columns)


def renumbered(rows: list[Row]) -> list[Row]:
    """Local order is now the order of the list."""
    steps: dict[tuple[str, int], int] = {}
    new = []
    for row in rows:
        key = row.process, row.incarnation
        steps[key] = steps.get(key, 0) + 1
        new.append(change(row, step=steps[key]))
    return new


def places(rows: list[Row], kind: str) -> list[int]:
    return [at for at, row in enumerate(rows) if row.kind == kind]


def local_pairs(rows: list[Row], *kinds: str) -> Iterator[tuple[int, int]]:
    """Places of two rows of these kinds that follow each other at one process.

    No submission stands between: moving a delivery over one would change what precedes what.
    """
    last: dict[str, int] = {}
    for at, row in enumerate(rows):
        if row.kind == "submit":
            last.pop(row.process, None)
        elif row.kind in kinds:
            if row.process in last:
                yield last[row.process], at
            last[row.process] = at


def swapped(rows: list[Row], pair: tuple[int, int]) -> list[Row]:
    one, other = pair
    new = list(rows)
    new[one], new[other] = rows[other], rows[one]
    return new


@breaks("no-creation")
def invent(rows: list[Row], chance: Random) -> list[Row] | None:
    at = chance.choice(places(rows, "deliver") or [-1])
    return None if at < 0 else [*rows[: at + 1], change(rows[at], number=999), *rows[at + 1 :]]


@breaks("no-creation")
def forget_a_submission(rows: list[Row], chance: Random) -> list[Row] | None:
    at = chance.choice(places(rows, "submit") or [-1])
    return None if at < 0 else rows[:at] + rows[at + 1 :]


@breaks("no-creation")
def deliver_own_too_early(rows: list[Row], chance: Random) -> list[Row] | None:
    at = chance.choice(places(rows, "submit") or [-1])
    if at < 0:
        return None
    first = next(n for n, row in enumerate(rows) if row.process == rows[at].process)
    early = change(rows[at], kind="deliver", index=None, stamp=None)
    return [*rows[:first], early, *rows[first:]]


@breaks("no-duplication")
def repeat(rows: list[Row], chance: Random) -> list[Row] | None:
    at = chance.choice(places(rows, "deliver") or [-1])
    return None if at < 0 else [*rows, rows[at]]


@breaks("completeness", "agreement", "durable")
def drop_a_delivery(rows: list[Row], chance: Random) -> list[Row] | None:
    """One that somebody else has as well."""
    shared = [at for at in places(rows, "deliver") if sum(delivers_both(rows, at, at)) > 1]
    at = chance.choice(shared or [-1])
    return None if at < 0 else rows[:at] + rows[at + 1 :]


@breaks("completeness")
def drop_all_deliveries_of_one(rows: list[Row], chance: Random) -> list[Row] | None:
    at = chance.choice(places(rows, "deliver") or [-1])
    gone = (rows[at].group, rows[at].origin, rows[at].number)
    left = [
        row for row in rows if row.kind != "deliver" or (row.group, row.origin, row.number) != gone
    ]
    return None if at < 0 else left


@breaks("total")
def swap_deliveries(rows: list[Row], chance: Random) -> list[Row] | None:
    """Two concurrent ones suffice, and two of different groups if another delivers both."""
    pairs = [
        (one, other)
        for one, other in local_pairs(rows, "deliver")
        if sum(delivers_both(rows, one, other)) > 1
    ]
    return swapped(rows, chance.choice(pairs)) if pairs else None


@breaks("total-in-view")
def swap_deliveries_in_a_view(rows: list[Row], chance: Random) -> list[Row] | None:
    """Two of one group that another delivers in the same view."""
    views: dict[tuple[str, str | None], int | None] = {}
    stretches: dict[tuple[object, ...], set[str]] = {}  # (group, view, event): who delivers it
    place: dict[int, tuple[object, ...]] = {}
    for at, row in enumerate(rows):
        if row.kind == "view":
            views[row.process, row.group] = row.view
        elif row.kind == "deliver":
            place[at] = row.group, views.get((row.process, row.group)), row.origin, row.number
            stretches.setdefault(place[at], set()).add(row.process)
    pairs = [
        (one, other)
        for one, other in local_pairs(rows, "deliver", "view")
        if one in place
        and other in place
        and place[one][:2] == place[other][:2]
        and len(stretches[place[one]] & stretches[place[other]]) > 1
    ]
    return swapped(rows, chance.choice(pairs)) if pairs else None


def delivers_both(rows: list[Row], one: int, other: int) -> Iterator[bool]:
    wanted = {(row.group, row.origin, row.number) for row in (rows[one], rows[other])}
    for process in {row.process for row in rows}:
        delivered = {
            (row.group, row.origin, row.number)
            for row in rows
            if row.process == process and row.kind == "deliver"
        }
        yield wanted <= delivered


@breaks("fifo", "optimistic-causal", "causal")
def swap_deliveries_of_one_origin(rows: list[Row], chance: Random) -> list[Row] | None:
    pairs = [
        (one, other)
        for one, other in local_pairs(rows, "deliver")
        if (rows[one].group, rows[one].origin) == (rows[other].group, rows[other].origin)
    ]
    return swapped(rows, chance.choice(pairs)) if pairs else None


@breaks("optimistic-causal", "causal")
def deliver_the_answer_first(rows: list[Row], chance: Random) -> list[Row] | None:
    """An event goes before one that its origin had delivered when it submitted it."""
    pairs = []
    for one, other in local_pairs(rows, "deliver"):
        if rows[one].group == rows[other].group and rows[one].origin != rows[other].origin:
            log = [row for row in rows if row.process == rows[other].origin]
            known = [(row.kind, row.group, row.origin, row.number) for row in log]
            question = ("deliver", rows[one].group, rows[one].origin, rows[one].number)
            answer = ("submit", rows[other].group, rows[other].origin, rows[other].number)
            if question in known and known.index(question) < known.index(answer):
                pairs.append((one, other))
    return swapped(rows, chance.choice(pairs)) if pairs else None


@breaks("causal", "no-silent-gap")
def drop_what_others_follow(rows: list[Row], chance: Random) -> list[Row] | None:
    """A member leaves out one event of an origin and delivers the next."""
    followed = []
    for at in places(rows, "deliver"):
        row = rows[at]
        later = (
            other.kind == "deliver"
            and (other.process, other.group, other.origin) == (row.process, row.group, row.origin)
            for other in rows[at + 1 :]
        )
        began = min(one.at for one in rows if one.kind == "view" and one.process == row.process)
        submitted = next(
            one
            for one in rows
            if one.kind == "submit"
            and (one.group, one.origin, one.number) == (row.group, row.origin, row.number)
        )
        views = [
            one.at
            for one in rows
            if (one.kind, one.process, one.group) == ("view", row.process, row.group)
        ]
        if any(later) and submitted.at > max(began, *views[:1]):
            followed.append(at)
    at = chance.choice(followed or [-1])
    return None if at < 0 else rows[:at] + rows[at + 1 :]


@breaks("virtual-synchrony")
def deliver_in_another_view(rows: list[Row], chance: Random) -> list[Row] | None:
    """A delivery moves over a view of its group that others installed too, in the middle."""
    pairs = []
    for one, other in local_pairs(rows, "deliver", "view"):
        same_group = rows[one].group == rows[other].group
        if same_group and (rows[one].kind, rows[other].kind) == ("deliver", "view"):
            before = [row.view for row in rows[:other] if is_view_of(row, rows[other])]
            spans = [span for span in all_spans(rows) if span == (before[-1], rows[other].view)]
            if len(spans) > 1:
                pairs.append((one, other))
    return swapped(rows, chance.choice(pairs)) if pairs else None


def is_view_of(row: Row, like: Row) -> bool:
    return (row.kind, row.process, row.group) == ("view", like.process, like.group)


def all_spans(rows: list[Row]) -> Iterator[tuple[int | None, int | None]]:
    last: dict[tuple[str, int, str | None], int | None] = {}
    for row in rows:
        if row.kind == "view":
            key = row.process, row.incarnation, row.group
            if key in last:
                yield last[key], row.view
            last[key] = row.view


@breaks("view-agreement")
def install_a_view_of_others(rows: list[Row], chance: Random) -> list[Row] | None:
    at = chance.choice(places(rows, "view") or [-1])
    return None if at < 0 else [*rows[:at], change(rows[at], members=("x",)), *rows[at + 1 :]]


@breaks("view-agreement", "disjoint-views")
def install_one_view_more(rows: list[Row], chance: Random) -> list[Row] | None:
    shared = [at for at in places(rows, "view") if len(rows[at].members or ()) > 1]
    at = chance.choice(shared or [-1])
    return None if at < 0 else [*rows, change(rows[at], view=-1, at=rows[-1].at + 1)]


@breaks("view-agreement")
def rename_a_view(rows: list[Row], chance: Random) -> list[Row] | None:
    shared = [at for at in places(rows, "view") if len(rows[at].members or ()) > 1]
    at = chance.choice(shared or [-1])
    return None if at < 0 else [*rows[:at], change(rows[at], view=-1), *rows[at + 1 :]]


@breaks("ticket-uniqueness")
def take_an_owned_ticket(rows: list[Row], chance: Random) -> list[Row] | None:
    at = chance.choice(places(rows, "ticket") or [-1])
    return None if at < 0 else [*rows, change(rows[at], process="thief", at=rows[-1].at + 1)]


@breaks("ticket-uniqueness")
def begin_a_lease_too_early(rows: list[Row], chance: Random) -> list[Row] | None:
    """Two leases that follow each other; then the second begins one nanosecond sooner."""
    at = chance.choice(places(rows, "ticket") or [-1])
    if at < 0:
        return None
    end = rows[at].at + chance.randint(1, 1000)
    lease = change(rows[at], until=end)
    return [*rows[:at], lease, change(lease, process="next", at=end - 1, until=end + 9)]


@breaks("ticket-uniqueness")
def stamp_alike(rows: list[Row], chance: Random) -> list[Row] | None:
    submits = places(rows, "submit")
    pairs = [
        (one, other)
        for one in submits
        for other in submits
        if one < other and rows[one].group == rows[other].group
    ]
    if not pairs:
        return None
    one, other = chance.choice(pairs)
    alike = change(rows[other], index=rows[one].index, stamp=rows[one].stamp)
    return [*rows[:other], alike, *rows[other + 1 :]]


@breaks("one-primary")
def form_two_primary_views_of_one_number(rows: list[Row], chance: Random) -> list[Row] | None:
    views = places(rows, "view")
    if not views:
        return None
    view = rows[chance.choice(views)]
    first = change(view, kind="primary", order=1, cause="formed", members=("n1", "n2"))
    return [*rows, first, change(first, members=("n2", "n3"))]


@breaks("reply-order")
def answer_what_comes_later(rows: list[Row], chance: Random) -> list[Row] | None:
    pairs = [
        (one, other)
        for one, other in local_pairs(rows, "deliver")
        if rows[one].group == rows[other].group
    ]
    if not pairs:
        return None
    one, other = chance.choice(pairs)
    original = {"reply_origin": rows[other].origin, "reply_number": rows[other].number}
    return [*rows[:one], change(rows[one], **original), *rows[one + 1 :]]


@breaks("one-tree")
def hang_below_each_other(rows: list[Row], chance: Random) -> list[Row] | None:
    names = sorted({(row.process, row.incarnation) for row in rows})
    one, other = chance.sample(names, 2)
    below = [
        Row(*child, 0, rows[-1].at + 1, "parent", group="g1", peer=f"{parent[0]}#{parent[1]}")
        for child, parent in ((one, other), (other, one))
    ]
    return [*rows, *below]
