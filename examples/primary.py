"""One history in spite of partitions: only the side with most of the voters goes on.

Used by consensus.py and lock.py. The voters are the incarnations that began the group. A process
that restarts comes back as another incarnation: it gets the state and takes part, but has no vote,
because it has forgotten what it knew. The *primary* side has more than half of the voters, or half
of them and the first one by name. Two primary views have a voter in common, which carries what was
decided from one to the other, in these steps:

 1. In a new view every member reports its state, how new it is (`rank`), and the highest epoch that
    it knows (`promised`). When all have reported, all take the newest state.
 2. In a primary view all then promise an epoch above all that were reported, and say so. When all
    have, the state is of this epoch, and operations count from there on.

All of it is sent as safe. What a member delivers before its transitional view is delivered by all
members of the view that do not crash, some of them after their transitional view. So a member
applies an operation at either place, but what it applies is final (`is_final`) only before. What
was applied by a part of the view alone has a lower rank than the next epoch, and is forgotten.
Step 2 is necessary: without it two views could take the same epoch, one of them for a part of it
only.

There is no socket and no clock here: `take` gets what the group yields and returns what to send.
"""

import json
from collections.abc import Collection
from typing import Any

from ordercast import Message, NodeId, View


def is_primary(members: Collection[NodeId], voters: Collection[NodeId]) -> bool:
    here = [voter for voter in voters if voter in members]
    return 2 * len(here) > len(voters) or (
        2 * len(here) == len(voters) and min(voters, default=None) in here
    )


class Primary:
    """A state that only the primary side changes, as one member has it."""

    def __init__(self, me: NodeId, voters: Collection[NodeId], state: dict[str, Any]) -> None:
        self.me = me
        self.voters = tuple(sorted(voters))
        self.state = state
        self.rank = [0, 0]  # the epoch of the state, and how many operations it has in it
        self.promised = 0
        self.view: View | None = None
        self.is_final = False  # nobody of this view can miss what is delivered now
        self.reports: dict[NodeId, dict[str, Any]] = {}
        self.ready: list[NodeId] = []
        self.open: list[list[Any]] = []  # our operations that were not applied
        self.flying = 0  # how many of them are on their way
        self.news: list[str] = []  # for the one who looks on

    def journal(self) -> bytes:
        return b"{}"  # a crash loses all: the next incarnation has no vote

    @property
    def is_primary(self) -> bool:
        return self.view is not None and is_primary(self.view.members, self.voters)

    @property
    def is_working(self) -> bool:
        """Operations are applied: all have promised."""
        return self.view is not None and len(self.ready) == len(self.view.members)

    # --- what the program of an application fills in ------------------------------------------

    def report(self) -> dict[str, Any]:
        """What it adds to its report."""
        return {}

    def begin(self) -> None:
        """A primary view starts to work: the first operation of its epoch."""

    def learn(self) -> None:
        """All have reported, and the newest state is ours, in any view."""

    def apply(self, sender: NodeId, what: list[Any]) -> None:
        raise NotImplementedError

    # --- what the group yields -----------------------------------------------------------------

    def change(self, what: list[Any]) -> list[bytes]:
        """Wants an operation: it is sent as soon as a primary view works, until it is applied."""
        self.open.append(what)
        return self._send_open()

    def take(self, item: object) -> list[bytes]:
        """What to send, in answer to what was delivered."""
        match item:
            case View(transitional=True):
                self.is_final = False
            case View():
                self.view, self.is_final = item, True
                self.reports, self.ready = {}, []
                report = {"rank": self.rank, "promised": self.promised, "state": self.state}
                return [self._encode("report", report | self.report())]
            case Message():
                words = json.loads(item.data)
                if self.view is not None and words["view"] == self.view.id:
                    return getattr(self, f"_take_{words['kind']}")(item.sender, words["what"])
                if item.sender == self.me and words["kind"] == "change":
                    self.flying -= 1  # it was sent in another view: once more
                    return self._send_open()
        return []

    def _take_report(self, sender: NodeId, report: dict[str, Any]) -> list[bytes]:
        assert self.view is not None
        self.reports[sender] = report
        if len(self.reports) < len(self.view.members):
            return []
        newest = max(self.reports, key=lambda one: (self.reports[one]["rank"], one))
        self.rank, self.state = self.reports[newest]["rank"], self.reports[newest]["state"]
        self.promised = max(one["promised"] for one in self.reports.values())
        self.learn()
        if not self.is_primary:
            return []
        self.promised += 1
        return [self._encode("ready", {})]

    def _take_ready(self, sender: NodeId, _: dict[str, Any]) -> list[bytes]:
        self.ready.append(sender)
        if not self.is_working:
            return []
        self.rank = [self.promised, 0]
        self.begin()
        return self._send_open()

    def _take_change(self, sender: NodeId, what: list[Any]) -> list[bytes]:
        applied = self.is_working
        if applied:
            self.rank = [self.rank[0], self.rank[1] + 1]
            self.apply(sender, what)
        if sender == self.me:
            self.flying -= 1
            if applied and self.is_final:
                self.open.remove(what)
        return self._send_open()

    def _send_open(self) -> list[bytes]:
        """One at a time, so that none is applied twice in one view."""
        if not self.open or self.flying or not self.is_working or not self.is_final:
            return []
        self.flying += 1
        return [self._encode("change", self.open[0])]

    def _encode(self, kind: str, what: Any) -> bytes:
        assert self.view is not None
        return json.dumps({"kind": kind, "view": self.view.id, "what": what}).encode()
