"""A node that is killed while it makes its number durable: nobody has heard of that number."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from tests.net.nodes import Cluster, live, place_of, until

from ordercast import Node
from ordercast.net.identity import number_from_zero

PROGRAM = """
import asyncio, os, signal, sys
import ordercast
from ordercast.net import identity
from ordercast.store import log

write = identity.write_durably

def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def write_and_be_killed(path, text):
    if path.name == "incarnation":
        log.{moment} = killed
    write(path, text)

identity.write_durably = write_and_be_killed

async def main():
    async with ordercast.open(name="n2", data=sys.argv[1], peers={{"n1": sys.argv[2]}}):
        await asyncio.Event().wait()

asyncio.run(main())
"""
MOMENTS = ("flush", "sync_folder")  # before the number is in its place, and right after


async def start_and_be_killed(folder: Path, n1: Node, moment: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM.format(moment=moment), str(folder), place_of(n1))
    )
    assert await process.wait() == -signal.SIGKILL


def number_in(folder: Path) -> int:
    file = folder / "incarnation"
    return int(file.read_text().split()[0]) if file.exists() else -1


@live
async def test_the_next_number_of_a_folder_is_durable_before_anybody_hears_of_it(
    cluster: Cluster,
) -> None:
    n1 = await cluster.open("n1")
    folder = cluster.folder / "n2"
    number_from_zero(folder)
    for moment in MOMENTS:
        await start_and_be_killed(folder, n1, moment)
        assert not n1.mesh.contacts
        assert n1.mesh.handshake.acquaintances.report("n2") is None
    assert number_in(folder) == 0
    again = await cluster.open("n2", data=str(folder), peers={"n1": place_of(n1)})
    await until(lambda: "n2" in n1.mesh.contacts)
    assert again.me.incarnation == 1


@live
async def test_the_number_of_an_empty_folder_is_durable_before_anybody_hears_of_it(
    cluster: Cluster,
) -> None:
    n1, former = await cluster.open_met_by("n2", incarnation=41)
    await former.close()
    for moment in MOMENTS:
        await start_and_be_killed(cluster.folder / moment, n1, moment)
        known = n1.mesh.handshake.acquaintances.report("n2")
        assert known is not None
        assert known.incarnation == 41
    assert number_in(cluster.folder / "flush") == -1
    written = number_in(cluster.folder / "sync_folder")
    assert written >= 49
    folder = str(cluster.folder / "sync_folder")
    again = await cluster.open("n2", data=folder, peers={"n1": place_of(n1)})
    assert again.me.incarnation == written + 1
