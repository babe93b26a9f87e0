"""The newest incarnations that a node has heard of, of so many names at most.

Rules.
 1. A name that is connected stays. If there are too many, the name goes of which nothing was heard
    for longest. No name is refused because others came before it.
 2. One node can tell of so many names: beyond its share the oldest of those gives way. A name that
    has greeted us itself is in no other node's share.
 3. Each name that gives way is counted (`numbers_forgotten`). A node of that name which lost its
    folder hears its last number from others, or draws one.
"""

from __future__ import annotations

from collections import OrderedDict

from ordercast.kernel.identity import Acquaintances
from ordercast.net.contacts import Contacts
from ordercast.types import NodeId

MOST_NUMBERS = 4096
"""Names whose newest incarnation we remember."""
MOST_BY_ONE = 512
"""Of them by one teller. An honest greeting names fewer."""


class KnownNumbers(Acquaintances):
    def __init__(self, contacts: Contacts) -> None:
        super().__init__()
        self.known: OrderedDict[str, NodeId] = OrderedDict()  # heard of last comes last
        self._contacts = contacts
        self._teller: dict[str, str] = {}  # by name
        self._told: dict[str, OrderedDict[str, None]] = {}  # by teller: names, the oldest first

    def hear(self, node: NodeId, teller: str) -> None:
        """Another node, or this one itself, says that there is this incarnation."""
        name = node.name
        if name not in self.known and not self._has_room(teller):
            self._contacts.incidents.count("numbers_forgotten")
            return
        self.note([node])
        self.known.move_to_end(name)
        if name not in self._teller or teller == name:
            self._disown(name)
            self._teller[name] = teller
            self._told.setdefault(teller, OrderedDict())[name] = None

    def take(self, node: NodeId) -> None:
        """A node whose folder is empty says that it takes this number."""
        self.taken.pop(node.name, None)
        if len(self.taken) >= MOST_NUMBERS:
            del self.taken[next(iter(self.taken))]
            self._contacts.incidents.count("numbers_forgotten")
        self.taken[node.name] = node

    def forget(self, name: str) -> bool:
        """No incarnation of this name is known any more. False: none was."""
        self.taken.pop(name, None)
        self._disown(name)
        return self.known.pop(name, None) is not None

    def _has_room(self, teller: str) -> bool:
        """For one more name, which this node tells. Another one may have given way."""
        told = self._told.get(teller, OrderedDict())
        is_share_full = len(told) >= MOST_BY_ONE
        if not is_share_full and len(self.known) < MOST_NUMBERS:
            return True
        names = told if is_share_full else self.known
        for _ in range(len(names)):
            oldest = next(iter(names))
            contact = self._contacts.get(oldest)
            if contact is None or contact.connection is None:
                self._disown(oldest)
                self.known.pop(oldest, None)
                self._contacts.incidents.count("numbers_forgotten")
                return True
            names.move_to_end(oldest)
        return False

    def _disown(self, name: str) -> None:
        """The name is in nobody's share."""
        teller = self._teller.pop(name, None)
        if teller is not None:
            del self._told[teller][name]
            if not self._told[teller]:
                del self._told[teller]
