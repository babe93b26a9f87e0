"""Protocols with a planted bug. Each breaks one law, and the checker must catch it.

They exist so that everybody can see the laws fail: `ordercast sim ... --mutant NAME`.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from ordercast.kernel.machine import Family, Machine, Plan
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step
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
            to, packet, channel, token = step.sent.pop()
            assert isinstance(packet, Data)
            step.sent.append((to[:-1], packet, channel, token))
            hollow = Data(packet.group, packet.origin, packet.number, [], 0)
            step.send(to[-1], hollow)
        return event

    def _receive_data(self, step: Step, peer: Peer, data: Data) -> None:
        super()._receive_data(step, peer, data)
        if not data.payloads:
            step.outputs = [item for item in step.outputs if not isinstance(item, Event)]


_MUTANTS: dict[str, type[Member]] = {
    "invents": Invents,
    "repeats": Repeats,
    "shuffles": Shuffles,
    "forgets-the-dead": ForgetsTheDead,
    "skips-one": SkipsOne,
}

BREAKS: dict[str, str] = {name: str(vars(kind)["breaks"]) for name, kind in _MUTANTS.items()}
"""Each mutant, and the law that it breaks."""


def mutant_families(name: str) -> dict[str, Family]:
    """The families of this version, with the bug planted in its own."""
    kind = _MUTANTS[name]

    def build(
        me: NodeId, plans: tuple[Plan, ...], chance: Random, kept: Sequence[Packet]
    ) -> list[Machine]:
        return [kind(me, plan, chance) for plan in plans]

    return {**FAMILIES, "fifo": FAMILIES["fifo"]._replace(build=build)}
