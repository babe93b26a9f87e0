"""one-tree: the parents of a group's members never form a circle, and at rest there is one tree.

A `parent` row says whom an incarnation has as its parent from then on: the incarnation `peer`, or
nobody, which makes it a root. That ends with its next `parent` row in the group, its `leave` or its
end. A `peer` without an incarnation (`n1`, not `n1#0`) means the one that runs at that time.

  circle    at no instant do parents lead from an incarnation back to it. What several processes
            write at one instant counts as one change.
  one tree  when a finished run has come to rest, the members of a group that are there then have
            exactly one root, and it is above all of them. At rest: before the first process stops
            or leaves after the middle of the quiet phase (rest.py), or, where the header does not
            say when that was, after the last start or join. Members are those with a join or
            parent row; of a group without parent rows nothing is asked.

Rows of several processes are compared by `at`. In a simulation this is one true clock, and so it is
in live runs on one machine: there is a seed in the header of both. Elsewhere clocks may differ, so
a circle that is over again is `unknown`, and one that stands at the end of a finished run is
broken. Where a run was cut, rows that end a circle may be missing: it is broken if the rest of its
rows are later than the circle, and otherwise unknown. It is unknown too if it depends on which
incarnation a `peer` without one was.

Witness: the parent rows of the circle; or those of two roots, or of the members that are not below
the root, or (it is absent) the first row of a member that never had a parent.
"""

from __future__ import annotations

from ordercast.check.history import History
from ordercast.check.law import Law
from ordercast.check.laws.rest import rest_begins
from ordercast.check.log import Log
from ordercast.check.parents import Life, ParentLink, Parents
from ordercast.check.verdict import Verdict, broken, holds, row_writer, unknown
from ordercast.trace.schema import Row

NAME = "one-tree"


def judge(history: History) -> Verdict:
    if "parent" not in history.kinds:
        return holds(NAME)
    tree = ParentTree(history)
    doubt: Verdict | None = None
    for group in tree.groups:
        found = tree.circle(group)
        if found is not None and found.witness:
            return found
        doubt = doubt or found
    if doubt is not None:
        return doubt
    if not history.finished:
        return unknown(NAME, history.unfinished)
    for group in tree.groups:
        found = tree.not_one(group)
        if found is not None:
            return found
    return holds(NAME)


class ParentTree:
    """Who has whom as its parent, in each group and at any time."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._parents = Parents({(log.process, log.incarnation): log.rows for log in history.logs})
        self._ends = self._parents.ends
        self._links = self._parents.links
        self.groups = sorted(self._links)

    # --- circles ---

    def circle(self, group: str) -> Verdict | None:
        """The first circle, or why it is not known whether there is one."""
        links = [link for link in self._links[group] if link.until != link.row.at]
        changes: dict[int, list[tuple[Life, ParentLink | None]]] = {}
        for link in links:
            life = link.row.process, link.row.incarnation
            if link.until is not None:
                changes.setdefault(link.until, []).append((life, None))
        for link in links:  # after those, at every instant
            life = link.row.process, link.row.incarnation
            changes.setdefault(link.row.at, []).append((life, link))
        doubt: Verdict | None = None
        current: dict[Life, ParentLink] = {}
        for at in sorted(changes):
            for life, changed in changes[at]:
                if changed is None:
                    current.pop(life, None)
                else:
                    current[life] = changed
            for life, changed in changes[at]:
                found = _circle_from(life, current) if changed is not None else []
                if found:
                    verdict = self._judge_circle(found, at)
                    if verdict.witness:
                        return verdict
                    doubt = doubt or verdict
        return doubt

    def _judge_circle(self, circle: list[ParentLink], at: int) -> Verdict:
        rows = tuple(link.row for link in circle)
        told = ", ".join(f"{row_writer(row)} below {row.peer}" for row in rows)
        why = f"in {rows[0].group}, parents formed a circle: {told}"
        header = self._history.header
        over = [link for link in circle if link.until is not None]
        if any(link.is_guess for link in circle):
            return unknown(NAME, f"{why}; if each means the incarnation that ran at that time")
        if not self._history.finished and any(
            link.until is None and link.row.at != at for link in circle
        ):
            return unknown(NAME, f"{why}; the run did not finish, so the rows that end it may lack")
        if over and header.seed is None:
            return unknown(NAME, f"{why}; if the clocks of these processes agree")
        return broken(NAME, rows, why)

    # --- one tree ---

    def not_one(self, group: str) -> Verdict | None:
        """How the members that are there at rest do not form one tree."""
        rest = self._rest(group)
        parents: dict[Life, Row | None] = {}
        first: dict[Life, Row] = {}
        parent_of: dict[Life, Life | None] = {}
        for log in self._history.logs:
            life = log.process, log.incarnation
            member = self._member(log, group, rest)
            if member is not None:
                first[life], parents[life] = member
                row = parents[life]
                parent_of[life] = self._parents.parent(row)[0] if row is not None else None
        roots = [row for row in parents.values() if row is not None and row.peer is None]
        for life, row in parents.items():
            if row is None:
                why = f"{row_writer(first[life])} has no parent in {group} at the end, and is no "
                return broken(NAME, (first[life],), why + "root")
        if len(roots) > 1:
            why = f"{row_writer(roots[0])} and {row_writer(roots[1])} are both roots of {group} at "
            return broken(NAME, roots[:2], why + "the end")
        for life, row in parents.items():
            if row is not None and not _is_below_a_root(life, parent_of):
                why = f"at the end, parents lead {row_writer(row)} to no root of {group} that is "
                return broken(NAME, (row,), why + "there")
        return None

    def _rest(self, group: str) -> int | None:
        """When the first process stops or leaves at the end; None: none does."""
        begins = rest_begins(self._history.header)
        rows = [row for log in self._history.logs for row in log.rows]
        if begins is None:
            begins = max((row.at for row in rows if row.kind in ("start", "join")), default=0)
        ends = [
            row.at
            for row in rows
            if row.kind == "stop" or (row.kind == "leave" and row.group == group)
        ]
        return min((at for at in ends if at >= begins), default=None)

    def _member(self, log: Log, group: str, rest: int | None) -> tuple[Row, Row | None] | None:
        """Of a member that is there at rest: its first row in the group, and its parent row."""
        end = self._ends[log.process, log.incarnation]
        if end is not None and (rest is None or end < rest):
            return None
        first: Row | None = None
        parent: Row | None = None
        for row in log.rows:
            if rest is not None and row.at > rest:
                break
            if row.group != group:
                continue
            if row.kind == "leave":
                if row.at != rest:  # or it is what ends the rest
                    first = parent = None
            elif row.kind in ("join", "parent"):
                first = first or row
                parent = row if row.kind == "parent" else parent
        return None if first is None else (first, parent)


def _circle_from(life: Life, current: dict[Life, ParentLink]) -> list[ParentLink]:
    """The links that lead from here back to here."""
    found: list[ParentLink] = []
    one: Life | None = life
    while one in current and len(found) <= len(current):
        link = current[one]
        found.append(link)
        one = link.parent
        if one == life:
            return found
    return []


def _is_below_a_root(life: Life, parent_of: dict[Life, Life | None]) -> bool:
    one: Life | None = life
    for _ in parent_of:
        if one is None or one not in parent_of:
            return False
        if parent_of[one] is None:
            return True
        one = parent_of[one]
    return False


LAW = Law(
    name=NAME,
    says=(
        "the parents of a group's members never form a circle, and at the end of a quiet run there "
        "is one root, which is above all of them"
    ),
    remark=(
        "rows of several processes are compared by time: a circle that is over counts only where "
        "they had one clock"
    ),
    unknown_when=(
        "the run did not finish, or a circle is over that only clocks of several machines show"
    ),
    reads=("parent", "join", "leave"),
    judge=judge,
    skeleton_only=True,
    place=127,
)
