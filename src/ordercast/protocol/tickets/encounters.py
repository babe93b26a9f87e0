"""Other clusters of our name that we met: the application is notified of each once."""

from __future__ import annotations

from ordercast.kernel.step import Step
from ordercast.types import NodeId, Waiting

MOST_TOLD = 8


class Encounters:
    def __init__(self, group: str) -> None:
        self._group = group
        self._told: dict[int, None] = {}  # clusters of which the application was notified
        self._met = False  # one was met since the last tick

    def tick(self) -> None:
        self._met = False

    def is_first(self) -> bool:
        """A member of another cluster sent something. Whether it is the first since a tick."""
        met, self._met = self._met, True
        return not met

    def notify(self, step: Step, member: NodeId, theirs: int, ours: int) -> None:
        """We met a member of another cluster, which is larger."""
        if theirs in self._told:
            return
        self._told[theirs] = None
        if len(self._told) > MOST_TOLD:
            del self._told[next(iter(self._told))]
        why = (
            f"two clusters of this name were founded: {member} is in {theirs:x}, and this node in "
            f"{ours:x}. Give this node a seed, and start it anew with an empty data folder"
        )
        step.notify(Waiting(self._group, (member.name,), why, step.now))
