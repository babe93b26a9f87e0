"""The active faults of a run: begun and ended one by one, in virtual or real time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ordercast.scenario.faults.fault import Fault, FaultControls


class ActiveFaults:
    def __init__(
        self,
        world: FaultControls,
        watch: Callable[[Fault, bool], None] = lambda fault, begins: None,
    ) -> None:
        self._world = world
        self._watch = watch  # called when a fault begins (True) or ends
        self._active: list[Fault] = []  # in the order in which they began

    def prepare(self, faults: Sequence[Fault]) -> None:
        """Before the run begins: these will happen."""
        for fault in faults:
            fault.prepare(self._world, faults)

    def begin(self, fault: Fault) -> None:
        self._active.append(fault)
        self._watch(fault, True)
        fault.begin(self._world, self._active)

    def end(self, fault: Fault) -> None:
        for place, other in enumerate(self._active):
            if other is fault:
                del self._active[place]
                self._watch(fault, False)
                fault.end(self._world, self._active)
                return

    def heal(self) -> None:
        """Ends every fault. A process that crashed for good stays down."""
        # Those for good end last: until then they hold down whom a shorter crash would restart.
        for fault in sorted(self._active, key=lambda fault: fault.is_for_good):
            self.end(fault)
