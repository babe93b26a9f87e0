"""Keys for multicast: each sender has one of its own for each group, which its members get.

Rules.
 1. A key is random, of one incarnation and one group. It travels by connections only, which are
    encrypted and whose other end has shown its certificate, and only to members of the present
    view. A datagram names its key, the key names sender and group.
 2. A nonce is a counter of the key, and never winds back.
 3. When a member is no longer in the view there is a new key, and so there is once an hour. The
    former one is taken for a few seconds more, for what is under way.
 4. Each counter opens once, in any order, unless it is too far behind: nothing can be replayed.
 5. Of each node the keys of a few groups are remembered; the oldest give way.

What it does not do: protect members from each other. A key that opens also seals, so a member of
the group can pretend to be another one, by multicast and in this group.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ordercast.errors import PeerError
from ordercast.net.contact import Contact
from ordercast.net.contacts import Contacts
from ordercast.net.handshake import KEY_BYTES, KEY_ID_BYTES
from ordercast.net.multicast import OpenedMulticast, checked_key
from ordercast.net.security import COUNTER_BYTES, HEAD_BYTES, ROTATE_AFTER, TAG_BYTES, Window
from ordercast.types import NodeId, View
from ordercast.units import SECOND
from ordercast.wire import greeting
from ordercast.wire.framing import FrameKind
from ordercast.wire.greeting import GroupKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MARK = b"oc1g"
FORMER = 5 * SECOND
"""How long a key is taken after its sender has said the next one."""
MOST_GROUPS_OF_ONE = 64
"""Of a node whose keys we have."""


class _OwnKey:
    """What we seal with in one group."""

    __slots__ = ("cipher", "counter", "given", "key", "key_id", "made_at", "members")

    def __init__(self, cipher: type[AESGCM], members: tuple[NodeId, ...], now: int) -> None:
        self.key_id = secrets.token_bytes(KEY_ID_BYTES)
        self.key = secrets.token_bytes(KEY_BYTES)
        self.cipher = cipher(self.key)
        self.counter = 0
        self.made_at = now
        self.members = members  # that may have it
        self.given: dict[NodeId, None] = {}


class _OthersKey:
    """What a member of a group seals with."""

    __slots__ = ("cipher", "group", "sender", "until", "window")

    def __init__(self, sender: NodeId, group: str, cipher: AESGCM) -> None:
        self.sender, self.group, self.cipher = sender, group, cipher
        self.window = Window()
        self.until: int | None = None  # when it is over


class SealedMulticast:
    """Datagrams under AES-256-GCM: key id, counter, ciphertext. A `MulticastWrapper`."""

    prefix = MARK
    least = len(MARK) + HEAD_BYTES + TAG_BYTES

    def __init__(
        self,
        contacts: Contacts,
        send_frame: Callable[..., bool],
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher, self._forged = AESGCM, InvalidTag
        self._contacts, self._send_frame, self._clock = contacts, send_frame, clock
        self._own: dict[str, _OwnKey] = {}  # by group
        self._own_ids: dict[bytes, None] = {}  # those, and their last predecessors
        self.others: dict[bytes, _OthersKey] = {}  # by key id
        # By name: the ids of its keys by group, the newest last, two at the most.
        self._ids: dict[str, dict[str, list[bytes]]] = {}

    # --- out ---------------------------------------------------------------------------------

    def wrap(self, group: str, body: bytes) -> bytes:
        own = self._own[group]
        head = own.key_id + own.counter.to_bytes(COUNTER_BYTES)
        own.counter += 1
        if own.counter % 256 == 0 and self._clock() - own.made_at >= ROTATE_AFTER:
            self._replace(group, own.members)
        return MARK + head + own.cipher.encrypt(_nonce(head), body, _bound_to(head, group))

    def join_group(self, group: str) -> None:
        self._replace(group, ())

    def _replace(self, group: str, members: tuple[NodeId, ...]) -> None:
        own = self._own[group] = _OwnKey(self._cipher, members, self._clock())
        self._own_ids[own.key_id] = None
        while len(self._own_ids) > 2 * len(self._own):
            del self._own_ids[next(iter(self._own_ids))]
        self._give(group)

    def viewed(self, view: View) -> None:
        own = self._own[view.group]
        if any(node not in view.members for node in own.members):
            self._replace(view.group, view.members)
        else:
            own.members = view.members
            self._give(view.group)

    def met(self, contact: Contact) -> None:
        """What was given before may have been lost with the connection."""
        for group, own in self._own.items():
            if contact.node is not None:
                own.given.pop(contact.node, None)
            self._give(group)

    def _give(self, group: str) -> None:
        own = self._own[group]
        for node in own.members:
            contact = self._contacts.get(node.name)
            if contact is not None and contact.node == node and node not in own.given:
                key = greeting.encode(GroupKey(group, own.key_id, own.key))
                if self._send_frame(contact, FrameKind.GROUP_KEY, key):
                    own.given[node] = None

    def tend(self) -> None:
        """Now and then: some connection had no room for a key."""
        for group in self._own:
            self._give(group)

    # --- in ----------------------------------------------------------------------------------

    def is_ours(self, data: bytes) -> bool:
        return data[len(MARK) : len(MARK) + KEY_ID_BYTES] in self._own_ids

    def open(self, data: bytes) -> OpenedMulticast | None:
        begin, end = len(MARK), len(MARK) + HEAD_BYTES
        head = data[begin:end]
        found = self.others.get(head[:KEY_ID_BYTES])
        if found is None or (found.until is not None and self._clock() > found.until):
            return None
        counter = int.from_bytes(head[KEY_ID_BYTES:])
        if not found.window.is_new(counter):
            return None
        try:
            bound = _bound_to(head, found.group)
            body = found.cipher.decrypt(_nonce(head), data[end:], bound)
        except self._forged:
            return None
        found.window.mark(counter)
        return OpenedMulticast(found.sender, None, found.group, body)

    def receive_key(self, contact: Contact, body: memoryview) -> None:
        new = checked_key(body)
        sender = contact.node
        assert sender is not None, "only connected nodes say it"
        if new.group not in self._own:
            return  # we are not in that group
        known = self.others.get(new.key_id)
        if known is not None and (known.sender, known.group) == (sender, new.group):
            return  # said again, by a new connection
        if known is not None or new.key_id in self._own_ids:
            raise PeerError(f"{sender} says a key that is another's")
        of_groups = self._ids.setdefault(sender.name, {})
        ids = of_groups.pop(new.group, [])
        for old in ids[:-1]:
            del self.others[old]
        if ids:
            last = self.others[ids[-1]]
            last.until = self._clock() + FORMER
            if last.sender != sender:
                last.until = 0
        of_groups[new.group] = [*ids[-1:], new.key_id]
        self.others[new.key_id] = _OthersKey(sender, new.group, self._cipher(new.key))
        if len(of_groups) > MOST_GROUPS_OF_ONE:
            self._forget_ids(of_groups.pop(next(iter(of_groups))))

    def _forget_ids(self, ids: list[bytes]) -> None:
        for one in ids:
            del self.others[one]

    def forget_group(self, group: str) -> None:
        own = self._own.pop(group, None)
        if own is not None:
            self._own_ids.pop(own.key_id, None)
        for name, of_groups in list(self._ids.items()):
            self._forget_ids(of_groups.pop(group, []))
            if not of_groups:
                del self._ids[name]


def _nonce(head: bytes) -> bytes:
    return b"\0\0\0\0" + head[KEY_ID_BYTES:]


def _bound_to(head: bytes, group: str) -> bytes:
    return MARK + head + group.encode()
