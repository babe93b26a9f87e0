"""How pages name a post: its `Reference` as text, the same at every node and for ever."""

from __future__ import annotations

import re

from ordercast.errors import UsageError
from ordercast.kernel.log import IDENTITY_BITS, Reference
from ordercast.types import COUNTER_BITS, INCARNATION_BITS

_KEY = re.compile(r"([\w.-]{1,100})~([0-9a-f]{1,16})~([0-9]{1,19})~([0-9]{1,10})", re.ASCII)
_LIMITS = 1 << IDENTITY_BITS, 1 << INCARNATION_BITS + COUNTER_BITS, 1 << 31


def key_of_post(reference: Reference) -> str:
    """No name of a node has a `~`."""
    of = reference
    return f"{of.origin}~{of.birth:x}~{of.number}~{of.index}"


def reference_of(key: str) -> Reference:
    """UsageError: no page has shown such a key."""
    found = _KEY.fullmatch(key)
    if found:
        numbers = int(found[2], 16), int(found[3]), int(found[4])
        if all(number < limit for number, limit in zip(numbers, _LIMITS, strict=True)):
            return Reference(found[1], *numbers)
    raise UsageError(f"{key[:80]!r} names no post: a page names them as node~log~number~index")
