"""The ladder of guarantees as data: what each law says, and who keeps it.

A law is a sentence about one run, judged from its trace alone (`ordercast.check`). A family
promises some laws always, and some only while nothing fails. Everything that names laws, the
command line and the documents included, reads them here.
"""

from __future__ import annotations

from typing import NamedTuple


class Law(NamedTuple):
    name: str
    says: str


LAWS: dict[str, Law] = {
    law.name: law
    for law in (
        Law("no-creation", "what is delivered was submitted before, by its origin"),
        Law("no-duplication", "no process delivers an event twice in one incarnation"),
        Law("fifo", "a process delivers one origin's events of a group in increasing number"),
        Law(
            "agreement",
            "what one member that stayed delivered, every member that it stayed connected with "
            "delivered too, or openly gave up",
        ),
        Law(
            "completeness",
            "at the end of a quiet run, every event submitted by a process that did not crash is "
            "delivered by every member that was in the group and connected throughout",
        ),
        Law(
            "optimistic-causal",
            "no process delivers an event after delivering one that it causally precedes",
        ),
        Law(
            "causal",
            "optimistic-causal, and nothing in the causal past of a delivered event is missing "
            "from the deliveries before it, from the process's first view or join on",
        ),
        Law(
            "total",
            "two processes deliver any two events that both deliver in the same order, across "
            "all their common groups",
        ),
        Law(
            "total-in-view",
            "two processes that are in the same view of a group deliver any two events that both "
            "deliver of it in that view in the same order",
        ),
        Law(
            "virtual-synchrony",
            "two processes that install the same two consecutive views of a group deliver the "
            "same events between them",
        ),
        Law(
            "view-agreement",
            "two processes that stay connected install the same sequence of views; a view holds "
            "its installer",
        ),
        Law(
            "disjoint-views",
            "when the run is quiet, the last views of a group are equal or disjoint",
        ),
        Law(
            "ticket-uniqueness",
            "at no instant do two processes own the same ticket of one cluster, and no two events "
            "carry the same (index, stamp entry at that index)",
        ),
    )
}


class Promise(NamedTuple):
    """What a family promises. `available` says whether this version can run it."""

    family: str
    laws: tuple[str, ...]
    when_nothing_fails: tuple[str, ...]
    source: str
    available: bool = False
    durable: bool = False  # no-duplication then holds across incarnations


_VIEWS = ("virtual-synchrony", "view-agreement", "disjoint-views")
_BASIC = ("no-creation", "no-duplication")
_NEWTOP = (
    "Ezhilchelvan, Macêdo, Shrivastava: Newtop, a fault-tolerant group communication protocol, 1995"
)
_CLUSTERS = (
    "Gidenstam, Koldehofe, Papatriantafilou, Tsigas: Scalable group communication supporting "
    "configurable levels of consistency; and the same: Lightweight causal cluster consistency"
)

FAMILIES: dict[str, Promise] = {
    promise.family: promise
    for promise in (
        Promise(
            "fifo",
            (*_BASIC, "fifo", "agreement", "completeness"),
            (),
            "reliable FIFO multicast; textbook knowledge, no single source",
            available=True,
        ),
        Promise("gossip", _BASIC, (), _CLUSTERS, available=True),
        Promise(
            "causal",
            (*_BASIC, "fifo", "optimistic-causal", "ticket-uniqueness"),
            ("causal", "completeness"),
            _CLUSTERS,
            available=True,
        ),
        Promise(
            "total",
            (*_BASIC, "fifo", "optimistic-causal", "causal", "total", *_VIEWS, "completeness"),
            (),
            _NEWTOP,
            available=True,
        ),
        Promise(
            "sequenced",
            (*_BASIC, "fifo", "total-in-view", *_VIEWS, "completeness"),
            ("optimistic-causal", "causal", "total"),
            _NEWTOP,
            available=True,
        ),
        Promise(
            "atomic",
            (*_BASIC, "fifo", *_VIEWS, "completeness"),
            (),
            _NEWTOP,
            available=True,
        ),
        Promise(
            "synchrony",
            (*_BASIC, "fifo", "optimistic-causal", "causal", *_VIEWS, "completeness"),
            (),
            "Amir, Dolev, Kramer, Malki: Membership algorithms for multicast communication "
            "groups (Transis), 1992",
        ),
        Promise(
            "feed",
            (*_BASIC, "fifo", "completeness"),
            (),
            "Adly, Kumar: HPP, a hierarchical propagation protocol for large scale replication in "
            "wide area networks, 1994",
            durable=True,
        ),
    )
}
