"""One run, read once and put in order: what every law looks at.

Theory of operation. The rows of a trace come in any interleaving. A history sorts them into
logs, one for each incarnation of a process, in local order, which is (incarnation, step) and never
`at`. Events get small numbers in the order in which they are met, so that laws work on lists
and sets of integers. Nothing here judges.

Words.

  log              what one incarnation of one process wrote
  process history  the log, or logs, over which order is judged: one incarnation, or all
                   incarnations of a process that had the same data folder (folders.py) if the
                   family is durable, because a member of such a family remembers after a restart
                   what it delivered
  flaw             a row that breaks the contract. A law that needs such a row answers `unknown`: an
                   unknown kind and two rows with the same step concern every law, a missing column
                   those laws that read rows of its kind. Rows that are merely out of order in the
                   file are not flawed: `step` gives their place.

Where a family has services, the cause of submit and deliver rows says which one an event has, and
the header what that promises. A law may judge some of them apart from others (`serving`): it names
what is promised, and the family's words are nothing to it.

A submit row counts as a submission only at its origin: a row of n2 about a submission of n1 proves
nothing about n1.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import count, islice
from operator import attrgetter, ge
from typing import NamedTuple, TypeAlias

from ordercast.check.folders import Start, numbered_folders
from ordercast.check.log import Log, joined
from ordercast.check.past import Past
from ordercast.check.verdict import row_event, row_writer
from ordercast.kernel.family import Promises
from ordercast.protocol.families import FAMILIES
from ordercast.trace.schema import CAUSES, KINDS, Ending, Row, Trace

FamilyPromises: TypeAlias = Mapping[str, Promises]
"""What families promise, by the names that traces have."""

PROMISES: FamilyPromises = {
    family.name: family.promises for family in FAMILIES.values() if family.promises is not None
}

EventKey: TypeAlias = tuple[str, str, int]
"""(group, origin, number): what identifies an event."""

EVENT_KINDS = ("submit", "deliver")
BASIC = "basic"
_EVENT_COLUMNS = ("group", "origin", "number")
REQUIRED = {
    "submit": _EVENT_COLUMNS,
    "deliver": _EVENT_COLUMNS,
    "lose": _EVENT_COLUMNS,
    "join": ("group",),
    "leave": ("group",),
    "view": ("group", "view", "members"),
    "primary": ("group", "view", "members", "order", "cause"),
    "parent": ("group",),
    "ticket": ("group", "cause"),
    "suspect": ("peer",),
}
"""The columns without which a row of the kind says nothing."""

REQUESTS = ("wanted", "refused")
"""Causes of ticket rows that are not about owning one."""

FAILURES = {
    "crash": "{0.process} crashed",
    "leave": "{0.process} left {0.group}",
    "suspect": "{0.process} suspected {0.peer}",
    "exclude": "{0.process} excluded {0.peer}",
}
"""The kinds of rows about members that show a failure, and what to say of such a row."""


class Flaw(NamedTuple):
    """What is wrong with a row, and the kind that it concerns: None for all of the trace."""

    kind: str | None
    why: str


class History:
    """The index of one run. Built once and shared by all laws."""

    def __init__(self, trace: Trace, promises: FamilyPromises = PROMISES) -> None:
        self.header = trace.header
        self.promises = promises.get(trace.header.family or "")  # of the run's family, if known
        self._promises = promises
        self.finished = trace.header.ending == Ending.FINISHED
        self.durable = self.promises is not None and self.promises.durable
        self.flaws: list[Flaw] = []
        self.submits: dict[int, Row] = {}
        self.submitters: dict[int, Log] = {}  # the incarnation that submitted the event
        # (who, whom), by name: in which groups.
        self.suspicions: dict[tuple[str, str], set[str | None]] = {}
        self.kinds: set[str] = set()  # but for deliver, which nobody asks about
        self._ids: defaultdict[EventKey, int] = defaultdict(count().__next__)
        self.logs = [
            Log(process, incarnation, rows)
            for (process, incarnation), rows in sorted(_by_incarnation(trace.rows).items())
        ]
        for log in self.logs:
            self._read(log)
        self.events: list[EventKey] = list(self._ids)
        self.group_of = [key[0] for key in self.events]
        if any(None in key for key in self.events):
            self._find_incomplete_events()
        self._sets: dict[tuple[str, int, str], dict[str, set[int]]] = {}
        self._serving: dict[tuple[str, ...], History] = {}

    def flaw(self, kinds: Iterable[str]) -> str | None:
        """Why a law that reads these kinds cannot judge, if it cannot."""
        wanted = {None, *kinds}
        return next((flaw.why for flaw in self.flaws if flaw.kind in wanted), None)

    @property
    def calm(self) -> bool:
        """Whether the rows show no failure: no crash, suspicion, exclusion, loss or restart.

        And nobody left: where a family does not know who has what, the last events of a member that
        leaves may be with nobody, and no row would say so.
        """
        shown = self.kinds & {*FAILURES, "lose"}
        return not shown and len(self.last_logs) == len(self.logs)

    @property
    def first_failure(self) -> str:
        """What happened first to a member, in a run that is not calm."""
        found = [row for log in self.logs for row in log.rows if row.kind in FAILURES]
        found += [log.rows[0] for log in self.logs if log is not self.first_logs[log.process]]
        if not found:
            return "an event was lost"
        first = min(found, key=lambda row: (row.at, row.process, row.step))
        return FAILURES.get(first.kind, "{0.process} restarted").format(first)

    @property
    def unfinished(self) -> str:
        """Why a law about what never happened cannot judge a run that did not finish."""
        return f"the run is {self.header.ending}, not finished: what is missing may still have come"

    @cached_property
    def first_logs(self) -> dict[str, Log]:
        """The first incarnation of each process in this run, whatever its number."""
        return {log.process: log for log in reversed(self.logs)}

    @cached_property
    def last_logs(self) -> dict[str, Log]:
        """The last incarnation of each process."""
        return {log.process: log for log in self.logs}

    def is_only_log(self, log: Log) -> bool:
        """Whether no other incarnation of its process is in this run."""
        return self.first_logs[log.process] is log is self.last_logs[log.process]

    @cached_property
    def histories(self) -> list[Log]:
        """The process histories, over which order is judged."""
        if not self.durable:
            return self.logs
        several: dict[int, list[Log]] = {}
        for log in self.logs:
            several.setdefault(self.history_of(log), []).append(log)
        return [joined(logs) for logs in several.values()]

    def history_of(self, log: Log) -> int:
        """Of which process history this log is, or the first one of: its place in `histories`."""
        return self._history_numbers[log.process, log.incarnation]

    @cached_property
    def _history_numbers(self) -> dict[tuple[str, int], int]:
        numbers: Iterable[int] = count()
        if self.durable:
            numbers = numbered_folders(
                Start(log.process, log.start.at if log.start else None, log.began_empty)
                for log in self.logs
            )
        return {
            (log.process, log.incarnation): number
            for log, number in zip(self.logs, numbers, strict=False)
        }

    @cached_property
    def past(self) -> Past:
        """Which event came before which, by the rows."""
        return Past(self)

    @cached_property
    def services(self) -> frozenset[str]:
        """What those of submissions and deliveries promise; "" if one has none."""
        words = {row.cause for log in self.logs for row in log.rows if row.kind in EVENT_KINDS}
        return frozenset(map(self.header.guarantee, words))

    def words_for(self, guarantee: str) -> frozenset[str]:
        """The services of this run that promise this."""
        named = {guarantee, *self.header.services}
        return frozenset(word for word in named if self.header.guarantee(word) == guarantee)

    @cached_property
    def basic(self) -> frozenset[int]:
        """The events that were submitted as basic."""
        words = self.words_for(BASIC)
        return frozenset(event for event, row in self.submits.items() if row.cause in words)

    def serving(self, services: tuple[str, ...]) -> History:
        """The same run without the events of other services; "" stands for having none."""
        if services not in self._serving:
            promises = self.header.guarantee
            rows = [
                row
                for log in self.logs
                for row in log.rows
                if row.kind not in EVENT_KINDS or promises(row.cause) in services
            ]
            self._serving[services] = History(Trace(self.header, rows), self._promises)
        return self._serving[services]

    @cached_property
    def groups(self) -> list[str]:
        """Every group that an event, a view or a join names."""
        named: set[str | None] = set(self.group_of)  # None where a flawed row names none
        for log in self.logs:
            named.update(log.began)
        return sorted(group for group in named if group is not None)

    @cached_property
    def never_submitted(self) -> list[Row]:
        """For each event that was delivered but never submitted, its first delivery."""
        found: dict[int, Row] = {}
        if len(self.submits) < len(self.events):
            for log in self.logs:
                for event, row in zip(log.delivered, log.deliveries, strict=True):
                    if event not in self.submits:
                        found.setdefault(event, row)
        return list(found.values())

    @cached_property
    def submitted_in(self) -> dict[str, list[int]]:
        """The submitted events of each group."""
        found: dict[str, list[int]] = {}
        for event in self.submits:
            found.setdefault(self.group_of[event], []).append(event)
        return found

    def id_of(self, row: Row) -> int:
        """The small number of the event that a submit or deliver row is about."""
        return self._ids[row.group, row.origin, row.number]  # type: ignore[index]

    def known(self, group: str, origin: str, number: int) -> int | None:
        """The small number of an event, if a row that is read here is about it."""
        return self._ids.get((group, origin, number))

    def number_of(self, event: int) -> int:
        """Its number, which grows along what one incarnation submits in a group."""
        return self.events[event][2]

    def delivered_in(self, log: Log, group: str) -> set[int]:
        """The events of the group that this incarnation delivered."""
        return self._split((log.process, log.incarnation, "delivered"), log.delivered, group)

    def lost_in(self, log: Log, group: str) -> set[int]:
        """The events of the group that this incarnation gave up."""
        which = log.process, log.incarnation, "lost"
        if which not in self._sets:
            return self._split(which, [*log.lost, *self._in_ranges(log)], group)
        return self._split(which, log.lost, group)

    def _in_ranges(self, log: Log) -> Iterator[int]:
        """The events that are in ranges which this log gave up: those that a row is about."""
        if all(row.after is None for _, row in log.losses):
            return
        for sender, span in log.given_up.spans():
            numbers, events = self._by_sender.get(sender, ([], []))
            yield from events[bisect_left(numbers, span.first) : bisect_right(numbers, span.last)]

    @cached_property
    def _by_sender(self) -> dict[tuple[str | None, str | None], tuple[list[int], list[int]]]:
        """By group and origin: the numbers of its events, sorted, and these."""
        found: dict[tuple[str | None, str | None], list[tuple[int, int]]] = {}
        for event, (group, origin, number) in enumerate(self.events):
            if number is not None:  # where a flawed row has none
                found.setdefault((group, origin), []).append((number, event))
        return {
            sender: ([number for number, _ in several], [event for _, event in several])
            for sender, several in ((each, sorted(pairs)) for each, pairs in found.items())
        }

    def _split(self, which: tuple[str, int, str], events: list[int], group: str) -> set[int]:
        sets = self._sets.get(which)
        if sets is None:
            if len(self.groups) == 1:
                sets = {self.groups[0]: set(events)}
            else:
                sets = {}
                for event in events:
                    sets.setdefault(self.group_of[event], set()).add(event)
            self._sets[which] = sets
        return sets.get(group, set())

    # --- reading the rows ---

    def _read(self, log: Log) -> None:
        rows, ids = log.rows, self._ids
        if any(map(ge, map(_STEP, rows), map(_STEP, islice(rows, 1, None)))):
            self._sort(rows)
        delivered, deliveries = log.delivered, log.deliveries
        for row in rows:
            kind = row.kind
            if kind == "deliver":
                delivered.append(ids[row.group, row.origin, row.number])  # type: ignore[index]
                deliveries.append(row)
            elif kind == "submit":
                self._read_submit(log, row)
            else:
                self.kinds.add(kind)
                self._read_other(log, row)

    def _sort(self, rows: list[Row]) -> None:
        rows.sort(key=_STEP)
        steps = list(map(_STEP, rows))
        for row, before, after in zip(rows, steps, steps[1:], strict=False):
            if before == after:
                self.flaws.append(Flaw(None, f"{row_writer(row)} wrote two rows as step {after}"))
                return

    def _read_submit(self, log: Log, row: Row) -> None:
        event = self._ids[row.group, row.origin, row.number]  # type: ignore[index]
        if row.origin != log.process:
            return
        if event in self.submits:
            self.flaws.append(Flaw("submit", f"{row_event(row)} was submitted twice"))
            return
        self.submits[event] = row
        self.submitters[event] = log
        log.submitted.append((len(log.delivered), event))

    def _read_other(self, log: Log, row: Row) -> None:
        kind = row.kind
        needed = REQUIRED.get(kind, ())
        if kind not in KINDS:
            self._flaw(None, row, f"has the unknown kind `{kind}`")
        elif any(getattr(row, column) is None for column in needed):
            missing = [column for column in needed if getattr(row, column) is None]
            self._flaw(kind, row, f"has no {' and no '.join(missing)}")
        elif kind == "lose":
            log.lost.append(self._ids[row.group, row.origin, row.number])  # type: ignore[index]
            log.losses.append((len(log.delivered), row))
        elif kind == "view":
            log.views.append((len(log.delivered), row))
            log.first_view.setdefault(row.group or "", row)
            log.began.setdefault(row.group or "", row)
            log.gone.discard(row.group or "")
        elif kind == "join":
            log.began.setdefault(row.group or "", row)
            if row.cause == "state":  # what was submitted before may be in it
                log.given_state.add(row.group or "")
                log.began[row.group or ""] = row
        elif kind == "leave":
            log.left.add(row.group or "")
            log.gone.add(row.group or "")
        elif kind == "ticket":
            self._take_ticket(log, row)
        elif kind == "suspect":
            pair = log.process, bare_name(row.peer or "")
            self.suspicions.setdefault(pair, set()).add(row.group)
        elif kind == "start":
            log.start = log.start or row
        elif kind == "crash":
            log.crash = log.crash or row
        elif kind == "stop":
            log.stop = log.stop or row

    def _take_ticket(self, log: Log, row: Row) -> None:
        if row.cause in REQUESTS:
            return  # nobody owns anything by it
        if row.cause not in CAUSES["ticket"]:
            self._flaw("ticket", row, f"has the unknown cause `{row.cause}`")
        if row.index is None:
            self._flaw("ticket", row, "has no index")
        else:
            log.tickets.append(row)

    def _find_incomplete_events(self) -> None:
        for log in self.logs:
            for row in log.rows:
                if row.kind in ("submit", "deliver"):
                    missing = [name for name in _EVENT_COLUMNS if getattr(row, name) is None]
                    if missing:
                        self._flaw(row.kind, row, f"has no {' and no '.join(missing)}")

    def _flaw(self, kind: str | None, row: Row, what: str) -> None:
        where = f"step {row.step} of {row_writer(row)}"
        self.flaws.append(Flaw(kind, f"{where}, kind {row.kind}, {what}"))


_STEP = attrgetter("step")


def bare_name(name: str) -> str:
    """`n1` for `n1` and for `n1#2`: rows may name an incarnation, and laws count processes."""
    head, sharp, incarnation = name.rpartition("#")
    return head if sharp and incarnation.isdigit() else name


def _by_incarnation(rows: Iterable[Row]) -> dict[tuple[str, int], list[Row]]:
    found: defaultdict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        found[row.process, row.incarnation].append(row)
    return found
