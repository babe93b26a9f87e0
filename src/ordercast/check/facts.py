"""The facts that faster forms of laws may ask for, and the operations that they may call.

An engine passes an object with these names to a law's form. The value behind a name is the engine's
business: `Rows` are row numbers and `EventSet` a bit an event, both numpy arrays in
`ordercast.spark`, of which a form uses no more than is said here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Protocol, TypeAlias

from ordercast.check.history import History
from ordercast.check.log import Log

Rows: TypeAlias = Any
"""Rows of a run in local order: has a length, and `rows[:1]` is the first of them."""

EventSet: TypeAlias = Any
"""Events of a run: `&`, `|`, `~`, `==` by event, and `any()`."""

Segments: TypeAlias = Any
"""Several sequences of deliveries, without repetitions, that one order should suit."""


class RunFacts(Protocol):
    """One run as the vector engine sees it.

    skeleton         the skeleton rows: all rows about membership, views and tickets, the first row
                     of every incarnation, flawed rows, and all rows about a few events
    history          the plain history of the skeleton rows. It has the incarnations, members,
                     groups and flaws of the run; whoever stayed or was connected in the run did
                     so in it
    durable          whether a process history spans incarnations
    has_clock        whether a number a row was found that never falls within a process and grows
                     from every submission to its deliveries: then nothing was delivered before it
                     was submitted
    increasing       whether numbers increase along each process history's deliveries of a sender
    falls            each delivery with a smaller number than the one before it of the sender in
                     the process history, and that one
    repetitions      all deliveries of an event that the process history delivers more than once
    never_submitted  the deliveries of events that nobody is known to have submitted
    view_rows        the rows that install a view
    services         those that submissions and deliveries have
    without_gaps     whether every process history delivers all that precedes an event before it,
                     basic events and what is older than the process included; None: not known
    """

    @property
    def skeleton(self) -> Rows: ...
    @property
    def nothing(self) -> Rows: ...
    @property
    def history(self) -> History: ...
    @property
    def finished(self) -> bool: ...
    @property
    def durable(self) -> bool: ...
    @property
    def has_clock(self) -> bool: ...
    @property
    def increasing(self) -> bool: ...
    @property
    def falls(self) -> Rows: ...
    @property
    def repetitions(self) -> Rows: ...
    @property
    def never_submitted(self) -> Rows: ...
    @property
    def view_rows(self) -> Rows: ...
    @property
    def services(self) -> frozenset[str]: ...
    @property
    def without_gaps(self) -> bool | None: ...

    def once(self, select: Callable[[RunFacts], Rows]) -> Rows:
        """What another law's selection is, computed once."""

    def union(self, *several: Rows) -> Rows: ...

    def first_surpassed(self, deliveries: Rows) -> Rows:
        """The first of these whose origin's log goes on, and the submission that shows it."""

    # --- events ---

    def no_events(self) -> EventSet: ...

    def events_in(self, group: str) -> EventSet: ...

    def delivered_by(self, log: Log) -> EventSet: ...

    def given_up_by(self, log: Log) -> EventSet: ...

    def submitted_by(self, logs: Iterable[Log]) -> EventSet: ...

    def rows_about(self, events: EventSet) -> Rows: ...

    def tables_fit(self, logs: Collection[Log]) -> bool:
        """Whether there is memory for a set of events for each of these at once."""

    # --- order ---

    def history_segments(self) -> Segments:
        """What each process history delivered."""

    def view_segments(self) -> Iterator[Segments]:
        """View by view, what each incarnation in it delivered of the group until its next view."""

    def disorder(self, segments: Segments) -> Rows:
        """Nothing if some order suits all; else two deliveries each of two segments that
        contradict each other, and if there are none, what is left when all that can be merged is.
        With the rows of the views that they are in."""

    def causal_breaks(self, *, gaps: bool) -> Rows | None:
        """Nothing if no process history delivers an event after one that it precedes (and, with
        `gaps`, lacks nothing of the past). Else the break's group up to the first break of all.
        None if it cannot tell, as where basic events are links of the past and not judged."""

    def unequal_spans(self) -> Rows | None:
        """The first two spans between the same two views that hold different events; None if
        there are none."""

    def not_everywhere(self, service: str) -> EventSet:
        """Events delivered with this service that not all who came into a view delivered in it, or
        whose view has a member that never came into it. Perhaps some others."""

    # --- tickets ---

    def first_unstamped(self) -> Rows:
        """Of each group the first submission without a stamp entry at its index."""

    def equal_stamps(self) -> Rows:
        """Submissions of a group with the same index and the same stamp entry there."""


class SliceFacts(Protocol):
    """What all slices of a huge run show together.

    never_falling   numbers never fall along each process history's deliveries of a sender
    increasing      and never repeat
    known           every delivered event has its submission, and no event has two
    created         and time is a clock: it never falls within a process and grows from a submission
                    to its deliveries elsewhere
    has_views       there is a view row
    services        those that submissions and deliveries have
    equal_spans     events between the same two views have the same number and the same two 64-bit
                    digests in all incarnations that install both; two different sets would have to
                    collide in both
    in_causal_order, without_gaps  (pass "pasts") along every process history the running maximum
                    of the pasts stays below the event delivered, and within what was delivered
    one_order       (pass "order") the time of an event's first delivery increases along every
                    process history
    distinct_entries  (pass "entries") all submissions have a stamp entry at their index, no two of
                    a group the same, and their groups have ticket rows
    """

    @property
    def never_falling(self) -> bool: ...
    @property
    def increasing(self) -> bool: ...
    @property
    def known(self) -> bool: ...
    @property
    def created(self) -> bool: ...
    @property
    def has_views(self) -> bool: ...
    @property
    def services(self) -> frozenset[str]: ...
    @property
    def equal_spans(self) -> bool: ...
    @property
    def in_causal_order(self) -> bool: ...
    @property
    def without_gaps(self) -> bool: ...
    @property
    def one_order(self) -> bool: ...
    @property
    def distinct_entries(self) -> bool: ...

    def skeleton_without(self, kind: str) -> History:
        """The plain history of the skeleton rows, but for those of a kind."""

    def all_have_what_was_submitted(self) -> bool:
        """Every incarnation with rows in a group delivered as many events as were submitted."""

    def all_have_what_was_delivered(self) -> bool:
        """The same of what anybody delivered in the group. Needs the pass "order"."""
