"""Figure 3: the Faults protocol, as published.

Amir, Dolev, Kramer, Malki: Membership algorithms for multicast communication groups (Transis,
1992), section 4.

    F          machines that are held for faulty, and not assented to yet
    LAST[q]    the union of what q has declared faulty since the last assent

Whenever communication breaks with q, or an FA message is received:
 1. What the message says goes to LAST of its sender.
 2. If it names a machine that is not in F, F grows, messages of the new ones are kept from the
    graph, and <FA, F> is broadcast.
 3. If LAST[q] = F for all q in CCS \\ F, F is assented to. F and LAST begin anew.

As printed LAST[p] of the machine p itself is never set, and rule 3 is never satisfied: see
`own_counts`. As printed a machine takes over its own removal: see `own_removal`. As printed F takes
up machines that are out already, so that a late FA message starts all over: see `late`.
"""

from __future__ import annotations

from ordercast.kernel.step import Step
from ordercast.studies.published_synchrony.environment import Environment
from ordercast.studies.published_synchrony.names import Machines, common, united, within, without


class Faults:
    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.faulty: Machines = ()  # F
        self.last: dict[str, Machines] = {}  # LAST

    def communication_breaks(self, step: Step, peer: str) -> None:
        if peer in self._environment.members:
            self._grow(step, (peer,))
            self._test()

    def receive(self, step: Step, sender: str, f_set: Machines) -> None:
        options = self._environment.options
        if options.own_removal == "excludes" and self._environment.name in f_set:
            self.communication_breaks(step, sender)
            return
        if options.late == "ignored":
            f_set = common(f_set, self._environment.members)
            if not f_set:
                return
        self.last[sender] = united(self.last.get(sender, ()), f_set)
        self._grow(step, f_set)
        self._test()

    def _grow(self, step: Step, f_set: Machines) -> None:
        if not within(f_set, self.faulty):
            new = without(f_set, self.faulty)
            self.faulty = united(self.faulty, f_set)
            self._environment.block(step, new)
            self._environment.broadcast_fault(step, self.faulty)
            if self._environment.options.own_counts:
                name = self._environment.name
                self.last[name] = united(self.last.get(name, ()), self.faulty)

    def _test(self) -> None:
        accept = without(self._environment.members, self.faulty)
        if self.faulty and all(self.last.get(name) == self.faulty for name in accept):
            assented, self.faulty, self.last = self.faulty, (), {}
            self._environment.assent_to_faults(assented)
