"""All laws on the columns of one run: the same verdicts as check/laws.py, at numpy's speed.

Vectors choose the rows that matter to a law, its cut, and the reference judges the cut; what a cut
is and which there are is said in vector_events.py. A law without one (no clock can be found, pasts
are too many) is asked of the reference on the whole run. `view-agreement` and `disjoint-views`
read nothing but bones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import msgspec
import numpy as np

from ordercast.check.history import History
from ordercast.check.laws import JUDGES, check, families_of, promised
from ordercast.check.verdict import Answer, Verdict
from ordercast.consistency import LAWS
from ordercast.spark import vector_causal, vector_delivery, vector_members
from ordercast.spark.columns import Columns, Vector
from ordercast.spark.vector_events import Events
from ordercast.trace.schema import Ending, Level, Trace

FINISHED_ONLY = ("agreement", "completeness", "disjoint-views")
"""The laws about what never happened, which need a finished run."""


def judge_columns(run: Columns, laws: Sequence[str] | None = None) -> list[Verdict]:
    """What `check` says of the same run."""
    if laws is None and (families := families_of(run.header)):
        return _judge_each(run, families)
    vectors = Vectors(run)
    wanted = promised(vectors.events.history) if laws is None else dict.fromkeys(laws)
    return [vectors.judge(law) for law in wanted]


def _judge_each(run: Columns, families: dict[str, list[str]]) -> list[Verdict]:
    """Each family on its own groups; of two answers the worse one, as in check/laws.py."""
    weight = {Answer.HOLDS: 0, Answer.UNKNOWN: 1, Answer.BROKEN: 2}
    worst: dict[str, Verdict] = {}
    for family, groups in families.items():
        header = msgspec.structs.replace(run.header, family=family, parameters={})
        for verdict in judge_columns(run.only(groups, header)):
            known = worst.get(verdict.law)
            if known is None or weight[verdict.answer] > weight[known.answer]:
                worst[verdict.law] = verdict
    return [worst[name] for name in LAWS if name in worst]


class Vectors:
    """One run and what the laws share."""

    def __init__(self, run: Columns) -> None:
        self.run = run
        self._durable = History(Trace(run.header, [])).durable
        self._finished = run.header.ending == Ending.FINISHED
        self._cuts: dict[str, Callable[[], Vector | None]] = {
            "no-creation": lambda: vector_delivery.no_creation(self.events, self.clock),
            "no-duplication": lambda: vector_delivery.no_duplication(self.events, self.sequences),
            "fifo": lambda: vector_delivery.fifo(self.events, self.sequences),
            "agreement": lambda: vector_members.agreement(self.events, self.members),
            "completeness": lambda: vector_members.completeness(self.events, self.members),
            "optimistic-causal": lambda: self.causal[0],
            "causal": lambda: self.causal[1],
            "total": lambda: self.total,
            "total-in-view": lambda: vector_delivery.total_in_view(
                self.events, self.sequences, proved=self._one_order
            ),
            "virtual-synchrony": lambda: vector_members.virtual_synchrony(
                self.events, self.sequences
            ),
            "view-agreement": lambda: self.events.bones,
            "disjoint-views": lambda: self.events.bones,
            "ticket-uniqueness": lambda: vector_members.ticket_uniqueness(self.events),
        }

    def judge(self, law: str) -> Verdict:
        cut = self.cut(law)
        if cut is None:
            rows = self.run.rows(np.arange(self.run.count))
        elif len(cut) == len(self.events.bones) and np.array_equal(cut, self.events.bones):
            rows = self.events.bare_rows
        else:
            rows = self.run.rows(cut)
        return check(Trace(self.run.header, rows), [law])[0]

    def cut(self, law: str) -> Vector | None:
        """The rows on which the reference says the same as on the run; None for all of them."""
        if self.run.step_twice:
            return None
        if self.run.header.level == Level.OFF:
            return np.arange(0)
        if law in FINISHED_ONLY and not self._finished:
            return self.events.bones  # nothing is looked at, but for flaws
        if self.events.history.flaw(JUDGES[law].reads) is not None:
            return self.events.bones
        return self._cuts[law]()

    @cached_property
    def events(self) -> Events:
        return Events(self.run, durable=self._durable)

    @cached_property
    def sequences(self) -> vector_delivery.Sequences:
        return vector_delivery.Sequences(self.events)

    @cached_property
    def members(self) -> vector_members.Members:
        return vector_members.Members(self.events)

    @cached_property
    def clock(self) -> Vector | None:
        return vector_delivery.find_clock(self.events)

    @cached_property
    def total(self) -> Vector:
        return vector_delivery.total(self.events, self.sequences)

    @property
    def _one_order(self) -> bool:
        """Whether all lives agree with one order. Durable lines hide what a later life repeats."""
        return not len(self.total) and (self.sequences.increasing or not self._durable)

    @cached_property
    def causal(self) -> tuple[Vector | None, Vector | None]:
        groups = self.run.groups
        began = {
            (number, groups[group]): row.at
            for number, line in enumerate(self.events.history.lines)
            for group, row in line.began.items()
            if group in groups
        }
        return vector_causal.judge(self.events, self.clock, began)
