"""What the rules of the figures need around them: the graph, the configuration, the broadcast."""

from __future__ import annotations

from typing import Protocol

from ordercast.kernel.step import Step
from ordercast.studies.published_synchrony.names import Machines
from ordercast.studies.published_synchrony.options import MembershipOptions


class Environment(Protocol):
    """The machine, as Figures 3 and 5 to 7 see it."""

    name: str
    options: MembershipOptions

    @property
    def members(self) -> Machines:
        """CCS, without those whose removal was assented to (the paper's internal Crash event)."""

    def broadcast_fault(
        self, step: Step, faulty: Machines, joining: Machines = (), before: Machines = ()
    ) -> None: ...
    def broadcast_attempt(self, step: Step) -> None: ...
    def broadcast_join(self, step: Step, joining: Machines, before: Machines) -> None: ...

    def suspect(self, step: Step, faulty: Machines) -> None:
        """The trace tells that these machines are held for faulty. Each time counts."""

    def block(self, step: Step, faulty: Machines) -> None:
        """These machines have just been found faulty: their messages do not enter any more."""

    def assent_to_faults(self, faulty: Machines) -> None:
        """FA messages of these faults may be delivered."""

    def assent_to_join(self, joining: Machines, before: Machines, after: Machines) -> None:
        """JOIN messages of this configuration may be delivered, and FA messages about `after`."""

    def reject_joins(self, joining: Machines, before: Machines) -> None:
        """All JOIN messages but those of this configuration are rejected."""

    def set_alpha(self, step: Step) -> None: ...
