"""What members of a group do: `reform`, `leave`, `join`, `slow-reader`, `give`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec

from ordercast.errors import unknown_word
from ordercast.scenario.faults.fault import Families, Fault, FaultControls, Lot

if TYPE_CHECKING:
    from ordercast.scenario.schema import GroupSettings, Scenario


class Place(NamedTuple):
    """One member of one group, drawn at random."""

    group: str
    name: str


class OfMembers(Fault, frozen=True):
    """Of the nodes as members of one group."""

    momentary: ClassVar[str] = ""  # why it has no `for`, if it has none

    group: str = ""  # "": the only one

    def settled(self, scenario: Scenario) -> Fault:
        return msgspec.structs.replace(self, group=self.group or scenario.groups()[0].name)

    def check(self, scenario: Scenario, families: Families) -> Iterator[tuple[str, str]]:
        yield from super().check(scenario, families)
        groups = {group.name: group for group in scenario.groups()}
        if not self.group and len(groups) > 1:
            yield "", f"there are several groups: say which, as group = {next(iter(groups))!r}"
            return
        group = groups.get(self.group or next(iter(groups)))
        if group is None:
            yield "group", unknown_word("group", self.group, groups)
            return
        for name in self.nodes:
            if name not in group.members:
                yield "nodes", f"{name} is not a member of group {group.name!r}"
        yield from self.check_group(scenario, group, families)
        if self.lasts is not None and self.momentary:
            yield "for", self.momentary

    def check_group(
        self, scenario: Scenario, group: GroupSettings, families: Families
    ) -> Iterator[tuple[str, str]]:
        """What is wrong with it in this group."""
        return iter(())

    def concerns(self, name: str, group: str) -> bool:
        return name in self.nodes and group == self.group

    def nodes_without(self, kind: type[OfMembers], others: Sequence[Fault]) -> list[str]:
        """The nodes to which no other fault of this kind happens in this group."""
        same = [other for other in others if isinstance(other, kind)]
        return [
            name
            for name in self.nodes
            if not any(other.concerns(name, self.group) for other in same)
        ]


class Reform(OfMembers, frozen=True, tag="reform"):
    """No fault: the nodes ask for their group to be re-formed, at a time and at once."""

    momentary: ClassVar[str] = "a group is re-formed at a time, not for a while"

    def begin(self, world: FaultControls, others: Sequence[Fault]) -> None:
        for name in self.nodes:
            world.form(name, self.group)

    def check_group(
        self, scenario: Scenario, group: GroupSettings, families: Families
    ) -> Iterator[tuple[str, str]]:
        family = families[group.name]
        if family.formation is None:
            yield "kind", f"groups of {family.name} do not form"

    @classmethod
    def chaos_check(cls, scenario: Scenario, families: Families) -> Iterator[str]:
        if not all(family.formation for family in families.values()):
            yield "not all groups here can be re-formed"

    @classmethod
    def drawn(cls, lot: Lot) -> Fault:
        group, name = _place(lot)
        return cls(at=lot.at, nodes=[name], group=group)


class LeaveGroup(OfMembers, frozen=True, tag="leave"):
    """The members leave the group in an orderly way; with `for` they join it again afterwards.

    While it is active, no incarnation of the process is in the group.
    """

    @property
    def is_for_good(self) -> bool:
        return self.lasts is None

    def begin(self, world: FaultControls, others: Sequence[Fault]) -> None:
        for name in self.nodes:
            world.leave(name, self.group)

    def end(self, world: FaultControls, others: Sequence[Fault]) -> None:
        for name in self.nodes_without(LeaveGroup, others) if not self.is_for_good else ():
            world.join(name, self.group)

    def check_group(
        self, scenario: Scenario, group: GroupSettings, families: Families
    ) -> Iterator[tuple[str, str]]:
        family = families[group.name]
        if self.lasts is not None and not _may_rejoin(group.name, families):
            what = f"a member of a {family.name} group returns in a new incarnation"
            yield "for", f"{what}: leave `for` out"

    @classmethod
    def drawn(cls, lot: Lot) -> Fault | None:
        group, name = _place(lot)
        rejoins = lot.draw.random() < 0.7 and _may_rejoin(group, lot.families)
        if not rejoins and not lot.loses(name):
            return None
        lasts = lot.lasts if rejoins else None
        return cls(at=lot.at, nodes=[name], group=group, lasts=lasts)


class JoinGroup(OfMembers, frozen=True, tag="join"):
    """The members join the group. Those that did not leave it before join for the first time: they
    are not in it from the beginning."""

    momentary: ClassVar[str] = "a member joins at a time, not for a while"

    def prepare(self, world: FaultControls, faults: Sequence[Fault]) -> None:
        before = [other for other in faults if other.at < self.at]
        for name in self.nodes_without(LeaveGroup, before):
            if name in self.nodes_without(JoinGroup, before):
                world.keep_out(name, self.group)

    def begin(self, world: FaultControls, others: Sequence[Fault]) -> None:
        for name in self.nodes_without(LeaveGroup, others):
            world.join(name, self.group)

    @classmethod
    def drawn(cls, lot: Lot) -> Fault | None:
        group, name = _place(lot)
        return cls(at=lot.at, nodes=[name], group=group) if lot.loses(name) else None


class SlowReader(OfMembers, frozen=True, tag="slow-reader"):
    """The applications stop reading what the group delivers, for a while, and then read on."""

    def begin(self, world: FaultControls, others: Sequence[Fault]) -> None:
        for name in self.nodes:
            world.stop_reading(name, self.group)

    def end(self, world: FaultControls, others: Sequence[Fault]) -> None:
        for name in self.nodes_without(SlowReader, others):
            world.read_on(name, self.group)

    @classmethod
    def drawn(cls, lot: Lot) -> Fault:
        group, name = _place(lot)
        return cls(at=lot.at, nodes=[name], group=group, lasts=lot.lasts)


class Give(OfMembers, frozen=True, kw_only=True, tag="give"):
    """No fault: the applications of the nodes give their members an input of the family's."""

    momentary: ClassVar[str] = "an input is given at a time, not for a while"

    input: str  # the name of its class
    values: dict[str, Any] = {}

    def begin(self, world: FaultControls, others: Sequence[Fault]) -> None:
        for name in self.nodes:
            world.give(name, self.group, self.input, {"group": self.group, **self.values})

    @classmethod
    def chaos_check(cls, scenario: Scenario, families: Families) -> Iterator[str]:
        if not any(family.wish for family in families.values()):
            yield "which input, chance cannot know: write it as a [[fault]]"

    @classmethod
    def drawn(cls, lot: Lot) -> Fault | None:
        group, name = _place(lot)
        wish = lot.families[group].wish
        if wish is None:
            return None
        members = next(one.members for one in lot.scenario.groups() if one.name == group)
        word, values = wish(lot.draw, name, members)
        return cls(at=lot.at, nodes=[name], group=group, input=word, values=dict(values))


KINDS = (Reform, LeaveGroup, JoinGroup, SlowReader, Give)


def _place(lot: Lot) -> Place:
    group = lot.draw.choice(lot.scenario.groups())
    return Place(group.name, lot.draw.choice(group.members))


def _may_rejoin(group: str, families: Families) -> bool:
    """Whether a member that left can join again in the same incarnation."""
    return families[group].rejoins or families[group].one_machine
