"""ticket-uniqueness: at no instant do two processes own the same ticket of one cluster.

And no two events of it carry the same (index, stamp entry at that index).

Ownership begins with an `acquired` row and ends with the earliest of: the next `released`,
`disconnected` or `acquired` row for the ticket, the incarnation's crash or stop, the first row of
the process's next incarnation, and the last `until` of the `acquired` and `renewed` rows. A
`renewed` row without ownership begins one: whoever renews claims to own. The end is not owned, so
taking a ticket over at the very instant at which it was given back is allowed. Instants are those
of `at`; in a live run clocks may be skewed, and the law then says what the clocks say.

Whether there is anything to judge: where a group has submissions, its ticket rows and the columns
`index` and `stamp` (with an entry at the index) must be there too. If not, the law is unknown,
unless what is there already breaks it. A group with neither submissions nor ticket rows keeps the
law: nobody owned anything, and nothing was stamped.

Witness: the row with which each of the two owners began, and the renewal in force where the first
`until` had passed; or the two submissions. The law is still broken on these rows alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ordercast.check.facts import Rows, RunFacts, SliceFacts
from ordercast.check.history import History
from ordercast.check.law import Law, Proof
from ordercast.check.log import Log
from ordercast.check.verdict import Answer, Verdict, broken, holds, row_event, row_writer, unknown
from ordercast.trace.schema import Row

NAME = "ticket-uniqueness"
FOREVER = 1 << 63


class Ownership(NamedTuple):
    """One process's time with a ticket: from `start` on, no longer at `end`."""

    start: int
    end: int
    process: str
    began: Row
    in_force: Row  # the row with the last `until`

    def shown_at(self, instant: int) -> tuple[Row, ...]:
        """The fewest rows that show the ticket owned at an instant at which it is."""
        if self.began.until is None or self.began.until > instant:
            return (self.began,)
        return self.began, self.in_force


def _by_time(one: Ownership) -> tuple[int, int, str]:
    return one.start, one.end, one.process


def judge(history: History) -> Verdict:
    owned: dict[tuple[str, int], list[Ownership]] = {}
    following: Log | None = None
    for log in reversed(history.logs):
        if following is not None and following.process != log.process:
            following = None
        if log.tickets:
            for key, ownership in _ownerships(log, _end_of(log, following)):
                owned.setdefault(key, []).append(ownership)
        following = log
    return (
        _shared_ticket(owned)
        or _repeated_stamp(history)
        or _undecided(history, {group for group, _ in owned})
        or holds(NAME)
    )


def _end_of(log: Log, following: Log | None) -> int:
    """When the incarnation was over at the latest."""
    ends = [log.crash, log.stop, following.rows[0] if following is not None else None]
    return min((row.at for row in ends if row is not None), default=FOREVER)


def _ownerships(log: Log, death: int) -> Iterator[tuple[tuple[str, int], Ownership]]:
    # ticket: the row that began it, the row whose `until` is in force
    held: dict[tuple[str, int], tuple[Row, Row]] = {}
    for row in log.tickets:
        key = row.group or "", row.index or 0
        if row.cause == "renewed" and key in held:
            held[key] = held[key][0], row
            continue
        if key in held:
            yield key, _ownership(*held.pop(key), min(row.at, death))
        if row.cause in ("acquired", "renewed"):
            held[key] = row, row
    for key, rows in held.items():
        yield key, _ownership(*rows, death)


def _ownership(began: Row, in_force: Row, end: int) -> Ownership:
    if in_force.until is not None:
        end = min(end, in_force.until)
    return Ownership(began.at, end, began.process, began, in_force)


def _shared_ticket(owned: dict[tuple[str, int], list[Ownership]]) -> Verdict | None:
    for (group, index), ownerships in sorted(owned.items()):
        # Of those that began earlier, the one that lasts longest, and the one that lasts longest
        # of any other process: the next one meets either of them or none.
        longest: Ownership | None = None
        runner_up: Ownership | None = None
        for own in sorted((one for one in ownerships if one.end > one.start), key=_by_time):
            other = longest if longest is None or longest.process != own.process else runner_up
            if other is not None and other.end > own.start:
                why = f"{row_writer(own.began)} acquired ticket {index} of {group} while "
                why += f"{row_writer(other.began)} still owned it"
                rows = other.shown_at(own.start) + own.shown_at(own.start)
                return broken(NAME, rows, why)
            if longest is None or own.end > longest.end:
                if longest is not None and longest.process != own.process:
                    runner_up = longest
                longest = own
    return None


def _stamped(row: Row) -> bool:
    return row.index is not None and row.stamp is not None and 0 <= row.index < len(row.stamp)


def _repeated_stamp(history: History) -> Verdict | None:
    for group in sorted(history.submitted_in):
        seen: dict[tuple[int, int], Row] = {}
        for row in map(history.submits.__getitem__, history.submitted_in[group]):
            if _stamped(row):
                assert row.index is not None and row.stamp is not None
                other = seen.setdefault((row.index, row.stamp[row.index]), row)
                if other is not row:
                    why = f"{row_event(other)} and {row_event(row)} both carry entry "
                    why += f"{row.stamp[row.index]} at index {row.index}"
                    return broken(NAME, (other, row), why)
    return None


def _undecided(history: History, with_tickets: set[str]) -> Verdict | None:
    for group, events in sorted(history.submitted_in.items()):
        if group not in with_tickets:
            why = f"events were submitted in {group}, but it has no ticket rows"
            return unknown(NAME, why)
        for row in map(history.submits.__getitem__, events):
            if not _stamped(row):
                why = f"{row_event(row)} was submitted without an index and a stamp entry there"
                return unknown(NAME, why)
    return None


def select(run: RunFacts) -> Rows:
    """The skeleton rows, all submissions with an entry that another has too, and of each group the
    first without an entry: no other can be told."""
    return run.union(run.skeleton, run.first_unstamped(), run.equal_stamps())


def _proved(slices: SliceFacts) -> bool:
    """No two submissions have one entry, and by the ticket rows nothing is shared."""
    return (
        slices.distinct_entries and judge(slices.skeleton_without("submit")).answer is Answer.HOLDS
    )


LAW = Law(
    name=NAME,
    says=(
        "at no instant do two processes own the same ticket of one cluster, and no two events "
        "carry the same (index, stamp entry at that index)"
    ),
    unknown_when="there are events without index and stamp, or no ticket rows",
    reads=("submit", "ticket"),
    judge=judge,
    select=select,
    prove=Proof(_proved, needs=("entries",)),
    place=130,
)
