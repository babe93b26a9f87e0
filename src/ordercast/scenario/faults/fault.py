"""What a fault is: one class a kind, with all that anybody needs to know about the kind.

A kind of fault knows

  its keys      the fields of its class, as a scenario file has them
  its checks    `check`, and for chaos `chaos_check`
  chance        `drawn`: one fault of the kind, at a random place
  what it does  `begin` and `end`, by the few operations of `FaultControls`, so that the simulator
                and a live run do the same; `why_not_live` where real processes do not allow it

and is in the `KINDS` of its file. Faults overlap: each is ended by itself, and what the others
still hold is seen in `others`, the faults that are active at the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Protocol

import msgspec
from msgspec import Meta

from ordercast.kernel.family import Family
from ordercast.units import Duration

if TYPE_CHECKING:
    from ordercast.scenario.faults.paths import Weather
    from ordercast.scenario.schema import ChaosSettings, Scenario

Share = Annotated[float, Meta(ge=0, le=1)]
DiskFound = Literal["kept", "lost"]
DiskMode = Literal["fail", "full", "slow"]
Families = Mapping[str, Family]
"""The family of each group, by the group's name."""
Pair = tuple[str, str]
"""From whom to whom, by name."""


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of a scenario file: unknown keys are errors."""


class Physics(Protocol):
    """What only a simulator can change."""

    @property
    def network(self) -> Weather: ...

    def set_disk(self, name: str, mode: DiskMode | None, sync: Duration) -> None:
        """The disk fails, is full, or takes so long for one sync; None: it works."""

    def rot(self, name: str, places: Sequence[float]) -> None:
        """Entries of the logs on the disk cannot be read any more: at these shares of each log."""

    def shift_clock(self, name: str, by: Duration) -> None: ...

    def set_drift(self, name: str, drift: float) -> None:
        """The clock gains so many seconds a second from now on."""


class FaultControls(Protocol):
    """What faults can do to processes. A process that is not there is left alone."""

    @property
    def names(self) -> tuple[str, ...]:
        """All processes."""

    @property
    def physics(self) -> Physics | None:
        """None: the world is real."""

    def crash(self, name: str) -> None: ...

    def restart(self, name: str, disk: DiskFound, is_down: Callable[[], bool]) -> None:
        """Starts a process that is not there, unless something else still holds it down then."""

    def pause(self, name: str) -> None:
        """The process stands still; what comes to it waits."""

    def resume(self, name: str) -> None: ...

    def cut(self, paths: Sequence[Pair]) -> None:
        """One more cut lies on each of these paths: nothing passes."""

    def mend(self, paths: Sequence[Pair]) -> None:
        """One cut less lies on each of these paths."""

    def form(self, name: str, group: str) -> None:
        """The process asks for the group to be re-formed."""

    def keep_out(self, name: str, group: str) -> None:
        """Before the run: the process is not in this group until it joins."""

    def join(self, name: str, group: str) -> None:
        """The process joins the group, if it is not in it, and so do its later incarnations."""

    def leave(self, name: str, group: str) -> None:
        """The process leaves the group in an orderly way. No later incarnation is in it."""

    def give(self, name: str, group: str, word: str, values: Mapping[str, Any]) -> None:
        """The application gives its member the input of this name (`named_input`)."""

    def stop_reading(self, name: str, group: str) -> None:
        """The application takes nothing of what the group delivers."""

    def read_on(self, name: str, group: str) -> None: ...


class Rest(NamedTuple):
    """What chance says about a fault beside its time and place."""

    disk: DiskFound
    rate: float
    factor: float
    by: Duration
    drift: float
    mode: DiskMode


class Lot:
    """What was drawn for one fault, and the chance to draw more."""

    def __init__(
        self,
        at: Duration,
        nodes: list[str],
        lasts: Duration,
        draw: Random,
        scenario: Scenario,
        chaos: ChaosSettings,
        families: Families,
        gone: list[str],
    ) -> None:
        self.at = at
        self.nodes = nodes  # up to half of all
        self.lasts = lasts
        self.draw = draw
        self.scenario = scenario
        self.chaos = chaos
        self.families = families
        self.gone = gone  # processes that what was drawn before takes away

    def loses(self, name: str) -> bool:
        """Whether this process may be away from now on or until it joins; if so, it is counted."""
        if name in self.gone or len(self.scenario.names) - len(self.gone) <= self.chaos.survivors:
            return False
        self.gone.append(name)
        return True

    @cached_property
    def rest(self) -> Rest:
        """Drawn for every fault, whatever its kind, after all that the kind draws for itself: so a
        kind that needs one number more does not shift the faults after it."""
        draw, chaos = self.draw, self.chaos
        disks: tuple[DiskFound, ...] = ("kept", "lost")
        modes: tuple[DiskMode, ...] = ("fail", "full", "slow")
        return Rest(
            disk="kept" if chaos.disks == "kept" else draw.choice(disks),
            rate=draw.uniform(0.05, 0.6),
            factor=draw.uniform(2, 50),
            by=Duration(draw.randint(0, chaos.jump)),
            drift=draw.uniform(-0.05, 0.05),
            mode=draw.choice(modes),
        )


class Fault(Part, frozen=True, tag_field="kind"):
    """Something that happens to a run at a time, and usually for a while."""

    why_not_live: ClassVar[str] = ""

    at: Duration
    nodes: list[str] = []
    lasts: Duration | None = msgspec.field(name="for", default=None)

    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag)

    @property
    def until(self) -> Duration | None:
        """When it ends; None: with the load."""
        return None if self.lasts is None else Duration(self.at + self.lasts)

    @property
    def is_for_good(self) -> bool:
        """Whether it is not undone when the load ends and everything is healed."""
        return False

    def settled(self, scenario: Scenario) -> Fault:
        """The same, with what it leaves open as this scenario has it."""
        return self

    def prepare(self, world: FaultControls, faults: Sequence[Fault]) -> None:
        """Before the run begins, with all faults of the run."""

    def begin(self, world: FaultControls, others: Sequence[Fault]) -> None:
        """It happens. `others` are those that are active, this one included."""
        raise NotImplementedError

    def end(self, world: FaultControls, others: Sequence[Fault]) -> None:
        """It is over. `others` are still active, this one no longer."""

    def check(self, scenario: Scenario, families: Families) -> Iterator[tuple[str, str]]:
        """What is wrong with it in this scenario: at which key, and what."""
        if self.at > scenario.duration:
            yield "at", f"at {self.at} is after the load ends ({scenario.duration})"
        if self.lasts is not None and self.lasts <= 0:
            yield "for", "for must be longer than nothing"
        yield from self.check_place(scenario, families)

    def check_place(self, scenario: Scenario, families: Families) -> Iterator[tuple[str, str]]:
        """What is wrong with where it happens."""
        for name in self.nodes:
            if name not in scenario.names:
                yield "nodes", scenario.no_such(name)
        if not self.nodes:
            yield "", 'names no process: add nodes = ["n1"]'

    @classmethod
    def chaos_check(cls, scenario: Scenario, families: Families) -> Iterator[str]:
        """What is wrong with drawing such faults in this scenario."""
        return iter(())

    @classmethod
    def drawn(cls, lot: Lot) -> Fault | None:
        """One such fault at random; None: there is no place for it."""
        return cls(at=lot.at, nodes=lot.nodes, lasts=lot.lasts)
