"""What the kernel and fifo cost: one event through submit, codec and three receivers."""

from __future__ import annotations

from random import Random

from bench.table import Table, timed
from ordercast.kernel.family import Plan
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step
from ordercast.protocol.fifo import FAMILY
from ordercast.protocol.fifo.member import FifoMember
from ordercast.protocol.fifo.options import FifoOptions
from ordercast.types import NodeId
from ordercast.wire.codec import Codec

NAMES = ("n1", "n2", "n3", "n4")
EVENTS = 4000
PAYLOAD = b"x" * 100
BATCHES = (1, 10, 100)


class Mesh:
    """Four members joined by function calls: what they cost without any network."""

    def __init__(self, codec: Codec | None) -> None:
        plan = Plan("g", NAMES, FifoOptions(window=1 << 10, retain=1 << 12))
        self.members = {name: FifoMember(NodeId(name), plan, Random(name)) for name in NAMES}
        self.codec = codec
        for member in self.members.values():
            self._door(member, lambda step, member=member: member.start(step))
        for _ in range(3):
            self.heartbeat()

    def heartbeat(self) -> None:
        for member in self.members.values():
            self._door(member, lambda step, member=member: member.expire(step, "tick"))

    def submit(self, count: int) -> None:
        sender = self.members["n1"]
        payloads = [PAYLOAD] * count
        step = Step(0)
        sender.submit(step, "g", payloads, count * len(PAYLOAD))
        self._carry(sender.me, step)

    def _door(self, member: FifoMember, call) -> None:  # type: ignore[no-untyped-def]
        step = Step(0)
        call(step)
        self._carry(member.me, step)

    def _carry(self, sender: NodeId, step: Step) -> None:
        for to, packet, _, _ in step.sent:
            data = self.codec.encode(packet) if self.codec else b""
            for address in to:
                name = address if isinstance(address, str) else address.name
                arrived: Packet = self.codec.decode(data) if self.codec else packet
                answer = Step(0)
                self.members[name].receive(answer, sender, arrived)
                if answer.sent:
                    self._carry(self.members[name].me, answer)


def measure() -> list[Table]:
    rows = []
    for codec in (None, Codec([FAMILY])):
        for batch in BATCHES:
            mesh = Mesh(codec)

            def work(mesh: Mesh = mesh, batch: int = batch) -> None:
                for number in range(EVENTS):
                    mesh.submit(batch)
                    if number % 200 == 0:
                        mesh.heartbeat()

            timing = timed(work)
            deliveries = EVENTS * len(NAMES)
            rows.append(
                (
                    "with the codec" if codec else "state machines alone",
                    str(batch),
                    timing.each(deliveries),
                    timing.each(deliveries * batch),
                    timing.rate(deliveries * batch),
                    timing.shown_spread,
                )
            )
    columns = ("", "batch", "µs an event", "µs a message", "messages/s", "spread")
    note = "A delivery at one of 4 members, 100 bytes a message; heartbeats and stability included."
    return [Table("Kernel and fifo", columns, rows, note)]
