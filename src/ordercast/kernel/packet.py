"""The base of everything that travels between members."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from ordercast.types import COUNTER_BITS

Count = Annotated[int, Meta(ge=0, lt=1 << COUNTER_BITS)]
Failure = Annotated[str, Meta(max_length=500)]
"""Why the sender's application could not do its part."""
Number = Annotated[int, Meta(ge=1, lt=1 << COUNTER_BITS)]


class Value(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A part of a packet."""


class Packet(
    msgspec.Struct,
    frozen=True,
    array_like=True,
    forbid_unknown_fields=True,
    gc=False,
):
    """A message between members. Each family's packets name a tag of their own, `family.name`.

    The group comes first in every packet because drivers route by it, in both worlds.
    """

    group: str

    introduces_by_link: ClassVar[bool] = False  # also where it travels by a link

    def carries(self) -> tuple[int, int, int]:
        """How many application messages it says are in it, their bytes, and how many others.

        Buffers are bounded by what packets say here, so the codec holds it against their length.
        The other bytes are those of names, numbers and stamps, at the most.
        """
        return 0, 0, 0

    def makers(self) -> Iterable[str]:
        """The names of those whose messages it carries: they must be allowed to send."""
        return ()

    def introduces(self) -> Iterable[str]:
        """Names that its receiver may send to next: where they are goes with a datagram; and before
        it on a link, if the packet wants that."""
        return ()

    def slot(self) -> Hashable | None:
        """On disk the newest record of a slot stands for all of it. None: each one counts.

        Slots are a record's own: those of another kind or of another group are others.
        """
        return None

    def to_wire(self) -> Packet:
        """The packet in the form in which it travels, if that is another one."""
        return self

    def from_wire(self) -> Packet:
        """Undoes `to_wire`. PeerError: no member could have made this."""
        return self


def tag_of(kind: type[Packet]) -> str:
    """`family.name`, as traces and interaction files name a kind of packet."""
    return str(kind.__struct_config__.tag)
