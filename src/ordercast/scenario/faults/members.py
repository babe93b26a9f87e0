"""What happens to a member of a group, by its own will: `reform`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ordercast.errors import unknown_word
from ordercast.scenario.faults.fault import Families, Fault, Lot, World

if TYPE_CHECKING:
    from ordercast.scenario.schema import Scenario


class Reform(Fault, frozen=True, tag="reform"):
    """No fault: the nodes ask for their group to be formed anew, at a time and at once."""

    group: str = ""  # "": the only one

    def begin(self, world: World, others: Sequence[Fault]) -> None:
        for name in self.nodes:
            world.form(name, self.group)

    def check(self, scenario: Scenario, families: Families) -> Iterator[tuple[str, str]]:
        yield from super().check(scenario, families)
        groups = {group.name: group for group in scenario.groups()}
        if not self.group and len(groups) > 1:
            yield "", f"there are several groups: say which, as group = {next(iter(groups))!r}"
            return
        group = groups.get(self.group or next(iter(groups)))
        if group is None:
            yield "group", unknown_word("group", self.group, groups)
        elif families[group.name].formation is None:
            yield "kind", f"groups of {families[group.name].name} do not form"
        else:
            for name in self.nodes:
                if name not in group.members:
                    yield "nodes", f"{name} is not a member of group {group.name!r}"
        if self.lasts is not None:
            yield "for", "a group is formed anew at a time, not for a while"

    @classmethod
    def chaos_check(cls, scenario: Scenario, families: Families) -> Iterator[str]:
        if not all(family.formation for family in families.values()):
            yield "not all groups here can be formed anew"

    @classmethod
    def drawn(cls, lot: Lot) -> Fault:
        group = lot.draw.choice(lot.scenario.groups())
        return cls(at=lot.at, nodes=[lot.draw.choice(group.members)], group=group.name)
