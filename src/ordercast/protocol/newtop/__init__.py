"""Newtop: one order of all events, over overlapping groups, through crashes and partitions.

options.py    what can be set, with defaults that work
packets.py    what members say to each other
ordering.py   one clock, one queue and one bound over all groups of a process
stability.py  the streams of a group: how far each came, and what is kept of it
flow.py       windows: how much of our own may be under way
suspicion.py  who is suspected by whom
views.py      who is in the group, who is agreed to be gone, where the cuts lie
casting.py    one group: what is cast in it, how far it has come, how it begins
group.py      and the rules that join these parts
formation.py  invitations and votes: how a group comes to be
presence.py   who is there, in whatever formation
refusals.py   what nobody who follows the rules would send
sequencer.py  a group whose order one member decides
atomic.py     a group without order
kinds.py      which kind of group a plan asks for
member.py     the machine: the doors, and delivery over all groups
words.py      how it reads in interaction files
"""

import msgspec

from ordercast.kernel.family import (
    BASIC_LAWS,
    VIEW_LAWS,
    Family,
    Formation,
    Promises,
    StateTransfer,
)
from ordercast.protocol.newtop.member import build
from ordercast.protocol.newtop.options import (
    Atomic,
    AtomicOptions,
    Options,
    SequencedOptions,
    Total,
)
from ordercast.protocol.newtop.packets import PACKETS
from ordercast.protocol.newtop.words import WORDS

_LAWS = (*BASIC_LAWS, "fifo")
_SOURCE = (
    "Ezhilchelvan, Macêdo, Shrivastava: Newtop, a fault-tolerant group communication protocol, 1995"
)

FAMILY = Family(
    "total",
    Options,
    PACKETS,
    build,
    level=Total,
    largest_group=50,
    largest_batch=lambda options: int(options.window_size),
    promises=Promises(
        (*_LAWS, "causal", "total", *VIEW_LAWS, "completeness"),
        source=_SOURCE,
    ),
    words=WORDS,
    one_machine=True,
    formation=Formation(
        asks=lambda options: options.invitations == "ask",
        asking=lambda options: msgspec.structs.replace(options, invitations="ask"),
    ),
    state=StateTransfer(needed=lambda options: False, possible=lambda options: True),
)
SEQUENCED = FAMILY._replace(
    name="sequenced",
    options=SequencedOptions,
    settled={"by": "sequencer"},
    promises=Promises(
        (*_LAWS, "total-in-view", *VIEW_LAWS, "completeness"),
        when_nothing_fails=("causal", "total"),
        source=_SOURCE,
    ),
)
ATOMIC = FAMILY._replace(
    name="atomic",
    options=AtomicOptions,
    level=Atomic,
    promises=Promises((*_LAWS, *VIEW_LAWS, "completeness"), source=_SOURCE),
)
FAMILIES = (FAMILY, SEQUENCED, ATOMIC)
