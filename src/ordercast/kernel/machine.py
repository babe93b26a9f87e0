"""The doors of a protocol.

Laws of the kernel, which every machine keeps:

  1. No clock, no socket, no file, no global randomness. The same calls give the same steps,
     whatever PYTHONHASHSEED says: never iterate a set.
  2. A door only records in its step; the driver applies it after the door returned.
  3. No machine stores a step: `copy.deepcopy(machine)` is always a valid snapshot.
  4. Packets are frozen. What a peer sent wrong raises PeerError; what we did wrong is an
     assertion.
  5. Drivers write the trace rows for submit, send, receive, deliver and view; machines note
     only what no driver can see.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step, Timer
from ordercast.types import Event, NodeId, Payloads

if TYPE_CHECKING:
    from ordercast.kernel.family import Plan


class Machine(Protocol):
    """The doors of a protocol. Pure: time comes with the step, chance with the constructor."""

    groups: tuple[str, ...]  # the groups that this machine serves; packets are routed by them

    def start(self, step: Step) -> None:
        """Called first; in some families (`Family.rejoins`) again after `leave`."""

    def accepts(self, group: str, now: int) -> bool:
        """Whether one more batch may be submitted at this time on the member's own clock.

        Asked by drivers, changes nothing. `submit` follows with a step of the same time.
        """

    def stable_up_to(self, group: str) -> int:
        """The number up to which our own events are with every present member; 0: none is."""

    def submit(self, step: Step, group: str, payloads: Payloads, size: int) -> Event:
        """The application hands in a batch, after `accepts` said yes. Returns the event made.

        `size` is the sum of the payloads' bytes: the driver counted it for the credit, so no
        machine needs to loop over messages.
        """

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        """A packet arrived, by whichever channel."""

    def expire(self, step: Step, timer: Timer) -> None:
        """A timer that this machine set, and has not set again since, ran out."""

    def told(self, step: Step, token: Hashable, arrived: bool) -> None:
        """The answer to a STATUS send: arrived, or nobody knows."""

    def throttle(self, step: Step, group: str, full: bool) -> None:
        """The application cannot take more for now (or can again): senders should wait."""

    def provide(self, step: Step, group: str, token: Hashable, state: bytes | None) -> None:
        """The application's state, which `step.ask_state` asked for; None: it has none."""

    def figures(self, group: str) -> dict[str, int]:
        """What it counts, by plain names, for people who watch it. Changes nothing."""

    def leave(self, step: Step, group: str) -> None:
        """The application leaves. Tells the others; but for `start` no door is called any more."""


@runtime_checkable
class Licensed(Machine, Protocol):
    """Machines of groups in which it takes a right to send, which comes and goes.

    What has become of it is told by `step.tell` of an `Updating`.
    """

    def seek(self, step: Step, group: str, wanted: bool) -> None:
        """The application wants to send, or no longer does: then the right is given back."""

    def retire(self, step: Step, group: str) -> None:
        """The application will leave: what others need us for is handed over first."""

    def may_go(self, group: str) -> bool:
        """Whether that is done. Who leaves earlier does it like one that has crashed."""

    def has_heirs(self, group: str, now: int) -> bool:
        """Whether anybody is there to hand it over to. If not, waiting is in vain."""


@runtime_checkable
class Formed(Machine, Protocol):
    """Machines that serve all groups of a process together, each by formations that come and go.

    `groups` changes with `join` and `leave`. What becomes of a formation is told by views, and
    by `step.tell` of a `Subgroup`, an `Invitation` or a `Refused`.
    """

    def join(self, step: Step, plan: Plan) -> None:
        """One more group of this process: it forms when all its members are there."""

    def form(self, step: Step, group: str, members: tuple[str, ...] | None = None) -> None:
        """The application wants the group formed anew, of whoever is there, or of these.

        The part that we are in goes on: the others take over the state of our application.
        """

    def answer(self, step: Step, group: str, formation: str, yes: bool, why: str = "") -> None:
        """The application's vote on an `Invitation`. Of one that is over it changes nothing."""

    def blocked_by(self, group: str) -> str:
        """Why `accepts` says no, as the trace has it: `window`, `view` or `rule`.

        `view`: there is no view to send in. `rule`: what we sent in another group has no place in
        the order yet, and what comes now must come after it.
        """


@runtime_checkable
class Bundled(Machine, Protocol):
    """Machines to which packets that come together cost less than one by one.

    A driver may call `take` for each of several and `settle` after the last, in one step: like
    `receive` of each of them, but what follows from them is looked for once.
    """

    def take(self, step: Step, sender: NodeId, packet: Packet) -> None:
        """A packet arrived, and more may come at once. `settle` comes before any other door."""

    def settle(self, step: Step) -> None:
        """No more have come: all that follows from them."""
