"""The rows of one incarnation of one process, numbered as they are written.

Both worlds write through this class, so a simulated and a live trace cannot be told apart. The
driver says when (`at`); the journal says in which order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ordercast.trace.schema import KINDS, NOTED_TIMES, Row
from ordercast.types import Event, NodeId, View, label_of

_NO_REPLY = (None, None)


class TraceJournal:
    __slots__ = ("_incarnation", "_name", "_step", "_views", "_write")

    def __init__(self, node: NodeId, write: Callable[[Row], None]) -> None:
        self._name = node.name
        self._incarnation = node.incarnation
        self._write = write
        self._step = 0
        self._views: dict[str, int] = {}  # the view in force, by label

    def row(self, at: int, kind: str, **columns: Any) -> None:
        """Any row that has no method of its own."""
        assert kind in KINDS, f"the trace contract knows no {kind!r}"
        self._step = step = self._step + 1
        self._write(Row(self._name, self._incarnation, step, at, kind, **columns))

    def note(
        self, at: int, kind: str, columns: Mapping[str, Any], on_trace_scale: Callable[[int], int]
    ) -> None:
        """A row of a machine, which knows its own clock only: its times are translated."""
        times = {
            name: on_trace_scale(time)
            for name in NOTED_TIMES
            if (time := columns.get(name)) is not None
        }
        self.row(at, kind, **{**columns, **times})

    def submit(self, at: int, event: Event) -> None:
        self._event(at, "submit", event)

    def deliver(self, at: int, event: Event) -> None:
        self._event(at, "deliver", event)

    def view(self, at: int, view: View) -> None:
        label = label_of(view.group, view.formation)
        self._views[label] = view.id
        members = tuple(sorted(member.name for member in view.members))
        cause = "transitional" if view.transitional else None
        self.row(at, "view", group=label, view=view.id, members=members, cause=cause)

    def _event(self, at: int, kind: str, event: Event) -> None:
        # Positional, because this is the one row that a busy run writes by the million.
        self._step = step = self._step + 1
        stamp = event.stamp if kind == "submit" else None
        label = label_of(event.group, event.formation) if event.formation else event.group
        reply_origin, reply_number = event.reply or _NO_REPLY
        self._write(
            Row(
                self._name,
                self._incarnation,
                step,
                at,
                kind,
                label,
                event.origin.name,
                event.number,
                event.index,
                stamp,
                event.order,
                self._views.get(label),
                None,
                None,
                None,
                None,
                len(event.payloads),
                event.hops,
                None,
                event.service or None,
                reply_origin,
                reply_number,
            )
        )
