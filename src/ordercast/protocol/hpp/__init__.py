"""Feeds: a durable log at every node, kept level over a tree that mends itself.

options.py      options, with defaults that work
packets.py      packets, and what is kept on disk beside entries
received.py     a number for each stream, and hashes over all of them
own_log.py      the log of this node: what joins it, and is delivered
edges.py        sessions with other nodes, and what outlives them
propagation.py  what is sent, processed and acknowledged
recovery.py     how a session begins: resume, digest, a tree of hashes
hierarchy.py    beats, and who is above and below
relocation.py   seek, offer, join, welcome, drop
takeover.py     orphans, roots, and parts that meet
distance.py     moves by measured delay
retention.py    what is held for whom, and for how long
repair.py       entries that the disk lost
member.py       the machine: its inputs
wishes.py       what chaos may ask of a node
words.py        the wording of interaction files
mutants.py      the same without one of the rules
"""

from ordercast.kernel.family import BASIC_LAWS, Family, Promises
from ordercast.protocol.hpp.member import build
from ordercast.protocol.hpp.mutants import MUTANTS
from ordercast.protocol.hpp.options import LARGEST_GROUP, PERSONAL, Feed, FeedOptions
from ordercast.protocol.hpp.packets import PACKETS, RECORDS
from ordercast.protocol.hpp.wishes import wish
from ordercast.protocol.hpp.words import WORDS

FAMILY = Family(
    "feed",
    FeedOptions,
    (*PACKETS, *RECORDS),
    build,
    level=Feed,
    largest_group=LARGEST_GROUP,
    largest_batch=lambda options: int(options.largest_event),
    promises=Promises(
        (
            *(*BASIC_LAWS, "fifo", "causal", "reply-order"),
            *("durable", "no-silent-gap", "one-tree", "rest"),
        ),
        when_nothing_fails=("completeness",),
        source="Adly, Kumar: HPP, a hierarchical propagation protocol for large scale replication "
        "in wide area networks, 1994",
        durable=True,
    ),
    words=WORDS,
    mutants=MUTANTS,
    opens=True,
    founded=False,
    personal=PERSONAL,
    rejoins=True,
    logged=True,
    log_size=lambda options: int(options.keep_bytes),
    replies=True,
    wish=wish,
)
FAMILIES = (FAMILY,)
