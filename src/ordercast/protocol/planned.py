"""Families that are planned: what they will promise is known, and no folder has them yet."""

from ordercast.kernel.family import BASIC_LAWS, Promises

PLANNED: dict[str, Promises] = {
    "feed": Promises(
        (
            *(*BASIC_LAWS, "fifo", "causal", "agreement", "completeness"),
            *("reply-order", "durable", "no-silent-gap", "one-tree", "rest"),
        ),
        source="Adly, Kumar: HPP, a hierarchical propagation protocol for large scale replication "
        "in wide area networks, 1994",
        durable=True,
    ),
}
