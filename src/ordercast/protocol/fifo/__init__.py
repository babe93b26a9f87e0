"""Reliable FIFO multicast in a group: every sender's events in order, none between senders.

packets.py   packets of a group
options.py   options, with defaults that work
stream.py    one origin's events at one member: what was received, what is held for whom
streams.py   the streams of all origins: who waits for which, who relays what
peers.py     the other members: hearing, silence, return, new incarnations
member.py    the machine: its inputs, and the rules that join the parts
building.py  which parts a machine has

membership.py   who may be in a group, and what that changes: strategies; listed members
open_members.py where anybody may join: newcomers, rosters, members that are dropped
candidates.py   names that may be members and have not been heard
entering.py     when a member that joins has its first view, and for whom it waits until then
handover.py     how a newcomer gets the state of the application

words.py     the wording of interaction files
mutants.py   the same with planted bugs
"""

from collections.abc import Sequence
from typing import Any

from ordercast.kernel.family import BASIC_LAWS, Family, Objection, Promises, StateTransfer
from ordercast.protocol.fifo.building import machines
from ordercast.protocol.fifo.mutants import MUTANTS
from ordercast.protocol.fifo.options import LARGEST_GROUP, Fifo, FifoOptions
from ordercast.protocol.fifo.packets import (
    Alive,
    Begin,
    Coming,
    Data,
    Leave,
    Need,
    Roster,
    Start,
    State,
)
from ordercast.protocol.fifo.words import WORDS


def _objection(group: str, options: Any, members: Sequence[str] | None) -> Objection | None:
    """A listed member is owed what is sent, and needs no state."""
    if members is None or not options.state:
        return None
    why = (
        f"{group!r} lists its members, and Fifo(state=True) is for members that join an open group"
    )
    return Objection("state", f"{why}: leave out one of them")


FAMILY = Family(
    "fifo",
    FifoOptions,
    (Data, Start, Alive, Leave, Begin, Roster, Need, Coming, State),
    machines(),
    level=Fifo,
    largest_group=LARGEST_GROUP,
    promises=Promises(
        (*BASIC_LAWS, "fifo", "agreement", "completeness"),
        source="reliable FIFO multicast; textbook knowledge, no single source",
    ),
    words=WORDS,
    mutants=MUTANTS,
    largest_batch=lambda options: int(options.window_size),
    objection=_objection,
    opens=True,
    state=StateTransfer(
        needed=lambda options: bool(options.state),
        possible=lambda options: bool(options.state),
        hint="say Fifo(state=True), in an open group",
    ),
)
FAMILIES = (FAMILY,)
