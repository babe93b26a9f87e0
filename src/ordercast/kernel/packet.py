"""The base of everything that travels between members."""

from __future__ import annotations

import msgspec


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

    def carries(self) -> tuple[int, int]:
        """How many application messages it says are in it, and how many bytes of them.

        Buffers are bounded by what packets say here, so the codec holds it against their length.
        """
        return 0, 0
