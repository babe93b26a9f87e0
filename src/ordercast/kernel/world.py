"""What a host needs around it: a clock, a network, a disk, an application and a trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from ordercast.kernel.log import Recall
from ordercast.kernel.packet import Packet
from ordercast.kernel.seat import Seat
from ordercast.kernel.step import Heard, Sent, Timer
from ordercast.types import Event, View

Commit: TypeAlias = Callable[[Callable[[], None]], None]
"""Makes something durable, then calls what it is given: at once, or in the order of the calls."""


class Journal(Protocol):
    """Where the rows of one incarnation go."""

    def row(self, at: int, kind: str, **columns: Any) -> None: ...
    def note(
        self, at: int, kind: str, columns: Mapping[str, Any], on_trace_scale: Callable[[int], int]
    ) -> None: ...
    def submit(self, at: int, event: Event) -> None: ...
    def deliver(self, at: int, event: Event) -> None: ...
    def view(self, at: int, view: View) -> None: ...


class World(Protocol):
    """What a host needs around it."""

    def send(self, seat: Seat, sent: Sent) -> None:
        """One packet leaves. Each STATUS send is answered by `Host.status` with its token."""

    def wake(self, seat: Seat, timer: Timer, setting: int, after: int) -> Any:
        """Calls `Host.expire` with these after so many nanoseconds of the member's clock.

        What it returns is handed to `cancel` if the timer is not wanted any more.
        """

    def cancel(self, alarm: Any) -> None:
        """A timer was set again or cancelled. The host ignores it if it runs out all the same."""

    def commit(self, records: list[Packet], done: Callable[[], None]) -> None:
        """Makes records durable, then calls `done`; at once, or later in the order of the calls."""

    def recall(self, seat: Seat, recall: Recall) -> None:
        """Reads what a machine wants of its log, and gives it the input `Recalled` later."""

    def hear(self, seat: Seat, output: Heard) -> None:
        """The application hears something. Its reactions come after this step."""

    def stepped(self, seat: Seat) -> None:
        """A step has taken effect: perhaps there is room now, or something has become stable."""

    def broke(self, seat: Seat, error: Exception) -> None:
        """A machine broke, and was closed. All its groups fail."""

    def trace_time(self) -> int:
        """Now, as the trace has it."""

    def on_trace_scale(self, local: int) -> int:
        """A time on the member's own clock, as the trace has it."""
