"""Newtop: one order of all events, over overlapping groups, through crashes and partitions.

options.py    what can be set, with defaults that work
packets.py    what members say to each other
ordering.py   one clock, one queue and one bound over all groups of a process
stability.py  the streams of a group: how far each came, and what is kept of it
flow.py       windows: how much of our own may be under way
suspicion.py  who is suspected by whom
views.py      who is in the group, who is agreed to be gone, where the cuts lie
group.py      one group: the rules that join these parts
sequencer.py  a group whose order one member decides; not offered yet
member.py     the machine: the doors, and delivery over all groups
"""

from ordercast.kernel.machine import Family
from ordercast.protocol.newtop.member import build
from ordercast.protocol.newtop.options import Options, SequencedOptions
from ordercast.protocol.newtop.packets import PACKETS

FAMILY = Family("total", Options, PACKETS, build, largest_group=50)
WITH_SEQUENCER = FAMILY._replace(options=SequencedOptions)
"""The same with groups that a sequencer orders. They keep less than the family promises."""
