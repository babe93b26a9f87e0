"""total: one order exists with which every process agrees, across all groups.

Two processes deliver any two events that both deliver in the same order, across all their common
groups. We ask a little more than pair by pair: that one order exists with which every process
agrees. With n1: a b, n2: b c and n3: c a every pair agrees, and yet nobody can say which came
first; overlapping groups are where this happens. Gaps are allowed. Only the first delivery of an
event counts, repetitions are no-duplication's business. Each process history is a sequence of its
own. How it is judged, and the witness: order.py.

Where a run has services, agreed and safe events have the one order, and others are left aside. What
is compared are sequences of deliveries, never the column `order`, which may begin again in each
view. One order of all events is one of some: so the proof over slices need not tell services apart.
"""

from __future__ import annotations

from ordercast.check.facts import Rows, RunFacts
from ordercast.check.history import History
from ordercast.check.law import ORDERED, Implication, Law, Proof
from ordercast.check.order import DeliverySegment, find_cycle, rows_of, words_of
from ordercast.check.verdict import Verdict, broken, holds

NAME = "total"


def judge(history: History) -> Verdict:
    delivering = [log for log in history.histories if log.delivered]
    cycle = find_cycle(
        [DeliverySegment(log, list(dict.fromkeys(log.delivered))) for log in delivering]
    )
    return broken(NAME, rows_of(cycle), words_of(cycle)) if cycle else holds(NAME)


def select(run: RunFacts) -> Rows:
    """The two process histories that contradict each other are those that the judge would find:
    what it merges before comes first in both and in the same order. And what is left cannot be
    merged any further."""
    return run.disorder(run.history_segments())


PROOF = Proof(
    lambda slices: slices.increasing and slices.known and slices.one_order, needs=("order",)
)

LAW = Law(
    name=NAME,
    says=(
        "two processes deliver any two events that both deliver in the same order, across "
        "all their common groups"
    ),
    remark=(
        "one order suits all, so cycles of three are found; gaps are allowed; of services only "
        "agreed and safe"
    ),
    reads=("deliver",),
    judge=judge,
    select=select,
    prove=PROOF,
    services=(ORDERED,),
    implies=(
        Implication(
            "total-in-view",
            because="one order of all deliveries suits those of every view. A repetition in a "
            "later incarnation would not count for `total`, but for the view",
            source="the two sentences",
            given=("no-duplication",),
        ),
    ),
    place=80,
)
