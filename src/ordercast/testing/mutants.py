"""Protocols with a planted bug. Each breaks one law, and the checker must catch it.

They exist so that everybody can see the laws fail: `ordercast sim ... --mutant NAME`.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

from ordercast.kernel.family import Family, Plan
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step, Timer
from ordercast.protocol.cluster.causal_member import CausalMember
from ordercast.protocol.cluster.causality import Delivery
from ordercast.protocol.cluster.member import GossipMember
from ordercast.protocol.cluster.packets import Rumour
from ordercast.protocol.families import FAMILIES
from ordercast.protocol.fifo.member import Member
from ordercast.protocol.fifo.packets import Data
from ordercast.protocol.fifo.peers import Peer
from ordercast.types import Event, NodeId, event_number


class Invents(Member):
    """Makes up an event of a member that it sets aside."""

    breaks = "no-creation"

    def _set_aside(self, step: Step, peer: Peer) -> None:
        super()._set_aside(step, peer)
        assert peer.life is not None
        number = event_number(peer.life.incarnation, 999_999)
        step.deliver(Event(self.group, peer.life, number, [b"never said"]))


class Repeats(Member):
    """Delivers an event again when it is sent again, after a cut."""

    breaks = "no-duplication"

    def _receive_data(self, step: Step, peer: Peer, data: Data) -> None:
        stream = self.streams.get(data.origin)
        if stream is not None and data.number == stream.received_up_to:
            step.deliver(self._event(data))
        super()._receive_data(step, peer, data)


class Shuffles(Member):
    """Hands an event over only after the next one of its stream, now and then."""

    breaks = "fifo"

    def __init__(self, me: NodeId, plan: Plan, chance: Random) -> None:
        super().__init__(me, plan, chance)
        self.late: dict[NodeId, Event] = {}

    def _receive_data(self, step: Step, peer: Peer, data: Data) -> None:
        super()._receive_data(step, peer, data)
        event = step.outputs[-1] if step.outputs else None
        if not isinstance(event, Event):
            return
        late = self.late.pop(data.origin, None)
        if late is not None:
            step.outputs.append(late)
        elif data.number % 10 == 5:
            self.late[data.origin] = event
            step.outputs.pop()


class ForgetsTheDead(Member):
    """Does not relay what a crashed sender got to it alone."""

    breaks = "agreement"

    def _relay(self, step: Step) -> None:
        pass


class SkipsOne(Member):
    """Does not send every hundredth event to one of the members, and says that it did."""

    breaks = "completeness"

    def submit(self, step: Step, group: str, payloads: list[bytes], size: int) -> Event:
        event = super().submit(step, group, payloads, size)
        if self.own.received_up_to % 100 == 50 and step.sent:
            to, packet, channel, tokens = step.sent.pop()
            assert isinstance(packet, Data)
            step.sent.append((to[:-1], packet, channel, tokens[:-1]))
            hollow = Data(packet.group, packet.origin, packet.number, [], 0)
            step.send(to[-1], hollow)
        return event

    def _receive_data(self, step: Step, peer: Peer, data: Data) -> None:
        super()._receive_data(step, peer, data)
        if not data.payloads:
            step.outputs = [item for item in step.outputs if not isinstance(item, Event)]


class Hurries(CausalMember):
    """Delivers what waits without waiting, once it has waited for three rounds."""

    breaks = "optimistic-causal"

    def expire(self, step: Step, timer: Timer) -> None:
        super().expire(step, timer)
        if self.now % 3 == 0 and len(self.order):
            key = self.order.newest()
            update = self.order.peek(key)
            if update is not None:
                step.deliver(self._event(update, 1))


class ForgetsItsPast(CausalMember):
    """Stamps its events as if it had delivered nothing of others."""

    breaks = "optimistic-causal"

    def submit(self, step: Step, group: str, payloads: list[bytes], size: int) -> Event:
        clock, index = self.order.clock, self.tickets.index
        assert index is not None
        self.order.clock = [0] * len(clock)
        self.order.clock[index] = clock[index]
        try:
            return super().submit(step, group, payloads, size)
        finally:
            clock[index] = self.order.clock[index]
            self.order.begin(clock)


class SharesTickets(CausalMember):
    """The second updater believes that it owns the ticket of the first, too."""

    breaks = "ticket-uniqueness"

    def start(self, step: Step) -> None:
        super().start(step)
        if self.tickets.index == 1:
            step.note("ticket", group=self.group, index=0, cause="acquired")


class LetsGo(CausalMember):
    """Drops every fiftieth event of others without a word."""

    breaks = "completeness"

    def _deliver(self, step: Step, delivered: list[Delivery]) -> None:
        own = [one for one in delivered if one.update.number % 50 or one.update.origin == self.me]
        super()._deliver(step, own)


class Echoes(GossipMember):
    """Delivers what is relayed at its last hop once more."""

    breaks = "no-duplication"

    def _take(self, step: Step, rumour: Rumour, age: int) -> None:
        super()._take(step, rumour, age)
        if age > self.settings.hops // 2 and rumour.origin != self.me:
            step.deliver(self._event(rumour, age))


class Bug(NamedTuple):
    family: str
    kind: Any  # a class of machines whose attribute `breaks` names a law


_BUGS: dict[str, Bug] = {
    "invents": Bug("fifo", Invents),
    "repeats": Bug("fifo", Repeats),
    "shuffles": Bug("fifo", Shuffles),
    "forgets-the-dead": Bug("fifo", ForgetsTheDead),
    "skips-one": Bug("fifo", SkipsOne),
    "echoes": Bug("gossip", Echoes),
    "hurries": Bug("causal", Hurries),
    "forgets-its-past": Bug("causal", ForgetsItsPast),
    "shares-tickets": Bug("causal", SharesTickets),
    "lets-go": Bug("causal", LetsGo),
}

BREAKS: dict[str, str] = {name: str(bug.kind.breaks) for name, bug in _BUGS.items()}
"""Each mutant, and the law that it breaks."""
FAMILY_OF: dict[str, str] = {name: bug.family for name, bug in _BUGS.items()}
"""Each mutant, and the family that it is one of."""


def mutant_families(name: str) -> dict[str, Family]:
    """The families of this version, with the bug planted in its own."""
    family, kind = _BUGS[name]

    def build(
        me: NodeId, plans: tuple[Plan, ...], chance: Random, kept: Sequence[Packet]
    ) -> list[Machine]:
        return [kind(me, plan, chance) for plan in plans]

    return {**FAMILIES, family: FAMILIES[family]._replace(build=build)}
