"""The frozen values that every package may use: nodes, events, views and notifications."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Hashable
from hashlib import blake2b
from typing import Annotated, Literal, NamedTuple, TypeAlias, get_args

import msgspec
from msgspec import Meta

from ordercast.errors import UsageError

Payloads: TypeAlias = list[bytes]
"""The application messages of one batch, in order. Nobody changes the list once it is submitted."""

_GROUP_NAME = re.compile(r"[A-Za-z0-9._/-]{1,100}")
NODE_NAME = r"^(?!\.\.?\Z)[A-Za-z0-9._-]{1,100}\Z"
"""Of nodes and clusters: they are in the paths of files."""
_NODE_NAME = re.compile(NODE_NAME)

Guarantee: TypeAlias = Literal["basic", "causal", "agreed", "safe"]
"""What a service of a family can promise, as the laws know it: no order beyond its own, what
precedes it comes before it, one order of all of these, and that all members have it."""
GUARANTEES: tuple[Guarantee, ...] = get_args(Guarantee)

INCARNATION_BITS = 22
COUNTER_BITS = 40
"""An event number is `incarnation << 40 | counter`, so a restarted origin never repeats one."""


class NodeId(
    msgspec.Struct,
    frozen=True,
    order=True,
    array_like=True,
    cache_hash=True,
    gc=False,
    forbid_unknown_fields=True,
):
    """One incarnation of one process: a restart keeps the name and increases the incarnation."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    incarnation: Annotated[int, Meta(ge=0, lt=1 << INCARNATION_BITS)] = 0

    def __str__(self) -> str:
        return f"{self.name}#{self.incarnation}" if self.incarnation else self.name


class Event(msgspec.Struct, frozen=True, gc=False):
    """A batch of application messages: the unit that is ordered, delivered or lost, never split.

    (group, origin.name, number) identifies it. The fields that may be None are filled by the
    families that have them, and reach the trace under the same names (`EVENT_COLUMNS`), but for
    the reply. The formation is which of the groups that bore this name one after the other it
    belongs to (see `label_of`).
    """

    group: str
    origin: NodeId
    number: int
    payloads: Payloads
    index: int | None = None
    stamp: tuple[int, ...] | None = None
    order: int | None = None
    hops: int | None = None
    size: int = 0  # bytes of the payloads, counted where they were submitted
    formation: str = ""
    service: str = ""  # what the application asked for it, in families that offer several
    reply: tuple[str, int] | None = None  # origin and number of the event that this one answers
    birth: int = 0  # in families with logs: of the origin's stream that it belongs to
    position: int = -1  # in families with logs: in the log of the member that delivers it


class Gap(msgspec.Struct, frozen=True, gc=False):
    """Events that this member will never deliver: nobody has them any more, or not for us."""

    group: str
    origin: str  # name
    birth: int  # of the stream
    after: int  # numbers: all above this one,
    up_to: int  # up to this one


EVENT_COLUMNS = tuple(
    one.name
    for one in msgspec.structs.fields(Event)
    if one.default is None and one.name != "reply"  # which takes two columns
)


class View(msgspec.Struct, frozen=True):
    """The members of a group as this member has them from here on in its stream of events."""

    group: str
    id: int
    members: tuple[NodeId, ...]
    formation: str = ""
    # Of an open group that is formed, and whose parts do not merge by themselves: the formation
    # that founded it. Parts of one group have the same, and two groups of one name have not.
    founding: str = ""
    # In families whose sides merge: the members that come from the same view as we do, and whether
    # this is the end of that view, for those of its members that go on together.
    came_with: tuple[NodeId, ...] = ()
    transitional: bool = False


class Difference(msgspec.Struct, frozen=True):
    """What the members of another side delivered after they parted from us, until we merged."""

    group: str
    view: int  # the id of the view in which we merged
    side: tuple[NodeId, ...]
    events: tuple[Event, ...] = ()  # in the order in which they were delivered
    forgotten: int = 0  # so many more events are in no history any more
    unheard: tuple[NodeId, ...] = ()  # members that could not be asked, and may have more
    reaches_back: bool = True  # the histories begin where we parted; else more is forgotten

    @property
    def complete(self) -> bool:
        return not self.forgotten and not self.unheard and self.reaches_back


class Merged(msgspec.Struct, frozen=True):
    """Right after a view of several sides: which members came from which former view.

    Members of one side delivered the same in it. Our own side is the first.
    """

    group: str
    view: View
    sides: tuple[tuple[NodeId, ...], ...]
    # Asks the members of a side. A node gives it; in a simulation it is an input.
    fetch: Callable[[int, tuple[NodeId, ...]], Awaitable[Difference]] | None = None

    async def difference(self, side: tuple[NodeId, ...]) -> Difference:
        """What the members of another side delivered after they parted from us, until this view."""
        if self.fetch is None or side not in self.sides[1:]:
            named = " ".join(map(str, side))
            raise UsageError(f"{named or 'nobody'} is no other side of this merge")
        return await self.fetch(self.view.id, side)


class Partitioned(msgspec.Struct, frozen=True):
    """A partition notification, right after the view: members are missing that did not leave. They
    crashed, or continue without us."""

    group: str
    view: View  # the members that are still with us
    gone: tuple[NodeId, ...]  # the missing ones


class Invitation(msgspec.Struct, frozen=True):
    """A member wants to re-form the group, of these members. The application votes on it."""

    group: str
    formation: str
    initiator: NodeId
    members: tuple[NodeId, ...]


class Refused(msgspec.Struct, frozen=True):
    """A formation that the application waits for failed, and why.

    Nothing has changed: this member is in the same groups as before, and may ask again.
    """

    group: str
    why: str


class Waiting(msgspec.Struct, frozen=True):
    """A member is not in its group yet, or cannot go on: for whom it waits, and why.

    Without a reason: it goes on. A view says that too.
    """

    group: str
    on: tuple[str, ...]  # names, as far as they are known
    why: str  # a sentence
    since: int  # nanoseconds, on this node's clock


class Unreached(msgspec.Struct, frozen=True):
    """Our multicast does not get to these members. They get everything by links for a while."""

    group: str
    members: tuple[NodeId, ...]


class Joined(msgspec.Struct, frozen=True, gc=False):
    """A member is in a group without views, as far as this member knows.

    Of ourselves: we are in, and have what we need to go on.
    """

    group: str
    member: NodeId


class Left(msgspec.Struct, frozen=True, gc=False):
    """A member of a group without views is gone, as far as this member knows."""

    group: str
    member: NodeId
    why: Literal["left", "silent", "replaced"]  # replaced: by a newer incarnation


class StateWanted(msgspec.Struct, frozen=True):
    """Asks the application for its state after everything that was delivered before this."""

    group: str
    token: Hashable  # comes back with the answer


class StateGiven(msgspec.Struct, frozen=True):
    """Another member's state, to start from: later deliveries follow it.

    None: other members have one, and none of them gave it in time; or one of them failed to give
    it, and why. Then this member cannot begin.
    """

    group: str
    state: bytes | None
    failure: str = ""


class SideState(msgspec.Struct, frozen=True):
    """The application's state of one side, or why it could not be given."""

    side: tuple[NodeId, ...]  # whose it is
    state: bytes | None
    failure: str = ""


class SideStates(msgspec.Struct, frozen=True):
    """The states of all sides that merged, the same for all members, in the same order.

    An application merges them, and goes on from the result: later deliveries follow it.
    """

    group: str
    states: tuple[SideState, ...]


class StateLost(msgspec.Struct, frozen=True):
    """The members that should have given their state are gone, or their applications did not answer
    in time. Another state comes after a later view, unless ours counts then. What is delivered
    before follows a state that others lack."""

    group: str
    givers: tuple[NodeId, ...]
    why: str = ""  # a sentence


class SnapshotFailed(msgspec.Struct, frozen=True):
    """A member needed our application's state, and it could not be given. We go on; it does not."""

    group: str
    why: str


class Updating(msgspec.Struct, frozen=True):
    """A change of this member's permit to send, in groups that need one.

    acquired      it may send from here on
    suspended     it is not known whether it still may: sends wait
    resumed       it still may
    released      it gave the permit back, as its application asked
    disconnected  another member has it or will have it: messages that wait are not sent
    """

    group: str
    cause: Literal["acquired", "suspended", "resumed", "released", "disconnected"]
    ticket: int  # which of the group's tickets this is about

    @property
    def may_send(self) -> bool:
        return self.cause in ("acquired", "resumed")


class Primary(msgspec.Struct, frozen=True):
    """Whether this view is the primary one, in a group with `quorum = "majority"`.

    It follows the view, once its members have found out. Until then nothing is sent.
    """

    group: str
    view: View
    is_primary: bool
    number: int  # of the primary view; else of the one of which there is no majority
    # If it is not: who was in that one, who of them is not here, and the rest of the sentence.
    last: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    why: str = ""
    # If it is: whose applications have all that earlier primary views secured; names. In families
    # that give a state to members that join, all of them.
    up_to_date: tuple[str, ...] = ()


class Secured(msgspec.Struct, frozen=True):
    """Our own events with numbers from `first` to `up_to` are in every later primary view."""

    group: str
    first: int
    up_to: int


class GroupTimes(NamedTuple):
    """How long things take in a group, in nanoseconds; None: its family has no such thing."""

    round: int | None = None
    lease: int | None = None  # of a permit to send


def event_number(incarnation: int, counter: int) -> int:
    """The number of an origin's counter-th event (from 1) in one of its incarnations."""
    assert 0 < counter < 1 << COUNTER_BITS and 0 <= incarnation < 1 << INCARNATION_BITS
    return incarnation << COUNTER_BITS | counter


def objection_to_group(name: object) -> str | None:
    """What is wrong with the name of a group. Nodes have stricter names (`NODE_NAME`).

    A name has no `+`, which stands before the formation (`label_of`).
    """
    if isinstance(name, str) and _GROUP_NAME.fullmatch(name):
        return None
    return f"{name!r:.120} is no name for a group: give 1 to 100 letters, digits and . _ - /"


def is_node_name(text: str) -> bool:
    """Of a node or a cluster: no settings file has another, whatever a peer says."""
    return _NODE_NAME.match(text) is not None


def label_of(group: str, formation: str) -> str:
    """The name of a group in the trace: several formations may bear one name in turn."""
    return f"{group}+{formation}" if formation else group


def name_of(label: str) -> str:
    """The name of a group, from its name in the trace."""
    return label.partition("+")[0]


def view_identity(group: str, *parts: object) -> int:
    """63 bits that are equal exactly where group and parts are equal (but for hash collisions)."""
    text = "\x00".join([group, *map(str, parts)])
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) >> 1
