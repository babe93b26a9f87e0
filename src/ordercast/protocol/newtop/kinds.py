"""Which strategy of placement the options of a plan ask for.

All kinds share one machine with one clock: a process may be in groups of each.
"""

from __future__ import annotations

from ordercast.protocol.newtop.atomic import Unordered
from ordercast.protocol.newtop.options import AtomicOptions, NewtopOptions, SequencedOptions
from ordercast.protocol.newtop.placement import ByEveryone, Placement
from ordercast.protocol.newtop.sequencer import BySequencer


def placement_of(options: NewtopOptions) -> type[Placement]:
    if isinstance(options, AtomicOptions):
        return Unordered
    return BySequencer if isinstance(options, SequencedOptions) else ByEveryone
