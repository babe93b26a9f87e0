"""How members of different views meet: announcements, answers, and candidates.

The rules are those of `courting.py`. Here they are carried out: what is sent, when and to whom.
"""

from __future__ import annotations

from ordercast.kernel.family import Plan
from ordercast.kernel.step import DATAGRAM, Step
from ordercast.protocol.transis.acquaintances import KnownNames
from ordercast.protocol.transis.configuration import OpenConfiguration
from ordercast.protocol.transis.courting import Courting
from ordercast.protocol.transis.options import SynchronyOptions
from ordercast.protocol.transis.packets import Court, Decline, Failed, Hello, Joined
from ordercast.types import NodeId


class Announcer:
    def __init__(self, me: NodeId, plan: Plan, phase: float) -> None:
        assert isinstance(plan.options, SynchronyOptions)
        self.me = me
        self.group = plan.group
        self.options = plan.options
        self.names = KnownNames(me.name, plan)
        self.courting = Courting(me, plan.options, phase)
        self._rested_at: int | None = None  # when somebody may be courted again

    # --- announcements -----------------------------------------------------------------------

    def tick(self, step: Step, current: OpenConfiguration, time: int) -> None:
        is_due = self.courting.hello_at <= time
        if is_due:
            self.courting.announced(time)
            outside = self.names.next_round(node.name for node in current.members)
            if outside:
                step.send(outside, self._hello(current, time), DATAGRAM)
        if self._rested_at is not None and self._rested_at <= time:
            self._rested_at, is_due = None, True
        if is_due and current.change.stage == 0:
            self._court(step, self.courting.outsiders(time), current, time)

    def _hello(self, current: OpenConfiguration, time: int) -> Hello:
        return Hello(self.group, current.cid, self.courting.echo(time), current.members)

    def deadline(self, current: OpenConfiguration, time: int) -> int:
        """When we announce ourselves next, or somebody has rested."""
        hello_at = self.courting.hello_at
        if current.change.stage:
            return hello_at
        self._rested_at = self._rested_at or self.courting.next_rest(time)
        return hello_at if self._rested_at is None else min(hello_at, self._rested_at)

    def receive_hello(
        self, step: Step, sender: NodeId, hello: Hello, current: OpenConfiguration, time: int
    ) -> tuple[Joined, Failed]:
        """An announcement. Returns what it adds to the suggestion of a change."""
        courting = self.courting
        self.names.heard(sender.name)
        self.names.tell(node.name for node in hello.members)
        if courting.is_old(sender):
            return (), ()
        joined = current.change.suggestion.joined
        is_new = courting.hear(sender, hello, time)
        if is_new or self.me not in hello.echo:
            step.send(sender, self._hello(current, time), DATAGRAM)
        if is_new:
            courting.announce_soon(time)
        if current.change.is_failed(sender):
            return (), ()
        if sender in current.members:
            is_elsewhere = hello.cid.height >= current.cid.height and hello.cid != current.cid
            return (), (sender,) if is_elsewhere else ()  # or it said so before it came here
        if sender in joined:  # it may be in another view now
            return (((sender, hello.cid),) if hello.cid > joined[sender] else ()), ()
        older = [node for node in current.members if node.name == sender.name and node < sender]
        if older:
            return tuple(courting.candidates((sender,), time)), tuple(older)
        change, wait = current.change, self.options.court_for // 2
        is_early = change.court_until is not None and time + wait <= change.court_until
        if change.stage == 0 or is_early:  # those who decline it need time to say so
            self._court(step, [sender], current, time)
        return (), ()

    # --- candidates --------------------------------------------------------------------------

    def _court(
        self, step: Step, nodes: list[NodeId], current: OpenConfiguration, time: int
    ) -> None:
        courted = current.change.suggestion.joined
        candidates = self.courting.candidates(nodes, time, courted)
        if candidates and current.change.court(candidates, time + self.options.court_for):
            self._tell(step, current)

    def _tell(self, step: Step, current: OpenConfiguration) -> None:
        if current.others:
            joined, _ = current.change.suggestion.as_proposed()
            step.send(current.others, Court(self.group, current.cid, joined))

    def receive_court(
        self, step: Step, court: Court, current: OpenConfiguration, time: int
    ) -> None:
        """A member of our view has candidates."""
        change = current.change
        if change.stage == 2:
            return
        wanted = []
        for node, cid in court.joined:
            if node in current.members:
                continue
            if not self.courting.is_heard(node, time):
                step.send(current.others, Decline(self.group, current.cid, node))
                self.courting.set_back(node, time)
            elif not self.courting.rests(node, time) and self._outdo(step, node, current, time):
                wanted.append((node, cid))
        was_idle = change.stage == 0
        if change.court(wanted, time + self.options.court_for) and was_idle:
            self._tell(step, current)

    def _outdo(self, step: Step, node: NodeId, current: OpenConfiguration, time: int) -> bool:
        """Of candidates that do not hear each other the one with the smallest name stays. Whether
        this one does."""
        rivals = [
            other
            for other in current.change.suggestion.joined
            if other not in current.members and not self.courting.may_meet(node, other)
        ]
        stays = not rivals or node < min(rivals)
        for rival in rivals if stays else [node]:
            step.send(current.others, Decline(self.group, current.cid, rival))
            if current.change.decline(rival):
                self.courting.set_back(rival, time)
        return stays

    def receive_decline(self, decline: Decline, current: OpenConfiguration, time: int) -> None:
        if current.change.decline(decline.candidate):
            self.courting.set_back(decline.candidate, time)

    # --- afterwards --------------------------------------------------------------------------

    def rest(
        self,
        failed: tuple[NodeId, ...],
        former: OpenConfiguration,
        members: tuple[NodeId, ...],
        time: int,
    ) -> None:
        """A change is over: who failed in it is not courted again for a while."""
        for node in failed:
            if node in former.members and node not in members:
                self.courting.excluded(node, former.cid, time)
            elif node not in members:
                self.courting.set_back(node, time)
