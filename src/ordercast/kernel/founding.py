"""Who may found an open group: the rule that keeps two first foundings from coming about.

The first line that fits decides.
 1. It was the only member when it was last in the group: it founds, for nobody else has the group.
 2. It was in the group with others: it never founds alone. It joins who is in it, or founds with a
    majority of those others, all there and in no group.
 3. A peer knew its name, so an earlier incarnation may have been in the group: it never founds.
 4. A founder is named: it founds if that is its own name.
 5. A number is expected: the first by name of so many nodes, all of them in no group, founds.
 6. It has no seeds: it founds.
 7. It has seeds: it waits for a member.

What it rests on: folders, which remember line 1 and 2, and an expected number that is more than
half of the nodes that may start before the group exists. A node that lost its folder and meets
nobody who knows its name counts once more.
"""

from __future__ import annotations

from ordercast.kernel.family import FoundingRule


def entry_of(
    me: str,
    *,
    seeds: bool,
    expect: int = 0,
    founder: str = "",
    reborn: bool = False,
    last: tuple[str, ...] = (),
) -> FoundingRule:
    """How `me` may come into the group. Reborn: its folder was lost, and a peer knew its name."""
    if last == (me,):
        return FoundingRule(founds=True, expect=expect, founder=founder, last=last)
    if last or reborn:
        return FoundingRule(founds=False, expect=0, founder=founder, last=last)
    if founder:
        return FoundingRule(founds=founder == me, founder=founder)
    if expect:
        return FoundingRule(founds=expect == 1, expect=expect)
    return FoundingRule(founds=not seeds)


def suffices(entry: FoundingRule, present: tuple[str, ...]) -> bool:
    """Whether these names, all there and in no group, may found it; our own is among them."""
    if entry.founds:
        return True
    if len(entry.last) > 1:
        return 2 * len(set(entry.last) & set(present)) > len(entry.last)
    return 0 < entry.expect <= len(present)
