"""The guarantees as objects: `node.join("orders", ordercast.Fifo(window=64))`.

Each level carries the options of its family and no others: what a family does not have is a type
error.
"""

from __future__ import annotations

from typing import TypeAlias

from ordercast.protocol.cluster.options import CausalOptions as _CausalOptions
from ordercast.protocol.cluster.options import GossipOptions as _GossipOptions
from ordercast.protocol.fifo.options import Options as _FifoOptions


class Fifo(_FifoOptions, frozen=True):
    """Each sender's messages in the order in which they were sent; see docs/fifo.md."""


class Gossip(_GossipOptions, frozen=True):
    """To thousands, with high probability and in no order; see docs/causal.md."""


class Causal(_CausalOptions, frozen=True):
    """From a few updaters to thousands, in optimistic causal order; see docs/causal.md."""


Level: TypeAlias = Fifo | Gossip | Causal

LEVELS: dict[type[Level], str] = {Fifo: "fifo", Gossip: "gossip", Causal: "causal"}
"""The levels that a group can be joined with, and the families that keep them."""
