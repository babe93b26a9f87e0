"""Why nobody grants tickets: which lease replicas are missing, in a sentence for the application.

Without a majority of its lease replicas a cluster has no updater, and no member may replace them:
it cannot tell replicas that failed from replicas that are cut off and grant tickets elsewhere. So
an application that wants a ticket and gets none learns for whom it waits, and what helps.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ordercast.protocol.tickets.packets import Configuration
from ordercast.types import NodeId, Waiting

LEASES_TO_TELL = 4
"""A majority that is silent for so many leases is reported, and the same again as often. One that
lost its data folders is reported after one lease: it does not come back."""
MOST_NAMED = 16
BEGIN_ANEW = "stop all members, delete their data folders, and start them"
NOBODY_UPDATES = f"Nobody can update this group any more: {BEGIN_ANEW}"
RESTART_MISSING = (
    "Start the members that are missing, with their data folders. If these are lost, " + BEGIN_ANEW
)


class Shortage:
    """As one member sees it."""

    def __init__(self, group: str, lease: int) -> None:
        self._group = group
        self._lease = lease
        self._since: int | None = None
        self._told_at = 0
        self._told: Waiting | None = None

    def over(self) -> None:
        """We have a ticket, or want none."""
        self._since = self._told = None

    def look(
        self,
        now: int,
        replica_set: Configuration | None,
        reached: Mapping[str, NodeId],
        sealed: Collection[str],
        absent: Sequence[str],
    ) -> Waiting | None:
        """What the application is notified of, if that is new.

        `reached`: who is there, by name, as a replica. `sealed`: those that grant nothing, because
        they are being replaced. `absent`: others that were in the cluster.
        """
        missing: list[str] = []
        is_over = False  # no majority can come back
        if replica_set is not None:
            missing = [one.name for one in replica_set.replicas if reached.get(one.name) != one]
            granting = len(replica_set.replicas) - len({*missing, *sealed})
            if granting >= replica_set.majority:
                self._since = None
                return None
            lost = sum(name in reached for name in missing)
            is_over = len(replica_set.replicas) - lost < replica_set.majority
        if self._since is None:
            self._since = self._told_at = now
        if now - self._told_at < (1 if is_over else LEASES_TO_TELL) * self._lease:
            return None
        if replica_set is None:
            missing = list(absent[:MOST_NAMED])
        news = Waiting(
            self._group,
            tuple(missing),
            f"no ticket can be had: {_cause(replica_set, missing, reached, sealed)}. "
            + (NOBODY_UPDATES if is_over else RESTART_MISSING),
            self._since,
        )
        if news == self._told:
            return None
        self._told, self._told_at = news, now
        return news


def _cause(
    replica_set: Configuration | None,
    missing: Sequence[str],
    reached: Mapping[str, NodeId],
    sealed: Collection[str],
) -> str:
    if replica_set is None:
        return (
            "the lease replicas of this cluster do not answer, and no member that does knows which "
            "ones they are"
        )
    names = [one.name for one in replica_set.replicas]
    causes = {
        "no answer from {}": [name for name in missing if name not in reached],
        "{} lost the data folder": [name for name in missing if name in reached],
        "other members are to replace {}": [name for name in names if name in sealed],
    }
    said = [cause.format(" ".join(them)) for cause, them in causes.items() if them]
    least = replica_set.majority
    return f"it takes {least} of the lease replicas {' '.join(names)} ({'; '.join(said)})"
