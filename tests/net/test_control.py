"""The local socket by which a node is asked how it is: who may ask, and where it cannot be made."""

from __future__ import annotations

import asyncio
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from tests.net.nodes import Cluster, live, until

import ordercast
from ordercast import Total
from ordercast.cli.main import main
from ordercast.errors import OrdercastError
from ordercast.net.control import Control, ask


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def forgets_nobody(name: str) -> list[str]:
    raise AssertionError(name)


@live
async def test_only_the_owner_may_ask_and_other_files_are_made_as_before(cluster: Cluster) -> None:
    usual, meanwhile = cluster.folder / "usual", cluster.folder / "meanwhile"
    usual.touch()
    control = Control(cluster.folder / "socket", lambda: {"node": "n1"}, forgets_nobody)
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
        assert (await ask(path))["cluster"] == "ordercast"
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
            await Control(cluster.folder / path, dict, forgets_nobody).listen()


@live
async def test_a_node_is_forgotten_only_if_it_is_known_and_gone(cluster: Cluster) -> None:
    path = cluster.folder / "socket"
    n1 = await cluster.open("n1", control=str(path))
    assert await ask(path, "forget n1") == {"error": "n1 is this node"}
    assert await ask(path, "forget n2") == {"error": "n2 is not known here"}
    assert await ask(path, "forget") == {"error": "ask: status, or forget NAME"}
    caller = await cluster.dial(n1)
    await caller.connect("n2", incarnation=7, newest={"n3": 4})
    await until(lambda: n1.mesh.contacts["n2"].connection is not None)
    said = {"error": "n2#7 is connected: stop it, and then forget it"}
    assert await ask(path, "forget n2") == said
    await caller.close()
    await until(lambda: n1.mesh.contacts["n2"].connection is None)
    older = await cluster.dial(n1)
    older.greet("n2", incarnation=3)
    assert (await older.refuse()).code == "older"
    assert await ask(path, "forget n2") == {"forgot": "n2", "restart": []}
    assert "n2" not in n1.mesh.contacts
    assert await ask(path, "forget n2") == {"error": "n2 is not known here"}
    assert await ask(path, "forget n3") == {"forgot": "n3", "restart": []}
    for name in ("n2", "n3"):
        older = await cluster.dial(n1)
        await older.connect(name, incarnation=3)


@live
async def test_the_command_names_the_groups_that_wait_for_a_restart(cluster: Cluster) -> None:
    path, said = cluster.folder / "socket", StringIO()
    (cluster.folder / "n1").mkdir()
    (cluster.folder / "n1" / "groups").write_text('{"orders": ["n1", "n2"], "old": ["n1", "n2"]}')
    n1 = await cluster.open("n1", control=str(path))
    n1.join("orders", Total())
    with redirect_stdout(said):
        assert await asyncio.to_thread(main, ["forget", "n2", "--control", str(path)]) == 0
    restart = "restart the node: until then orders still waits for n2"
    assert said.getvalue() == f"n2 is forgotten\n{restart}\n"


@live
async def test_the_command_forgets_at_the_node_that_it_asks(cluster: Cluster) -> None:
    path = cluster.folder / "socket"
    n1 = await cluster.open("n1", control=str(path))
    n1.mesh.know("n2", None)
    caller = await cluster.dial(n1)
    await caller.connect("n3", newest={"n2": 9})
    command = ["forget", "n2", "--control", str(path)]
    await until(lambda: "n2" in n1.mesh.handshake.acquaintances.known)
    assert await asyncio.to_thread(main, command) == 0
    assert "n2" not in n1.mesh.handshake.acquaintances.known
    assert "n2" in n1.mesh.contacts, "it is configured, so its place stays known"
    assert await asyncio.to_thread(main, ["forget", "n1", "--control", str(path)]) == 2
