"""A step: everything that one call of a protocol may do to the world.

Theory of operation. A protocol is a state machine with inputs (see `Machine`). Each input gets a
step, alive for that call only. The step records; it does nothing. When the call returned normally
the host (`host.py`) applies the record. It may hand one step to several calls in a row, and apply
it once: packets that came together cost less so. The order of what is applied, in every world:

  1. `records` are made durable,
  2. `sent` leaves,
  3. `timers` are set,
  4. `outputs` reach the application and the trace, in the order in which they were recorded,
  5. `recalls` are taken up: what the world reads comes back in a later step.

So "written before sent" holds by construction, and a call that raised did nothing at all.

Four channels, with the same promises everywhere:

  datagram  may be lost, doubled, reordered
  multicast one send to many: the same for each receiver, each on its own
  link      reliable and FIFO between two incarnations, across cuts and reconnects; what was
            underway when either end died is lost
  status    answered within a bound by the input `StatusResult`: OK means it arrived, not OK
            says nothing about arrival
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum
from typing import NamedTuple, Protocol, Self, TypeAlias

from ordercast.kernel.log import Appended, Entry, Place, Recall, Repaired, Trimmed
from ordercast.kernel.packet import Packet
from ordercast.types import Event, NodeId, StateGiven, StateWanted, View


class Channel(Enum):
    """A channel by what it promises. Worlds ask for a promise, and never which channel it is."""

    LINK = "link", True, False
    DATAGRAM = "datagram", False, False
    STATUS = "status", False, True
    MULTICAST = "multicast", False, False, True

    def __new__(cls, word: str, in_order: bool, answered: bool, shared: bool = False) -> Self:
        channel = object.__new__(cls)
        channel._value_ = word
        return channel

    def __init__(self, word: str, in_order: bool, answered: bool, shared: bool = False) -> None:
        self.shared = shared  # one packet gets to all of its receivers
        self.in_order = in_order  # reliable and FIFO between two incarnations
        self.answered = answered  # within a bound
        self.fleeting = not in_order and not answered  # may be lost, doubled, reordered


LINK = Channel.LINK
DATAGRAM = Channel.DATAGRAM
STATUS = Channel.STATUS
MULTICAST = Channel.MULTICAST

LARGEST_DATAGRAM = 60_000
"""Bytes of one packet by datagram or by multicast. Larger ones are refused, never fragmented."""

Address: TypeAlias = NodeId | str
"""The receiver of a packet. A NodeId means that incarnation and no other. A bare name means the
incarnation that bears it when the packet arrives; a link joins two incarnations and refuses a bare
name."""

Timer: TypeAlias = Hashable
"""Timers are data: any hashable value that the protocol recognises when it comes back."""


Sent: TypeAlias = tuple[tuple[Address, ...], Packet, Channel, tuple[Hashable, ...]]
"""To whom, what, by which channel, and for each of them the token that its status comes with."""


class Note(NamedTuple):
    kind: str
    columns: dict[str, object]


class Heard(Protocol):
    """What an application hears: an event, a view, or a value of any class that names its group."""

    @property
    def group(self) -> str: ...


Output: TypeAlias = Heard | Note
"""What the application and the trace hear of, in order."""


class Step:
    """The record of one call. Protocols never store it: a deep copy of a member is a snapshot."""

    __slots__ = ("now", "outputs", "recalls", "records", "sent", "timers")

    def __init__(self, now: int) -> None:
        self.now = now  # nanoseconds on this member's own clock, which may drift
        self.sent: list[Sent] = []
        self.outputs: list[Output] = []
        self.timers: list[tuple[Timer, int | None]] = []
        self.records: list[Packet] = []
        self.recalls: tuple[Recall, ...] = ()  # most machines have no log

    def send(
        self,
        to: Address | tuple[Address, ...],
        packet: Packet,
        channel: Channel = LINK,
        token: Hashable = None,
    ) -> None:
        """Sends to one address or to a tuple of them; encoded once.

        A token is for STATUS, and comes back with the answer. To several addresses it is a tuple
        with a token for each.
        """
        assert token is None or channel.answered, "a token comes back with an answer only"
        if not isinstance(to, tuple):
            self.sent.append(((to,), packet, channel, (token,)))
            return
        tokens = token if isinstance(token, tuple) else (token,) * len(to)
        assert len(tokens) == len(to), "a token for each address"
        self.sent.append((to, packet, channel, tokens))

    def deliver(self, event: Event) -> None:
        """Hands an event to the application."""
        self.outputs.append(event)

    def install(self, view: View) -> None:
        """Hands a view to the application, in order with the events."""
        self.outputs.append(view)

    def ask_state(self, group: str, token: Hashable) -> None:
        """Asks the application for its state at this point; it comes back as `StateProvided`."""
        self.outputs.append(StateWanted(group, token))

    def give_state(self, group: str, state: bytes | None, failure: str = "") -> None:
        """Hands the application a state to begin with. None: others have one, and gave none.

        With the reason for which they could not, it cannot begin.
        """
        self.outputs.append(StateGiven(group, state, failure))

    def notify(self, news: Heard) -> None:
        """Notifies the application of anything else, such as a change of its permit to send or of a
        formation; in order with the events."""
        self.outputs.append(news)

    def set_timer(self, timer: Timer, after: int | None) -> None:
        """Asks for `expire(timer)` after so many nanoseconds; again replaces, None cancels."""
        self.timers.append((timer, after))

    def persist(self, record: Packet) -> None:
        """Makes a record durable before anything of this step leaves."""
        self.records.append(record)

    def note(self, kind: str, **columns: object) -> None:
        """Writes a trace row that no driver could see, such as `suspect` or `lose`."""
        self.outputs.append(Note(kind, columns))

    # --- machines with a log (log.py) --------------------------------------------------------

    def append(self, group: str, entry: Entry) -> None:
        """Makes an entry durable at the next position of the group's log."""
        self.records.append(Appended(group, entry))

    def trim(self, group: str, below: int) -> None:
        """Gives up the entries below a position."""
        self.records.append(Trimmed(group, below))

    def repair(self, group: str, position: int, entry: Entry) -> None:
        """Puts back an entry that the disk had lost."""
        self.records.append(Repaired(group, position, entry))

    def recall(self, group: str, token: Hashable, place: Place, limit: int) -> None:
        """Asks for entries of the log; they come back as `Recalled`, with this token."""
        self.recalls = (*self.recalls, Recall(group, token, place, limit))
