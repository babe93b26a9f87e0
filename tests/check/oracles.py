"""The laws again, slow and obvious: by definition, with no index, on a handful of rows.

Each answers whether the law is broken on rows that have no flaws. The causal ones may be asked
only where no event precedes itself and every delivered event was submitted.
"""

from __future__ import annotations

from itertools import combinations, pairwise, permutations, product
from typing import TypeAlias

from ordercast.trace.schema import Row

Event: TypeAlias = tuple[str | None, str | None, int | None]
Life: TypeAlias = tuple[str, int]


def event(row: Row) -> Event:
    return row.group, row.origin, row.number


def lives(rows: list[Row]) -> list[list[Row]]:
    found: dict[Life, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.step):
        found.setdefault((row.process, row.incarnation), []).append(row)
    return list(found.values())


def lines(rows: list[Row], durable: bool) -> list[list[Row]]:
    if not durable:
        return lives(rows)
    found: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row.incarnation, row.step)):
        found.setdefault(row.process, []).append(row)
    return list(found.values())


def submissions(rows: list[Row]) -> dict[Event, Row]:
    return {event(row): row for row in rows if row.kind == "submit" and row.process == row.origin}


def delivered(log: list[Row]) -> list[Event]:
    return [event(row) for row in log if row.kind == "deliver"]


def pasts(rows: list[Row], durable: bool) -> dict[Event, set[Event]]:
    """For each event all that precede it: what its origin knew, and again and again."""
    past: dict[Event, set[Event]] = {}
    for log in lines(rows, durable):
        for at, row in enumerate(log):
            if row.kind == "submit" and row.process == row.origin:
                past[event(row)] = {
                    event(one)
                    for one in log[:at]
                    if one.group == row.group
                    and (one.kind == "deliver" or (one.kind == "submit" and own(one)))
                }
    while True:
        larger = {
            one: known.union(*(past.get(earlier, set()) for earlier in known))
            for one, known in past.items()
        }
        if larger == past:
            return past
        past = larger


def own(row: Row) -> bool:
    return row.process == row.origin


def precedes_itself(rows: list[Row]) -> bool:
    """Whether local order and submission before delivery, over all groups, make a circle."""
    order = lines(rows, durable=True)
    after: dict[int, list[int]] = {id(row): [] for row in rows}
    submitted = submissions(rows)
    for log in order:
        for row, then in pairwise(log):
            after[id(row)].append(id(then))
    for row in rows:
        if row.kind == "deliver" and event(row) in submitted:
            after[id(submitted[event(row)])].append(id(row))
    left = set(after)
    while True:
        targets = {then for one in left for then in after[one] if then in left}
        if targets == left:
            return bool(left)
        left = targets


def no_creation_broken(rows: list[Row]) -> bool:
    submitted = submissions(rows)
    strange = any(row.kind == "deliver" and event(row) not in submitted for row in rows)
    return strange or precedes_itself(rows)


def no_duplication_broken(rows: list[Row], durable: bool) -> bool:
    return any(
        one == other
        for log in lines(rows, durable)
        for one, other in combinations(delivered(log), 2)
    )


def fifo_broken(rows: list[Row], durable: bool) -> bool:
    return any(
        one[:2] == other[:2] and (one[2] or 0) > (other[2] or 0)
        for log in lines(rows, durable)
        for one, other in combinations(delivered(log), 2)
    )


def optimistic_causal_broken(rows: list[Row], durable: bool) -> bool:
    past = pasts(rows, durable)
    return any(
        then in past[first]
        for log in lines(rows, durable)
        for first, then in combinations(delivered(log), 2)
    )


def causal_broken(rows: list[Row], durable: bool) -> bool:
    past, submitted = pasts(rows, durable), submissions(rows)
    for log in lines(rows, durable):
        had: set[Event] = set()
        for one in delivered(log):
            for earlier in past[one]:
                began = [
                    row for row in log if row.kind in ("join", "view") and row.group == earlier[0]
                ]
                exempt = began and submitted[earlier].at < began[0].at
                if earlier not in had and not exempt:
                    return True
            had.add(one)
    return optimistic_causal_broken(rows, durable)


def shortest_disorder(rows: list[Row], durable: bool) -> int:
    """The least number of events that the lines put into a circle; 0 if there is none."""
    return shortest_circle([list(dict.fromkeys(delivered(log))) for log in lines(rows, durable)])


def shortest_circle(orders: list[list[Event]]) -> int:
    before = {pair for order in orders for pair in combinations(order, 2)}
    events = {one for pair in before for one in pair}
    ways, length = before, 1  # pairs joined by so many steps
    while ways and length <= len(events):
        if any(one == other for one, other in ways):
            return length
        ways = {(one, far) for one, other in ways for near, far in before if near == other}
        length += 1
    return 0


def total_in_view_broken(rows: list[Row]) -> bool:
    """Asked view by view: who was in it, and what of its group did they first deliver there."""
    views = {(row.group, row.view) for row in rows if row.kind == "view"}
    return any(shortest_circle(orders_in(rows, group, view)) for group, view in views)


def orders_in(rows: list[Row], group: str | None, view: int | None) -> list[list[Event]]:
    found: list[list[Event]] = []
    for log in lives(rows):
        inside, had = False, set[Event]()
        for row in log:
            if row.kind == "view" and row.group == group:
                inside = row.view == view
                if inside:
                    found.append([])
            elif row.kind == "deliver" and row.group == group:
                if inside and event(row) not in had:
                    found[-1].append(event(row))
                had.add(event(row))
    return found


def virtual_synchrony_broken(rows: list[Row]) -> bool:
    spans: list[tuple[tuple[object, ...], set[Event]]] = []
    for log in lives(rows):
        for group in {row.group for row in log}:
            own_rows = [row for row in log if row.group == group]
            views = [at for at, row in enumerate(own_rows) if row.kind == "view"]
            for one, other in pairwise(views):
                key = group, own_rows[one].view, own_rows[other].view
                spans.append((key, set(delivered(own_rows[one:other]))))
    return any(one[0] == other[0] and one[1] != other[1] for one, other in combinations(spans, 2))


def owners(rows: list[Row], group: str, index: int, instant: int) -> set[str]:
    """Who owns a ticket at an instant."""
    found: set[str] = set()
    for log in lives(rows):
        later = [
            row.at
            for row in rows
            if row.process == log[0].process and row.incarnation > log[0].incarnation
        ]
        death = min(
            [*(row.at for row in log if row.kind in ("crash", "stop")), *later], default=instant + 1
        )
        owns, until = False, None
        for row in log:
            if row.cause in ("wanted", "refused"):
                continue  # nobody owns anything by it
            if row.kind == "ticket" and (row.group, row.index) == (group, index):
                if row.at > instant:
                    # A lease that is renewed later was meant to last until then.
                    if owns and row.cause == "renewed":
                        until = row.until
                        continue
                    break
                owns = row.cause in ("acquired", "renewed")
                until = row.until
        if owns and instant < death and (until is None or instant < until):
            found.add(log[0].process)
    return found


def shared_ticket(rows: list[Row]) -> bool:
    instants = range(max(row.at for row in rows) + 1)
    tickets = {(row.group or "", row.index or 0) for row in rows if row.kind == "ticket"}
    return any(len(owners(rows, *one, instant)) > 1 for one in tickets for instant in instants)


# --- who stayed with whom: the words of membership.py, one by one ---


def of_group(log: list[Row], group: str, *kinds: str) -> list[Row]:
    return [row for row in log if row.group == group and row.kind in kinds]


def bare(name: str | None) -> str:
    """The process, whether it or one of its lives is named."""
    return (name or "").split("#")[0]


def holds(view: Row, process: str) -> bool:
    return process in map(bare, view.members or ())


def only_life(rows: list[Row], log: list[Row]) -> bool:
    return len({row.incarnation for row in rows if row.process == log[0].process}) == 1


def last_life(rows: list[Row], log: list[Row]) -> bool:
    process, incarnation = log[0].process, log[0].incarnation
    return all(row.incarnation <= incarnation for row in rows if row.process == process)


def wrote(log: list[Row], kind: str) -> bool:
    return any(row.kind == kind for row in log)


def stopped_before(log: list[Row], instant: int) -> bool:
    return any(row.kind == "stop" and row.at < instant for row in log)


def stopped_early(rows: list[Row], group: str, log: list[Row]) -> bool:
    return any(stopped_before(log, row.at) for row in of_group(rows, group, "submit"))


def there_from_the_beginning(rows: list[Row], group: str, log: list[Row]) -> bool:
    submits = sorted(of_group(rows, group, "submit"), key=lambda row: row.at)
    entered = of_group(log, group, "join", "view")
    if not submits or not entered:
        return True
    submitter = next(other for other in lives(rows) if submits[0] in other)
    ours, theirs = of_group(log, group, "view")[:1], of_group(submitter, group, "view")[:1]
    if entered[0].at <= submits[0].at:
        late = bool(ours) and ours[0].at > submits[0].at
        return not (late and theirs and not holds(theirs[0], log[0].process))
    return bool(ours) and [row.view for row in ours] == [row.view for row in theirs]


def stayed(rows: list[Row], group: str) -> list[list[Row]]:
    return [
        log
        for log in lives(rows)
        if of_group(log, group, "join", "view", "submit", "deliver", "lose")
        and only_life(rows, log)
        and not wrote(log, "crash")
        and not of_group(log, group, "leave")
        and not stopped_early(rows, group, log)
        and there_from_the_beginning(rows, group, log)
    ]


def connected(rows: list[Row], group: str, one: list[Row], other: list[Row]) -> bool:
    for log, peer in ((one, other), (other, one)):
        me, name = log[0].process, peer[0].process
        for row in rows:
            if (row.kind, row.process, bare(row.peer)) == ("suspect", me, name):
                other_formation = row.group != group and bare_group(row.group) == bare_group(group)
                if row.group is None or not other_formation:
                    return False
        for view in of_group(log, group, "view"):
            if not holds(view, name) and not stopped_before(peer, view.at):
                return False
    return True


def bare_group(group: str | None) -> str:
    """What stands before the formation."""
    return (group or "").split("+")[0]


def all_groups(rows: list[Row]) -> set[str]:
    return {row.group for row in rows if row.group is not None}


def events_of(log: list[Row], group: str, *kinds: str) -> set[Event]:
    return set(map(event, of_group(log, group, *kinds)))


def agreement_broken(rows: list[Row]) -> bool:
    return skips_silently(rows) or any(
        connected(rows, group, one, other)
        and not events_of(one, group, "deliver") <= events_of(other, group, "deliver", "lose")
        for group in all_groups(rows)
        for one, other in permutations(stayed(rows, group), 2)
    )


def skips_silently(rows: list[Row]) -> bool:
    """Whether somebody who lasted skips an event of one whose first view came after its own."""
    for group, log, origin in product(all_groups(rows), lives(rows), lives(rows)):
        ours, theirs = of_group(log, group, "view"), of_group(origin, group, "view")
        if (
            not ours
            or not theirs
            or ours[0].at >= theirs[0].at
            or log[0].process == origin[0].process
            or not last_life(rows, log)
            or wrote(log, "crash")
            or of_group(log, group, "leave")
            or stopped_early(rows, group, log)
        ):
            continue
        delivered = events_of(log, group, "deliver")
        anybody = events_of(rows, group, "deliver")
        made = [event(row) for row in of_group(origin, group, "submit")]
        made = [one for one in made if one[1] == origin[0].process]
        last = max((place for place, one in enumerate(made) if one in delivered), default=0)
        skipped = {one for one in made[:last] if one in anybody}
        if not skipped <= delivered | events_of(log, group, "lose"):
            return True
    return False


def completeness_broken(rows: list[Row]) -> bool:
    return any(
        last_life(rows, submitter)
        and not wrote(submitter, "crash")
        and not stopped_early(rows, group, submitter)
        and (submitter == log or connected(rows, group, submitter, log))
        and not events_of(submitter, group, "submit") <= events_of(log, group, "deliver")
        for group in all_groups(rows)
        for submitter in lives(rows)
        for log in stayed(rows, group)
    )


def different_views(rows: list[Row]) -> set[str]:
    """Of those that stayed connected: "apart" if two differ, "behind" if one has fewer."""
    found = set()
    for group in all_groups(rows):
        judged = [
            log
            for log in lives(rows)
            if only_life(rows, log)
            and not wrote(log, "crash")
            and not of_group(log, group, "leave")
        ]
        for one, other in permutations(judged, 2):
            ours, theirs = of_group(one, group, "view"), of_group(other, group, "view")
            if ours and theirs and connected(rows, group, one, other):
                both = list(zip(ours, theirs, strict=False))
                if any((a.view, a.members) != (b.view, b.members) for a, b in both):
                    found.add("apart")
                elif len(ours) > len(theirs) and not stopped_before(other, ours[len(theirs)].at):
                    found.add("behind")
    return found


def installed_outside(rows: list[Row]) -> bool:
    return any(row.kind == "view" and not holds(row, row.process) for row in rows)


def disjoint_views_broken(rows: list[Row]) -> bool:
    for group in all_groups(rows):
        views = of_group(rows, group, "view")
        last_views = []
        for log in lives(rows):
            comings_and_goings = of_group(log, group, "view", "leave")
            if (
                of_group(log, group, "view")
                and last_life(rows, log)
                and not wrote(log, "crash")
                and comings_and_goings[-1].kind != "leave"
                and not any(stopped_before(log, view.at) for view in views)
            ):
                last_views.append(of_group(log, group, "view")[-1])
        for one, other in combinations(last_views, 2):
            same = (one.view, one.members) == (other.view, other.members)
            if not same and any(holds(other, bare(name)) for name in one.members or ()):
                return True
    return False
