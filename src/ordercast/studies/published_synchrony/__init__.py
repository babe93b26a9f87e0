"""Membership with virtual synchrony as it was published: to be studied, never to be relied on.

Amir, Dolev, Kramer, Malki: Membership algorithms for multicast communication groups (Transis,
1992), Figures 3 to 8. docs/synchrony-published.md shows where its rules break. It runs in the
simulator only, where a scenario says `family = "ordercast.studies.published_synchrony:FAMILY"`.

options.py      readings and repairs, and what makes a run
inputs.py       what a script may do to a machine
names.py        sets of machines
packets.py      what machines send each other
graph.py        the causal graph that the paper assumes
environment.py  what the rules need around them
faults.py       Figure 3
joins.py        Figures 5 to 7, and so Figure 4
delivery.py     services, configuration changes (Figures 3 and 8)
member.py       the machine
"""

from ordercast.kernel.family import (
    BASIC_LAWS,
    VIEW_LAWS,
    Family,
    Promises,
    machine_per_group,
)
from ordercast.studies.published_synchrony.member import PublishedMember
from ordercast.studies.published_synchrony.options import MembershipOptions
from ordercast.studies.published_synchrony.packets import MOST_MACHINES, PACKETS

FAMILY = Family(
    "published-synchrony",
    MembershipOptions,
    PACKETS,
    machine_per_group(PublishedMember),
    largest_group=MOST_MACHINES,
    # What the paper claims for its protocol, as far as there are laws for it.
    promises=Promises(
        (*BASIC_LAWS, "fifo", *VIEW_LAWS, "safe", "completeness", "rest"),
        source="Amir, Dolev, Kramer, Malki: Membership algorithms for multicast communication "
        "groups (Transis), 1992",
    ),
    tells_stability=False,
    not_live=(
        "the published membership protocol runs in the simulator only, as members may assent to "
        "their own removal, differ in their views or wait for ever (docs/synchrony-published.md)"
    ),
)
