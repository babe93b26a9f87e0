"""Fifo groups with a planted bug. Each breaks one law, and the checker must catch it."""

from __future__ import annotations

from typing import Any

from ordercast.kernel.family import Mutant
from ordercast.kernel.step import Step
from ordercast.protocol.fifo.building import machines
from ordercast.protocol.fifo.member import FifoMember
from ordercast.protocol.fifo.open_members import OpenMembers
from ordercast.protocol.fifo.packets import Data
from ordercast.protocol.fifo.peers import Peer
from ordercast.types import Event, NodeId, event_number


class Invents(FifoMember):
    """Makes up an event of a member that it sets aside."""

    def _set_aside(self, step: Step, peer: Peer) -> None:
        super()._set_aside(step, peer)
        assert peer.node is not None
        number = event_number(peer.node.incarnation, 999_999)
        step.deliver(Event(self.group, peer.node, number, [b"never sent"]))


class Repeats(FifoMember):
    """Delivers an event again when it is sent again, after a network cut."""

    def _receive_data(self, step: Step, peer: Peer, data: Data) -> None:
        stream = self.streams.by_origin.get(data.origin)
        if stream is not None and data.number == stream.received_up_to:
            step.deliver(self._event(data))
        super()._receive_data(step, peer, data)


class Shuffles(FifoMember):
    """Delivers an event only after the next one of its stream, now and then."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
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


class ForgetsTheDead(FifoMember):
    """Does not relay what a crashed sender got to it alone."""

    def _relay(self, step: Step) -> None:
        pass


class SkipsOne(FifoMember):
    """Does not send every hundredth event to one of the members, and pretends that it did."""

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


class ForgetsPlaces(OpenMembers):
    """Forgets how far it had received a peer that it drops."""

    def drop(self, member: FifoMember, name: str) -> None:
        super().drop(member, name)
        member.streams.places.clear()


class SkipsBeginnings(OpenMembers):
    """Does not report what it missed before it met the sender."""

    def missed(self, member: FifoMember, origin: NodeId, after: int, is_owed: bool) -> int:
        return 0


MUTANTS = {
    "invents": Mutant("no-creation", machines(Invents)),
    "repeats": Mutant("no-duplication", machines(Repeats)),
    "shuffles": Mutant("fifo", machines(Shuffles)),
    "forgets-the-dead": Mutant("agreement", machines(ForgetsTheDead)),
    "forgets-places": Mutant("no-duplication", machines(open_as=ForgetsPlaces)),
    "skips-beginnings": Mutant("agreement", machines(open_as=SkipsBeginnings)),
    "skips-one": Mutant("completeness", machines(SkipsOne)),
}
