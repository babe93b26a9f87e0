"""The small world of the explorer: its states, what may happen next, and what comes of it.

A `SystemState` is a value: the cores and logs of all members and what is underway. It has no time.

  link      a queue from one incarnation to another; only its head can arrive. When the sender
            dies, what is underway still arrives in order, up to any point. When the receiver dies,
            it is gone.
  datagram  a bag: any of it can arrive next. To be lost or doubled costs from the bounds.
  status    arrives, and is answered, in two separate steps. OK only after it arrived; not OK at
            any time, and then it may still arrive. To be lost costs from the bounds.
  timer     every timer that is set can run out next, whatever it was set to: asynchrony.
  clocks    each stands still until a timer of its member runs out, so no two agree. In a setting
            with clocks `together` all of them then come to the time of that timer, if they are not
            beyond it: whoever fires later than it should was held up, and packets take any time.
  read      what a member wants of its log can come back next, in any order.
  cut       both ways between two members. Links hold what is underway and go on after the cut;
            what is sent by datagram or status meanwhile is gone.

Steps are atomic: a member crashes between two steps, never inside one. What a crash in the middle
of a step could do to others is covered, as everything that the step sent can be lost.

An action is a tuple: its kind and what it is about. Actions and states hold the same numbers in
every search and every process, as far as their order matters, so a schedule can be replayed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from ordercast.sim.explore.members import (
    ASKED,
    FLEETING,
    INCARNATIONS_BITS,
    LINKED,
    Core,
    Failure,
    Logs,
    Members,
    Reaction,
)
from ordercast.sim.explore.setting import NO_BOUNDS, Bounds, Setting

Links: TypeAlias = tuple[tuple[tuple[int, int], tuple[int, ...]], ...]
Datagram: TypeAlias = tuple[int, int, int]
"""Sender's incarnation, receiver's incarnation or name, packet."""
Status: TypeAlias = tuple[int, int, int, int, int, int]
"""Sender's incarnation, receiver's incarnation or name, packet, machine, token, how far it is."""
Action: TypeAlias = tuple[Any, ...]

UNDERWAY, ARRIVED, DENIED, LOST = range(4)
"""How far a status send is: on its way; there, not answered; answered not OK and still on its way;
never to arrive, not answered."""


class SystemState(NamedTuple):
    cores: tuple[int, ...]
    logs: tuple[int, ...]
    links: Links = ()  # sorted, none empty
    datagrams: tuple[Datagram, ...] = ()  # sorted
    statuses: tuple[Status, ...] = ()  # sorted
    cuts: tuple[tuple[int, int], ...] = ()  # sorted pairs of members


class Usage(NamedTuple):
    """What a path has used up of the bounds."""

    timers: int = 0
    crashes: int = 0
    restarts: int = 0
    losses: int = 0
    duplicates: int = 0
    cuts: int = 0
    inputs: int = 0
    joins: int = 0


COSTS = {
    "timer": 0,
    "crash": 1,
    "restart": 2,
    "lose": 3,
    "lose-status": 3,
    "double": 4,
    "cut": 5,
    "give": 6,
    "join": 7,
}
"""The place in Usage that an action of this kind adds one to."""

FAULTS = frozenset({*COSTS, "break"} - {"timer"})
"""What need not happen. The rest happens in the end, or is used up."""


def group_of(given: Any) -> str:
    """Every input that an application gives names its group."""
    return str(given.group)


class Model:
    """The rules. `settles` says whether it matters that something never arrives."""

    def __init__(self, setting: Setting, bounds: Bounds, settles: bool) -> None:
        self.setting = setting
        self.bounds = bounds
        self.settles = settles
        self.members = Members(setting)
        self.logs = Logs()
        self._limits = [bounds.submissions_of(name) for name in setting.names]
        self._acts: dict[str, Callable[..., SystemState | Failure]] = {
            "submit": self._submit,
            "give": self._give,
            "join": self._join,
            "read": self._read,
            "recall": self._recall,
            "timer": self._expire,
            "crash": self._crash,
            "restart": self._restart,
            "link": self._arrive_by_link,
            "break": self._break_link,
            "datagram": self._arrive_by_datagram,
            "double": self._arrive_doubled,
            "lose": self._lose_datagram,
            "status": self._arrive_by_status,
            "answer": self._answer,
            "lose-status": self._lose_status,
            "cut": self._cut,
            "mend": self._mend,
        }

    def unborn(self) -> SystemState:
        names = self.setting.names
        cores = tuple(self.members.unborn(name).id for name in names)
        return SystemState(cores, (0,) * len(names))

    def apply(self, state: SystemState, action: Action) -> SystemState | Failure:
        return self._acts[action[0]](state, *action[1:])

    # --- what may happen next ------------------------------------------------------------------

    def choices(self, state: SystemState, used: Usage) -> list[Action]:
        bounds = self.bounds
        found = self.deliveries(state)
        cores = [self.members.cores[number] for number in state.cores]
        timers_left = used.timers < bounds.timers
        for who, core in enumerate(cores):
            if not core.alive:
                continue
            if core.submitted < self._limits[who]:
                found += [("submit", who, group) for group in core.accepting]
            if used.inputs < bounds.inputs:
                found += [("give", who, place) for place in self._inputs_for(core)]
            if used.joins < bounds.joins:
                found += [("join", who, group) for group in self._not_joined(core)]
            if timers_left:
                found += [("timer", who, machine, timer) for machine, timer, _ in core.timers]
        for status in dict.fromkeys(state.statuses):
            if status[5] in (UNDERWAY, ARRIVED):
                found.append(("answer", status, False))
        found += [("mend", pair) for pair in state.cuts]
        if used.crashes < bounds.crashes:
            found += [("crash", who) for who, core in enumerate(cores) if core.alive]
        if used.restarts < bounds.restarts:
            found += [("restart", who) for who, core in enumerate(cores) if not core.alive]
        if used.duplicates < bounds.duplicates:
            found += [("double", each[1]) for each in found if each[0] == "datagram"]
        if used.cuts < bounds.cuts:
            pairs = [(one, two) for two in range(len(cores)) for one in range(two)]
            found += [("cut", pair) for pair in pairs if pair not in state.cuts]
        if self.settles:
            found += self._losses(state, used)
        return found

    def _inputs_for(self, core: Core) -> list[int]:
        """Those inputs of the setting that a machine of this core takes."""
        return [
            place
            for place, given in enumerate(self.setting.inputs_of(core.node.name))
            for machine in core.machines
            if group_of(given) in machine.groups and type(given) in machine.takes
        ]

    def _not_joined(self, core: Core) -> list[str]:
        """Those groups of the setting that a member joins later, and is not in."""
        listed = self.setting.joins.get(core.node.name, ())
        served = [group for machine in core.machines for group in machine.groups]
        return [group for group in listed if group not in served]

    def deliveries(self, state: SystemState) -> list[Action]:
        """What can arrive or be answered now, but for answers that need not be not OK."""
        cuts = state.cuts
        found: list[Action] = [
            ("link", *way) for way, _ in state.links if not cuts or not self._is_cut(cuts, *way)
        ]
        last = None
        for datagram in state.datagrams:
            if datagram != last and self._bearer(state, datagram[1]) is not None:
                found.append(("datagram", datagram))
            last = datagram
        for status in dict.fromkeys(state.statuses):
            sender, to, phase = status[0], status[1], status[5]
            if phase == LOST:
                found.append(("answer", status, False))
            elif phase in (UNDERWAY, DENIED) and self._bearer(state, to) is not None:
                found.append(("status", status))
            elif phase == ARRIVED and not self._is_cut(cuts, sender, to):
                found.append(("answer", status, True))
        for who, number in enumerate(state.cores):
            reads = self.members.cores[number].reads
            found += [("recall", who, which) for which in range(len(reads))]
        return found

    def _losses(self, state: SystemState, used: Usage) -> list[Action]:
        """Without settling these lead nowhere new: what never arrives may as well be late."""
        found: list[Action] = [
            ("break", *way) for way, _ in state.links if self._bearer(state, way[0]) is None
        ]
        if used.losses < self.bounds.losses:
            found += [("lose", datagram) for datagram in dict.fromkeys(state.datagrams)]
            found += [
                ("lose-status", status)
                for status in dict.fromkeys(state.statuses)
                if status[5] in (UNDERWAY, DENIED)
            ]
        return found

    def _bearer(self, state: SystemState, code: int) -> int | None:
        """Who would get what is sent to this incarnation or name now."""
        who = ~code if code < 0 else code >> INCARNATIONS_BITS
        core = self.members.cores[state.cores[who]]
        if not core.alive or (
            code >= 0 and core.node.incarnation != code & (1 << INCARNATIONS_BITS) - 1
        ):
            return None
        return who

    def _may_come(self, state: SystemState, code: int) -> bool:
        """Whether a later incarnation may get what is sent to a name whose process is down."""
        if code >= 0:
            return False
        unborn = self.members.cores[state.cores[~code]].node.incarnation < 0
        return unborn or self.bounds.restarts > 0

    def _is_cut(self, cuts: tuple[tuple[int, int], ...], one: int, two: int) -> bool:
        one = ~one if one < 0 else one >> INCARNATIONS_BITS
        two = ~two if two < 0 else two >> INCARNATIONS_BITS
        return (min(one, two), max(one, two)) in cuts

    # --- members act ---------------------------------------------------------------------------

    def _submit(self, state: SystemState, who: int, group: str) -> SystemState | Failure:
        return self._react(state, who, ("submit", group))

    def _give(self, state: SystemState, who: int, place: int) -> SystemState | Failure:
        return self._react(state, who, ("give", place))

    def _read(self, state: SystemState, who: int, group: str) -> SystemState | Failure:
        """An application that is full takes more again. It happens when a run settles."""
        return self._react(state, who, ("read", group))

    def _recall(self, state: SystemState, who: int, which: int) -> SystemState | Failure:
        """What a member wants to read of its log comes back."""
        return self._react(state, who, ("recall", which))

    def _join(self, state: SystemState, who: int, group: str) -> SystemState | Failure:
        return self._react(state, who, ("join", group))

    def _expire(
        self, state: SystemState, who: int, machine: int, timer: Any
    ) -> SystemState | Failure:
        after = self._react(state, who, ("expire", machine, timer))
        if isinstance(after, Failure) or not self.setting.together:
            return after
        known = self.members.cores
        clock = known[after.cores[who]].clock
        cores = tuple(self.members.later(known[core], clock).id for core in after.cores)
        return after._replace(cores=cores)

    def _restart(self, state: SystemState, who: int) -> SystemState | Failure:
        return self._react(state, who, ("start",))

    def _crash(self, state: SystemState, who: int) -> SystemState | Failure:
        node = self.members.code(self.members.cores[state.cores[who]].node)
        ends = (node,) if self.bounds.restarts else (node, ~who)  # nobody will bear the name
        statuses = []
        for status in state.statuses:
            sender, to, phase = status[0], status[1], status[5]
            if sender == node:
                phase = {UNDERWAY: DENIED, DENIED: DENIED}.get(phase, -1)
            if to in ends:
                phase = {UNDERWAY: LOST, DENIED: -1}.get(phase, phase)
            if phase >= 0:
                statuses.append((*status[:5], phase))
        left = state._replace(
            links=tuple(link for link in state.links if link[0][1] != node),
            datagrams=tuple(each for each in state.datagrams if each[1] not in ends),
            statuses=tuple(sorted(statuses)),
        )
        return self._react(left, who, ("crash",))

    def _react(
        self, state: SystemState, who: int, machine_input: tuple[Any, ...]
    ) -> SystemState | Failure:
        reaction = self.members.react(self.members.cores[state.cores[who]], machine_input)
        if isinstance(reaction, Failure):
            return reaction
        cores, logs = state.cores, state.logs
        if reaction.core.id != cores[who]:
            cores = (*cores[:who], reaction.core.id, *cores[who + 1 :])
        if reaction.entry:
            log = self.logs.add(logs[who], reaction.entry)
            logs = (*logs[:who], log, *logs[who + 1 :])
        after = SystemState(cores, logs, *state[2:])
        return self._post(after, who, reaction) if reaction.sent else after

    def _post(self, state: SystemState, who: int, reaction: Reaction) -> SystemState:
        me = self.members.code(reaction.core.node)
        links = dict(state.links)
        datagrams, statuses = list(state.datagrams), list(state.statuses)
        for channel, to, packet, machine, token in reaction.sent:
            gone = self._bearer(state, to) is None and not self._may_come(state, to)
            cut = bool(state.cuts) and self._is_cut(state.cuts, me, to)
            if channel == LINKED:
                if not gone:
                    links[me, to] = (*links.get((me, to), ()), packet)
            elif channel == ASKED:
                phase = LOST if gone or cut else UNDERWAY
                statuses.append((me, to, packet, machine, token, phase))
            elif not gone and not cut:
                assert channel == FLEETING
                if self.setting.latest_only:
                    datagrams = [
                        each for each in datagrams if not self._replaces((me, to, packet), each)
                    ]
                datagrams.append((me, to, packet))
        return SystemState(
            state.cores,
            state.logs,
            tuple(sorted(links.items())),
            tuple(sorted(datagrams)),
            tuple(sorted(statuses)) if statuses else (),
            state.cuts,
        )

    def _replaces(self, new: Datagram, old: Datagram) -> bool:
        things = self.members.things
        return new[:2] == old[:2] and type(things[new[2]]) is type(things[old[2]])

    # --- the network acts ----------------------------------------------------------------------

    def _arrive_by_link(self, state: SystemState, sender: int, to: int) -> SystemState | Failure:
        way = sender, to
        links = []
        packet = -1
        for link in state.links:
            if link[0] != way:
                links.append(link)
                continue
            packet = link[1][0]
            if len(link[1]) > 1:
                links.append((way, link[1][1:]))
        left = SystemState(state.cores, state.logs, tuple(links), *state[3:])
        return self._react(left, to >> INCARNATIONS_BITS, ("receive", sender, packet))

    def _break_link(self, state: SystemState, sender: int, to: int) -> SystemState:
        return state._replace(links=tuple(each for each in state.links if each[0] != (sender, to)))

    def _arrive_by_datagram(self, state: SystemState, datagram: Datagram) -> SystemState | Failure:
        return self._arrive_doubled(self._lose_datagram(state, datagram), datagram)

    def _arrive_doubled(self, state: SystemState, datagram: Datagram) -> SystemState | Failure:
        """It arrives, and another one like it stays underway."""
        sender, to, packet = datagram
        who = self._bearer(state, to)
        assert who is not None
        return self._react(state, who, ("receive", sender, packet))

    def _lose_datagram(self, state: SystemState, datagram: Datagram) -> SystemState:
        place = state.datagrams.index(datagram)
        left = state.datagrams[:place] + state.datagrams[place + 1 :]
        return SystemState(state.cores, state.logs, state.links, left, *state[4:])

    def _arrive_by_status(self, state: SystemState, status: Status) -> SystemState | Failure:
        sender, to, packet, _, _, phase = status
        who = self._bearer(state, to)
        assert who is not None
        left = self._turn(state, status, ARRIVED if phase == UNDERWAY else None)
        return self._react(left, who, ("receive", sender, packet))

    def _answer(self, state: SystemState, status: Status, arrived: bool) -> SystemState | Failure:
        sender, _, _, machine, token, phase = status
        left = self._turn(state, status, DENIED if phase == UNDERWAY else None)
        who = self._bearer(state, sender)
        assert who is not None
        return self._react(left, who, ("status", machine, token, arrived))

    def _lose_status(self, state: SystemState, status: Status) -> SystemState:
        return self._turn(state, status, LOST if status[5] == UNDERWAY else None)

    def _turn(self, state: SystemState, status: Status, phase: int | None) -> SystemState:
        statuses = list(state.statuses)
        statuses.remove(status)
        if phase is not None:
            statuses.append((*status[:5], phase))
        return state._replace(statuses=tuple(sorted(statuses)))

    def _cut(self, state: SystemState, pair: tuple[int, int]) -> SystemState:
        return state._replace(cuts=tuple(sorted((*state.cuts, pair))))

    def _mend(self, state: SystemState, pair: tuple[int, int]) -> SystemState:
        return state._replace(cuts=tuple(each for each in state.cuts if each != pair))


def free_model(setting: Setting) -> Model:
    """A model in which everything may happen, to replay what another found."""
    return Model(setting, NO_BOUNDS, settles=True)
