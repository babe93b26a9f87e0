"""Who may found an open group: the rule that keeps two first foundings from coming about.

The first line that fits decides.
 1. It was the only member when it was last in the group: it founds it again if nobody answers who
    is in it. The others may have gone on without it, if it was cut off from them: so it asks first.
 2. It was in the group with others: it never founds alone. It joins who is in it, or founds with a
    majority of those others, all there and in no group.
 3. A peer knew its name, so an earlier incarnation may have been in the group: it never founds
    alone. With others that expect a number it counts as line 5 says.
 4. A founder is named: it founds if that is its own name.
 5. A number is expected: the first by name of so many nodes, all of them in no group, founds.
 6. It has no seeds: it founds.
 7. It has seeds: it waits for a member.

Of nodes that found a group together, the entry of each allows it. A node that is there and whose
entry does not allow it does not count, for it knows of others that may have the group; nor does it
keep those from founding that may. It joins them afterwards.

What it rests on: folders, which remember line 1 and 2, and an expected number that is more than
half of the nodes that give it. A node that lost its folder and meets nobody who knows its name
counts once more.

Nodes that lost their folders, with a number k that n nodes expect. The group was founded by k of
the n, if it was at all. A node that has its folder, and was never in the group, was not one of
them. So if more than n - k such nodes are there, fewer than k are left: nobody has founded the
group, and those that lost their folders may found it with them. If all n are there and in no group,
they may found it in any case: nobody is in it, but for members that joined later and expect
nothing. n is at most 2k - 1, and who says nothing else means that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from ordercast.kernel.family import FoundingRule
from ordercast.types import Joined, Left, View

MOST_NAMED = 8
"""Names that a sentence lists. More are counted."""


def entry_of(
    me: str,
    *,
    seeds: bool,
    expect: int = 0,
    of: int = 0,
    founder: str = "",
    reborn: bool = False,
    last: tuple[str, ...] = (),
) -> FoundingRule:
    """How `me` may come into the group. Reborn: its folder was lost, and a peer knew its name."""
    if last == (me,):
        return FoundingRule(founds=True, expect=expect, founder=founder, last=last, asks=True)
    if last:
        return FoundingRule(founder=founder, last=last)
    first = _first_entry(me, seeds, expect, of, founder)
    if not reborn:
        return first
    if first.founds:
        return FoundingRule(founder=founder, lost=True)
    return first._replace(lost=first.expect > 0, reborn=first.expect == 0)


def _first_entry(me: str, seeds: bool, expect: int, of: int, founder: str) -> FoundingRule:
    """Of a node that was never in the group."""
    if founder:
        return FoundingRule(founds=founder == me, founder=founder)
    if expect:
        return FoundingRule(founds=expect == 1, expect=expect, of=of)
    return FoundingRule(founds=not seeds)


def remembered(last: tuple[str, ...], news: object) -> tuple[str, ...]:
    """What the folder says of a group's members once this was heard: they are as of the last view.

    Without views it names everybody who joined, until it leaves: a member that is merely silent may
    have the group.
    """
    match news:
        case View(members=members):
            return tuple(sorted(member.name for member in members))
        case Joined(member=member):
            return tuple(sorted({*last, member.name}))
        case Left(member=member, why="left"):
            return tuple(sorted({*last} - {member.name}))
    return last


def suffices(entry: FoundingRule, present: Collection[str], lost: Collection[str] = ()) -> bool:
    """Whether these names, all there and in no group, may found it; our own is among them.

    `lost`: those of them that do not know whether they were in the group.
    """
    if entry.founds:
        return True
    if len(entry.last) > 1:
        return 2 * len(set(entry.last) & set(present)) > len(entry.last)
    if not 0 < entry.expect <= len(present):
        return False
    sure = len(set(present) - set(lost))
    return sure > _most(entry) - entry.expect or len(present) >= _most(entry)


def _most(entry: FoundingRule) -> int:
    """How many nodes there can be that expect the number."""
    return entry.of or 2 * entry.expect - 1


def awaited(entry: FoundingRule | None) -> int:
    """How many members there must be before a view is shown, where nobody founds the group.

    A node that has seeds, and was never in the group, came to join others: it waits for one. One
    that was in it with others may be on one of several sides, and begins alone.
    """
    if entry is None:
        return 1
    if entry.expect:
        return entry.expect
    return 1 if entry.founds or entry.last else 2


def awaiting(entry: FoundingRule | None, present: Collection[str]) -> str:
    """Why a view of these is not shown, where nobody founds the group."""
    if entry is not None and not entry.expect:
        return "no other member is here yet, and this one came to join others"
    return too_few(awaited(entry), present)


def is_short(entry: FoundingRule, present: Collection[str]) -> bool:
    """Whether nodes are missing of which nobody knows the names."""
    return len(entry.last) <= 1 and len(present) < entry.expect


def too_few(expect: int, present: Collection[str]) -> str:
    """Who is there, of so many that are expected, and what helps."""
    names, more = sorted(present), len(present) - MOST_NAMED
    listed = " ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    here = f"{len(names)} of {expect} expected nodes are here ({listed})"
    missing = expect - len(names)
    if missing <= 0:
        return here
    return f"{here}: start {missing} more, or give all of them a lower expect if there are no more"


def lacking(entry: FoundingRule, present: Collection[str], lost: Collection[str] = ()) -> str:
    """Why these do not suffice, and what helps, in a sentence without a group."""
    if len(entry.last) > 1:
        return f"founding it again takes more than half of {' '.join(entry.last)}"
    if entry.expect and len(present) >= entry.expect:
        most, names = _most(entry), " ".join(sorted(lost))
        more = f"; if fewer than {most} nodes give expect, say how many at each of them (of=...)"
        return (
            f"{names} lost the data folder, and may have been in the group: founding it takes "
            f"{most - entry.expect + 1} nodes that did not lose theirs, or all {most}"
            f"{'' if entry.of else more}"
        )
    if entry.expect:
        return too_few(entry.expect, present)
    if entry.lost:
        return (
            "this node lost its data folder, and may have been in the group: it does not found it "
            "again. If nobody is in it any more, stop all nodes that wait for it, delete their "
            "data folders, and start them"
        )
    if entry.founder:
        return f"{entry.founder} founds it"
    return "give expect, members or a founder"


def founders_of(names: Iterable[str], may: Callable[[str, tuple[str, ...]], bool]) -> set[str]:
    """The most of these nodes that may found the group together. They are there, and in no group.

    `may` says of one of them whether its own entry allows it with these. What it allows with some
    it allows with more: so who is left out can found the group with none of those that are there.
    """
    founders = set(names)
    while True:
        present = tuple(sorted(founders))
        allowed = {name for name in present if may(name, present)}
        if allowed == founders:
            return founders
        founders = allowed
