"""What passes between an application and its group, and how a group ends."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from ordercast.errors import OrdercastError, UsageError
from ordercast.types import (
    Event,
    Invitation,
    NodeId,
    Refused,
    StateGiven,
    StateWanted,
    Subgroup,
    Updating,
    View,
)
from ordercast.wire.codec import LARGEST_PACKET

log = logging.getLogger("ordercast.net")

LARGEST_STATE = 32 << 20
"""Bytes of an application's state that a newcomer is given in one packet."""
LARGEST_BATCH = LARGEST_PACKET - (1 << 20)
"""Bytes of the messages of one batch: what is around them is at most a few bytes a message."""

Item: TypeAlias = Event | View | Updating | Subgroup
"""What an application is handed, in order."""
Told: TypeAlias = Item | StateWanted | StateGiven | Invitation | Refused
"""What a machine tells an application, or asks of it."""


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


Handed: TypeAlias = Message | View | Updating | Subgroup
"""The same, a message at a time."""


def as_bytes(data: object) -> bytes:
    if isinstance(data, (bytearray, memoryview)):
        return bytes(data)
    raise UsageError(f"a message is bytes, not {type(data).__name__}")


def too_much(size: int, count: int, group: str, largest: int) -> UsageError:
    """Why this can never be sent at once."""
    what = f"a message of {size} bytes" if count == 1 else f"{count} messages, {size} bytes"
    return UsageError(
        f"{what}: {group!r} takes {largest} at once (its window_size, at most {LARGEST_BATCH})"
    )


class Handover:
    """How an application's state is asked for and given, where it has one."""

    def __init__(
        self, snapshot: Callable[[], bytes] | None, restore: Callable[[bytes], None] | None
    ) -> None:
        self.snapshot = snapshot
        self._restore = restore

    def take(self, given: StateGiven) -> None:
        if given.state is not None and self._restore is not None:
            self._restore(given.state)
        elif self._restore is not None:
            log.warning("%s begins without the state that others have", given.group)

    def give(self) -> bytes | None:
        return _state_of(self.snapshot)


def _state_of(snapshot: Callable[[], bytes] | None) -> bytes | None:
    """What the application's snapshot says. What cannot be handed over is its mistake."""
    state = snapshot() if snapshot is not None else None
    if state is not None and not isinstance(state, bytes):
        raise UsageError(f"snapshot must return bytes, not {type(state).__name__}")
    if state is not None and len(state) > LARGEST_STATE:
        raise UsageError(
            f"snapshot returned {len(state)} bytes; a state has at most {LARGEST_STATE}"
        )
    return state
