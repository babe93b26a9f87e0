"""Members that form groups with a planted bug each: the storms of formations must catch them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from ordercast.kernel.family import Family, Plan
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step
from ordercast.protocol.newtop import FAMILY
from ordercast.protocol.newtop.formation import Forming, Founding
from ordercast.protocol.newtop.group import Group
from ordercast.protocol.newtop.member import Member
from ordercast.protocol.newtop.packets import State
from ordercast.types import NodeId


class AsksTooEarly(Member):
    """Asks for the state before all that those who come along have cast is delivered."""

    says = "is lost on the way"

    def _has_all_of(self, current: Group, following: Group) -> bool:
        return True


class StaysWhereItWas(Member):
    """Delivers on in the old formation after it has given its state."""

    says = "with other events"

    def _depart(self, step: Step, group: Group) -> None:
        forming = self.forming.get(group.name)
        if forming is None or forming.next is None or forming.next.initiator != self.me:
            super()._depart(step, group)


class CountsAnew(Member):
    """Numbers its events from one in every formation."""

    says = "twice"

    def _found(self, step: Step, forming: Forming, founding: Founding) -> None:
        forming.events = 0
        super()._found(step, forming, founding)


class KeepsItsOwn(Group):
    """Begins with the state that it has, whatever it is given."""

    def begin(self, step: Step, message: State) -> None:
        state = step.outputs
        before = len(state)
        super().begin(step, message)
        del state[before:-1]


class TakesNothingOver(Member):
    """Is in formations of such groups."""

    says = "with other events"

    def _found(self, step: Step, forming: Forming, founding: Founding) -> None:
        forming.kind = KeepsItsOwn
        super()._found(step, forming, founding)


class GoesOnWithoutState(Member):
    """Takes a formation whose initiator is gone for one that has begun."""

    says = "with other events"

    def _go_over(self, step: Step) -> bool:
        for forming in self.forming.values():
            if forming.next is not None and forming.next.is_over:
                forming.next.is_over, forming.next.has_begun = False, True
                step.install(forming.next.views.current())
        return super()._go_over(step)


MUTANTS: dict[str, type[Member]] = {
    "asks-too-early": AsksTooEarly,
    "stays-where-it-was": StaysWhereItWas,
    "counts-anew": CountsAnew,
    "takes-nothing-over": TakesNothingOver,
    "goes-on-without-state": GoesOnWithoutState,
}


def mutant(name: str) -> Family:
    def build(
        me: NodeId, plans: tuple[Plan, ...], chance: Random, kept: Sequence[Packet]
    ) -> list[Machine]:
        return [MUTANTS[name](me, plans)]

    return FAMILY._replace(build=build)
