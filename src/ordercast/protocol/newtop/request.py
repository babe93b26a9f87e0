"""A request to re-form a group: with which members, how often it was tried, who has answered.

Rules.
 1. Each try starts with a probe: all wanted members are asked four times whether they are
    reachable, until all have answered.
 2. A request without a probe waits for its next try, or for the outcome of a vote.
"""

from __future__ import annotations

from ordercast.protocol.newtop.packets import Here
from ordercast.types import NodeId

MOST_ROUNDS = 4
"""So often members are asked in one try."""
MOST_TRIES = 5
"""So often a request is tried before it fails."""


class Probe:
    """One try to find out which members are reachable."""

    def __init__(self, wanted: tuple[str, ...]) -> None:
        self.wanted = wanted
        self.rounds = 0  # how often they were asked
        self.answers: dict[str, tuple[NodeId, Here]] = {}

    def silent(self) -> tuple[str, ...]:
        return tuple(name for name in self.wanted if name not in self.answers)

    def incarnations(self) -> list[NodeId]:
        return [incarnation for incarnation, _ in self.answers.values()]

    def largest_view(self) -> NodeId | None:
        """A member of the largest view that is there; None: all are in no formation."""
        views = [
            (here.place, name, incarnation)
            for name, (incarnation, here) in self.answers.items()
            if here.size
        ]
        return min(views)[2] if views else None


class Request:
    def __init__(
        self, members: tuple[str, ...] | None, from_application: bool, is_join: bool = False
    ) -> None:
        self.members = members  # other than ourselves; None: all that are reachable
        self.from_application = from_application  # whether an application waits for the outcome
        self.is_join = is_join  # only for those that have asked to be taken into our view
        self.tries = 0
        self.probe: Probe | None = None  # None: it waits

    def start_probe(self, others: tuple[str, ...]) -> Probe:
        """The probe of this try. `others` are all other members of the group."""
        if self.probe is None:
            self.probe = Probe(others if self.members is None else self.members)
        return self.probe

    def is_fulfilled_by(self, others: set[str]) -> bool:
        """Whether we are in a view with these, whoever invited them."""
        return self.members is None or others == set(self.members)

    def fail(self) -> bool:
        """A try failed. False if that was the last one."""
        self.probe = None
        self.tries += 1
        return self.tries < MOST_TRIES
