"""A scenario: a group, its load, its network and what goes wrong, as data.

Read from TOML by `file.py`; the keys are described for people in docs/scenarios.md.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from msgspec import Meta

from ordercast.protocol.families import DEFAULT
from ordercast.scenario.faults import AnyFault
from ordercast.scenario.faults.fault import Part, Share
from ordercast.units import MILLISECOND, SECOND, Duration, Rate, Size

BACKLOG_LIMIT = 1000
"""Messages that a blocked application holds before it makes no more."""


class WorkloadSettings(Part, frozen=True):
    senders: Literal["all"] | Annotated[int, Meta(ge=0, le=100_000)] | list[str] = "all"
    rate: Annotated[float, Meta(ge=1e-6, le=1_000_000)] = 20.0  # messages a second and sender
    per_round: Annotated[float, Meta(ge=1e-6, le=1000)] | None = None  # instead of rate
    payload: Size = Size(100)  # bytes of one message
    batch: Annotated[int, Meta(ge=1, le=100_000)] = 1  # messages that are submitted together
    pattern: Literal["poisson", "steady"] = "poisson"
    # Where it takes a ticket to send: senders want one for about so long, then none for about as
    # long, and so on. None: always.
    hold_for: Duration | None = None
    begins: dict[str, Duration] = {}  # who begins to send later than the others, and when
    # Where a family has several services: the one of all messages, or those from which one is
    # drawn for whatever is submitted together. None: the group's own.
    service: str | list[str] | None = None

    # Where messages can reply: the share of those submitted together that reply to the last one
    # delivered here.
    replies: Share = 0.0

    @property
    def services(self) -> list[str]:
        """Those to draw from; empty: the group's own."""
        named = [] if self.service is None else self.service
        return [named] if isinstance(named, str) else named

    def rate_in(self, round_: int | None) -> float:
        """Messages a second and sender in a group whose rounds take so many nanoseconds."""
        if self.per_round is None:
            return self.rate
        assert round_ is not None, "the rules of scenarios refuse per_round without rounds"
        return self.per_round * SECOND / round_


class NetworkSettings(Part, frozen=True):
    delay: Duration = Duration(2 * MILLISECOND)  # the median
    jitter: Annotated[float, Meta(ge=0, le=5)] = 0.3  # sigma of the lognormal
    shape: Literal["lognormal", "uniform", "exponential"] = "lognormal"
    spread: Annotated[float, Meta(ge=0, le=5)] = 0.0  # sigma of how far pairs lie apart
    loss: Share = 0.0
    duplicate: Share = 0.0
    reorder: Share = 0.0
    bandwidth: Rate | None = None  # of a process's outgoing line
    answer_within: Duration = Duration(500 * MILLISECOND)  # the bound of status sends


class GroupSettings(Part, frozen=True):
    name: str
    members: list[str]
    family: str | None = None
    options: dict[str, Any] = {}
    formed: bool | None = None  # None: as at the top
    # Members join by what they know, instead of a list: `members` says only who runs the group.
    open: bool = False
    anchors: list[str] = []  # whom all of them know from the beginning
    expect: Annotated[int, Meta(ge=0, le=100_000)] = 0  # founding waits for so many
    of: Annotated[int, Meta(ge=0, le=100_000)] = 0  # and so many, at most, expect that number
    founder: str = ""  # only this one founds


class ChaosSettings(Part, frozen=True):
    faults: list[str]  # kinds
    every: Duration = Duration(SECOND)
    longest: Duration = Duration(3 * SECOND)  # how long one fault may last
    survivors: Annotated[int, Meta(ge=1, le=100_000)] = 2  # so many never crash for good
    disks: Literal["any", "kept"] = "any"  # what a restart finds: its disk, or perhaps nothing
    # Kinds that come beside these, each every so often on average, with a stream of chance of its
    # own: to add one changes nothing about the other faults of a seed.
    also: dict[str, Duration] = {}
    jump: Duration = Duration(SECOND)  # how far a skewed clock may jump before it drifts


class Scenario(Part, frozen=True):
    name: Annotated[str, Meta(min_length=1, max_length=100)]
    family: str = DEFAULT
    processes: Annotated[int, Meta(ge=1, le=100_000)] = 5  # named n1 and so on
    duration: Duration = Duration(10 * SECOND)
    quiet: Duration = Duration(5 * SECOND)
    options: dict[str, Any] = {}
    formed: bool = True  # where groups form: whether they are there from the beginning
    workload: WorkloadSettings = WorkloadSettings()
    network: NetworkSettings = NetworkSettings()
    fault: list[AnyFault] = []
    group: list[GroupSettings] = []
    chaos: ChaosSettings | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"n{number}" for number in range(1, self.processes + 1))

    def groups(self) -> list[GroupSettings]:
        """The groups as listed, or the one group of all."""
        if self.group:
            return self.group
        return [GroupSettings(name="g", members=list(self.names), options=self.options)]

    def family_of(self, group: GroupSettings) -> str:
        return group.family or self.family

    def options_of(self, group: GroupSettings) -> dict[str, Any]:
        """A group's own options over those at the top, if they are of one family."""
        if self.family_of(group) != self.family:
            return group.options
        return {**self.options, **group.options}

    def begins_formed(self, group: GroupSettings) -> bool:
        return self.formed if group.formed is None else group.formed

    def senders(self) -> tuple[str, ...]:
        wanted = self.workload.senders
        if wanted == "all":
            return self.names
        return self.names[:wanted] if isinstance(wanted, int) else tuple(wanted)

    def no_such(self, name: str) -> str:
        """What to say of a name that no process has."""
        return f"there is no process {name!r}: they are n1 to n{self.processes}"

    def run_name(self, seed: int) -> str:
        """The run's name in a lake: the scenario's in small letters, then the seed."""
        words = re.findall(r"[a-z0-9]+", self.name.lower())
        return f"{'-'.join(words) or 'run'}-{seed}"
