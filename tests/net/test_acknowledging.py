"""Acknowledgements of what came by a connection: soon for much, with company for a little."""

from __future__ import annotations

import pytest
from tests.net.nodes import Cluster, live, until
from tests.net.test_mesh import two_ends

from ordercast.net import connection as connection_module
from ordercast.net import keepalive as keepalive_module


@live
async def test_a_little_is_acknowledged_with_the_next_frame_or_when_a_ping_asks(
    cluster: Cluster,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection_module, "LAZY_SECONDS", 1e6)
        patch.setattr(keepalive_module, "PING_SECONDS", 1e6)
        async with two_ends() as (one, two):
            one.say(b"a")
            one.say(b"b")
            await until(lambda: two.contact.connection.is_lazy)
            assert one.contact.link.underway == 2
            two.say(b"c")
            await until(lambda: not one.contact.link.underway)
            await until(lambda: one.contact.connection.is_lazy)
            assert two.contact.link.underway == 1
            await two.mesh.drain(seconds=30)
            assert not two.contact.link.underway
            one.say(b"d")
            await until(lambda: two.contact.connection.is_lazy)
            one.say(bytes(connection_module.FEW_BYTES))
            await until(lambda: not one.contact.link.underway)
