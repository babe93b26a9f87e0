"""Groups with virtual synchrony, each without one of the rules: a law must notice its absence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from ordercast.kernel.clocks import Vector
from ordercast.kernel.family import Mutant
from ordercast.kernel.step import Step
from ordercast.protocol.transis.carrier import ByLinks, Carriage
from ordercast.protocol.transis.change import ConfigurationChange
from ordercast.protocol.transis.configuration import OpenConfiguration
from ordercast.protocol.transis.gaps import GappyGraph
from ordercast.protocol.transis.graph import CausalGraph, Position
from ordercast.protocol.transis.member import SynchronyMember, built_of
from ordercast.protocol.transis.multicast import ByMulticast, MulticastCarrier
from ordercast.protocol.transis.options import SynchronyOptions
from ordercast.protocol.transis.packets import Cast, ConfigurationId, Joint, SideKnowledge
from ordercast.protocol.transis.recovery import EventRequests
from ordercast.protocol.transis.services import THE_END, Deliveries
from ordercast.protocol.transis.suggestion import Decision


class _WaitsForNobody(ConfigurationChange):
    def joint(self) -> tuple[Decision, Joint] | None:
        decision = self.decision
        if decision is None or self.dirty or decision.id not in self.readied:
            return None
        return decision, (SideKnowledge(self.cid, self.readies[self.me].known),)


class _WithoutReadiness(OpenConfiguration):
    change_type = _WaitsForNobody


class InstallsEarly(SynchronyMember):
    """Installs what is decided as soon as it is ready itself."""

    configuration_type = _WithoutReadiness


class _Uncut(OpenConfiguration):
    def end(self, step: Step, decision: Decision, joint: Joint, is_shown: bool) -> None:
        """All that was admitted is delivered."""
        everything = tuple(self.graph.received)
        super().end(step, decision._replace(cut=everything), joint, is_shown)


class _Thaws(ConfigurationChange):
    def freeze(self, graph: CausalGraph) -> None:
        """Nothing is frozen."""


class _WithoutFreezing(_Uncut):
    change_type = _Thaws


class TakesFromTheGone(SynchronyMember):
    """Takes events of members that do not come along, beyond the cut."""

    configuration_type = _WithoutFreezing


class _WithOwnKnowledge(OpenConfiguration):
    def _knowledge(self, decision: Decision, joint: Joint) -> tuple[Position, Vector]:
        positions, acks = [THE_END], [decision.cut]
        for place, node in enumerate(self.members):
            if node not in decision.came_with:
                positions.append((self.graph.high_of(place) + 1, place))
                acks.append(self.graph.acks[place])
        return min(positions), tuple(map(min, *acks)) if len(acks) > 1 else decision.cut


class KnowsByItself(SynchronyMember):
    """Ends the regular part of a view by what it knows itself."""

    configuration_type = _WithOwnKnowledge


class _Unnumbered(ConfigurationChange):
    def decide(self) -> Decision | None:
        if super().decide() is not None:
            assert self.decision is not None
            cid = self.decision.id
            self.decision = self.decision._replace(id=ConfigurationId(cid.height, cid.rep, 0))
        return self.decision


class _WithoutSerials(OpenConfiguration):
    change_type = _Unnumbered


class CountsNoProposals(SynchronyMember):
    """Names a configuration by its height and its first member alone."""

    configuration_type = _WithoutSerials


class _Unbound(_Uncut):
    def may_cast(self) -> bool:
        return True


class CastsLate(SynchronyMember):
    """Casts what waits although a cut binds it, and delivers what is beyond the cut."""

    configuration_type = _Unbound


class _Hopes(Deliveries):
    def may_deliver(self, place: int, cast: Cast, horizon: Position, stable: Vector) -> bool:
        return (cast.height, place) < horizon


class _WithoutSafety(OpenConfiguration):
    deliveries_type = _Hopes


class HopesForTheBest(SynchronyMember):
    """Delivers safe events like agreed ones."""

    configuration_type = _WithoutSafety


class _Overtaking(Deliveries):
    def _take_causal(self, received: Sequence[int], due: list[tuple[int, Cast]]) -> bool:
        moved = False
        for place, queue in enumerate(self.queues):
            while queue and queue[0].service == "causal":
                self._pop(place, due)
                moved = True
        return moved


class _WithoutWaiting(OpenConfiguration):
    deliveries_type = _Overtaking


class Overtakes(SynchronyMember):
    """Delivers causal events before the agreed and safe ones of others that they follow."""

    configuration_type = _WithoutWaiting


class _AsAdmitted(Deliveries):
    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._admitted: dict[tuple[int, int], int] = {}  # in which order

    def add(self, place: int, cast: Cast) -> None:
        self._admitted[place, cast.seq] = len(self._admitted)
        super().add(place, cast)

    def _first_ordered(self) -> int | None:
        heads = [
            (queue[0].height, self._admitted[place, queue[0].seq], place)
            for place, queue in enumerate(self.queues)
            if queue and queue[0].service != "causal"
        ]
        return min(heads)[2] if heads else None


class _WithoutTies(OpenConfiguration):
    deliveries_type = _AsAdmitted


class BreaksTies(SynchronyMember):
    """Delivers events of one height as it admitted them."""

    configuration_type = _WithoutTies


class ForgetsWhatWaits(SynchronyMember):
    """Casts nothing of what waited for the next view."""

    def _install(self, step: Step, decision: Decision, joint: Joint) -> None:
        self.own.give_up()
        super()._install(step, decision, joint)


class _Mute(OpenConfiguration):
    def beat(self, step: Step, time: int) -> None:
        self._beat_at = time + self.options.silence_limit


class NeverBeats(SynchronyMember):
    """Sends no heartbeats, so idle members suspect each other for ever."""

    configuration_type = _Mute


class _Incurious(EventRequests):
    def look(self, step: Step, time: int) -> None:
        """Nothing that is missing is asked for."""


class _WithoutRequests(MulticastCarrier):
    requests_type = _Incurious


class _Boastful(GappyGraph):
    def status(self) -> tuple[int, int, Vector]:
        """It has what it was shown."""
        sent, clock, vector = super().status()
        return sent, clock, tuple(map(max, vector, self.told))


class _WithBoasts(MulticastCarrier):
    graph_type = _Boastful


def _carried(by: type[MulticastCarrier]) -> Callable[[SynchronyOptions, Random], Carriage]:
    def carriage(options: SynchronyOptions, chance: Random) -> Carriage:
        return ByMulticast(chance, by) if options.multicast else ByLinks()

    return carriage


class AsksForNothing(SynchronyMember):
    """Never asks for what multicast has lost."""

    carriage_of = staticmethod(_carried(_WithoutRequests))


class AcknowledgesWhatIsLost(SynchronyMember):
    """Acknowledges what it was shown and does not have yet, so others discard it."""

    carriage_of = staticmethod(_carried(_WithBoasts))


MUTANTS = {
    "installs-early": Mutant("safe", built_of(InstallsEarly)),
    "takes-from-the-gone": Mutant("virtual-synchrony", built_of(TakesFromTheGone)),
    "knows-by-itself": Mutant("virtual-synchrony", built_of(KnowsByItself)),
    "counts-no-proposals": Mutant("view-agreement", built_of(CountsNoProposals)),
    "casts-late": Mutant("virtual-synchrony", built_of(CastsLate)),
    "hopes-for-the-best": Mutant("safe", built_of(HopesForTheBest)),
    "overtakes": Mutant("causal-in-view", built_of(Overtakes)),
    "breaks-ties": Mutant("total-in-view", built_of(BreaksTies)),
    "forgets-what-waits": Mutant("self-delivery", built_of(ForgetsWhatWaits)),
    "never-beats": Mutant("rest", built_of(NeverBeats)),
    "asks-for-nothing": Mutant("rest", built_of(AsksForNothing)),
    "acknowledges-what-is-lost": Mutant("safe", built_of(AcknowledgesWhatIsLost)),
}
