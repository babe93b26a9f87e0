"""What passes between an application and its group, and how a group ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import NamedTuple

import msgspec

from ordercast.errors import OrdercastError, UsageError, unknown_word
from ordercast.kernel.inputs import LARGEST_STATE, Input, StateProvided
from ordercast.types import Invitation, NodeId, SnapshotFailed, StateGiven, StateWanted
from ordercast.wire.codec import LARGEST_PACKET

FAILURE_LENGTH = 300
"""Characters of what an application raised that another member is told."""
log = logging.getLogger("ordercast.net")

LARGEST_BATCH = LARGEST_PACKET - (1 << 20)
"""Bytes of the messages of one batch: what is around them is at most a few bytes a message."""


class GroupClosed(OrdercastError):
    """The group was left, or its node was closed."""


class Ejected(OrdercastError):
    """This member was ejected from the group, because its application took nothing for too long."""


def ejected(me: NodeId, group: str, *, full: bool) -> Ejected:
    """Why this member cannot stay."""
    what = "its queue was full" if full else "others waited for its state"
    why = f"{me} is ejected from {group!r}: {what}, and its application read nothing for "
    return Ejected(f"{why}eject_after. Read the group all the time, or join with read=False")


class StateMissing(OrdercastError):
    """The member that was asked for its application's state could not give it. This one is out of
    the group; it may join again."""


class RestoreFailed(OrdercastError):
    """The `restore` of this application raised an error, which is the cause of this one. This
    member is out of the group; it may join again."""


def state_failed(me: NodeId, group: str, error: Exception) -> OrdercastError:
    """Why this member cannot be in the group: it was given no state, or cannot take it."""
    kind: type[OrdercastError] = RestoreFailed
    what = f"its restore raised {type(error).__name__}: {error}"
    if isinstance(error, StateMissing):
        kind, what = StateMissing, str(error)
    why = kind(f"{me} leaves {group!r}: {what}")
    why.__cause__ = error
    return why


class Message(msgspec.Struct, frozen=True, gc=False):
    """One application message, as it was sent."""

    sender: NodeId
    data: bytes
    group: str
    number: int  # of the event that carried it: equal for the messages of one batch
    service: str = ""  # in families that have several


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


def only_reads(me: NodeId, group: str) -> UsageError:
    """Why this member cannot send at all."""
    return UsageError(f"{me.name} may not send in {group!r}: it only reads")


def no_service(word: object, group: str, family: str, known: Collection[str]) -> UsageError:
    """Why no message can have this service."""
    if not known:
        return UsageError(f"{group!r} is {family}, which has no services: leave service out")
    return UsageError(f"{group!r}: {unknown_word(f'service of {family}', str(word), known)}")


class Hooks(NamedTuple):
    """What a group may ask of its application."""

    snapshot: Callable[[], bytes] | None = None  # its state, for members that join later
    restore: Callable[[bytes], None] | None = None  # takes another's state, when we come
    vote: Callable[[Invitation], bool] | None = None  # whether we come to a formation
    reads: bool = True  # False: the application only sends

    def check(self) -> None:
        for name in ("snapshot", "restore", "vote"):
            given = getattr(self, name)
            if given is not None and not callable(given):
                raise UsageError(f"{name} must be a function, not {given!r}")
        if not isinstance(self.reads, bool):
            raise UsageError(f"read must be True or False, not {self.reads!r}")


class Handover:
    """How an application's state is asked for and given, where it has one."""

    def __init__(self, hooks: Hooks, give: Callable[[Input], object]) -> None:
        self._snapshot, self._restore = hooks.snapshot, hooks.restore
        self._give = give  # to the machine
        self._asked = 0  # how often our application is asked, and has not read so far
        self.listeners: tuple[Callable[[], None], ...] = ()  # called when it is

    @property
    def is_due(self) -> bool:
        """Whether the application is asked for its state, and has not read so far."""
        return self._asked > 0

    def answers_later(self, wanted: StateWanted) -> bool:
        """Whether the application is asked, when it has read so far. If it has no state nobody has
        to wait for that: the machine gets the answer in a later turn."""
        if self._snapshot is None:
            none = StateProvided(wanted.group, wanted.token, None)
            asyncio.get_running_loop().call_soon(self._give, none)
            return False
        self._asked += 1
        for listener in self.listeners:
            listener()
        return True

    def give(self, wanted: StateWanted) -> SnapshotFailed | None:
        """The application has read so far. What it cannot hand over costs the one who asked."""
        self._asked -= 1
        state: bytes | None
        try:
            state, failure = self._made(), ""
        except Exception as error:
            log.exception("%s: the snapshot of this application failed", wanted.group)
            state, failure = None, f"{type(error).__name__}: {error}"[:FAILURE_LENGTH]
        self._give(StateProvided(wanted.group, wanted.token, state, failure))
        return SnapshotFailed(wanted.group, failure) if failure else None

    def _made(self) -> bytes:
        assert self._snapshot is not None  # or it would not be asked
        state = self._snapshot()
        if not isinstance(state, bytes):
            raise UsageError(f"snapshot must return bytes, not {type(state).__name__}")
        if len(state) > LARGEST_STATE:
            raise UsageError(
                f"snapshot returned {len(state)} bytes; a state has at most {LARGEST_STATE}"
            )
        return state

    def take(self, given: StateGiven) -> None:
        if given.failure:
            raise StateMissing(given.failure)
        if given.state is not None and self._restore is not None:
            self._restore(given.state)
        elif self._restore is not None:
            log.warning(
                "%s begins without a state: the member that took this one in has none", given.group
            )
