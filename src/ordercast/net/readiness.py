"""Whether this member is in its group yet; while it is not, for whom it waits, and why.

Rules.
 1. A member is in its group from its first view on. Where there are no views, it is in when its
    machine notifies of it (`Joined`), or delivers an event.
 2. If the machine says for whom it waits, that counts. If it says nothing, the node's connections
    are the reason: listed members that are not connected, and those whose address nobody knows.
 3. The stream shows why the member waits when that has changed, at most once a second. A member
    that is in its group within a second shows nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from time import monotonic_ns

from ordercast.net.contact import Contact
from ordercast.types import Joined, Left, NodeId, View, Waiting

LOOK_SECONDS = 1.0
MOST_NAMES = 8
"""Names that a sentence lists. More are counted."""


class Readiness:
    def __init__(
        self,
        group: str,
        me: NodeId,
        listed: Iterable[str],  # the members of a closed group; of an open one only our own name
        contacts: Mapping[str, Contact],
        show: Callable[[Waiting], None],  # in the application's stream
    ) -> None:
        self.is_in = False
        self.view: View | None = None  # the last one that the machine installed
        self._present: dict[NodeId, None] = {}  # where there are no views
        self._group = group
        self._me = me
        self._listed = tuple(listed)
        self._contacts = contacts
        self._show = show
        self._since = monotonic_ns()
        self._told: Waiting | None = None  # by the machine
        self._shown: tuple[tuple[str, ...], str] | None = None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._look_later()

    @property
    def members(self) -> tuple[NodeId, ...]:
        """Of the last view, or else all that are present as far as this member knows."""
        return self.view.members if self.view is not None else tuple(sorted(self._present))

    # --- what the machine reports ----------------------------------------------------------------

    def heard(self, item: object) -> bool:
        """Takes note of any notification. Whether the application reads it at once."""
        match item:
            case Waiting():
                self._told = item
                self._look_later()
                return False
            case View():
                self.view = item
                self.enter()
            case Joined(member=member):
                self._present[member] = None
                if member == self._me:
                    self.enter()
            case Left(member=member):
                self._present.pop(member, None)
        return True

    def enter(self) -> None:
        """This member is in the group, or can go on."""
        self.is_in, self._told, self._shown = True, None, None

    # --- why it waits ------------------------------------------------------------------------

    @property
    def waiting(self) -> Waiting | None:
        """For whom this member waits; None: for nobody, as far as it knows."""
        if self._told is not None or self.is_in:
            return self._told
        on, why = self._absent(self._listed)
        return Waiting(self._group, on, why, self._since) if on else None

    def reason(self) -> str:
        """The end of a sentence that says that something took too long; "": nothing is known."""
        waiting = self.waiting
        if waiting is None:  # we are in it
            names = [member.name for member in self.members]
            on, why = self._absent(names)
            waiting = Waiting(self._group, on, why, monotonic_ns()) if on else None
        return "" if waiting is None else f": it {waiting_text(waiting)}"

    def _absent(self, names: Iterable[str]) -> tuple[tuple[str, ...], str]:
        away: list[str] = []
        unknown: list[str] = []
        for name in names:
            contact = self._contacts.get(name)
            if name == self._me.name or (contact is not None and contact.connection is not None):
                continue
            known = contact is not None and (contact.place is not None or contact.node is not None)
            (away if known else unknown).append(name)
        why = [f"{_listing(away)} not connected"] if away else []
        if unknown:
            why.append(
                f"no address of {_names(unknown)} is known: add it to [peers], or name a seed "
                "that knows it"
            )
        return (*away, *unknown), "; ".join(why)

    # --- the stream --------------------------------------------------------------------------

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._timer = None
        waiting = self.waiting
        if waiting is not None and self._shown != (waiting.on, waiting.why):
            self._shown = waiting.on, waiting.why
            self._show(waiting)
        if not self.is_in:
            self._look_later()

    def end(self) -> None:
        """The group has ended."""
        if self._timer is not None:
            self._timer.cancel()


def waiting_text(waiting: Waiting) -> str:
    """As an application reads it, after the one who waits."""
    seconds = (monotonic_ns() - waiting.since) / 1e9
    on = f" for {_names(waiting.on)}" if waiting.on else ""
    since = f", since {seconds:.1f} s" if seconds >= 0.1 else ""
    return f"waits{on}{since}: {waiting.why}"


def _names(names: Iterable[str]) -> str:
    names = list(names)
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _listing(names: list[str]) -> str:
    return f"{_names(names)} {'is' if len(names) == 1 else 'are'}"
