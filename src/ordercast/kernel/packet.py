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
