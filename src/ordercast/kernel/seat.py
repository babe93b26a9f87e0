"""One machine in its host (`host.py`): what is known of it between its steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ordercast.kernel.machine import Machine
from ordercast.kernel.step import Step, Timer
from ordercast.types import Event


class Seat:
    """One machine in its host."""

    __slots__ = (
        *("blocked_by", "closed", "drain", "gathers", "has_left", "machine", "open", "stable"),
        *("takes", "timers", "waiting"),
    )

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.takes = machine.takes
        self.drain: Callable[[Step], None] | None = getattr(machine, "drain", None)
        self.gathers = self.drain is not None and getattr(machine, "gathers", False)
        self.open: Step | None = None  # of packets that came, while others may come with them
        self.blocked_by: Callable[[str], str] | None = getattr(machine, "blocked_by", None)
        self.closed = False
        self.has_left = False  # its only group: it is closed when its last step has taken effect
        self.timers: dict[Timer, tuple[int, Any]] = {}  # the valid setting of each, and its alarm
        # Steps that have not taken effect. A queue is made for the first: most never need one.
        self.waiting: deque[WaitingStep] | tuple[()] = ()
        # How far own events were stable at the last effect, once steps had to wait for the disk.
        self.stable: dict[str, int] | None = None


class WaitingStep:
    """A step that has not taken effect, or what was to be done after those before it."""

    __slots__ = ("commits", "event", "stable", "step", "then")

    def __init__(
        self,
        step: Step | None,
        event: Event | None = None,
        then: Callable[[], None] | None = None,
    ) -> None:
        self.step = step
        self.event = event
        self.then = then
        self.commits = 0  # that it still waits for
        self.stable: dict[str, int] = {}
