"""Figures 5 to 7: the membership protocol with joins, as published. Figure 4 is it without faults.

Amir, Dolev, Kramer, Malki: Membership algorithms for multicast communication groups (Transis,
1992), section 5.

    J             all machines known in this attempt
    F_before      faulty machines that the present JOIN suggestion leaves out
    F_after       faulty machines that the suggestion still holds
    J_LAST[q]     the last suggestion of q
    F_LAST[q]     all that q has declared faulty

Stage 0: nothing is going on. A foreign message, while F is empty too, makes the machine broadcast
AJ, and Stage 1 begins; AJ of a member makes Stage 1 begin as well (and JOIN of a member: so says
the proof of Lemma 5.6, Figure 6 names AJ only).
Stage 1: J and F_before grow by what comes, for a time alpha, or until communication breaks.
Stage 2: begins with a JOIN of ours. Suggestions from within J that say more are taken over and
broadcast; the others are recorded. When all that are needed have suggested the same, it is
assented to.

A fault that is being agreed on when Stage 1 begins is carried over into F_before: the figures do
not say.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from ordercast.kernel.step import Step
from ordercast.studies.published_synchrony.environment import Environment
from ordercast.studies.published_synchrony.faults import Faults
from ordercast.studies.published_synchrony.names import Machines, common, united, within, without

Suggestion: TypeAlias = tuple[Machines, Machines]
"""J and F_before."""


class Joins:
    def __init__(self, environment: Environment, faults: Faults) -> None:
        self._environment = environment
        self._faults = faults
        self.stage: Literal[0, 1, 2] = 0
        self.joining: Machines = ()  # J
        self.before: Machines = ()  # F_before
        self.after: Machines = ()  # F_after
        self.last_joins: dict[str, Suggestion] = {}  # J_LAST
        self.last_faults: dict[str, Machines] = {}  # F_LAST
        self._outside: dict[str, Suggestion] = {}  # JOIN messages from outside of J, if remembered

    @property
    def faulty(self) -> Machines:
        return united(self.before, self.after)

    @property
    def accept(self) -> Machines:
        return without(self.joining, self.faulty)

    # --- inputs -------------------------------------------------------------------------------

    def intercept(self, step: Step) -> None:
        """Figure 6, Stage 0."""
        if self.stage == 0 and not self._faults.faulty:
            self._environment.broadcast_attempt(step)
            self._begin(step)

    def receive_attempt(self, step: Step, sender: str, j_set: Machines) -> None:
        self._look_up(step, sender)
        if self.stage == 1:
            self.joining = united(self.joining, j_set)

    def receive_join(self, step: Step, sender: str, said: Suggestion) -> None:
        self._look_up(step, sender)
        if self.stage == 0:
            return
        if self._excludes_us(step, sender, said[1]):
            return
        if self.stage == 1:
            self._incorporate_join(step, sender, said)
        elif sender in self.accept:
            self._answer_join(step, sender, said)
            self._recall(step)
        elif sender not in self.joining and self._environment.options.outside == "remembered":
            self._outside[sender] = said
        self._test()

    def receive_fault(self, step: Step, sender: str, f_set: Machines, said: Suggestion) -> None:
        """Stage 1 or 2. In Stage 0 it is Figure 3's."""
        if self._excludes_us(step, sender, f_set):
            return
        if self.stage == 1:
            self.before = self._incorporate_fault(step, sender, f_set, self.before)
        elif sender in self.accept:
            if said == (self.joining, self.before):
                after = self.after
                self.after = self._incorporate_fault(step, sender, f_set, after)
                # F_before stays apart: f_set holds it too.
                self.after = without(self.after, self.before)
                if self.after != after:
                    self._broadcast_fault(step)
                elif self._environment.options.answers == "every":
                    self._environment.suspect(step, self.after)
                    self._broadcast_fault(step)
            elif not within(f_set, self.before):
                self.before = self._incorporate_fault(step, sender, f_set, self.before)
                self._broadcast_join(step)
            else:
                self.last_faults[sender] = united(self.last_faults.get(sender, ()), f_set)
        self._test()

    def communication_breaks(self, step: Step, peer: str) -> None:
        """Stage 1 or 2. Stage 1 does not note with whom: as printed."""
        if self.stage == 1 and peer in self._environment.members:
            self.alpha_expires(step)
        elif self.stage == 2 and peer in self.accept:
            self.after = united(self.after, (peer,))
            self._environment.block(step, (peer,))
            self._broadcast_fault(step)
            self._test()

    def alpha_expires(self, step: Step) -> None:
        if self.stage == 1:
            self.stage = 2
            self._broadcast_join(step)
            self._test()

    # --- Figure 6 -----------------------------------------------------------------------------

    def _look_up(self, step: Step, sender: str) -> None:
        """An AJ or JOIN message came: of a member, or a foreign one."""
        if self.stage == 0:
            if sender in self._environment.members:
                self._begin(step)
            else:
                self.intercept(step)

    def _begin(self, step: Step) -> None:
        self.stage = 1
        self.joining = self._environment.members
        self.before, self.after = self._faults.faulty, ()
        self.last_joins, self.last_faults = {}, self._faults.last
        self._outside = {}
        self._faults.faulty, self._faults.last = (), {}
        self._environment.set_alpha(step)

    def _excludes_us(self, step: Step, sender: str, f_set: Machines) -> bool:
        """The repair: a machine that excludes us is excluded by us."""
        repaired = self._environment.options.own_removal == "excludes"
        if repaired and self._environment.name in f_set:
            self.communication_breaks(step, sender)
            return True
        return False

    # --- Figure 5 -----------------------------------------------------------------------------

    def _broadcast_join(self, step: Step) -> None:
        self.before, self.after = self.faulty, ()
        self._environment.broadcast_join(step, self.joining, self.before)
        self._environment.reject_joins(self.joining, self.before)
        if self._environment.options.own_counts:
            name = self._environment.name
            self.last_joins[name] = (self.joining, self.before)
            self.last_faults[name] = united(self.last_faults.get(name, ()), self.before)

    def _broadcast_fault(self, step: Step) -> None:
        self._environment.broadcast_fault(step, self.faulty, self.joining, self.before)
        if self._environment.options.own_counts:
            name = self._environment.name
            self.last_faults[name] = united(self.last_faults.get(name, ()), self.faulty)

    def _incorporate_join(self, step: Step, sender: str, said: Suggestion) -> None:
        joining, before = said
        self._environment.block(step, without(before, self.faulty))
        self.joining = united(self.joining, joining)
        self.before = united(self.before, before)
        self.last_joins[sender] = said
        self.last_faults[sender] = united(self.last_faults.get(sender, ()), before)

    def _incorporate_fault(
        self, step: Step, sender: str, f_set: Machines, into: Machines
    ) -> Machines:
        self._environment.block(step, without(f_set, self.faulty))
        self.last_faults[sender] = united(self.last_faults.get(sender, ()), f_set)
        return united(into, f_set)

    # --- Figure 7 -----------------------------------------------------------------------------

    def _answer_join(self, step: Step, sender: str, said: Suggestion) -> None:
        news = not within(said[0], self.joining) or not within(said[1], self.before)
        self._incorporate_join(step, sender, said)
        if news:
            self._broadcast_join(step)

    def _recall(self, step: Step) -> None:
        """The repair: JOIN messages whose senders have come into J since."""
        for name in [name for name in self._outside if name in self.accept]:
            self._answer_join(step, name, self._outside.pop(name))

    def _test(self) -> None:
        if self.stage != 2:
            return
        environment, last = self._environment, self.last_faults
        faulty = common(self.before, environment.members)
        staying = without(environment.members, faulty)
        if faulty and all(within(faulty, last.get(name, ())) for name in staying):
            environment.assent_to_faults(faulty)
        wanted = (self.joining, self.before)
        if all(
            self.last_joins.get(name) == wanted and within(self.after, last.get(name, ()))
            for name in self.accept
        ):
            environment.assent_to_join(*wanted, self.after)
            if environment.options.ends == "assent":
                self.stage, self.joining, self.before, self.after = 0, (), (), ()
                self.last_joins, self.last_faults = {}, {}
