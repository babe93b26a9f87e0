"""Who is really there: certificates on connections, keys on datagrams, permissions in groups.

Rules.
1. Only its certificate says who a peer is: `ordercast://CLUSTER/NAME`, signed by the cluster's
   authority. Both ends show one. Addresses prove nothing and are not looked at.
2. A key for datagrams is chosen by the receiver, at random, for one incarnation of one sender, and
   travels only inside TLS. So a datagram names its key, the key names the sender, and a datagram
   that is sent back to its sender does not open.
3. A nonce is a counter that a sender keeps for each peer and never winds back, not even when the
   key changes: whatever keys a peer hands out, in whatever order, no nonce comes twice under one.
4. Everything that is remembered has a bound, and the longest unused gives way. The counter of a
   peer that is forgotten is not lost: whoever comes next begins above the counters of all that were
   forgotten. To the receiver that is a leap ahead, as after many datagrams that were lost. It takes
   it, and takes none any more that was sent well before.

This module imports no cryptography until it is needed: groups on loopback do without.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ordercast.errors import UsageError
from ordercast.net.datagrams import OpenedDatagram
from ordercast.net.handshake import KEY_BYTES, KEY_ID_BYTES
from ordercast.types import NodeId
from ordercast.units import SECOND
from ordercast.wire import greeting
from ordercast.wire.greeting import NewKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from ordercast.net.config import Config
    from ordercast.net.contact import Contact

log = logging.getLogger("ordercast.net")

EXPIRY_WARNING = timedelta(days=14)

HANDSHAKE_BYTES = 64 << 10
"""Of a handshake of TLS that we read: a few certificates fit, and OpenSSL would take four times
as much from a stranger."""

MARK = b"oc1s"
COUNTER_BYTES, TAG_BYTES = 8, 16
HEAD_BYTES = KEY_ID_BYTES + COUNTER_BYTES
WINDOW = 1024
"""So far behind the newest a datagram may come and still be taken, once."""
MOST_A_KEY = 1 << 32
"""Datagrams sealed with one key. Then we send none until the peer gives us another. A peer that was
forgotten, and is not yet given another key, may be sent as many again: under other nonces."""
ROTATE_COUNT = 1 << 28
ROTATE_AFTER = 3600 * SECOND
OVERLAP = 30 * SECOND
"""How long a key is still taken after its sender was seen to use another."""
MOST_PEERS = 2048
"""Names to which we send, and names whose keys we know."""


# --- permissions -----------------------------------------------------------------------------


def may(config: Config, name: str, group: str, action: Literal["join", "send"]) -> bool:
    """Whether the rules of a group let a node be in it, or send in it. No rules: everybody may."""
    rules = config.group.get(group)
    if rules is None:
        return True
    if rules.members is not None and name not in rules.members:
        return False
    return action == "join" or rules.may_send is None or name in rules.may_send


# --- connections -----------------------------------------------------------------------------


class Tls:
    """The two contexts of a node, made of three files that may be replaced while it runs.

    The contexts stay the same objects for ever: whoever holds them uses the newest files for the
    next handshake. Connections that exist go on. An authority that was added to its file counts
    from then on; one that was taken out counts until the node starts again.
    """

    def __init__(
        self,
        authority: str | Path,
        certificate: str | Path,
        key: str | Path,
        *,
        cluster: str,
        name: str | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.cluster = cluster
        self.name = name  # whose the certificate must be; None: anybody's of the cluster
        self.expires: datetime
        self.refused = 0  # handshakes that failed
        self._authority, self._certificate, self._key = map(Path, (authority, certificate, key))
        self._now = now
        self._logged: set[str] = set()  # reasons in the log since the last look at the files
        self.server = _context(ssl.PROTOCOL_TLS_SERVER, self._refuse)
        self.client = _context(ssl.PROTOCOL_TLS_CLIENT, self._refuse)
        self._stamp: list[object] = []
        self.reload()

    def reload(self) -> None:
        """Takes the files as they are now. UsageError: they are not in order, the old ones stay."""
        stamp = self._look()
        self._stamp = stamp  # tried once; what is damaged is tried again when it changes
        self._load()
        self._stamp = stamp

    def maybe_reload(self) -> bool:
        """Reloads if a file was replaced: cheap, to be called every few seconds."""
        self._logged.clear()
        if self._look() == self._stamp:
            return False
        try:
            self.reload()
        except UsageError as error:
            log.warning("the old certificate stays in use: %s", error)
            return False
        log.info("%s was read again; it is valid until %s", self._certificate, self.expires)
        return True

    def certified_name(self, transport: asyncio.BaseTransport) -> str | None:
        """The name for which the other end has shown a certificate; None: for none of ours."""
        channel = transport.get_extra_info("ssl_object")
        if channel is None:
            return None
        from ordercast.net.authority import name_in

        names = (channel.getpeercert() or {}).get("subjectAltName", ())
        return name_in((value for kind, value in names if kind == "URI"), self.cluster)

    def _load(self) -> None:
        """First into a context of its own: a failed load would leave a live one without a key."""
        try:
            from ordercast.net.authority import examine
        except ModuleNotFoundError as error:
            raise UsageError(
                f'certificates need {error.name}: pip install "ordercast[net]"'
            ) from error
        expires = examine(self._authority, self._certificate, self.cluster, self.name, self._now())
        trial = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            for context in (trial, self.server, self.client):
                # A key with a password fails; without this one, it would ask at the terminal.
                context.load_cert_chain(self._certificate, self._key, password="")
                context.load_verify_locations(self._authority)
                self._stamp = []  # should only a live one fail, the next look tries again
            shared = self._key.stat().st_mode & 0o077
        except OSError as error:  # ssl.SSLError is one
            why = getattr(error, "reason", None) or error.strerror
            raise UsageError(f"{self._key} does not go with {self._certificate}: {why}") from error
        self.expires = expires
        if expires - self._now() < EXPIRY_WARNING:
            log.warning("%s expires on %s", self._certificate, self.expires)
        if shared:
            log.warning("%s can be read by others: chmod 600 it", self._key)

    def _look(self) -> list[object]:
        """What changes when a file is replaced."""
        stamp: list[object] = []
        for path in (self._authority, self._certificate, self._key):
            try:
                status = path.stat()
                stamp.append((status.st_mtime_ns, status.st_ino, status.st_size))
            except OSError:
                stamp.append(None)
        return stamp

    def _refuse(self, reason: str) -> None:
        """A handshake failed. Strangers cannot fill the log: a reason is there once in a while."""
        self.refused += 1
        if reason not in self._logged and len(self._logged) < 16:
            self._logged.add(reason)
            log.warning("a TLS handshake failed: %s", reason)


class _Context(ssl.SSLContext):
    """A context whose channels know where their bytes come from."""

    def wrap_bio(self, incoming: ssl.MemoryBIO, *rest: Any, **named: Any) -> ssl.SSLObject:
        channel = super().wrap_bio(incoming, *rest, **named)
        channel.incoming = incoming  # type: ignore[attr-defined]
        return channel


def _context(kind: Any, refuse: Callable[[str], None]) -> ssl.SSLContext:
    context = _Context(kind)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the name is checked, against the greeting
    context.verify_mode = ssl.CERT_REQUIRED
    context.options |= ssl.OP_NO_TICKET
    if kind == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # nothing is resumed: every handshake looks at the certificate

    class Telling(ssl.SSLObject):
        """asyncio drops a failed handshake in silence, so nobody would know why."""

        incoming: ssl.MemoryBIO
        taken = 0

        def do_handshake(self) -> None:
            waiting = self.incoming.pending
            try:
                super().do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                self.taken += waiting - self.incoming.pending
                if self.taken <= HANDSHAKE_BYTES:
                    raise
                refuse(f"it has over {HANDSHAKE_BYTES} bytes")
                raise ssl.SSLError("the handshake is too long") from None
            except ssl.SSLError as error:
                refuse(getattr(error, "verify_message", "") or error.reason or "it broke off")
                raise

    context.sslobject_class = Telling
    return context


# --- datagrams -------------------------------------------------------------------------------


class Window:
    """Which counters came: each is taken once, in any order, unless it is too far behind."""

    __slots__ = ("_bits", "highest", "lowest")

    def __init__(self) -> None:
        self.highest = -1
        self.lowest = -1  # the first that came, for the count of what was sent since
        self._bits = 0  # bit n: highest - n came. Below 1 << WINDOW

    def is_new(self, counter: int) -> bool:
        behind = self.highest - counter
        return behind < 0 or (behind < WINDOW and not self._bits >> behind & 1)

    def mark(self, counter: int) -> None:
        assert self.is_new(counter)
        ahead = counter - self.highest
        if ahead <= 0:
            self._bits |= 1 << -ahead
            return
        if self.highest < 0:
            self.lowest = counter
        still = self._bits & ((1 << max(0, WINDOW - ahead)) - 1)
        self._bits = (still << ahead if still else 0) | 1
        self.highest = counter

    @property
    def span(self) -> int:
        return self.highest - self.lowest


class _Incoming:
    """A key that we gave to one incarnation, for its datagrams to us."""

    __slots__ = ("cipher", "given_at", "keys", "left_at", "window")

    def __init__(self, keys: _Keys, cipher: AESGCM, now: int) -> None:
        self.keys, self.cipher, self.window = keys, cipher, Window()
        self.given_at = now
        self.left_at: int | None = None  # when its sender was seen to use another key


class _Keys:
    """The keys that we gave to one incarnation of a name: the last two, and the one in use."""

    __slots__ = ("given", "highest", "in_use", "node")

    def __init__(self, node: NodeId) -> None:
        self.node = node
        self.given: dict[bytes, _Incoming] = {}  # by id, oldest first, three at the most
        self.in_use: _Incoming | None = None  # that of the newest datagram
        self.highest = -1  # the counter of that datagram


class _Outgoing:
    """The key that a peer gave us, and the counter for all keys that it ever gives."""

    __slots__ = ("cipher", "end", "given", "next")

    def __init__(self, given: tuple[bytes, bytes], cipher: AESGCM, first: int, most: int) -> None:
        self.given, self.cipher = given, cipher
        self.next = first
        self.end = min(first + most, 1 << 8 * COUNTER_BYTES)


class SealedDatagrams:
    """Datagrams under AES-256-GCM: key id, counter, ciphertext. A `datagrams.Wrapper`."""

    mark = prefix = MARK
    least = len(MARK) + HEAD_BYTES + TAG_BYTES
    proves = True

    def __init__(
        self,
        clock: Callable[[], int] = time.monotonic_ns,
        *,
        most_a_key: int = MOST_A_KEY,
        rotate_count: int = ROTATE_COUNT,
        rotate_after: int = ROTATE_AFTER,
        most_peers: int = MOST_PEERS,
    ) -> None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher, self._forged = AESGCM, InvalidTag
        self._clock = clock
        self._most_a_key = most_a_key
        self._rotate_count, self._rotate_after = rotate_count, rotate_after
        self._most_peers = most_peers
        self._outgoing: OrderedDict[str, _Outgoing] = OrderedDict()  # by name; used last comes last
        self._first = 0  # above all counters of names that were forgotten
        self.forgotten = 0  # names to which we sent
        self._peers: OrderedDict[str, _Keys] = OrderedDict()  # by name; given to last comes last
        self.incoming: dict[bytes, _Incoming] = {}  # by key id: all that `_peers` hold

    # --- out ---------------------------------------------------------------------------------

    def wrap(self, contact: Contact, body: bytes) -> bytes | None:
        """The datagram. None: the peer gave us no key, or what it gave is used up."""
        if contact.key is None:
            return None
        out = self._outgoing.get(contact.name)
        if out is None or out.given != contact.key:
            out = self._take_key(contact.name, contact.key, out)
        if out is None or out.next >= out.end:
            return None
        self._outgoing.move_to_end(contact.name)
        head = out.given[0] + out.next.to_bytes(COUNTER_BYTES)
        out.next += 1
        return head + out.cipher.encrypt(_nonce(head), body, MARK + head)

    def _take_key(
        self, name: str, given: tuple[bytes, bytes], old: _Outgoing | None
    ) -> _Outgoing | None:
        if len(given[0]) != KEY_ID_BYTES or len(given[1]) != KEY_BYTES:
            return None
        if old is None and len(self._outgoing) >= self._most_peers:
            _, oldest = self._outgoing.popitem(last=False)
            self._first = max(self._first, oldest.next)
            self.forgotten += 1
        first = old.next if old else self._first
        out = _Outgoing(given, self._cipher(given[1]), first, self._most_a_key)
        self._outgoing[name] = out
        return out

    # --- in ----------------------------------------------------------------------------------

    def open(self, data: bytes) -> OpenedDatagram | None:
        """Who sent it and what. None: unknown key, forged, truncated, too old, or seen before."""
        entry = self.incoming.get(data[:KEY_ID_BYTES])
        if entry is None or len(data) < HEAD_BYTES + TAG_BYTES:
            return None
        head = data[:HEAD_BYTES]
        counter = int.from_bytes(head[KEY_ID_BYTES:])
        if entry.left_at is not None and self._clock() - entry.left_at > OVERLAP:
            return None
        if not entry.window.is_new(counter):
            return None
        try:
            body = entry.cipher.decrypt(_nonce(head), data[HEAD_BYTES:], MARK + head)
        except self._forged:
            return None
        entry.window.mark(counter)
        keys = entry.keys
        is_newest = counter > keys.highest  # counters go on from key to key
        if is_newest:
            keys.highest = counter
            if keys.in_use is not entry:
                if keys.in_use is not None:
                    keys.in_use.left_at = self._clock()
                keys.in_use, entry.left_at = entry, None
        return OpenedDatagram(keys.node, body, is_newest)

    # --- keys --------------------------------------------------------------------------------

    def new_key(self, node: NodeId) -> tuple[bytes, bytes]:
        """A fresh key id and key for datagrams from this incarnation to us."""
        keys = self._peers.get(node.name)
        if keys is None or keys.node != node:
            self.forget(node.name)
            keys = self._peers[node.name] = _Keys(node)
        self._peers.move_to_end(node.name)
        while (key_id := secrets.token_bytes(KEY_ID_BYTES)) in self.incoming:
            pass
        key = secrets.token_bytes(KEY_BYTES)
        newest = next(reversed(keys.given), None)
        for old in list(keys.given):
            # The one in use stays: the frame with the new key may be lost with its connection.
            if old != newest and keys.given[old] is not keys.in_use:
                del keys.given[old], self.incoming[old]
        entry = _Incoming(keys, self._cipher(key), self._clock())
        keys.given[key_id] = self.incoming[key_id] = entry
        while len(self._peers) > self._most_peers:
            self.forget(next(iter(self._peers)))
        return key_id, key

    def forget(self, name: str) -> None:
        """Takes no datagrams any more under the keys that were given to this name."""
        keys = self._peers.pop(name, None)
        for key_id in keys.given if keys else ():
            del self.incoming[key_id]

    def needs_rotation(self, contact: Contact) -> bool:
        """Whether the peer has no key from us, or one that has served long enough."""
        if contact.node is None:
            return False
        keys = self._peers.get(contact.name)
        if keys is None or keys.node != contact.node:
            return True
        newest = keys.given[next(reversed(keys.given))]
        old = self._clock() - newest.given_at >= self._rotate_after
        return old or newest.window.span >= self._rotate_count

    def rotate(self, contact: Contact) -> bytes:
        """A new key for the peer, as the body of a frame of FrameKind.KEY."""
        assert contact.node is not None, "a key is for one incarnation"
        key_id, key = self.new_key(contact.node)
        return greeting.encode(NewKey(key, key_id))


def _nonce(head: bytes) -> bytes:
    return b"\0\0\0\0" + head[KEY_ID_BYTES:]
