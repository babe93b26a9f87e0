"""What the sides of a partition wrote apart, put together again: assisted merging, by messages.

Used by atm.py, tickets.py and work.py. Each member has a page, and writes on it what it has done.
Everybody has a copy of every page. A member asks the group before it does something (`ask`). All
members of its view deliver the request at the same place, and decide about it by the same rule.

 1. When sides merge, the first member of each side reports the pages of its side. Members of one
    side delivered the same, so one report a side is enough. When all members of the view are
    covered by reports, the view is settled: everybody takes each page from the side of its owner,
    and of an owner that is not there all that anybody has of it.
 2. If the view ends before that, each member reports for itself in the next one.
 3. Requests are decided in a settled view only. After a transitional view, requests of the members
    that go on together wait for the next view, because another part of the old view may decide
    otherwise. A member whose request was not decided sends it again.
 4. A request of a member that is gone is decided after the transitional view too: that member may
    have delivered it before, and acted on it. If it has not, its own page says so when it is back.

The page of a member survives its crash: the program writes `journal()` down before it does what was
decided, and gives it to the next incarnation. Pages grow for ever here; a real program would fold
them into a balance when everybody is there.

There is no socket and no clock here: `take` gets what the group yields and returns what to send.
"""

import json
from collections.abc import Iterable
from typing import Any

from ordercast import Message, NodeId, View

Page = dict[str, Any]


class Replica:
    """The pages as one member has them."""

    def __init__(self, me: NodeId, names: Iterable[str], journal: bytes = b"{}") -> None:
        self.me = me
        self.names = tuple(names)  # everybody who may be in the group
        self.pages: dict[str, Page] = {name: {} for name in self.names} | json.loads(journal)
        self.view: View | None = None
        self.together: tuple[NodeId, ...] = ()  # those who go on with us; fewer than the view
        self.is_settled = True
        self.reports: list[dict[str, Any]] = []  # of this view
        self.open: dict[str, list[Any]] = {}  # our requests that are not decided
        self.again: list[str] = []  # those of them that must be sent again
        self.asked = 0
        self.news: list[str] = []  # for the one who looks on

    def journal(self) -> bytes:
        return json.dumps(self.pages).encode()

    @property
    def page(self) -> Page:
        return self.pages[self.me.name]

    @property
    def is_whole(self) -> bool:
        """Whether everybody is in the view."""
        return self.view is not None and len(self.view.members) == len(self.names)

    @property
    def is_regular(self) -> bool:
        """No transitional view has come since the view."""
        return self.view is not None and self.together == self.view.members

    # --- what the program of an application fills in ------------------------------------------

    def decide(self, name: str, key: str, what: list[Any]) -> None:
        """Decides about a request of this member; all members of the view do it alike."""
        raise NotImplementedError

    def settled(self) -> None:
        """All in this view have the same pages now."""

    def done(self, key: str, what: list[Any]) -> None:
        """Our own request was decided: page[key] is there if it was granted."""

    # --- requests ------------------------------------------------------------------------------

    def ask(self, what: list[Any]) -> list[bytes]:
        self.asked += 1
        key = f"{self.me}.{self.asked}"
        self.open[key] = what
        self.again.append(key)
        return self._send_again()

    def _send_again(self) -> list[bytes]:
        if not self.is_settled or not self.is_regular:
            return []
        keys, self.again = self.again, []
        return [_encode(kind="request", key=key, what=self.open[key]) for key in keys]

    def may_decide(self, sender: NodeId) -> bool:
        return self.is_settled and (self.is_regular or sender not in self.together)

    # --- what the group yields -----------------------------------------------------------------

    def take(self, item: object) -> list[bytes]:
        """What to send, in answer to what was delivered."""
        match item:
            case View(transitional=True):
                self.together = item.members
            case View():
                return self._enter(item)
            case Message():
                words = json.loads(item.data)
                if words["kind"] == "request":
                    return self._take_request(item.sender, words["key"], words["what"])
                return self._take_report(words)
        return []

    def _enter(self, view: View) -> list[bytes]:
        self.view, self.together = view, view.members
        is_merged = view.came_with != view.members
        if self.is_settled and not is_merged:
            self.settled()
            return self._send_again()
        covers = [self.me.name]
        if self.is_settled:
            covers = [member.name for member in view.came_with]
        self.is_settled, self.reports = False, []
        if covers[0] != self.me.name:
            return []  # the first of our side reports for us
        return [_encode(kind="report", view=view.id, covers=covers, pages=self.pages)]

    def _take_report(self, words: dict[str, Any]) -> list[bytes]:
        if self.view is None or self.is_settled or words["view"] != self.view.id:
            return []  # it was made in a view that is over
        self.reports.append(words)
        covered = {name for report in self.reports for name in report["covers"]}
        if not covered.issuperset(member.name for member in self.view.members):
            return []
        self.pages = {name: self.merged(name) for name in self.names}
        self.is_settled = True
        self.settled()
        return self._send_again()

    def merged(self, name: str) -> Page:
        """The page of this member, by all reports of the view."""
        found: Page = {}
        for report in self.reports:
            if name in report["covers"]:
                return dict(report["pages"][name])
            found |= report["pages"][name]
        return found

    def _take_request(self, sender: NodeId, key: str, what: list[Any]) -> list[bytes]:
        decides = self.may_decide(sender)
        if decides:
            self.decide(sender.name, key, what)
        if sender != self.me:
            return []
        if not decides:
            self.again.append(key)
        else:
            self.done(key, self.open.pop(key))
        return self._send_again()


def _encode(**words: Any) -> bytes:
    return json.dumps(words).encode()
