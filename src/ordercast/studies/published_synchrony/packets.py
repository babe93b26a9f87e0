"""The packets of the published membership protocol, and the two that its environment needs.

Amir, Dolev, Kramer, Malki: Membership algorithms for multicast communication groups (Transis,
1992), sections 2 to 5. Every message of the paper (regular ones, FA, AJ, JOIN) is a node of the
causal graph, and travels as a kind of `Cast`. `Need` is the recovery that the paper leaves to
Transis, and `Beat` the regular sign of life of its footnote 4.

The paper's acknowledgements are one vector here: `past[x]` is how many messages of machine x the
sender had in its graph. So a message follows the k-th message of x exactly if `past[x] >= k`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from ordercast.kernel.packet import Count, Number, Packet
from ordercast.types import Payloads

MOST_MACHINES = 32
MachineName = Annotated[str, Meta(min_length=1, max_length=100)]
SomeMachines = Annotated[tuple[MachineName, ...], Meta(max_length=MOST_MACHINES)]
Kind = Literal["data", "ack", "FA", "AJ", "JOIN"]


class Cast(Packet, frozen=True):
    """One message of the graph, from its sender or from a machine that was asked for it."""

    kind: ClassVar[Kind]

    sender: MachineName
    counter: Number  # the place among the sender's messages, from 1
    past: Annotated[tuple[Count, ...], Meta(max_length=MOST_MACHINES)]  # own entry: counter - 1
    height: Number  # one more than the highest message that it follows
    faulty: SomeMachines = ()  # FA: f_set
    joining: SomeMachines = ()  # AJ, JOIN: j_set; FA: f_J
    before: SomeMachines = ()  # JOIN: f_set; FA: f_F
    number: Count = 0  # data: the number of the event
    payloads: Payloads = msgspec.field(default_factory=list)
    size: Count = 0

    def carries(self) -> tuple[int, int, int]:
        return len(self.payloads), self.size, 16_384

    def makers(self) -> tuple[str]:
        return (self.sender,)

    @property
    def key(self) -> tuple[str, int]:
        return self.sender, self.counter


class Data(Cast, frozen=True, tag="published.data"):
    """A message of the application."""

    kind: ClassVar[Kind] = "data"


class Ack(Cast, frozen=True, tag="published.ack"):
    """Nothing but acknowledgements."""

    kind: ClassVar[Kind] = "ack"


class Fault(Cast, frozen=True, tag="published.fault"):
    """FA: these machines are faulty."""

    kind: ClassVar[Kind] = "FA"


class JoinAttempt(Cast, frozen=True, tag="published.attempt"):
    """AJ: this is our configuration, and we have heard of others."""

    kind: ClassVar[Kind] = "AJ"


class Join(Cast, frozen=True, tag="published.join"):
    """JOIN: let this be the configuration, without these."""

    kind: ClassVar[Kind] = "JOIN"


class Need(Packet, frozen=True, tag="published.need"):
    """Recovery: your message follows these of another machine, and they have not come."""

    sender: MachineName
    first: Number
    last: Number


class Beat(Packet, frozen=True, tag="published.beat"):
    """A sign of life. It is no node of the graph."""


CASTS: dict[Kind, type[Cast]] = {kind.kind: kind for kind in (Data, Ack, Fault, JoinAttempt, Join)}
PACKETS: tuple[type[Packet], ...] = (*CASTS.values(), Need, Beat)
