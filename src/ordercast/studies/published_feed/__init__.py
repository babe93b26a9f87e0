"""A feed over a tree as it was published: to be studied, never to be relied on.

Adly, Kumar: HPP, a hierarchical propagation protocol for large scale replication in wide area
networks (1994), Figures 2 to 4 and sections 3 to 5. docs/feed-published.md shows where its rules
break. It runs in the simulator only, where a scenario says
`family = "ordercast.studies.published_feed:FAMILY"`.

options.py      the tree, what is posted, three repairs
inputs.py       what a script may do to a node
packets.py      what nodes send each other, and have on disk
view.py         the correspondents of a node, and theirs
vectors.py      V, V^P, V^C and MV
log.py          the messages that a node has
links.py        VS, VR and the FIFO queue of one correspondent
state.py        all of these together
propagation.py  Figure 2
moves.py        Figure 3
transition.py   Figure 4, as a function
failures.py     sections 5.1 and 5.2
recovery.py     section 5.3
member.py       the node
"""

from collections.abc import Sequence
from typing import Any

from ordercast.kernel.family import BASIC_LAWS, Family, Objection, Promises
from ordercast.studies.published_feed.member import build
from ordercast.studies.published_feed.options import PublishedFeedOptions
from ordercast.studies.published_feed.packets import MOST_NODES, PACKETS


def _objection(group: str, options: Any, members: Sequence[str] | None) -> Objection | None:
    named = dict.fromkeys([*options.tree, *options.tree.values()])
    unknown = [name for name in named if members is not None and name not in members]
    if unknown:
        return Objection("tree", f"tree names {unknown[0]!r}, who is no member of {group!r}")
    if members and min(members) in options.tree:
        return Objection("tree", f"{min(members)!r} is the root, and has no parent")
    return None


FAMILY = Family(
    "feed-published",
    PublishedFeedOptions,
    PACKETS,
    build,
    largest_group=MOST_NODES,
    # What the paper claims, as far as there are laws for it.
    promises=Promises(
        (
            *(*BASIC_LAWS, "fifo", "reply-order", "no-silent-gap", "durable", "one-tree"),
            *("agreement", "completeness"),
        ),
        when_nothing_fails=("causal",),
        source="Adly, Kumar: HPP, a hierarchical propagation protocol for large scale replication "
        "in wide area networks, 1994",
        durable=True,
    ),
    objection=_objection,
    tells_stability=False,
    not_live=(
        "the published feed runs in the simulator only, as it may lose messages, deliver them "
        "twice or out of order, and cut nodes off (docs/feed-published.md)"
    ),
)
