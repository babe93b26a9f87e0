"""Who has joined a group and is there, in whatever formation or none; and on which terms.

Rules.
 1. What is known of a member is its newest life, and what that said last. It counts while it was
    said within the last few rounds of our own announcements: time is counted in those.
 2. Terms are the options that all members must have alike, in words, so that people can be told
    what differs.

What it does not do: send anything.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

import msgspec

from ordercast.kernel.family import Plan
from ordercast.protocol.newtop.group import Group
from ordercast.protocol.newtop.options import Options
from ordercast.protocol.newtop.packets import Here
from ordercast.types import NodeId

FRESH = 3
"""So many rounds of announcements what somebody said counts."""


class Known(NamedTuple):
    life: NodeId
    here: Here
    tick: int


class Presence:
    def __init__(self, others: tuple[str, ...]) -> None:
        self.others = others
        self.ticks = 0  # rounds of announcements
        self._known: dict[str, Known] = {}
        self._objected: dict[str, NodeId] = {}  # whose terms the application was told of
        self._turn = -1  # the round in which we last invited

    def is_old(self, life: NodeId) -> bool:
        """Whether it is an earlier life than one that we have heard of."""
        known = self._known.get(life.name)
        return known is not None and life.incarnation < known.life.incarnation

    def note(self, life: NodeId, here: Here) -> None:
        self._known[life.name] = Known(life, here, self.ticks)

    def is_new_objection(self, life: NodeId) -> bool:
        """True once for each life."""
        if self._objected.get(life.name) == life:
            return False
        self._objected[life.name] = life
        return True

    def take_turn(self) -> bool:
        """True once a round."""
        if self._turn == self.ticks:
            return False
        self._turn = self.ticks
        return True

    def _fresh(self) -> list[Known]:
        return [known for known in self._known.values() if self.ticks - known.tick <= FRESH]

    def all_unformed(self) -> list[NodeId] | None:
        """The others' lives, if all are there and none is in a formation."""
        lives = [known.life for known in self._fresh() if known.here.formation is None]
        return lives if len(lives) == len(self.others) else None

    def is_largest(self, current: Group) -> bool:
        """Whether no part that we have heard of comes before ours."""
        view = current.views.members
        parts = [
            (-known.here.size, known.here.first)
            for known in self._fresh()
            if known.here.size and known.life not in view
        ]
        return (-len(view), view[0].name) <= min(parts, default=(0, ""))


def terms_of(plan: Plan, kind: type[Group]) -> dict[str, str]:
    """In words; what only concerns the member itself is left out."""
    names = " ".join(plan.members)
    if len(names) > 80:
        names = f"{len(plan.members)} of {blake2b(names.encode(), digest_size=8).hexdigest()}"
    assert isinstance(plan.options, Options)
    terms = {"kind": kind.kind, "members": names}
    for name, value in msgspec.structs.asdict(plan.options).items():
        if name != "invitations":
            terms[name] = str(value)[:100]
    return terms


def differences(ours: dict[str, str], theirs: dict[str, str]) -> str:
    """What is not the same, for people."""
    return "; ".join(
        f"{name} is {ours.get(name, 'unknown')} here and {theirs.get(name, 'unknown')} there"
        for name in sorted({**ours, **theirs})
        if ours.get(name) != theirs.get(name)
    )
