"""The kinds of faults. Each is one class; one more is a class and its name here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Union

from ordercast.scenario.faults.fault import Fault
from ordercast.scenario.faults.hardware import Disk, Rot, Skew
from ordercast.scenario.faults.members import Give, JoinGroup, LeaveGroup, Reform, SlowReader
from ordercast.scenario.faults.paths import Loss, OneWay, Partition, Slow
from ordercast.scenario.faults.processes import Crash, Pause, Restart

_KINDS: tuple[type[Fault], ...] = (
    Crash,
    Restart,
    Pause,
    Partition,
    OneWay,
    Loss,
    Slow,
    Disk,
    Rot,
    Skew,
    Reform,
    LeaveGroup,
    JoinGroup,
    SlowReader,
    Give,
)
FAULTS: dict[str, type[Fault]] = {str(kind.__struct_config__.tag): kind for kind in _KINDS}
"""By the word that a scenario file has for it."""

if TYPE_CHECKING:
    AnyFault = Fault
else:
    AnyFault = Union[_KINDS]  # noqa: UP007 (they are counted here and nowhere else)
