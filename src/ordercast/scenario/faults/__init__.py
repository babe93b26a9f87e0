"""The kinds of faults. Each is one class; one more is a class, in the `KINDS` of its file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Union

from ordercast.scenario.faults import hardware, members, paths, processes
from ordercast.scenario.faults.fault import Fault

_KINDS: tuple[type[Fault], ...] = (
    *processes.KINDS,
    *paths.KINDS,
    *hardware.KINDS,
    *members.KINDS,
)
FAULTS: dict[str, type[Fault]] = {str(kind.__struct_config__.tag): kind for kind in _KINDS}
"""By the word that a scenario file has for it."""

if TYPE_CHECKING:
    AnyFault = Fault
else:
    AnyFault = Union[_KINDS]  # noqa: UP007 (they are counted here and nowhere else)
