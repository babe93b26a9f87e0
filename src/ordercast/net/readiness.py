"""Whether this member is in its group yet; while it is not, for whom it waits, and why.

Rules.
 1. A member is in its group from its first view on. Where there are no views, it is in when its
    machine notifies of it (`Joined`), or delivers an event.
 2. If the machine names those for whom it waits, that counts, together with what the node sees of
    them. If it knows of nobody, what the node sees of all is the reason (`absence.py`).
 3. The stream shows why the member waits when that has changed, at most once a second. A member
    that is in its group within a second shows nothing. A view ends the wait, and so does a
    `Waiting` for nobody, which the stream shows if it has shown the wait.
 4. A member whose own application is asked for its state, and does not read, waits for that. Nobody
    would read it in the stream: it is logged.
 5. A `send` that is blocked for a second is logged, with the members that have not acknowledged
    what was sent before it. Until it goes on, `waiting` names them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import monotonic_ns

from msgspec.structs import replace

from ordercast.net.absence import Absence, listing
from ordercast.types import (
    Joined,
    Left,
    NodeId,
    SideStates,
    StateGiven,
    StateLost,
    Updating,
    View,
    Waiting,
)
from ordercast.units import SECOND

log = logging.getLogger("ordercast.net")

LOOK_SECONDS = 1.0
MOST_LATE = 3
"""Members that an error names because they have not acknowledged a message."""
NEWS_OF_MEMBERS = (View, Waiting, Joined, Left, StateGiven, SideStates, StateLost)
"""What says that a member waits, or has what it waited for, or does without it."""
BLOCKED = "send is blocked"
UNREAD = "the state of this application is needed, and it does not read: read the group"


class Readiness:
    def __init__(
        self,
        group: str,
        me: NodeId,
        absence: Absence,
        show: Callable[[Waiting], None],  # in the application's stream
        changed: Callable[[], None],  # it is in the group now, or the group has other members
        owes_state: Callable[[], bool] = lambda: False,  # it is asked for its state
        behind: Callable[[], tuple[NodeId, ...]] = tuple,  # who has not what this member sent
        blocked_since: Callable[[], int] = lambda: 0,  # since when a `send` waits; 0: none does
    ) -> None:
        self.is_in = False
        self.view: View | None = None  # the last one that the machine installed
        self._present: dict[NodeId, None] = {}  # where there are no views
        self._group = group
        self._me = me
        self._absence = absence
        self._show = show
        self._changed = changed
        self._owes_state = owes_state
        self._owes_since = 0
        self._behind = behind
        self._blocked_since = blocked_since
        self._since = monotonic_ns()
        self._logged = 0  # since when the `send` was blocked that was logged last
        self._told: Waiting | None = None  # by the machine
        self._shown: tuple[tuple[str, ...], str] | None = None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._look_later()

    @property
    def members(self) -> tuple[NodeId, ...]:
        """Of the last view, or else all that are present as far as this member knows."""
        return self.view.members if self.view is not None else tuple(sorted(self._present))

    @property
    def founding(self) -> str:
        return self.view.founding if self.view is not None else ""

    @property
    def has_company(self) -> bool:
        """Whether a connected node has joined the group too, on whatever terms."""
        return self._absence.has_company()

    # --- what the machine reports ----------------------------------------------------------------

    def heard(self, item: object) -> bool:
        """Takes note of any notification. Whether the application reads it at once."""
        match item:
            case Waiting(why=""):
                was_shown, self._told, self._shown = self._shown is not None, None, None
                return was_shown
            case Waiting():
                self._told = item
                self._look_later()
                return False
            case StateGiven() | SideStates() | StateLost():
                if self.is_in:  # with the state, or without one that does not come
                    self.enter()
            case Updating(cause="acquired" | "resumed"):
                self._told = self._shown = None
            case View():
                self.view = item
                self.enter()
            case Joined(member=member):
                self._present[member] = None
                if member == self._me:
                    self.enter()
                else:
                    self._changed()
            case Left(member=member):
                self._present.pop(member, None)
                self._changed()
        return True

    def state_wanted(self) -> None:
        """The application is asked for its state, when it has read so far."""
        self._owes_since = monotonic_ns()
        self._look_later()

    def enter(self) -> None:
        """This member is in the group, or can go on."""
        self.is_in, self._told, self._shown = True, None, None
        self._changed()

    # --- why it waits ------------------------------------------------------------------------

    @property
    def waiting(self) -> Waiting | None:
        """For whom this member waits; None: for nobody, as far as it knows."""
        told = self._told
        if self._owes_state():
            return Waiting(self._group, (self._me.name,), UNREAD, self._owes_since)
        if told is not None and told.on:
            seen = self._absence.of(told.on).why
            return replace(told, why=f"{told.why} ({seen})") if seen else told
        if self.is_in:
            return told if told is not None else self._blocked()
        on, why = self._absence.before()
        return Waiting(self._group, on, why, self._since) if why else told

    def blocked(self) -> None:
        """A `send` waits until others have acknowledged more."""
        self._look_later()

    def _blocked(self) -> Waiting | None:
        since, names = self._blocked_since(), self._late()
        if not since or not names or monotonic_ns() - since < LOOK_SECONDS * SECOND / 2:
            return None
        why = f"{BLOCKED}: {self._absence.unacknowledged(names, 'what was sent')}"
        return Waiting(self._group, names, why, since)

    def _late(self) -> tuple[str, ...]:
        return tuple(member.name for member in self._behind()[:MOST_LATE])

    def reason(self) -> str:
        """The end of a sentence that says that something took too long; "": nothing is known."""
        waiting = self.waiting
        if waiting is None:  # we are in it
            on, why = self._absence.of(member.name for member in self.members)
            waiting = Waiting(self._group, on, why, monotonic_ns()) if on else None
        return "" if waiting is None else f": it {waiting_text(waiting)}"

    def late(self) -> str:
        """The same of a message that not all have: who has not acknowledged it."""
        names = self._late()
        if self.waiting is not None or not names:
            return self.reason()
        why = self._absence.unacknowledged(names)
        return f": it {waiting_text(Waiting(self._group, names, why, monotonic_ns()))}"

    # --- the stream --------------------------------------------------------------------------

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._timer = None
        waiting = self.waiting
        if waiting is not None and waiting.why.startswith(BLOCKED):
            if waiting.since != self._logged:
                self._logged = waiting.since
                log.warning("%s: %s %s", self._group, self._me, waiting_text(waiting))
        elif waiting is not None and self._shown != (waiting.on, waiting.why):
            self._shown = waiting.on, waiting.why
            if waiting.why == UNREAD:
                log.warning("%s: %s", self._group, UNREAD)
            else:
                self._show(waiting)
        if not self.is_in or self._blocked_since():
            self._look_later()

    def end(self) -> None:
        """The group has ended."""
        if self._timer is not None:
            self._timer.cancel()


def waiting_text(waiting: Waiting) -> str:
    """As an application reads it, after the one who waits."""
    if not waiting.why:
        return "goes on"
    seconds = (monotonic_ns() - waiting.since) / 1e9
    on = f" for {listing(waiting.on)}" if waiting.on else ""
    since = f", since {seconds:.1f} s" if seconds >= 0.1 else ""
    return f"waits{on}{since}: {waiting.why}"
