"""Newtop: one order of all events, over overlapping groups, through crashes and partitions.

options.py      options, with defaults that work
packets.py      packets of a group, and of its formations
ordering.py     one clock, one queue and one bound over all groups of a process
epoch.py        one epoch of a group: what is sent, received and due
placement.py    how an event gets its place in the order, and how views do: by everyone
sequencer.py    the same, by a sequencer
atomic.py       the same, without order
kinds.py        which of these a plan asks for
agreement.py    agreement on failures
suspicion.py    who suspects whom
views.py        members, exclusions, and the cuts of pending views
history.py      what was delivered in a formation, to compare
stability.py    the streams of a group: how far each was received, and what is retained
flow.py         windows: how many own events may be in flight
formation.py    invitations and votes: how a group is formed, as a table of states
attempt.py      these states, and what is remembered of other formations
gathering.py    when a group should be formed, and of which members
request.py      a request to re-form a group
presence.py     which members are reachable, in any formation
entrance.py     how a member of no formation comes into the group: founding, asking, waiting
bond.py         a founding that a member started in and that failed, as its disk remembers it
admissions.py   how soon a name that comes and goes is taken in again
transitions.py  from one formation of a group to the next
refusals.py     packets that break the rules
member.py       the machine: its inputs, and delivery over all groups
words.py        the wording of interaction files
mutants.py      the same with planted bugs
"""

import msgspec

from ordercast.kernel.family import (
    BASIC_LAWS,
    VIEW_LAWS,
    Family,
    Formation,
    Promises,
    Quorum,
    StateTransfer,
)
from ordercast.protocol.newtop.member import build
from ordercast.protocol.newtop.mutants import OF_ATOMIC, OF_SEQUENCED, OF_TOTAL
from ordercast.protocol.newtop.options import (
    PERSONAL,
    Atomic,
    AtomicOptions,
    NewtopOptions,
    SequencedOptions,
    Total,
)
from ordercast.protocol.newtop.packets import PACKETS, FoundingRecord
from ordercast.protocol.newtop.words import WORDS
from ordercast.protocol.primary.packets import RECORDS

_LAWS = (*BASIC_LAWS, "fifo")
_SOURCE = (
    "Ezhilchelvan, Macêdo, Shrivastava: Newtop, a fault-tolerant group communication protocol, 1995"
)

FAMILY = Family(
    "total",
    NewtopOptions,
    (*PACKETS, FoundingRecord, *RECORDS),
    build,
    level=Total,
    largest_group=50,
    largest_batch=lambda options: int(options.window_size),
    promises=Promises(
        (*_LAWS, "causal", "total", *VIEW_LAWS, "one-primary", "completeness"),
        source=_SOURCE,
    ),
    words=WORDS,
    mutants=OF_TOTAL,
    opens=True,
    personal=PERSONAL,
    one_machine=True,
    formation=Formation(
        asks=lambda options: options.invitations == "ask",
        asking=lambda options: msgspec.structs.replace(options, invitations="ask"),
        unites=lambda options: options.reform == "auto",
    ),
    quorum=Quorum(
        needed=lambda options: options.quorum == "majority",
        waits=lambda options: options.when_split == "wait",
        hint="join with when_split='wait'",
    ),
    state=StateTransfer(
        needed=lambda options: False,
        possible=lambda options: True,
        unread=lambda options: msgspec.structs.replace(options, gives_state=False),
    ),
)
SEQUENCED = FAMILY._replace(
    name="sequenced",
    options=SequencedOptions,
    settled={"by": "sequencer"},
    mutants=OF_SEQUENCED,
    promises=Promises(
        (*_LAWS, "total-in-view", *VIEW_LAWS, "one-primary", "completeness"),
        when_nothing_fails=("causal", "total"),
        source=_SOURCE,
    ),
)
ATOMIC = FAMILY._replace(
    name="atomic",
    options=AtomicOptions,
    level=Atomic,
    mutants=OF_ATOMIC,
    promises=Promises((*_LAWS, *VIEW_LAWS, "one-primary", "completeness"), source=_SOURCE),
)
FAMILIES = (FAMILY, SEQUENCED, ATOMIC)
