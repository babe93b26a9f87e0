"""Packets that are taken together: what follows from them comes later, and is the same.

The live driver hands over in one step what came together. Here, in the simulator, members put off
what follows even longer, from one packet to the next or until another door is called: so whatever a
bundle can leave open for a moment is left open all the time, and the laws still hold.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec
import pytest
from tests.protocol.newtop import formation_storms
from tests.protocol.newtop.storms import storm

from ordercast.errors import PeerError
from ordercast.kernel.family import Family, Plan, machine_for_all
from ordercast.kernel.inputs import Input
from ordercast.kernel.machine import Draining
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step, Timer
from ordercast.protocol.families import FAMILIES
from ordercast.protocol.newtop import FAMILY
from ordercast.protocol.newtop.member import NewtopMember
from ordercast.protocol.newtop.options import NewtopOptions
from ordercast.protocol.newtop.packets import Data, Null, Turn
from ordercast.types import Event, NodeId, Payloads
from ordercast.units import MILLISECOND

MOST = 4  # packets in a bundle


class Postpones(NewtopMember):
    """Drains before every other input, and when a few packets have come."""

    def __init__(self, me: NodeId, plans: tuple[Plan, ...], records: Any = ()) -> None:
        super().__init__(me, plans, records)
        self.taken = 0
        self.together = 0  # the most so far

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        if not isinstance(packet, Data | Turn | Null) or packet.label not in self.joined:
            self._drain(step)
        super().receive(step, sender, packet)
        self.taken += not self._is_drained
        self.together = max(self.together, self.taken)
        if self.taken == MOST:
            self._drain(step)

    def drain(self, step: Step) -> None:
        """Asked after every packet here, as none come together: it is done later."""

    def _drain(self, step: Step) -> None:
        self.taken = 0
        super().drain(step)

    def accepts(self, group: str, now: int) -> bool:
        return self._is_drained and super().accepts(group, now)

    def submit(self, step: Step, group: str, payloads: Payloads, size: int) -> Event:
        self._drain(step)
        return super().submit(step, group, payloads, size)

    def expire(self, step: Step, timer: Timer) -> None:
        self._drain(step)
        super().expire(step, timer)

    def on(self, step: Step, given: Input) -> None:
        self._drain(step)
        super().on(step, given)


built: list[Postpones] = []


def postpones(me: NodeId, plans: tuple[Plan, ...], records: Any) -> Postpones:
    built.append(Postpones(me, plans, records))
    return built[-1]


build = machine_for_all(postpones)


POSTPONES: Family = FAMILY._replace(build=build)


@pytest.mark.parametrize("first", range(1001, 1061, 10))
def test_whatever_goes_wrong_all_laws_hold(first: int) -> None:
    built.clear()
    for seed in range(first, first + 10):
        run = storm(seed, family=POSTPONES)
        assert not run.broken, f"seed {seed} of {run.groups}: {run.broken}"
    assert max(member.together for member in built) == MOST


@pytest.mark.parametrize("first", range(4001, 4041, 10))
def test_bundles_in_groups_of_all_kinds_keep_all_laws(first: int) -> None:
    for seed in range(first, first + 10):
        run = storm(seed, family=POSTPONES, sequenced=0.4, atomic=0.3)
        assert not run.broken, f"seed {seed} of {run.groups}: {run.broken}"


@pytest.mark.parametrize("first", range(5001, 5031, 10))
def test_bundles_while_groups_form_and_re_form_keep_all_laws(first: int) -> None:
    families = {
        name: family._replace(build=build) if family.one_machine else family
        for name, family in FAMILIES.items()
    }
    formed = 0
    for seed in range(first, first + 10):
        run = formation_storms.storm(seed, families=families)
        assert not run.broken, f"seed {seed}: {run.broken}"
        formed += run.formations(2)
    assert formed > 0


def test_a_bundle_is_delivered_as_its_packets_one_by_one() -> None:
    members = [NodeId(name) for name in ("a", "b", "c")]
    plan = Plan("g", ("a", "b", "c"), NewtopOptions())
    ours, theirs, quiet = (NewtopMember(me, (plan,)) for me in members)
    for machine in (ours, theirs, quiet):
        machine.start(Step(0))
    packets: list[Packet] = []
    for number in range(5):
        step = Step(number)
        theirs.submit(step, "g", [b"%d" % number], 1)
        packets += [packet for _, packet, _, _ in step.sent]
    one_by_one, together = Step(10), Step(10)
    copy = deepcopy(ours)
    for packet in packets:
        ours.receive(one_by_one, members[1], packet)
        ours.drain(one_by_one)
        copy.receive(together, members[1], packet)
    assert len(together.outputs) == 0
    copy.drain(together)
    reply = Step(20)
    for packet in packets:
        quiet.receive(reply, members[1], packet)
        quiet.drain(reply)
    for ticks in range(1, 40):  # until it has been silent for long enough
        reply.now = ticks * 20 * MILLISECOND
        quiet.expire(reply, "g")
    for _, packet, _, _ in reply.sent:
        ours.receive(one_by_one, members[2], packet)
        ours.drain(one_by_one)
        copy.receive(together, members[2], packet)
    copy.drain(together)
    copy.drain(together)  # nothing is left
    assert _delivered(together) == _delivered(one_by_one) == [b"0", b"1", b"2", b"3", b"4"]
    assert len(together.sent) <= len(one_by_one.sent)
    assert isinstance(copy, Draining)


def test_a_rejected_packet_of_a_bundle_changes_nothing() -> None:
    plan = Plan("g", ("a", "b"), NewtopOptions())
    ours, theirs = (NewtopMember(NodeId(name), (plan,)) for name in ("a", "b"))
    for machine in (ours, theirs):
        machine.start(Step(0))
    step = Step(1)
    theirs.submit(step, "g", [b"first"], 1)
    (_, packet, _, _) = step.sent[-1]
    taken = Step(2)
    ours.receive(taken, NodeId("b"), packet)
    gap = msgspec.structs.replace(packet, order=99, previous=98)
    with pytest.raises(PeerError, match="leaves out"):
        ours.receive(taken, NodeId("b"), gap)
    ours.drain(taken)
    assert _delivered(taken) == [b"first"]


def _delivered(step: Step) -> list[bytes]:
    return [data for event in step.outputs if isinstance(event, Event) for data in event.payloads]
