"""The guarantees as objects: `node.join("orders", ordercast.Fifo(window=64))`.

Each level carries the options of its family and no others: what a family does not have is a type
error. Most levels stand for one family; `Total` stands for two, by who decides the order.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from ordercast.errors import UsageError, unknown_word
from ordercast.protocol.cluster.options import CausalOptions as _CausalOptions
from ordercast.protocol.cluster.options import GossipOptions as _GossipOptions
from ordercast.protocol.families import FAMILIES
from ordercast.protocol.fifo.options import Options as _FifoOptions
from ordercast.protocol.newtop.options import AtomicOptions as _AtomicOptions
from ordercast.protocol.newtop.options import Options as _TotalOptions
from ordercast.settings import convert


class Fifo(_FifoOptions, frozen=True):
    """Each sender's messages in the order in which they were sent; see docs/fifo.md."""


class Gossip(_GossipOptions, frozen=True):
    """To thousands, with high probability and in no order; see docs/causal.md."""


class Causal(_CausalOptions, frozen=True):
    """From a few updaters to thousands, in optimistic causal order; see docs/causal.md."""


class Total(_TotalOptions, frozen=True):
    """One order of all messages of all such groups, agreed views; see docs/total.md."""

    by: Literal["everyone", "sequencer"] = "everyone"  # who decides the order


class Atomic(_AtomicOptions, frozen=True):
    """To all members of a view or to none, in no order between senders; see docs/total.md."""


Level: TypeAlias = Fifo | Gossip | Causal | Total | Atomic

_LEVELS: dict[str, tuple[type[Level], dict[str, Any]]] = {
    "fifo": (Fifo, {}),
    "gossip": (Gossip, {}),
    "causal": (Causal, {}),
    "total": (Total, {"by": "everyone"}),
    "sequenced": (Total, {"by": "sequencer"}),
    "atomic": (Atomic, {}),
}
"""By the family that keeps it: the level, and what is settled by the family's name."""

LIVE = tuple(name for name in _LEVELS if name in FAMILIES)
"""The families whose groups can be joined live."""


def is_level(given: object) -> bool:
    return type(given) in {kind for kind, _ in _LEVELS.values()}


def family_of(level: Level) -> str:
    """The family that keeps it."""
    for name, (kind, settled) in _LEVELS.items():
        if type(level) is kind and all(getattr(level, key) == settled[key] for key in settled):
            return name
    raise AssertionError(f"no family keeps {level!r}")


def options_of(level: Level, asks: bool = False) -> msgspec.Struct:
    """The options as the family's machines take them.

    Asks: the application has a say in invitations, where groups are formed by such.
    """
    if not isinstance(level, _TotalOptions):
        return level
    kind = FAMILIES[family_of(level)].options
    options = {name: getattr(level, name) for name in kind.__struct_fields__}
    return kind(**{**options, "invitations": "ask"} if asks else options)


def level_of(family: str, options: dict[str, Any]) -> Level:
    """The level of a family with these options, as a file has them.

    UsageError: no such family can be joined. msgspec.ValidationError: the options are wrong.
    """
    if family not in LIVE:
        raise UsageError(unknown_word("family", family, LIVE))
    kind, settled = _LEVELS[family]
    return convert({**settled, **options}, kind)
