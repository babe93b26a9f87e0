"""Rows, kinds and the header of a run: the trace contract, version 2.

A trace is what a run leaves behind. The simulator and the live runtime write the same kind of
rows, and nothing that reads them can tell which of the two it was. docs/trace.md says what
every column means, and what is new in which version. Changing a column or a kind means a new
SCHEMA_VERSION.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

SCHEMA_VERSION = 2
READABLE = (1, 2)
"""Versions that can be read: what a newer one has more, an older trace does not hold."""


class Kind(StrEnum):
    START = "start"
    STOP = "stop"
    CRASH = "crash"
    JOIN = "join"
    LEAVE = "leave"
    SUBMIT = "submit"
    DELIVER = "deliver"
    LOSE = "lose"
    VIEW = "view"
    TICKET = "ticket"
    EXCLUDE = "exclude"
    SUSPECT = "suspect"
    REFUTE = "refute"
    CONFIRM = "confirm"
    RECOVER = "recover"
    BLOCKED = "blocked"
    SEND = "send"
    RECEIVE = "receive"


KINDS = frozenset(str(kind) for kind in Kind)

CAUSES = {
    "lose": ("obsolete", "unrecovered", "overflow", "discarded"),
    "ticket": ("wanted", "refused", "acquired", "renewed", "released", "disconnected"),
    "recover": ("asked", "answered", "failed"),
    "blocked": ("window", "view", "rule"),
}
"""The words that `cause` may hold, for the kinds that have one."""


class Level(StrEnum):
    """How much is written: nothing, all but single packets, or everything."""

    OFF = "off"
    APP = "app"
    WIRE = "wire"


class Row(msgspec.Struct, frozen=True, gc=False):
    """One thing that happened at one process. Which run it belongs to is said by its trace.

    Local order is (incarnation, step), never `at`. Everything after `kind` may be absent.
    """

    process: str
    incarnation: int
    step: int
    at: int
    kind: str
    group: str | None = None
    origin: str | None = None
    number: int | None = None
    index: int | None = None
    stamp: tuple[int, ...] | None = None
    order: int | None = None
    view: int | None = None
    members: tuple[str, ...] | None = None
    peer: str | None = None
    message: str | None = None
    size: int | None = None
    count: int | None = None
    hops: int | None = None
    until: int | None = None
    cause: str | None = None


COLUMNS = Row.__struct_fields__


class Ending(StrEnum):
    """How a run ended. Only a finished run can show that something never happened."""

    FINISHED = "finished"
    CUT = "cut"
    FAILED = "failed"


class Header(msgspec.Struct, frozen=True, omit_defaults=True):
    """What produced a run: the content of run.json."""

    run: str
    family: str | None = None
    parameters: dict[str, Any] = {}
    seed: int | None = None
    version: str | None = None
    schema_version: int = SCHEMA_VERSION
    level: Level = Level.APP
    start: int | None = None  # nanoseconds on the scale of `at`
    end: int | None = None
    ending: Ending = Ending.CUT


class Trace(msgspec.Struct, frozen=True):
    """One whole run in memory: its header, and its rows in each process's local order."""

    header: Header
    rows: list[Row]
