"""What became of a send, for who wants to know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ordercast.errors import OrdercastError, UsageError, unknown_word

if TYPE_CHECKING:
    from ordercast.net.group import Group

Until = Literal["queued", "delivered", "stable"]
UNTIL = ("queued", "delivered", "stable")


def check_until(until: str, group: str, tells_stability: bool) -> None:
    if until not in UNTIL:
        raise UsageError(unknown_word("word for until", str(until), UNTIL))
    if until == "stable" and not tells_stability:
        raise UsageError(
            f"{group!r} is a cluster, in which nobody knows who has what: wait until "
            "'delivered', there is no 'stable'"
        )


class Receipt:
    """What became of a send. Shared by the messages of one batch, which share their fate."""

    __slots__ = ("_group", "failure", "number")

    def __init__(self, group: Group, number: int | None = None) -> None:
        self._group = group
        self.number = number  # of the event, once it was submitted
        self.failure: OrdercastError | None = None  # why it was not, and will not be

    def __repr__(self) -> str:
        return f"Receipt(group={self._group.name!r}, number={self.number})"

    @property
    def delivered(self) -> bool:
        """This member has delivered it to its own stream."""
        return self.number is not None and self.number <= self._group.delivered_up_to

    @property
    def stable(self) -> bool:
        """Every present member has it."""
        known = self.number is not None and self.failure is None
        return known and (self.number or 0) <= self._group.stable_up_to

    async def wait(self, until: Until = "stable") -> Receipt:
        """Waits until it is so. GroupClosed if the group ends before, TicketLost if our right to
        send does, Reformed if the group is formed anew."""
        check_until(until, self._group.name, self._group.tells_stability)
        if self.number is None:
            self._group.hurry()
        while until != "queued" and not (self.stable if until == "stable" else self.delivered):
            if self.failure is not None:
                raise self.failure
            await self._group.change()
        return self
