"""A node with certificates that sends datagrams to more peers than it can remember."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.net.nodes import Cluster, live, until
from tests.net.test_listener import secure
from tests.net.test_security import Pair

from ordercast.net import protection
from ordercast.net.contact import Contact
from ordercast.net.security import MOST_PEERS, SealedDatagrams


@live
async def test_the_status_counts_peers_whose_counters_were_forgotten(cluster: Cluster) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protection, "UPKEEP_SECONDS", 0.01)
        [n1] = await secure(cluster, "n1")
        sealed = n1.datagrams.wrapper
        assert isinstance(sealed, SealedDatagrams)
        for number in range(MOST_PEERS + 3):
            peer = Contact(f"x{number}", None)
            peer.key = sealed.new_key(n1.me)
            assert sealed.wrap(peer, b"to everybody") is not None
        await until(lambda: n1.status()["counters"]["datagram_counters_forgotten"] == 3)


def test_beyond_the_limit_the_longest_unused_peer_is_forgotten_and_gets_datagrams_again() -> None:
    pair = Pair(most_peers=10)
    pairs = [Pair() for _ in range(25)]
    for number, other in enumerate(pairs):
        other.sender = pair.sender
        other.to.name = f"x{number}"
        for _ in range(number):
            assert other.arrives(other.wrap())
    assert pair.sender.forgotten == 14, "one has got nothing yet"
    for other in reversed(pairs):
        old = other.wrap()
        assert other.arrives(old)
        assert not other.arrives(old)
        assert other.arrives(other.wrap())
    assert pair.sender.forgotten == 14 + 15


@given(st.lists(st.tuples(st.sampled_from(["send", "key"]), st.integers(0, 4)), max_size=80))
def test_no_nonce_is_used_twice_under_a_key_whoever_is_forgotten(
    what: list[tuple[str, int]],
) -> None:
    """Also if a peer gives the same key again."""
    sender = SealedDatagrams(most_peers=2)
    contacts = [Contact(f"n{number}", None) for number in range(5)]
    used: set[tuple[int, bytes, bytes]] = set()
    for word, number in what:
        to = contacts[number]
        if word == "key" or to.key is None:
            fresh = b"a" if to.key is None or to.key[0] == b"b" * 8 else b"b"
            to.key = (fresh * 8, fresh * 32)
        data = sender.wrap(to, b"same")
        assert data is not None
        head = number, data[:8], data[8:16]
        assert head not in used
        used.add(head)
