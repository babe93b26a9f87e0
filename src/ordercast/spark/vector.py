"""Laws on the columns of one run: the same verdicts as `check`, at numpy's speed.

A law's vector form chooses the rows that matter to it, and its plain judge sees these; what such a
row selection is, is said in vector_events.py. A law without the form, or whose form cannot choose
(no clock can be found, pasts are too many), is judged by the plain judge on the whole run. Rows as
Python objects take several times the memory of columns: of a run that is too large for that, such a
law is unknown, with this reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ordercast.check.history import PROMISES, FamilyPromises, History
from ordercast.check.law import Law, LawForm
from ordercast.check.laws import LAWS, judge, named, not_asked, parts_of, wanted_of
from ordercast.check.promise import NotAsked, families_of, judge_families
from ordercast.check.verdict import Verdict, unknown, worst
from ordercast.spark.columns import Columns, Vector
from ordercast.spark.vector_facts import Facts
from ordercast.trace.schema import Header, TraceLevel

PLAIN_ROWS = 10_000_000
"""The most rows of a run that are made into objects for the plain judge."""


class Judgement(NamedTuple):
    """The verdicts, in the order that was asked for, and by law the form that gave each."""

    verdicts: list[Verdict]
    forms: dict[str, LawForm]
    not_asked: list[NotAsked]


def judge_columns(
    run: Columns,
    laws: Iterable[Law | str] | None = None,
    promises: FamilyPromises = PROMISES,
    plain_rows: int = PLAIN_ROWS,
) -> Judgement:
    """What `check` says of the same run."""
    wanted = named(laws)
    answers = Judgement([], {}, [])
    if wanted is not None or not families_of(run.header):
        verdicts = _judge(Vectors(run, promises, plain_rows), wanted, answers)
        return answers._replace(verdicts=verdicts)

    def judge_one(header: Header, groups: list[str]) -> list[Verdict]:
        return _judge(Vectors(run.only(groups, header), promises, plain_rows), None, answers)

    return answers._replace(verdicts=judge_families(run.header, judge_one, LAWS))


def _judge(vectors: Vectors, laws: Sequence[Law] | None, answers: Judgement) -> list[Verdict]:
    """The verdicts on these rows. What else there is to say is added to the answers."""
    forms = answers.forms
    if laws is None:
        laws = wanted_of(vectors.facts.history, None)
        answers.not_asked.extend(not_asked(vectors.facts.history))
    verdicts = []
    for law in laws:
        verdicts.append(vectors.judge(law))
        if forms.get(law.name) is not LawForm.PLAIN:  # of several groups the slowest
            forms[law.name] = vectors.form(law)
    return verdicts


class Vectors:
    """One run, judged law by law."""

    def __init__(
        self,
        run: Columns,
        promises: FamilyPromises = PROMISES,
        plain_rows: int = PLAIN_ROWS,
    ) -> None:
        self.run = run
        self.facts = Facts(run, promises)
        self._plain_rows, self._promises = plain_rows, promises
        self._serving: dict[tuple[str, ...], Vectors] = {}

    def judge(self, law: Law) -> Verdict:
        if parts := self._parts(law):
            return worst(part.judge(law) for part in parts)
        rows = self.select(law)
        if rows is not None:
            return judge(law, self._history(rows))
        if self.run.count > self._plain_rows:
            return unknown(
                law.name,
                f"only the plain judge can decide it here, and the run has {self.run.count:,} "
                f"rows, more than the {self._plain_rows:,} that it is given",
            )
        return judge(law, self._whole)

    def form(self, law: Law) -> LawForm:
        """Which form of the law judges this run."""
        judges = self._parts(law) or [self]
        is_plain = any(one.select(law) is None for one in judges)
        return LawForm.PLAIN if is_plain else LawForm.VECTOR

    def _parts(self, law: Law) -> list[Vectors]:
        """The services that are judged apart, each as a run of its own, as `judge` in check does.
        None: the law judges all events together, or rows keep it from judging at all."""
        run = self.run
        parts = parts_of(law, run.services) if law.services else ()
        if not parts or run.step_twice or self.facts.history.flaw(law.reads) is not None:
            return []
        for part in parts:
            if part not in self._serving:
                alone = Vectors(run.serving(part), self._promises, self._plain_rows)
                self._serving[part] = alone
        return [self._serving[part] for part in parts]

    def select(self, law: Law) -> Vector | None:
        """The rows on which the plain judge says the same as on the run; None for all of them."""
        if self.run.step_twice:
            return None
        if self.run.header.level == TraceLevel.OFF:
            return np.arange(0)
        facts = self.facts
        if law.finished_only and not facts.finished:
            return facts.skeleton  # nothing is looked at, but for flaws
        if law.skeleton_only or facts.history.flaw(law.reads) is not None:
            return facts.skeleton
        return None if law.select is None else facts.once(law.select)

    def _history(self, rows: Vector) -> History:
        skeleton, rows = self.facts.skeleton, self.facts.with_starts(rows)
        if len(rows) == len(skeleton) and np.array_equal(rows, skeleton):
            return self.facts.history
        return self.facts.history_of(rows)

    @cached_property
    def _whole(self) -> History:
        return self.facts.history_of(np.arange(self.run.count))
