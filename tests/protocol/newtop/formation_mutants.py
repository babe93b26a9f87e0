"""Members that form groups with a planted bug each: the storms of formations must catch them."""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.kernel.family import Build, Family, Plan, machine_for_all
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step
from ordercast.protocol.newtop import FAMILY
from ordercast.protocol.newtop.attempt import Agreed
from ordercast.protocol.newtop.epoch import GroupEpoch
from ordercast.protocol.newtop.formation import NamedGroup
from ordercast.protocol.newtop.member import NewtopMember
from ordercast.protocol.newtop.packets import State
from ordercast.protocol.newtop.phase import Phase
from ordercast.protocol.newtop.transitions import Transitions
from ordercast.types import NodeId


class AsksTooEarly(Transitions):
    """Asks for the state before it has delivered all events of members that move with it."""

    says = "is lost on the way"

    def _has_all_of(self, current: GroupEpoch, following: GroupEpoch) -> bool:
        return True


class StaysWhereItWas(Transitions):
    """Continues to deliver in the old formation after it has provided its state."""

    says = "with other events"

    def depart(self, step: Step, epoch: GroupEpoch) -> None:
        named = self._named.get(epoch.name)
        entering = named.entering if named is not None else None
        if entering is None or entering.initiator != self._me:
            super().depart(step, epoch)


class CountsAnew(Transitions):
    """Numbers its events from one in every formation."""

    says = "twice"

    def start(self, step: Step, named: NamedGroup, agreed: Agreed) -> None:
        named.events = 0
        super().start(step, named, agreed)


class IgnoresTheState(GroupEpoch):
    """Begins with its own state and ignores the initiator's."""

    def begin(self, step: Step, message: State) -> None:
        state = step.outputs
        before = len(state)
        super().begin(step, message)
        del state[before:-1]


class TakesNothingOver(Transitions):
    """Is in formations of such groups."""

    says = "with other events"

    def start(self, step: Step, named: NamedGroup, agreed: Agreed) -> None:
        super().start(step, named, agreed)
        assert named.entering is not None
        named.entering.__class__ = IgnoresTheState


class GoesOnWithoutState(Transitions):
    """Treats a formation whose initiator is gone as one that has begun."""

    says = "with other events"

    def advance(self, step: Step) -> bool:
        for named in self._named.values():
            epoch = named.entering
            if epoch is not None and epoch.phase is Phase.FAILED:
                epoch.phase = Phase.BEGUN
                step.install(epoch.views.current())
        return super().advance(step)


MUTANTS: dict[str, type[Transitions]] = {
    "asks-too-early": AsksTooEarly,
    "stays-where-it-was": StaysWhereItWas,
    "counts-anew": CountsAnew,
    "takes-nothing-over": TakesNothingOver,
    "goes-on-without-state": GoesOnWithoutState,
}


def moving_by(kind: type[Transitions]) -> Build:
    """Builds members that move from formation to formation like this."""

    def mutated(me: NodeId, plans: tuple[Plan, ...], records: Sequence[Packet]) -> NewtopMember:
        member = NewtopMember(me, plans, records)
        member.transitions.__class__ = kind
        return member

    return machine_for_all(mutated)


def mutant(name: str) -> Family:
    return FAMILY._replace(build=moving_by(MUTANTS[name]))
