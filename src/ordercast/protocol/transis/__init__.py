"""Transis: virtual synchrony with partitions that merge, and four services in one stream.

options.py        options, with defaults that work
packets.py        packets of a group
graph.py          what is admitted, what all have: one vector an event
services.py       basic, causal, agreed, safe: what is delivered when
carrier.py        how events get to the others: links, or
multicast.py      one packet for all, repeated and followed up
gaps.py           what of the graph is missing then
recovery.py       who is asked for it, and who gives it
configuration.py  one configuration: what is cast, delivered and acknowledged in it
flow.py           windows, and events that wait for the next view
suggestion.py     what the next configuration should be made of, and when it is decided
change.py         one change: stages, proposals, readiness, limits of time
patience.py       who is suspected
acquaintances.py  names that may be in the group
courting.py       which sides are merged with which
announcing.py     announcements, answers and candidates
history.py        what was delivered, configuration by configuration
merging.py        what other sides delivered apart
states.py         the application's state when sides merge
inheritance.py    whose state counts where there is a quorum
refusals.py       packets that break the rules
franchise.py      the vote in groups with a quorum, and what is secured
member.py         the machine: its inputs, and how it goes from view to view
words.py          the wording of interaction files
mutants.py        the same without one of the rules
"""

from ordercast.kernel.family import (
    BASIC_LAWS,
    VIEW_LAWS,
    Family,
    Multicast,
    Promises,
    Quorum,
    StateTransfer,
)
from ordercast.protocol.primary.packets import RECORDS
from ordercast.protocol.transis.member import build
from ordercast.protocol.transis.mutants import MUTANTS
from ordercast.protocol.transis.options import (
    LARGEST_GROUP,
    PERSONAL,
    SERVICES,
    Synchrony,
    SynchronyOptions,
)
from ordercast.protocol.transis.packets import PACKETS, Cast, Query, Status, Summary
from ordercast.protocol.transis.words import WORDS

FAMILY = Family(
    "synchrony",
    SynchronyOptions,
    (*PACKETS, *RECORDS),
    build,
    level=Synchrony,
    largest_group=LARGEST_GROUP,
    largest_batch=lambda options: int(options.window_size),
    promises=Promises(
        (
            *(*BASIC_LAWS, "fifo", "optimistic-causal", "causal-in-view", "total-in-view"),
            *(*VIEW_LAWS, "safe", "self-delivery", "rest", "one-primary"),
        ),
        source="Amir, Dolev, Kramer, Malki: Membership algorithms for multicast communication "
        "groups (Transis), 1992",
    ),
    words=WORDS,
    mutants=MUTANTS,
    services={service: service for service in SERVICES},
    personal=PERSONAL,
    quorum=Quorum(
        needed=lambda options: options.quorum == "majority",
        waits=lambda options: options.when_split == "wait",
        hint="join with when_split='wait'",
    ),
    opens=True,
    founded=False,
    rejoins=True,
    state=StateTransfer(
        needed=lambda options: options.merge != "none",
        possible=lambda options: options.merge != "none",
        hint='that is for merge="largest" and merge="all"',
    ),
    multicast=Multicast(lambda options: options.multicast, (Cast, Status, Query, Summary)),
)
FAMILIES = (FAMILY,)
