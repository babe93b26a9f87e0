"""The local socket by which a node is asked how it is: who may ask, and where it cannot be made."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.net.nodes import Cluster, live

import ordercast
from ordercast.errors import OrdercastError
from ordercast.net.control import Control, ask


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


@live
async def test_only_the_owner_may_ask_and_other_files_are_made_as_before(cluster: Cluster) -> None:
    usual, meanwhile = cluster.folder / "usual", cluster.folder / "meanwhile"
    usual.touch()
    control = Control(cluster.folder / "socket", lambda: {"node": "n1"})
    listening = asyncio.create_task(control.listen())
    await asyncio.sleep(0)
    meanwhile.touch()
    await listening
    try:
        assert mode_of(cluster.folder / "socket") == 0o600
        assert mode_of(meanwhile) == mode_of(usual)
    finally:
        control.close()
    assert not (cluster.folder / "socket").exists()


@live
async def test_a_conversation_ends_with_its_node(cluster: Cluster) -> None:
    path = cluster.folder / "socket"
    async with ordercast.open(name="n1", data=str(cluster.folder / "n1"), control=str(path)):
        assert (await ask(path))["node"] == "n1"
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"status\n")
        assert (await reader.readline()).startswith(b"{")
    assert await reader.read() == b""
    writer.close()


@live
async def test_a_path_at_which_no_socket_can_be_is_reported(cluster: Cluster) -> None:
    (cluster.folder / "file").touch()
    for path, why in (("file/socket", "(File exists|Not a directory)"), ("x" * 200, "too long")):
        with pytest.raises(OrdercastError, match=f"no socket can be made: .*{why}"):
            await Control(cluster.folder / path, dict).listen()
