"""What passes between an application and its group, and how a group ends."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ordercast.errors import OrdercastError, UsageError
from ordercast.types import NodeId
from ordercast.wire.codec import LARGEST_PACKET

LARGEST_STATE = 32 << 20
"""Bytes of an application's state that a newcomer is given in one packet."""
LARGEST_BATCH = LARGEST_PACKET - (1 << 20)
"""Bytes of the messages of one batch: what is around them is at most a few bytes a message."""


class GroupClosed(OrdercastError):
    """The group was left, or this member was put out of it."""


class Ejected(OrdercastError):
    """This member was put out of the group, because it could not keep up."""


class Message(msgspec.Struct, frozen=True, gc=False):
    """One application message, as it was sent."""

    sender: NodeId
    data: bytes
    group: str
    number: int  # of the event that carried it: equal for the messages of one batch


def as_bytes(data: object) -> bytes:
    if isinstance(data, (bytearray, memoryview)):
        return bytes(data)
    raise UsageError(f"a message is bytes, not {type(data).__name__}")


def state_of(snapshot: Callable[[], bytes] | None) -> bytes | None:
    """What the application's snapshot says. What cannot be handed over is its mistake."""
    state = snapshot() if snapshot is not None else None
    if state is not None and not isinstance(state, bytes):
        raise UsageError(f"snapshot must return bytes, not {type(state).__name__}")
    if state is not None and len(state) > LARGEST_STATE:
        raise UsageError(
            f"snapshot returned {len(state)} bytes; a state has at most {LARGEST_STATE}"
        )
    return state
