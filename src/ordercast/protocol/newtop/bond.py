"""A founding that a member started in and that has not begun there: what follows from it.

A member that has started in a founding cannot know whether it began elsewhere. If it founded the
group with others, there could be two. So it is bound:
 1. To the initiator, which knows whether it has cast the state. The member founds the group only
    together with it.
 2. If the initiator lost its folder, it does not know either. Then the member founds the group only
    together with all that were invited to that founding: none of them is in it.
 3. An initiator that restarts knows from its disk whether it had cast the state. If not, it is
    free: nobody can begin. If it had, others may have begun without it, and it founds the group
    only together with all of them, too.

The only member of a group, which lets others in, is in the same position: they may have begun
without it. From its `State` on it is bound as by rule 3. Where others were in the group before, the
folder names them, and that is enough.

The record is durable before the member's `Start` leaves, and the initiator's before its `State`
does. It is over some time after the epoch has begun: not in the same step, because the folder
remembers the members of a group after the records of the step are durable.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step
from ordercast.protocol.newtop.packets import FoundingRecord
from ordercast.types import NodeId

Members = Sequence[NodeId]


class Bond(NamedTuple):
    """By which founding a member is bound; by none: it is free."""

    initiator: str = ""  # "": we are it, and had cast the state
    members: tuple[str, ...] = ()

    def allows(self, present: Collection[str], lost: Collection[str] = ()) -> bool:
        """Whether the member may found the group with these."""
        if self.initiator in present and self.initiator not in lost:
            return True
        return set(self.members) <= set(present)


FREE = Bond()


class StartedFounding:
    """The founding of one group that we started in last, here and on the disk."""

    def __init__(
        self, me: str, group: str, last: tuple[str, ...] = (), records: Sequence[Packet] = ()
    ) -> None:
        """`last`: the members when we were last in the group. They are those of that founding if it
        has begun here."""
        self._me = me
        self._group = group
        self.record: FoundingRecord | None = None  # as the disk has it; None: nothing that counts
        for record in records:
            if isinstance(record, FoundingRecord) and record.group == group:
                self.record = record if record.members else None
        self.bond = FREE
        if self.record is not None and self.record.members != last:
            self.bond = self._bond_by(self.record)

    def _bond_by(self, record: FoundingRecord) -> Bond:
        if record.initiator != self._me:
            return Bond(record.initiator, record.members)
        return Bond("", record.members) if record.is_cast else FREE

    def start(self, step: Step, initiator: NodeId, members: Members) -> None:
        """We are about to start in a founding."""
        if len(members) > 1 and (initiator.name != self._me or self.bond == FREE):
            self._write(step, initiator.name, members)

    def cast(self, step: Step, members: Members) -> None:
        """We initiated it, and are about to cast the state."""
        if len(members) > 1:
            self._write(step, self._me, members, is_cast=True)

    def _write(
        self, step: Step, initiator: str, members: Members, *, is_cast: bool = False
    ) -> None:
        names = tuple(one.name for one in members)
        self._replace(step, FoundingRecord(self._group, initiator, names, is_cast))

    def _replace(self, step: Step, record: FoundingRecord) -> None:
        self.record = record if record.members else None
        step.persist(record)

    def has_failed(self) -> None:
        """An initiator that sees its own founding fail has not cast the state: it stays as bound
        as it was."""
        record = self.record
        if record is not None and record.initiator != self._me:
            self.bond = self._bond_by(record)

    def has_begun(self) -> None:
        self.bond = FREE

    def is_over(self, step: Step) -> None:
        """Some time after we have begun: the folder names the members of the group."""
        if self.record is not None:
            self._replace(step, FoundingRecord(self._group, "", ()))

    def remembers(self, name: str) -> bool:
        return self.record is not None and name in self.record.members

    def forget(self, step: Step, name: str) -> None:
        """The operator knows that this one is in no group, and will not come back."""
        record = self.record
        if record is None or not self.remembers(name):
            return
        if name == record.initiator:
            self._replace(step, FoundingRecord(self._group, "", ()))
            self.bond = FREE
            return
        left = tuple(one for one in record.members if one != name)
        self._replace(step, FoundingRecord(self._group, record.initiator, left, record.is_cast))
        if self.bond != FREE:
            self.bond = self.bond._replace(members=left)
