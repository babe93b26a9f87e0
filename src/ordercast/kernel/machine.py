"""A machine: the protocol of one member as a state machine, and its inputs.

Laws of the kernel, which every machine keeps:

  1. No clock, no socket, no file, no global randomness. The same inputs give the same steps,
     whatever PYTHONHASHSEED says: never iterate a set.
  2. An input only records in its step; the host applies the step after the call returned.
  3. No machine stores a step: `copy.deepcopy(machine)` is always a valid snapshot.
  4. Packets are frozen. What a peer sent wrong raises PeerError; what we did wrong is an
     assertion.
  5. The host writes the trace rows for submit, send, receive, deliver and view; machines note
     only what no host can see.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol, runtime_checkable

from ordercast.kernel.inputs import Input
from ordercast.kernel.log import Reference
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step, Timer
from ordercast.types import Event, NodeId, Payloads


class Machine(Protocol):
    """The inputs of a protocol. Pure: time comes with the step, chance with the constructor."""

    groups: tuple[str, ...]  # the groups that this machine serves; packets are routed by them

    @property
    def takes(self) -> Collection[type[Input]]:
        """The inputs that `on` takes. Others are never given to it."""

    def start(self, step: Step) -> None:
        """Called first; in some families (`Family.rejoins`) again after `Leave`."""

    def accepts(self, group: str, now: int) -> bool:
        """Whether one more batch may be submitted at this time on the member's own clock.

        Changes nothing. `submit` follows with a step of the same time.
        """

    def stable_up_to(self, group: str) -> int:
        """The number up to which our own events are with every present member; 0: none is."""

    def submit(self, step: Step, group: str, payloads: Payloads, size: int) -> Event:
        """The application hands in a batch, after `accepts` said yes. Returns the event made.

        `size` is the sum of the payloads' bytes: the caller counted it for the credit, so no
        machine needs to loop over messages.
        """

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        """A packet arrived, by whichever channel."""

    def expire(self, step: Step, timer: Timer) -> None:
        """A timer that this machine set, and has not set again since, ran out."""

    def on(self, step: Step, given: Input) -> None:
        """Any other input, of a class in `takes`."""

    def counters(self, group: str) -> dict[str, int]:
        """What it counts, by plain names, for people who watch it. Changes nothing."""


class Serving(Machine, Protocol):
    """Machines of families with several services (`Family.services`), one for each batch."""

    def submit(
        self, step: Step, group: str, payloads: Payloads, size: int, service: str = ""
    ) -> Event:
        """As `Machine.submit`. No service: the group's default."""


class Replying(Machine, Protocol):
    """Machines of families whose messages may reply to another one (`Family.replies`)."""

    def submit(
        self,
        step: Step,
        group: str,
        payloads: Payloads,
        size: int,
        reply: Reference | None = None,
    ) -> Event:
        """As `Machine.submit`. UsageError: what it replies to was not delivered here."""


@runtime_checkable
class Draining(Machine, Protocol):
    """Machines to which packets that come together cost less than one by one.

    Several calls of `receive` in a row share a step. `drain` follows the last of them, before any
    other input: what follows from all of these packets is looked for once.
    """

    def drain(self, step: Step) -> None:
        """No more have come: all that follows from them."""


class LateDraining(Draining, Protocol):
    """Machines to which the same holds for packets of several senders, and a submission between.

    `drain` comes after all that came at the same time, in worlds that know when that is.
    """

    gathers: bool  # True


@runtime_checkable
class Retiring(Machine, Protocol):
    """Machines that hand something over before their member leaves (the input `Retire`)."""

    def may_go(self, group: str) -> bool:
        """Whether that is done. A member that leaves earlier looks like one that has crashed."""

    def has_heirs(self, group: str, now: int) -> bool:
        """Whether anybody is there to hand it over to. If not, waiting is in vain."""


@runtime_checkable
class Blocking(Machine, Protocol):
    """Machines that can say why they do not accept a batch."""

    def blocked_by(self, group: str) -> str:
        """Why `accepts` says no, as the trace has it: `window`, `view`, `quorum` or `rule`.

        `view`: there is no view to send in. `quorum`: that view is not the primary one. `rule`:
        what we sent in another group has no place in the order yet, and what comes now must come
        after it.
        """


@runtime_checkable
class Acknowledged(Machine, Protocol):
    """Machines that know which members have what we sent."""

    def behind(self, group: str) -> tuple[NodeId, ...]:
        """The members for which the oldest of our own events that is not stable waits, those that
        have acknowledged least first. Changes nothing."""


@runtime_checkable
class Remembering(Machine, Protocol):
    """Machines that may wait for a node until the operator says that it is gone (`Forgotten`)."""

    def remembers(self, group: str, name: str) -> bool:
        """Whether this one is waited for. Changes nothing."""


class TreePlace(NamedTuple):
    """Where a member is in a tree, as far as it knows; names."""

    parent: str = ""  # "": it has none
    path: tuple[str, ...] = ()  # from the parent up to the root
    children: tuple[str, ...] = ()
    is_root: bool = False
    seeks_since: int | None = None  # by its own clock; None: it looks for no parent
    refuses: str = ""  # why it accepts nothing, other than for want of room


@runtime_checkable
class Logging(Replying, Protocol):
    """Machines with a log that applications read (`Family.logged`)."""

    def has(self, reference: Reference) -> bool:
        """Whether this event is in the log, or was: whether a message may reply to it."""

    def awaits(self, position: int) -> bool:
        """Whether the entry here is lost, and others are asked for it. If it is not, and the entry
        cannot be read, it is given up."""

    def place(self) -> TreePlace:
        """Where this member is in the tree. Changes nothing."""
