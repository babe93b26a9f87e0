"""The primary view, as a group with a quorum has it: what may be sent, and what is known of sends.

| | a view is installed | it is primary | it is not |
|---|---|---|---|
| sends | wait | go on | raise `NoQuorum`; with `when_split = "wait"` they wait |
| messages that were accepted and not submitted | wait | are submitted | the same |
| messages that were submitted and not secured | wait | are secured when all have them | in doubt |

A message in doubt may be in the next primary view or not: nobody here can know. Its receipt never
says that a majority has it, whatever comes later. A message that was not secured when the group was
re-formed is in doubt, too, and so is one that was not when a primary view goes on with the history
of others (`Primary.up_to_date`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from ordercast.errors import OrdercastError
from ordercast.kernel.family import Quorum
from ordercast.net.absence import listing
from ordercast.net.formations import Reformed
from ordercast.net.progress import Progress
from ordercast.net.send_queue import SendQueue
from ordercast.types import NodeId, Primary, Secured, View

if TYPE_CHECKING:
    from ordercast.net.receipt import Receipt


class NoQuorum(OrdercastError):
    """This member is not in the primary view of its group."""

    def __init__(self, why: str, last: tuple[str, ...], missing: tuple[str, ...]) -> None:
        super().__init__(why)
        self.last = last  # names: the members of the last primary view that is known here
        self.missing = missing  # those of them that are not in this member's view


class PrimaryStatus:
    def __init__(
        self, me: NodeId, progress: Progress, queue: SendQueue, quorum: Quorum, options: Any
    ) -> None:
        self.news: Primary | None = None  # of the last view; None: it is not decided yet
        self._me = me
        self._progress = progress
        self._queue = queue
        self._waits, self._hint = quorum.waits(options), quorum.hint
        self._formation = ""
        self._under_way: deque[Receipt] = deque()  # at most a window of them
        self._loss: NoQuorum | None = None  # why nothing may be sent

    # --- what is sent ------------------------------------------------------------------------

    def refuse(self) -> None:
        """Raises why nothing may be sent now, unless sends wait."""
        if self._loss is not None and not self._waits:
            raise self._loss

    def sent(self, receipt: Receipt) -> None:
        if not receipt.secured:  # a member that is alone has that as soon as the event is made
            self._under_way.append(receipt)

    # --- what the machine reports ------------------------------------------------------------

    def installed(self, view: View) -> None:
        self.news = self._loss = None
        if view.formation != self._formation:
            self._formation = view.formation
            group = self._progress.group
            self._doubt(Reformed(f"{group!r} was re-formed before a majority had this"))

    def heard(self, news: Primary | Secured) -> None:
        if isinstance(news, Primary):
            self._decided(news)
        else:
            self._secured(news)

    def _secured(self, news: Secured) -> None:
        self._progress.secured_up_to = news.up_to
        while self._under_way and (self._under_way[0].number or 0) <= news.up_to:
            self._under_way.popleft()

    def _decided(self, news: Primary) -> None:
        self.news = news
        if news.is_primary:
            if self._me.name not in news.up_to_date:
                self._doubt(self._left_behind(news))
            return
        self._loss = self._lost(news, f"wait for a `Primary` in the stream, or {self._hint}")
        doubt = self._lost(news, "whether other members have this message is not known here")
        self._doubt(doubt)
        if not self._waits:
            self._queue.give_up(self._loss)

    def _left_behind(self, news: Primary) -> NoQuorum:
        return NoQuorum(
            f"primary view {news.number} of {self._progress.group!r} goes on with the history of "
            f"{listing(news.up_to_date)}: whether they have this message is not known here",
            tuple(one.name for one in news.view.members),
            (),
        )

    def _doubt(self, why: OrdercastError) -> None:
        for receipt in self._under_way:
            receipt.doubt = why
        self._under_way.clear()

    def _lost(self, news: Primary, advice: str) -> NoQuorum:
        last = "its founders are not known here"
        if news.last:
            last = f"the last one is number {news.number}: {listing(news.last)}"
            last += f"; missing: {listing(news.missing)}" if news.missing else ""
        group = self._progress.group
        why = f"{self._me} is not in the primary view of {group!r}: {news.why} ({last}); {advice}"
        return NoQuorum(why, news.last, news.missing)
