"""Rows, kinds and the header of a run: the trace contract, version 4.

A trace is what a run leaves behind. The simulator and the live runtime write the same kind of
rows, and nothing that reads them can tell which of the two it was. docs/trace.md says what
every column means, and what is new in which version. Changing a column or a kind means a new
SCHEMA_VERSION.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_type_hints

import msgspec

from ordercast.types import GUARANTEES, Guarantee

SCHEMA_VERSION = 4
READABLE_TRACES = (1, 2, 3, 4)
"""Versions that can be read: what a newer one has more, an older trace does not hold."""


class RowKind(StrEnum):
    START = "start"
    STOP = "stop"
    CRASH = "crash"
    JOIN = "join"
    LEAVE = "leave"
    SUBMIT = "submit"
    DELIVER = "deliver"
    LOSE = "lose"
    VIEW = "view"
    PRIMARY = "primary"
    PARENT = "parent"
    TICKET = "ticket"
    EXCLUDE = "exclude"
    SUSPECT = "suspect"
    REFUTE = "refute"
    CONFIRM = "confirm"
    RECOVER = "recover"
    BLOCKED = "blocked"
    SEND = "send"
    RECEIVE = "receive"


KINDS = frozenset(str(kind) for kind in RowKind)

CAUSES = {
    "start": ("empty",),
    "join": ("state",),
    "primary": ("attempted", "formed"),
    "lose": ("obsolete", "unrecovered", "overflow", "discarded"),
    "ticket": ("wanted", "refused", "acquired", "renewed", "released", "disconnected"),
    "recover": ("asked", "answered", "failed"),
    "blocked": ("window", "view", "rule", "quorum"),
    "view": ("transitional",),
}
"""The words that `cause` may hold, for the kinds that have one. Of submit and deliver rows it is
the service, which the family names (`Header.services`)."""


class TraceLevel(StrEnum):
    """How much is written: nothing, all but single packets, or everything."""

    OFF = "off"
    APP = "app"
    WIRE = "wire"


Short: TypeAlias = Annotated[int, "32 bits"]
Time: TypeAlias = Annotated[int, "nanoseconds"]


class Row(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """One thing that happened at one process. Which run it belongs to is said by its trace.

    Local order is (incarnation, step), never `at`. Everything after `kind` may be absent. A column
    more is a field more here: files, histories and tables follow.
    """

    process: str
    incarnation: Short
    step: int
    at: Time
    kind: str
    group: str | None = None
    origin: str | None = None
    number: int | None = None
    index: Short | None = None
    stamp: tuple[int, ...] | None = None
    order: int | None = None
    view: int | None = None
    members: tuple[str, ...] | None = None
    peer: str | None = None
    message: str | None = None
    size: Short | None = None
    count: Short | None = None
    hops: Short | None = None
    until: Time | None = None
    cause: str | None = None
    reply_origin: str | None = None
    reply_number: int | None = None
    after: int | None = None


COLUMNS = Row.__struct_fields__

_ARROW_TYPES: dict[Any, str] = {
    str: "string",
    int: "int64",
    Short: "int32",
    Time: "int64",
    tuple[int, ...]: "list<int64>",
    tuple[str, ...]: "list<string>",
}
_HINTS = {
    name: hint if hint in _ARROW_TYPES else get_args(hint)[0]  # of `str | None` the first
    for name, hint in get_type_hints(Row, include_extras=True).items()
}
COLUMN_TYPES = {"run": "string"} | {name: _ARROW_TYPES[hint] for name, hint in _HINTS.items()}
"""The columns of a trace file and their Arrow types, in order."""

TIMES = tuple(name for name, hint in _HINTS.items() if hint is Time)
"""The columns that hold nanoseconds."""

NOTED_TIMES = tuple(name for name in TIMES if name != "at")
"""Those that a machine notes by its own clock. A world puts them on the scale of `at`."""

REQUIRED = ("run", "process", "incarnation", "step", "at", "kind")
"""The columns that every trace fills, those of other systems too. The rest may be null."""


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
    level: TraceLevel = TraceLevel.APP
    start: int | None = None  # nanoseconds on the scale of `at`
    end: int | None = None
    ending: Ending = Ending.CUT
    # What services of the family promise that have other names than that.
    services: dict[str, Guarantee] = {}

    def guarantee(self, service: str | None) -> Guarantee | Literal[""]:
        """What a service of this run promises; "": it is none."""
        word = self.services.get(service or "", service)
        return next((one for one in GUARANTEES if one == word), "")


class Trace(msgspec.Struct, frozen=True):
    """One whole run in memory: its header, and its rows in each process's local order."""

    header: Header
    rows: list[Row]
