"""Which kind of group a plan asks for: its options tell.

All kinds live in one machine, with one clock: a process may be in groups of each.
"""

from __future__ import annotations

from ordercast.protocol.newtop.atomic import AtomicGroup
from ordercast.protocol.newtop.group import Group
from ordercast.protocol.newtop.options import AtomicOptions, Options, SequencedOptions
from ordercast.protocol.newtop.sequencer import SequencedGroup


def kind_of(options: Options) -> type[Group]:
    if isinstance(options, AtomicOptions):
        return AtomicGroup
    return SequencedGroup if isinstance(options, SequencedOptions) else Group
