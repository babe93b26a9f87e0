"""Why a member may have to wait for its group, from what its node sees of the others.

A machine knows better, where it says so: this is for all that it cannot know, such as a member
whose address nobody knows, or a seed that does not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from time import monotonic_ns
from types import MappingProxyType
from typing import NamedTuple

from ordercast.kernel.family import FoundingRule, Plan
from ordercast.kernel.founding import lacking, too_few
from ordercast.net.contact import Contact
from ordercast.units import SECOND

MOST_NAMES = 8
"""Names that a sentence lists. More are counted."""


class Absent(NamedTuple):
    """Members that are missing, and why, in a sentence; "": nothing is missing."""

    names: tuple[str, ...] = ()
    why: str = ""


class Absence:
    def __init__(
        self,
        plan: Plan,
        me: str,
        contacts: Mapping[str, Contact],
        present: Callable[[str], dict[str, bool]],  # `Directory.present`
        seeds: Iterable[str],
        refused_by: Mapping[str, str] = MappingProxyType({}),  # by place, and why
        groups: Callable[[], list[tuple[str, list[str]]]] = list,  # `Directory.groups_of_others`
        founded: bool = True,  # whether somebody founds such a group
        alone: bool = False,  # or a member has all of it by itself
    ) -> None:
        self._plan = plan
        self._me = me
        self._contacts = contacts
        self._present = present
        self._seeds = tuple(seeds)
        self._refused_by = refused_by
        self._groups = groups
        self._founded = founded
        self._alone = alone

    def has_company(self) -> bool:
        """Whether a connected node has joined the group, or waits for it too."""
        return bool(self._present(self._plan.group))

    def before(self) -> Absent:
        """Before this member is in the group."""
        plan = self._plan
        return self.of(plan.members, joining=True) if plan.entry is None else self._of_open_group()

    def of(self, names: Iterable[str], *, joining: bool = False) -> Absent:
        """Which of these members cannot be reached. Joining: or have not joined the group yet."""
        away, unknown, late = [], [], []
        present = self._present(self._plan.group)
        for name in names:
            contact = self._contacts.get(name)
            if name == self._me:
                continue
            if contact is not None and contact.connection is not None:
                if joining and name not in present:
                    late.append(name)
            elif contact is not None and (contact.place is not None or contact.node is not None):
                away.append(name)
            else:
                unknown.append(name)
        why = []
        if away:
            why.append(f"{_are(away)} not connected")
            why += self._refusals({self._contacts[name].place or "" for name in away})
        if unknown:
            more = "add it to [peers], or name a seed that knows it"
            why.append(f"no address of {listing(unknown)} is known: {more}")
        if late:
            has = "has" if len(late) == 1 else "have"
            why.append(f"{listing(late)} {has} not joined {self._plan.group!r}")
        return Absent((*away, *unknown, *late), "; ".join(why))

    def unacknowledged(self, names: Iterable[str], what: str = "it") -> str:
        """Why these may not have acknowledged what was sent, in a sentence."""
        late = (f"{name} has not acknowledged {what}, {self._state(name)}" for name in names)
        return "; ".join(late)

    def _state(self, name: str) -> str:
        contact = self._contacts.get(name)
        if contact is None or contact.connection is None:
            return "and is not connected"
        silent = monotonic_ns() - contact.connection.heard_at
        heard = f"and was last heard {silent / SECOND:.1f} s ago"
        if contact.is_live:
            return f"{heard}: its application may not read, or it waits for others itself"
        return f"{heard}: it may be paused or cut off"

    def _of_open_group(self) -> Absent:
        plan, entry = self._plan, self._plan.entry
        assert entry is not None
        present = self._present(plan.group)
        inside = tuple(sorted(name for name, is_in in present.items() if is_in))
        connected = sorted(
            name for name, contact in self._contacts.items() if contact.connection is not None
        )
        if inside:
            return Absent(inside, f"{_are(inside)} in {plan.group!r}, and will let this member in")
        if entry.founds:
            return Absent()
        if len(entry.last) > 1:
            last = tuple(name for name in entry.last if name != self._me)
            why = f"it was in {plan.group!r} with {listing(last)}: one of them must be in it"
            return Absent(last, f"{why}, or a majority must be here to found it again")
        if not connected:
            return Absent((), self._why_nobody(entry))
        names = tuple(sorted(present)) or tuple(connected)
        if entry.lost:
            why = lacking(entry, (self._me, *present), (self._me,))
            return Absent(names, f"nobody here is in {plan.group!r}: {why}")
        if entry.expect:
            return Absent((), too_few(entry.expect, (self._me, *present)))
        if entry.founder:
            return Absent((entry.founder,), f"{entry.founder} has not founded {plan.group!r} yet")
        if not present:
            joined = [f"{name} is in {listing(map(repr, some))}" for name, some in self._groups()]
            more = f" ({'; '.join(joined[:MOST_NAMES])})" if joined else ""
            return Absent(names, f"no connected node has joined {plan.group!r}{more}")
        if not self._founded:
            return Absent(names, f"{_are(names)} about to meet this member in {plan.group!r}")
        advice = f"give all of them expect={1 + len(present)}, members, or a founder"
        return Absent(names, f"they wait too, and none of them may found {plan.group!r}: {advice}")

    def _why_nobody(self, entry: FoundingRule) -> str:
        """No node is connected, and we wait for one that is in the group."""
        where = f"nobody answers at {listing(self._seeds)}" if self._seeds else "nobody is here"
        refused = "; ".join(self._refusals(self._refused_by))
        if entry.lost and not refused:
            return f"{where}: {lacking(entry, (self._me,), (self._me,))}"
        group = repr(self._plan.group)
        if refused:  # the reason says what to put right
            return f"{refused}, and this node may not found {group} by itself"
        there = "start a node there, or check the address" if self._seeds else "start another node"
        may = f"This node may found {group} only if its program gives join expect or a founder"
        if not self._founded:
            may = f"This node begins {group} alone only if its program gives join expect=1"
        if self._alone:
            may = f"Until then this node goes on alone with what its log of {group} has"
        return f"{where}: {there}. {may}"

    def _refusals(self, places: Collection[str]) -> list[str]:
        """What nodes that do not talk to us say, at these places."""
        refused = {place: what for place, what in self._refused_by.items() if place in places}
        return [f"{place} {what}" for place, what in sorted(refused.items())[:MOST_NAMES]]


def listing(names: Iterable[str]) -> str:
    names = list(names)
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _are(names: Iterable[str]) -> str:
    names = list(names)
    return f"{listing(names)} {'is' if len(names) == 1 else 'are'}"
