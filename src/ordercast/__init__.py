"""Group communication for Python with the consistency you choose.

async with ordercast.open("ordercast.toml") as node:
    async with node.join("orders", ordercast.Fifo()) as group:
        await group.send(b"hello")
        async for event in group:
            match event:
                case ordercast.Message(sender=who, data=data): ...
                case ordercast.View(members=members): ...
"""

__version__ = "0.1.0"

from ordercast.errors import (
    Abandoned,
    DiskError,
    NameTaken,
    OrdercastError,
    PeerError,
    UsageError,
)
from ordercast.kernel.inputs import CaughtUp
from ordercast.kernel.log import Reference
from ordercast.net.config import Config
from ordercast.net.directory import FoundedTwice, Mismatch
from ordercast.net.formations import NotFormed, Reformed
from ordercast.net.group import Group
from ordercast.net.logged_group import LoggedGroup
from ordercast.net.marks import Mark, Post, Vector
from ordercast.net.merges import DifferenceLost
from ordercast.net.message import Ejected, GroupClosed, Message, RestoreFailed, StateMissing
from ordercast.net.node import Node
from ordercast.net.node import open_node as open
from ordercast.net.primary_view import NoQuorum
from ordercast.net.receipt import Receipt
from ordercast.net.send_permit import TicketLost
from ordercast.net.subscription import Subscription
from ordercast.net.together import Together
from ordercast.protocol.cluster.options import Causal, Gossip
from ordercast.protocol.fifo.options import Fifo
from ordercast.protocol.hpp.options import Feed
from ordercast.protocol.newtop.options import Atomic, Total
from ordercast.protocol.transis.options import Synchrony
from ordercast.types import (
    Difference,
    Event,
    Gap,
    Invitation,
    Joined,
    Left,
    Merged,
    NodeId,
    Partitioned,
    Primary,
    SideState,
    SideStates,
    SnapshotFailed,
    StateLost,
    Updating,
    View,
    Waiting,
)
from ordercast.units import Duration, Size

__all__ = [
    "Abandoned",
    "Atomic",
    "CaughtUp",
    "Causal",
    "Config",
    "Difference",
    "DifferenceLost",
    "DiskError",
    "Duration",
    "Ejected",
    "Event",
    "Feed",
    "Fifo",
    "FoundedTwice",
    "Gap",
    "Gossip",
    "Group",
    "GroupClosed",
    "Invitation",
    "Joined",
    "Left",
    "LoggedGroup",
    "Mark",
    "Merged",
    "Message",
    "Mismatch",
    "NameTaken",
    "NoQuorum",
    "Node",
    "NodeId",
    "NotFormed",
    "OrdercastError",
    "Partitioned",
    "PeerError",
    "Post",
    "Primary",
    "Receipt",
    "Reference",
    "Reformed",
    "RestoreFailed",
    "SideState",
    "SideStates",
    "Size",
    "SnapshotFailed",
    "StateLost",
    "StateMissing",
    "Subscription",
    "Synchrony",
    "TicketLost",
    "Together",
    "Total",
    "Updating",
    "UsageError",
    "Vector",
    "View",
    "Waiting",
    "__version__",
    "open",
]
