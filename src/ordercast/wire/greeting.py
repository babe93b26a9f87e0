"""The handshake: both ends exchange node, cluster, protocol version and frames received so far.

The dialler sends a Hello. The other end answers with a Hello that also says how many data frames of
the dialler's incarnation it has, and the dialler ends with a Resume that says the same of the other
end. From then on both know what to send again. An end that objects sends a Refuse with the reason
and closes, so that both ends know why.

The bearer of a name. Each start of a node has a birth, some random bytes, beside its number. So the
incarnation that we know can be told from a rival: a second process, a copied folder, or a node
whose folder was lost. `judge` has the rules. A node also vouches for the nodes that it hears: it
tells connected nodes their births (`net/vouching.py`), so that a rival is refused by those too that
do not hear the first.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from ordercast.errors import PeerError
from ordercast.types import INCARNATION_BITS, NodeId, is_node_name

PROTOCOL_VERSION = 1
BIRTH_BYTES = 8
ASKING = "asking"
"""The feature of a greeting that only asks which incarnations of a name are known."""
SAME_AGE = 5000
"""Milliseconds: of nodes this close in age the births decide. Ages are measured, and a greeting
takes its time to arrive; births are the same wherever they are heard. They begin with the time by
the clocks of their nodes, so beyond this they say the same as the ages, unless the clocks are as
wrong."""
MOST_VOUCHED = 256
"""Names in one message that its sender vouches for."""

Name = Annotated[str, Meta(min_length=1, max_length=100)]
Place = Annotated[str, Meta(max_length=255)]  # host:port
OwnPlace = Annotated[str, Meta(max_length=255, pattern=r"^(\S+:\d{1,5})?$")]
Count = Annotated[int, Meta(ge=0)]
Key = Annotated[bytes, Meta(max_length=32)]
Birth = Annotated[bytes, Meta(max_length=BIRTH_BYTES)]
Number = Annotated[int, Meta(ge=0, lt=1 << INCARNATION_BITS)]
Code = Literal["", "older", "taken", "namesake"]


class Vouch(msgspec.Struct, frozen=True, array_like=True):
    """A node that the sender hears. New fields may only be added at the end."""

    number: Number
    birth: Birth
    age: Count  # milliseconds since it was opened
    is_bare: bool = False  # the sender has exchanged nothing with it but greetings
    place: Place = ""  # where it is, as far as the sender knows


Vouched = Annotated[dict[Name, Vouch], Meta(max_length=MOST_VOUCHED)]


class Names(msgspec.Struct, frozen=True, array_like=True):
    """What is new about those that the sender hears."""

    vouched: Vouched = {}
    gone: Annotated[list[Name], Meta(max_length=MOST_VOUCHED)] = []  # it hears them no longer


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """New fields may only be added at the end: older versions ignore them."""

    version: int
    cluster: Name
    node: NodeId
    port: Annotated[int, Meta(ge=0, lt=1 << 16)]  # where it listens, for datagrams and for dialling
    received: Count = 0  # data frames of the other's incarnation, in the answer
    key: Key = b""  # for datagrams to this node; empty where datagrams are plain
    key_id: Annotated[bytes, Meta(max_length=8)] = b""
    places: Annotated[dict[Name, Place], Meta(max_length=1024)] = {}  # where it knows others
    features: Annotated[list[Name], Meta(max_length=32)] = []
    birth: Birth = b""
    age: Count = 0  # milliseconds since this node was opened
    newest: Annotated[dict[Name, Count], Meta(max_length=1024)] = {}  # incarnations that it knows
    place: OwnPlace = ""  # where others reach it; empty: where it greets from, at its port
    vouched: Vouched = {}  # whom it hears, as many as a greeting may name
    company: Count = 0  # nodes that are connected with it


class Resume(msgspec.Struct, frozen=True, array_like=True):
    received: Count
    newest: int = -1  # the newest incarnation of the other's name that we know


class Refuse(msgspec.Struct, frozen=True, array_like=True):
    reason: Annotated[str, Meta(max_length=500)]
    # "older": a newer incarnation is known. "taken": another node has the name. "namesake": the
    # sender has it itself.
    code: str = ""
    newest: int = -1  # the newest incarnation of the other's name that we know
    place: Place = ""  # "taken": where the node is that has the name


class NewKey(msgspec.Struct, frozen=True, array_like=True):
    key: Key
    key_id: Annotated[bytes, Meta(max_length=8)]


class GroupKey(msgspec.Struct, frozen=True, array_like=True):
    """What the sender multicasts to a group is sealed with this key from now on."""

    group: Name
    key_id: Annotated[bytes, Meta(max_length=8)]
    key: Key


T = TypeVar("T")
_encoder = msgspec.msgpack.Encoder()


def encode(message: msgspec.Struct) -> bytes:
    return _encoder.encode(message)


def decode(body: bytes | memoryview, kind: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PeerError(f"not a {kind.__name__.lower()}: {error}") from error


# --- who is let in -----------------------------------------------------------------------------


class Bearer(NamedTuple):
    """This node, as it greets others."""

    node: NodeId
    birth: bytes
    age: int  # milliseconds
    company: int = 0  # nodes that are connected with us


class Met(NamedTuple):
    """The newest incarnation of another node's name that we know."""

    node: NodeId
    birth: bytes | None  # None: others know it
    is_live: bool = False  # heard a moment ago, by us or by a node that vouches for it
    place: str = ""  # where it is, as far as we know
    by: str = ""  # who vouches for it, if we do not hear it ourselves


class GreetingOutcome(NamedTuple):
    """What becomes of a greeting. No reason: it is accepted."""

    reason: str = ""
    code: Code = ""
    newest: int = -1
    place: str = ""
    is_ours: bool = False  # we have dialled ourselves
    is_first: bool = False  # it has our name, and had it before us


def objection(hello: Hello, cluster: str) -> str | None:
    """Why nobody of our cluster could have sent this greeting, or None."""
    if hello.version != PROTOCOL_VERSION:
        return f"protocol version {hello.version}; this node speaks {PROTOCOL_VERSION}"
    if hello.cluster != cluster:
        ends = f"the refused node is in cluster {hello.cluster!r}"
        return f"{ends}, the refusing one in {cluster!r}"
    if not is_node_name(hello.node.name):
        return f"{hello.node.name!r:.120} is no name of a node"
    return None


def judge(hello: Hello, us: Bearer, known: Met | None, source: str = "") -> GreetingOutcome:
    """Whether the greeting node is the one that bears its name. `source`: where it greets from.

    An incarnation is accepted if it is the one that we know, or if it is newer and the one that we
    know is gone. While that one is there, anybody else of its name is refused, even a newer one: a
    restarted node may have to wait until its former incarnation is missed. If it is gone, an older
    one is refused, and told which is the newest.
    """
    node = hello.node
    if node.name == us.node.name:
        return _judge_namesake(hello, us, source)
    if known is None or (node == known.node and known.birth in (None, hello.birth)):
        return GreetingOutcome()
    is_newer = node.incarnation > known.node.incarnation
    if is_newer and not (known.is_live and known.birth):  # without a birth nobody can tell
        return GreetingOutcome()
    newest = known.node.incarnation
    if known.is_live:
        return taken(node, source, known)
    return GreetingOutcome(
        f"{node} is an older incarnation: {known.node} was here", "older", newest
    )


def taken(second: NodeId, source: str, first: Met) -> GreetingOutcome:
    """Another node bears its name, and is there."""
    where = _at(first.node, first.place) + (f" ({first.by} says so)" if first.by else "")
    reason = _two_nodes(second.name, where, _at(second, source))
    return GreetingOutcome(reason, "taken", first.node.incarnation, first.place)


def is_earlier(age: int, birth: bytes, other_age: int, other_birth: bytes) -> bool:
    """Whether a node was opened before another one of its name. All nodes decide alike, unless the
    clocks of the two differ by more than `SAME_AGE`, and their ages by just that."""
    older = age - other_age
    return older > 0 if abs(older) > SAME_AGE else birth < other_birth


def _judge_namesake(hello: Hello, us: Bearer, source: str) -> GreetingOutcome:
    """It has our name. Of two of which others talk to one only, that one stays. Otherwise the one
    that was opened later is the second, and has to go."""
    if hello.birth == us.birth:
        return GreetingOutcome("this node dialled itself", is_ours=True)
    is_first = is_earlier(hello.age, hello.birth, us.age, us.birth)
    if not (hello.company and us.company):
        is_first = hello.company > 0 if hello.company or us.company else is_first
    ours, theirs = str(us.node), _at(hello.node, source)
    if is_first:
        return GreetingOutcome(_two_nodes(us.node.name, theirs, ours), is_first=True)
    why = _two_nodes(us.node.name, ours, theirs)
    return GreetingOutcome(why, "namesake", us.node.incarnation)


def _at(node: NodeId, place: str) -> str:
    return f"{node} at {place}" if place else str(node)


def _two_nodes(name: str, first: str, second: str) -> str:
    return (
        f"two nodes are named {name}: {first} was here first, and {second} greets; stop one of "
        "them, or rename it"
    )
