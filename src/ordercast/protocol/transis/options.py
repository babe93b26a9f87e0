"""The options of groups with virtual synchrony. Every default works."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from ordercast.errors import UsageError
from ordercast.kernel.family import Level
from ordercast.types import GUARANTEES, Guarantee
from ordercast.units import MILLISECOND, Duration, Size, take_units

Service: TypeAlias = Guarantee
SERVICES = GUARANTEES
"""Each has the name of what it promises."""
LARGEST_GROUP = 50
"""Members of a view."""
STATE_LIMITS = 5
"""Suspicion limits that an application has for its state, before another one is asked."""
PERSONAL = frozenset({"when_split"})
"""Options that need not be the same at all members."""


class SynchronyOptions(Level, frozen=True, kw_only=True):
    service: Service = "agreed"  # of messages that ask for none
    window: Annotated[int, Meta(ge=1, le=100_000)] = 64  # own events that not all have yet
    window_size: Size = Size(4 << 20)  # and their bytes
    # Views with more members gather acknowledgements at the sender of a message, so a lone message
    # costs at most three packets for each member. Smaller ones acknowledge to everybody: that is
    # quicker by a trip, and takes n packets for each member.
    gather_above: Annotated[int, Meta(ge=1, le=LARGEST_GROUP)] = 4
    # Between two acknowledgements that no event carries. The first one leaves at once.
    prompt_after: Duration = Duration(MILLISECOND // 2)
    silence_limit: Duration = Duration(330 * MILLISECOND)  # between heartbeats of an idle member
    # Silence after which a member is excluded. For members with a greater name than ours: three
    # quarters of it, so that of two members that do not hear each other the same one stays.
    suspicion_limit: Duration = Duration(1000 * MILLISECOND)
    stage_limit: Duration = Duration(600 * MILLISECOND)  # for an answer in a view change
    # Sides that meet wait so long for further sides. Longer than a round trip. paper: alpha
    court_for: Duration = Duration(15 * MILLISECOND)
    propose_every: Duration = Duration(2 * MILLISECOND)  # at most; what comes between is gathered
    # How often a lone member announces itself to members that are not in its view.
    hello: Duration = Duration(50 * MILLISECOND)  # at first
    hello_limit: Duration = Duration(200 * MILLISECOND)  # later
    rest: Duration = Duration(250 * MILLISECOND)  # before an excluded member may come back
    rest_limit: Duration = Duration(10_000 * MILLISECOND)  # the same after many failures
    # Where events may be submitted: on each side of a partition, or in the primary view only.
    quorum: Literal["none", "majority"] = "none"
    # What becomes of a send outside of the primary view.
    when_split: Literal["raise", "wait"] = "raise"
    # Whose state counts when sides merge: the application finds out, that of the largest side, or
    # it gets the states of all.
    merge: Literal["none", "largest", "all"] = "none"
    history: Size = Size(16 << 20)  # what was delivered and is retained, for sides that merge
    # Where events and acknowledgements go, as in "239.1.2.3:7777". Empty: to each member by a link.
    multicast: str = ""

    def __post_init__(self) -> None:
        take_units(self)
        for name in ("prompt_after", "court_for", "propose_every", "hello", "rest"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be longer than nothing")
        if self.silence_limit < self.prompt_after:
            raise ValueError("silence_limit must be at least prompt_after")
        # A heartbeat may be in flight for as long as the receiver waits for the next one.
        if self.suspicion_limit < 3 * self.silence_limit:
            raise ValueError("suspicion_limit must be at least three silence_limits")
        if self.hello_limit < self.hello or self.rest_limit < self.rest:
            raise ValueError("hello_limit and rest_limit must be at least hello and rest")
        if self.stage_limit <= 0:
            raise ValueError("stage_limit must be longer than nothing")
        if self.multicast:
            multicast_address(self.multicast)

    def gathers(self, members: int) -> bool:
        """Whether acknowledgements are gathered at the sender, in a view of so many."""
        return members > self.gather_above

    @property
    def state_limit(self) -> int:
        """Nanoseconds for which others wait for an application that is asked for its state."""
        return STATE_LIMITS * self.suspicion_limit

    @property
    def fresh(self) -> int:
        """Nanoseconds for which it counts that a member was heard."""
        return 3 * self.suspicion_limit


def multicast_address(place: str) -> tuple[str, int]:
    """Host and port. ValueError: it is no address of IPv4 multicast, or has no port."""
    host, _, port = place.rpartition(":")
    try:
        is_multicast = ip_address(host).is_multicast and ":" not in host
    except ValueError:
        is_multicast = False
    if not is_multicast:
        raise ValueError(
            f"multicast must be an address of IPv4 multicast and a port, as in 239.1.2.3:7777, and "
            f"not {place!r}"
        )
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 1 << 16):
        raise ValueError(f"multicast needs a port from 1 to 65535, as in {host}:7777, not {port!r}")
    return host, int(port)


def service_of(word: str) -> Service:
    for service in SERVICES:
        if service == word:
            return service
    raise UsageError(f"there is no service {word!r}: give one of {', '.join(SERVICES)}")


class Synchrony(SynchronyOptions, frozen=True):
    """Agreed views that split and merge, four services a message; see docs/synchrony.md."""
