"""The guarantees as objects: `node.join("orders", ordercast.Fifo(window=64))`.

Each level carries the options of its family and no others: what a family does not have is a type
error.
"""

from __future__ import annotations

from ordercast.protocol.fifo.options import Options as _FifoOptions


class Fifo(_FifoOptions, frozen=True):
    """Each sender's messages in the order in which they were sent; see docs/fifo.md."""
