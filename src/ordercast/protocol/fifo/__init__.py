"""Reliable FIFO multicast in a group: every sender's events in order, none between senders.

packets.py   packets of a group
options.py   options, with defaults that work
stream.py    one origin's events at one member: what was received, what is held for whom
streams.py   the streams of all origins: who waits for which, who relays what
peers.py     the other members: hearing, silence, return, new incarnations
member.py    the machine: its inputs, and the rules that join the parts

open_member.py  the machine where anybody may join: newcomers, rosters, members that are dropped
candidates.py   names that may be members and have not been heard
entering.py     when a member that joins has its first view, and for whom it waits until then

words.py     the wording of interaction files
mutants.py   the same with planted bugs
"""

from ordercast.kernel.family import BASIC_LAWS, Family, Promises
from ordercast.protocol.fifo.mutants import MUTANTS
from ordercast.protocol.fifo.open_member import build
from ordercast.protocol.fifo.options import LARGEST_GROUP, Fifo, FifoOptions
from ordercast.protocol.fifo.packets import Alive, Begin, Data, Leave, Roster, Start
from ordercast.protocol.fifo.words import WORDS

FAMILY = Family(
    "fifo",
    FifoOptions,
    (Data, Start, Alive, Leave, Begin, Roster),
    build,
    level=Fifo,
    largest_group=LARGEST_GROUP,
    promises=Promises(
        (*BASIC_LAWS, "fifo", "agreement", "completeness"),
        source="reliable FIFO multicast; textbook knowledge, no single source",
    ),
    words=WORDS,
    mutants=MUTANTS,
    largest_batch=lambda options: int(options.window_size),
    opens=True,
)
FAMILIES = (FAMILY,)
