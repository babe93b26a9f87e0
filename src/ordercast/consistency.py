"""The ladder of guarantees as data: which family keeps which laws.

A law is a sentence about one run, judged from its trace alone: a file in `ordercast.check.laws`. A
family promises some laws always, and some only while nothing fails.
"""

from __future__ import annotations

from typing import NamedTuple


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
