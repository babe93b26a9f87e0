"""What the vector forms of laws ask of one run: `RunFacts` of check/facts.py, by numpy.

A fact is computed when a law first asks for it, and kept for the others. What the facts mean is
said in check/facts.py, how they are found in the modules that are called here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property

import numpy as np

from ordercast.check.facts import RunFacts
from ordercast.check.history import BASIC, PROMISES, FamilyPromises, History
from ordercast.check.log import Log
from ordercast.spark import vector_delivery as delivery
from ordercast.spark import vector_members as members
from ordercast.spark.columns import Columns, Vector
from ordercast.spark.vector_causal import causal_breaks
from ordercast.spark.vector_events import Events
from ordercast.trace.schema import Ending, Trace


class Facts:
    """One run and what its laws share."""

    nothing = delivery.NOTHING

    def __init__(self, run: Columns, promises: FamilyPromises = PROMISES) -> None:
        self.run = run
        self._promises = promises
        self.durable = History(Trace(run.header, []), promises).durable
        self.finished = run.header.ending == Ending.FINISHED
        self._selected: dict[Callable[[RunFacts], Vector | None], Vector | None] = {}

    def once(self, select: Callable[[RunFacts], Vector | None]) -> Vector | None:
        if select not in self._selected:
            self._selected[select] = select(self)
        return self._selected[select]

    def union(self, *several: Vector) -> Vector:
        return np.unique(np.concatenate(several))

    @cached_property
    def events(self) -> Events:
        return Events(self.run, durable=self.durable)

    @property
    def skeleton(self) -> Vector:
        return self.events.skeleton

    @cached_property
    def history(self) -> History:
        return self.history_of(self.skeleton)

    def history_of(self, rows: Vector) -> History:
        """These rows as a plain judge sees them."""
        return History(Trace(self.run.header, self.run.rows(rows)), self._promises)

    # --- deliveries ---

    @cached_property
    def clock(self) -> Vector | None:
        return delivery.find_clock(self.events)

    @property
    def has_clock(self) -> bool:
        return self.clock is not None

    @cached_property
    def sequences(self) -> delivery.Sequences:
        return delivery.Sequences(self.events)

    @property
    def increasing(self) -> bool:
        return self.sequences.increasing

    @property
    def falls(self) -> Vector:
        return delivery.falling_pairs(self.events, self.sequences)

    @property
    def repetitions(self) -> Vector:
        return delivery.repetitions(self.events, self.sequences)

    @property
    def never_submitted(self) -> Vector:
        return delivery.never_submitted(self.events)

    def first_surpassed(self, deliveries: Vector) -> Vector:
        return delivery.first_surpassed(self.events, deliveries)

    # --- order ---

    @cached_property
    def _scratch(self) -> Vector:
        return np.full(self.events.size, delivery.LAST)

    def history_segments(self) -> delivery.Segments:
        return delivery.history_segments(self.events, self.sequences)

    def view_segments(self) -> Iterator[delivery.Segments]:
        return delivery.view_segments(self.events, self.sequences, self.view_rows)

    def disorder(self, segments: delivery.Segments) -> Vector:
        return delivery.disorder(self.events, segments, self._scratch)

    def causal_breaks(self, *, gaps: bool) -> Vector | None:
        return None if BASIC in self.run.services else self._causal[gaps]

    @cached_property
    def without_gaps(self) -> bool | None:
        found = causal_breaks(self.events, self.clock, {})[1]
        # A break comes with the submissions and deliveries that show it.
        return None if found is None else np.array_equal(found, self.never_submitted[:1])

    @cached_property
    def _causal(self) -> tuple[Vector | None, Vector | None]:
        groups = self.run.groups
        began = {
            (number, groups[group]): row.at
            for number, log in enumerate(self.history.histories)
            for group, row in log.began.items()
            if group in groups
        }
        return causal_breaks(self.events, self.clock, began)

    # --- members and views ---

    @cached_property
    def _tables(self) -> members.Tables:
        return members.Tables(self.events)

    def no_events(self) -> Vector:
        return np.zeros(self.events.size, bool)

    def events_in(self, group: str) -> Vector:
        found: Vector = self._tables.group_of == self.run.groups.get(group, -2)
        return found

    def delivered_by(self, log: Log) -> Vector:
        return self._tables.delivered(log)

    def given_up_by(self, log: Log) -> Vector:
        return self._tables.lost(log)

    def submitted_by(self, logs: Iterable[Log]) -> Vector:
        return self._tables.submitted_by(logs)

    def rows_about(self, events: Vector) -> Vector:
        return self.events.rows_about(events)

    def tables_fit(self, logs: Collection[Log]) -> bool:
        return len(logs) * self.events.size <= members.TABLE_LIMIT

    @cached_property
    def view_rows(self) -> Vector:
        return np.flatnonzero((self.run.kind == self.run.code_of("view")) & (self.run.group >= 0))

    def unequal_spans(self) -> Vector | None:
        return members.unequal_spans(self.events, self.view_rows, unique=self.increasing)

    @property
    def services(self) -> frozenset[str]:
        return self.run.services

    def not_everywhere(self, service: str) -> Vector:
        rows = self.events.delivered
        having = rows[self.run.having(service)[rows]]
        return members.not_everywhere(self.events, self.view_rows, self.history, having)

    # --- tickets ---

    @cached_property
    def _stamps(self) -> members.Stamps:
        return members.Stamps(self.events)

    def first_unstamped(self) -> Vector:
        return self._stamps.first_unstamped()

    def equal_stamps(self) -> Vector:
        return self._stamps.equal()
