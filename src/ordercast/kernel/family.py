"""How a family of protocols presents itself: one object makes it run in every world.

Everything that lists families derives from these objects: levels, the codec, scenario keys,
commands, interaction files, mutants, and the tables in the documents. What only some families
have is a *facet*: a small object, or None. No world asks which family it drives; it asks for a
facet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple, Protocol

import msgspec

from ordercast.errors import UsageError, unknown_word
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.types import GroupTimes, Guarantee, NodeId


class LevelType(msgspec.StructMeta):
    """The type of all levels: it refuses options that a level does not have."""

    def __call__(cls, *values: Any, **given: Any) -> Any:
        if values:
            first = next(iter(cls.__struct_fields__), "option")
            raise UsageError(f"{cls.__name__} takes options by name, as in {first}=...")
        for name in given:
            if name not in cls.__struct_fields__:
                what = f"option of {cls.__name__}"
                raise UsageError(unknown_word(what, name, cls.__struct_fields__))
        return super().__call__(**given)


class Level(
    msgspec.Struct, metaclass=LevelType, frozen=True, forbid_unknown_fields=True, kw_only=True
):
    """What an application asks of a group, with options whose defaults work. One type a family.

    The options of a family's machines are of this type too: most often the same fields.
    """


class LoggedLevel(Level, frozen=True):
    """A level whose groups have a log, which applications read (`Family.logged`)."""


class FoundingRule(NamedTuple):
    """How a member may come into an open group, one whose members are not listed (`founding`)."""

    founds: bool = False  # by itself, at once
    # Founding takes so many that are in no group yet, this one included. 0: not by number.
    expect: int = 0
    founder: str = ""  # only this name founds
    last: tuple[str, ...] = ()  # the members when this name was last in the group, if it was
    asks: bool = False  # it founds only if nobody whom it reaches within a while is in the group
    of: int = 0  # how many nodes expect that number; 0: as many as it can be more than half of
    # Its folder was lost, so it may have been in the group. Otherwise it would found it, or count.
    lost: bool = False
    reborn: bool = False  # the same, where it would not found the group nor count in any case


class Plan(NamedTuple):
    """One group as a member is configured with it."""

    group: str
    members: tuple[str, ...]  # names, sorted; of an open group only our own
    options: object  # the family's own options struct
    # Whether the group exists from the beginning, made of first incarnations. Only a simulation
    # can start so. A group of the input `Join` always forms.
    formed: bool = True
    # None: the group is closed, and `members` are all that it can have.
    entry: FoundingRule | None = None


class Build(Protocol):
    def __call__(
        self, me: NodeId, plans: tuple[Plan, ...], chance: Random, records: Sequence[Packet]
    ) -> list[Machine]:
        """Makes the machines that serve the plans. `records`: those of earlier incarnations."""


def machine_per_group(kind: Callable[[NodeId, Plan, Random], Machine]) -> Build:
    """Builds one machine a group, for families whose groups know nothing of each other."""

    def build(
        me: NodeId, plans: tuple[Plan, ...], chance: Random, records: Sequence[Packet]
    ) -> list[Machine]:
        return [kind(me, plan, chance) for plan in plans]

    return build


def machine_for_all(
    kind: Callable[[NodeId, tuple[Plan, ...], Sequence[Packet]], Machine],
) -> Build:
    """Builds one machine for all groups of a process, for families whose groups have one order."""

    def build(
        me: NodeId, plans: tuple[Plan, ...], chance: Random, records: Sequence[Packet]
    ) -> list[Machine]:
        return [kind(me, plans, records)]

    return build


# --- what a family says about itself ---------------------------------------------------------


BASIC_LAWS = ("no-creation", "no-duplication")
VIEW_LAWS = ("virtual-synchrony", "view-agreement", "disjoint-views")


class Promises(NamedTuple):
    """The laws that a family keeps, by their names (`ordercast.check`)."""

    laws: tuple[str, ...]
    # Those that hold while no member crashes, is suspected or leaves.
    when_nothing_fails: tuple[str, ...] = ()
    source: str = ""  # the paper
    durable: bool = False  # no-duplication then holds across incarnations


class Words(NamedTuple):
    """How a family reads in interaction files."""

    packets: Mapping[type[Packet], Callable[[Any], str]] = {}  # after the tag; else every field
    state: Callable[[Any], list[str]] | None = None  # what `show` says of a machine


class Mutant(NamedTuple):
    """The family with a planted bug, which the checker must catch."""

    breaks: str  # a law
    build: Build


# --- facets ----------------------------------------------------------------------------------


class Permit(NamedTuple):
    """It takes a permit to send, which members hold for a while: its machines take `Seek`."""

    needed: Callable[[Plan], bool]  # not every group of a family need be like that
    lease: Callable[[Any], int]  # by options: nanoseconds that one is held for, if not renewed
    # The member that bootstraps the group. It never forgets its records, or it could do so again.
    bootstrap_node: Callable[[Plan], str]
    unneeded: str = ""  # why none is needed, in a group that needs none


class Quorum(NamedTuple):
    """Only the primary view of a group may send: its machines notify of `Primary`, `Secured`."""

    needed: Callable[[Any], bool]  # by options: whether the group has one
    waits: Callable[[Any], bool]  # by options: whether sends wait outside of the primary view
    hint: str = ""  # what makes them wait


class Formation(NamedTuple):
    """Groups form by invitations, and re-form under one name: its machines take `Form`."""

    asks: Callable[[Any], bool]  # by options: whether the application votes on invitations
    asking: Callable[[Any], Any]  # the options with which it does
    unites: Callable[[Any], bool]  # by options: whether parts that meet re-form it by themselves


class Multicast(NamedTuple):
    """Its machines may send by `MULTICAST`."""

    address: Callable[[Any], str]  # by options: where, as host:port; empty: they do not
    packets: tuple[type[Packet], ...]  # that may come so


class StateTransfer(NamedTuple):
    """Members that come later are given the application's state."""

    needed: Callable[[Any], bool]  # by options: whether the application must provide it
    possible: Callable[[Any], bool]  # whether it may
    hint: str = ""  # what makes it possible
    # The options of a member that does not read its group, and so has no state to give.
    unread: Callable[[Any], Any] = lambda options: options


def _everybody(plan: Plan, name: str) -> bool:
    return True


def _nothing(plan: Plan, events_per_second: float) -> list[str]:
    return []


class Objection(NamedTuple):
    """Why a group cannot be as it is asked for, and the option that says so."""

    option: str
    why: str


def _no_objection(group: str, options: Any, members: Sequence[str] | None) -> Objection | None:
    return None


def _no_limit(options: Any) -> int:
    return 0


def _unlimited(options: Any) -> int:
    return 1 << 62


class Family(NamedTuple):
    name: str
    options: type[msgspec.Struct]  # as its machines take them; the defaults work
    packets: tuple[type[Packet], ...]  # in the form in which they travel
    build: Build
    largest_group: int  # members; what all its buffers together can bear
    largest_batch: Callable[[Any], int] = _unlimited  # by options: bytes submitted at once
    level: type[Level] | None = None  # what applications give; None: the options
    # Where families share a level: the options of it that this family stands for.
    settled: Mapping[str, object] = {}
    promises: Promises | None = None  # None: all laws are judged, for nothing is known of it
    words: Words = Words()
    mutants: Mapping[str, Mutant] = {}
    may_send: Callable[[Plan, str], bool] = _everybody  # who may submit at all
    # That a message may ask for, and what each promises: its machines are `Serving`.
    services: Mapping[str, Guarantee] = {}
    tells_stability: bool = True  # whether members know who has what
    advice: Callable[[Plan, float], list[str]] = _nothing  # what is doubtful about options
    # By group, options and members, where those are known: whether these make sense together.
    objection: Callable[[str, Any, Sequence[str] | None], Objection | None] = _no_objection
    not_live: str = ""  # why it runs in simulations only
    opens: bool = False  # whether names that nobody listed may join: its machines take `Acquainted`
    founded: bool = True  # whether somebody begins an open group: a `founder` can be named then
    personal: frozenset[str] = frozenset()  # options that need not be the same at all members
    rejoins: bool = False  # whether `start` may follow `leave`, for a member that comes again
    # Its groups have a log each (kernel/log.py), which has all records of their machines.
    logged: bool = False
    log_size: Callable[[Any], int] = _no_limit  # by options: bytes that a log may have; 0: any
    # Whether a message may reply to one that was delivered: its machines are `Replying`.
    replies: bool = False
    # For chaos: an input that the application of this name might give, among these members.
    wish: Callable[[Random, str, Sequence[str]], tuple[str, Mapping[str, Any]]] | None = None
    # One machine of a process serves all groups of all families that have the same `build`.
    one_machine: bool = False
    round: Callable[[Any], int] | None = None  # by options: nanoseconds, where there are rounds
    permit: Permit | None = None
    formation: Formation | None = None
    quorum: Quorum | None = None
    state: StateTransfer | None = None
    multicast: Multicast | None = None

    def round_of(self, options: Any) -> int | None:
        return None if self.round is None else self.round(options)

    def times_in(self, options: Any) -> GroupTimes:
        lease = None if self.permit is None else self.permit.lease(options)
        return GroupTimes(self.round_of(options), lease)

    def has_quorum(self, plan: Plan) -> bool:
        return self.quorum is not None and self.quorum.needed(plan.options)

    def multicasts_to(self, plan: Plan) -> str:
        """Where this group's multicast goes; empty: it has none."""
        return "" if self.multicast is None else self.multicast.address(plan.options)

    def needs_permit(self, plan: Plan) -> bool:
        return self.permit is not None and self.permit.needed(plan)


def services_in(families: Iterable[Family]) -> dict[str, Guarantee]:
    """What the services of a run promise that have other names than that, for its header."""
    found: dict[str, Guarantee] = {}
    for family in families:
        for word, promise in family.services.items():
            if found.setdefault(word, promise) != promise:
                raise UsageError(f"families of this run mean different things by service {word!r}")
    return {word: promise for word, promise in found.items() if word != promise}


def by_machine(plans: Iterable[tuple[Family, Plan]]) -> list[tuple[Family, tuple[Plan, ...]]]:
    """Which plans are built together: those of a family, or of all that share one machine."""
    found: dict[object, tuple[Family, list[Plan]]] = {}
    for family, plan in plans:
        key = family.build if family.one_machine else (family.name, family.build)
        found.setdefault(key, (family, []))[1].append(plan)
    return [(family, tuple(together)) for family, together in found.values()]
