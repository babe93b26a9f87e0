"""A node: joining, leaving, dying, being cancelled, and whatever its machines ask for."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Hashable
from pathlib import Path

import pytest
from tests.net.nodes import (
    QUICK,
    Cluster,
    connected,
    data_of,
    introduce,
    kill,
    live,
    place_of,
    until,
    view_of,
)

import ordercast
from ordercast import Config, Fifo, GroupClosed, UsageError, View
from ordercast.errors import OrdercastError, TraceError
from ordercast.kernel.family import Plan
from ordercast.kernel.inputs import Input, StatusResult
from ordercast.kernel.step import DATAGRAM, STATUS, Step, Timer
from ordercast.net.config import GroupRules
from ordercast.net.identity import number_from_zero
from ordercast.protocol.fifo.packets import Leave
from ordercast.trace.log import read_log
from ordercast.types import NodeId


def kinds_of(path: Path) -> list[str]:
    return [row.kind for row in read_log(path)]


# --- ends --------------------------------------------------------------------------------------


@live
async def test_leaving_the_block_is_an_orderly_leave(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2", trace=None)
    rows = cluster.folder / "n3.rows"
    n3 = await cluster.open("n3", trace=str(rows))
    introduce(n1, n2, n3)
    members = ["n1", "n2", "n3"]
    stays = [node.join("orders", QUICK, members) for node in (n1, n3)]
    async with n2.join("orders", QUICK, members) as leaves:
        for group in (*stays, leaves):
            await view_of(group, *members)
        for number in range(100):
            await leaves.send(b"%d" % number)
    with pytest.raises(GroupClosed, match="n2 has left orders"):
        await leaves.send(b"late")
    for group in stays:
        got = []
        async for item in group:
            if isinstance(item, View):
                assert item.members == (n1.me, n3.me)
                break
            got.append(item.data)
        assert got == [b"%d" % number for number in range(100)], "all of it, and then the view"
    assert [item.data async for item in leaves] == [b"%d" % number for number in range(100)]
    await stays[0].send(b"without it", until="stable")
    n3.driver.flush()
    assert "suspect" not in kinds_of(rows)


@live
async def test_closing_a_node_leaves_all_its_groups(cluster: Cluster) -> None:
    n1 = await cluster.open("n1")
    here = [n1.join(name, QUICK, ["n1", "n2"]) for name in ("orders", "prices")]
    async with ordercast.open(name="n2", data=str(cluster.folder / "n2")) as n2:
        introduce(n1, n2)
        there = [n2.join(name, QUICK, ["n1", "n2"]) for name in ("orders", "prices")]
        for group in (*here, *there):
            await view_of(group, "n1", "n2")
        await there[0].send(b"bye")
    for group in here:
        await view_of(group, "n1")
    assert not n2.groups
    with pytest.raises(UsageError, match="join needs an open node"):
        n2.join("more", QUICK)
    with pytest.raises(UsageError, match="a node is entered once"):
        await n2.__aenter__()


@live
async def test_a_node_that_was_killed_is_suspected(cluster: Cluster) -> None:
    rows = cluster.folder / "n1.rows"
    n1, n2 = await cluster.open("n1", trace=str(rows)), await cluster.open("n2")
    introduce(n1, n2)
    first, second = await cluster.join(n1, n2)
    await second.send(b"last words", until="stable")
    await kill(n2)
    assert await data_of(first, 1) == [b"last words"]
    await view_of(first, "n1")
    await first.send(b"alone", until="stable")
    n1.driver.flush()
    kinds = kinds_of(rows)
    assert kinds.count("suspect") == 1
    assert kinds[:3] == ["start", "join", "view"]


@live
async def test_a_trace_covers_a_whole_incarnation(cluster: Cluster) -> None:
    rows = cluster.folder / "n1.rows"
    number_from_zero(cluster.folder / "n1")
    settings = {"name": "n1", "data": str(cluster.folder / "n1"), "trace": str(rows)}
    for _ in range(2):
        async with ordercast.open(**settings) as node, node.join("diary", QUICK) as group:
            await group.send(b"dear diary")
    node = ["start", "join", "view", "submit", "deliver", "leave", "stop"]
    assert kinds_of(rows) == 2 * node
    assert [row.incarnation for row in read_log(rows)] == [0] * 7 + [1] * 7


@live
async def test_the_trace_says_that_a_node_began_with_an_empty_folder(cluster: Cluster) -> None:
    rows = cluster.folder / "n1.rows"
    for _ in range(2):
        node = await cluster.open("n1", data=str(cluster.folder / "empty"), trace=str(rows))
        await kill(node)
    assert [row.cause for row in read_log(rows) if row.kind == "start"] == ["empty", None]


@live
async def test_the_whole_program_may_be_cancelled_at_any_moment(cluster: Cluster) -> None:
    n1 = await cluster.open("n1")
    n1.join("orders", QUICK, ["n1", "n2"])
    settings = {"peers": {"n1": place_of(n1)}, "data": str(cluster.folder / "n2")}

    async def program() -> None:
        async with (
            ordercast.open(name="n2", **settings) as node,
            node.join("orders", QUICK) as group,
        ):
            await group.send(b"first", until="stable")
            async for _ in group:
                await group.send(b"more", until="stable")

    before = asyncio.all_tasks()
    for turns in (0, 1, 2, 3, 5, 10, 50, 300, 2000):
        task = asyncio.create_task(program())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        if turns % 2:
            await asyncio.sleep(0)
            task.cancel()  # somebody who does not want to wait for the orderly end
        await asyncio.wait([task])
        assert task.cancelled()
        ours = {n1.mesh.contacts["n2"].dialler} if "n2" in n1.mesh.contacts else set()
        assert asyncio.all_tasks() - before - ours == set()


@live
async def test_a_node_that_was_stalled_suspects_nobody(cluster: Cluster) -> None:
    rows = cluster.folder / "n1.rows"
    n1, n2 = await cluster.open("n1", trace=str(rows)), await cluster.open("n2")
    introduce(n1, n2)
    first, second = await cluster.join(n1, n2)  # whose suspicion limit is 0.4 seconds
    connection = n1.mesh.contacts["n2"].connection
    for _ in range(2):
        threading.Event().wait(1.0)  # the event loop stands still for all of this process
        await first.send(b"still here", until="stable")
    assert await data_of(second, 2) == [b"still here"] * 2
    assert n1.mesh.contacts["n2"].connection is connection
    n1.driver.flush()
    assert "suspect" not in kinds_of(rows)


# --- what goes wrong -----------------------------------------------------------------------------


@live
async def test_a_join_that_cannot_work_is_rejected_with_the_reason(cluster: Cluster) -> None:
    rules = {
        "closed": GroupRules(members=["n8", "n9"]),
        "quiet": GroupRules(may_send=["n9"]),
        "ours": GroupRules(members=["n1", "n7", "n8"]),
        "w/7": GroupRules(members=["n1"]),
    }
    number_from_zero(cluster.folder / "n1")
    config = Config(name="n1", data=str(cluster.folder / "n1"), group=rules)
    with pytest.raises(UsageError, match="join needs an open node"):
        ordercast.open(config).join("orders", Fifo())
    async with ordercast.open(config) as node:
        group = node.join("orders", Fifo())
        wrong = [
            (("orders", Fifo()), "n1 is in group 'orders' already"),
            (("other", Fifo(), ["n8", "n9"]), "n1 is not a member of 'other': n8, n9"),
            (("closed", Fifo()), r"n1 may not be in 'closed': \[group.closed\] members"),
            (("large", Fifo(), [f"n{i}" for i in range(101)]), "at most 100 members"),
            (("ours", Fifo(), ["n1", "n8", "n9"]), r"n9 may not be in 'ours': \[group.ours\] memb"),
            (("w/7", Fifo(), ["n1", "n2"]), r"n2 may not be in 'w/7': \[group.\"w/7\"\] members"),
            (("two words", Fifo()), "'two words' is no name for a group: give 1 to 100 letters"),
            (("", Fifo()), "'' is no name for a group"),
            ((7, Fifo()), "7 is no name for a group"),
            (("odd", "fifo"), "'fifo' is no level"),
            (("odd", Fifo(), "n1"), "'odd': members: expected a list, not text"),
            (("odd", Fifo), "is no level"),
        ]
        for arguments, said in wrong:
            with pytest.raises(UsageError, match=said):
                node.join(*arguments)
        await group.leave()
        await group.leave()
        with pytest.raises(UsageError, match="n1 has left 'orders': only a new incarnation"):
            node.join("orders", Fifo())
        assert node.join("ours", Fifo(), ["n1", "n8"]).name == "ours"  # fewer is fine
        assert node.join("w/7", Fifo()).name == "w/7"
        quiet = node.join("quiet", Fifo())
        with pytest.raises(UsageError, match="n1 may not send in 'quiet'"):
            await quiet.send(b"x")


@live
async def test_a_node_does_not_start_on_the_folder_of_another(cluster: Cluster) -> None:
    """It would take over its number, its promises as a lease replica and its groups."""
    await (await cluster.open("n1")).abort()
    data = str(cluster.folder / "n1")
    said = "n1 holds the data of n1 of cluster ordercast: "
    with pytest.raises(UsageError, match=f"{said}n2 of cluster ordercast needs another folder"):
        await cluster.open("n2", data=data)
    with pytest.raises(UsageError, match=f"{said}n1 of cluster bank needs another folder"):
        await cluster.open("n1", cluster="bank")
    assert (await cluster.open("n1")).me.incarnation == 1


@live
async def test_a_node_that_cannot_start_leaves_nothing_behind(cluster: Cluster) -> None:
    taken = await cluster.open("n0")
    number_from_zero(cluster.folder / "n1")
    folder = str(cluster.folder / "n1")
    wrong = [
        ({"listen": place_of(taken)}, UsageError, "cannot listen on .*: "),
        ({"listen": "127.0.0.1:70000"}, UsageError, "70000 is no port"),
        ({"listen": "0.0.0.0:0"}, UsageError, "can be reached from elsewhere"),
        ({"peers": {"n2": "10.0.0.2:7101"}}, UsageError, "peer n2 at 10.0.0.2:7101 .* encrypted"),
        ({"seeds": ["n3.example:7101"]}, UsageError, "seed at n3.example:7101 .* encrypted"),
        ({"trace": str(cluster.folder)}, TraceError, "cannot be written: Is a directory"),
    ]
    for settings, kind, said in wrong:
        with pytest.raises(kind, match=said):
            async with ordercast.open(name="n1", data=folder, **settings):
                raise AssertionError("it started")
    with pytest.raises(UsageError, match="is in use: is n0 running already"):
        await cluster.open("n0")
    async with ordercast.open(name="n1", data=folder) as node:
        assert node.me.incarnation == 2, "the folder is free, and no incarnation was used twice"


@live
async def test_an_error_inside_a_machine_reaches_the_sender(cluster: Cluster) -> None:
    """Here: the trace cannot be written. Nobody may hear of what is not on record."""
    pipe = cluster.folder / "rows"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    n2 = await cluster.open("n2")
    with pytest.raises(TraceError, match="rows cannot be written: Broken pipe"):
        async with ordercast.open(
            name="n1", data=str(cluster.folder / "n1"), trace=str(pipe)
        ) as n1:
            introduce(n1, n2)
            first, second = await cluster.join(n1, n2)
            await first.send(b"on record", until="stable")
            os.close(reader)
            with pytest.raises(OrdercastError, match=r"n1 cannot go on in orders: .*Broken pipe"):
                await first.send(b"not on record", until="delivered")
            with pytest.raises(OrdercastError, match="cannot go on"):
                await first.send(b"later")
            assert await data_of(first, 1) == [b"on record"]
            with pytest.raises(OrdercastError, match="cannot go on"):
                await anext(first)
            assert await data_of(second, 1) == [b"on record"]
            await view_of(second, "n2")
    assert "('orders',) broke" in cluster.log.text


# --- what a machine may ask for ------------------------------------------------------------------


class Probe:
    """A machine that does what a test says. It speaks fifo's Leave, which carries nothing."""

    groups = ("probe",)
    takes = (StatusResult,)

    def __init__(self) -> None:
        self.heard: list[NodeId] = []
        self.rang: list[Timer] = []
        self.answers: dict[Hashable, bool] = {}
        self.taken: list[object] = []
        self.error: Exception | None = None

    def start(self, step: Step) -> None: ...

    def accepts(self, group: str, now: int) -> bool:
        return False

    def stable_up_to(self, group: str) -> int:
        return 0

    def receive(self, step: Step, sender: NodeId, packet: object) -> None:
        self.heard.append(sender)

    def expire(self, step: Step, timer: Timer) -> None:
        self.rang.append(timer)

    def on(self, step: Step, given: Input) -> None:
        assert isinstance(given, StatusResult)
        self.answers[given.token] = given.arrived

    # And its own listener.

    def take(self, item: object) -> None:
        self.taken.append(item)

    def stepped(self) -> None: ...

    def failed(self, error: Exception) -> None:
        self.error = error


async def probes(cluster: Cluster) -> list[tuple[ordercast.Node, Probe]]:
    nodes = await cluster.nodes("n1", "n2")
    found = [(node, Probe()) for node in nodes]
    for node, probe in found:
        node.driver.add(probe, Plan("probe", ("n1", "n2"), None), probe)
    await until(lambda: connected(*nodes))
    return found


def act(node: ordercast.Node, what: Callable[[Step], None]) -> None:
    node.driver.host.act(node.driver.host.seats["probe"], what, 0)


@live
async def test_a_status_send_is_answered_either_way(cluster: Cluster) -> None:
    (n1, first), (n2, second) = await probes(cluster)

    def ask(step: Step) -> None:
        step.send(n2.me, Leave("probe"), STATUS, token="node")
        step.send("n2", Leave("probe"), STATUS, token="name")
        step.send(NodeId("n2", 99), Leave("probe"), STATUS, token="no such incarnation")
        step.send("n9", Leave("probe"), STATUS, token="nobody")

    act(n1, ask)
    await until(lambda: len(first.answers) == 4)
    expected = {"node": True, "name": True, "no such incarnation": False, "nobody": False}
    assert first.answers == expected
    assert second.heard == [n1.me, n1.me]


@live
async def test_timers_can_be_set_replaced_and_cancelled(cluster: Cluster) -> None:
    node, probe = (await probes(cluster))[0]

    def arm(step: Step) -> None:
        step.set_timer("later", 40_000_000)
        step.set_timer("cancelled", 1)
        step.set_timer("replaced", 1)

    def change(step: Step) -> None:
        step.set_timer("cancelled", None)
        step.set_timer("replaced", 80_000_000)
        step.set_timer("never armed", None)

    act(node, arm)
    act(node, change)
    await until(lambda: len(probe.rang) == 2)
    assert probe.rang == ["later", "replaced"]


@live
async def test_a_machine_gets_no_input_after_its_leave(cluster: Cluster) -> None:
    (n1, first), (n2, _) = await probes(cluster)

    def arm(step: Step) -> None:
        step.set_timer("soon", 1)
        step.send("n9", Leave("probe"), STATUS, token="nobody")
        step.send(n2.me, Leave("probe"), STATUS, token="node")

    act(n1, arm)
    n1.driver.leave("probe")
    act(n2, lambda step: step.send(n1.me, Leave("probe")))
    await until(lambda: n1.mesh.counters["packets_of_other_groups"])
    assert not n1.driver.host.seated
    assert (first.heard, first.rang, first.answers) == ([], [], {})


@live
async def test_a_step_that_cannot_be_applied_ends_the_member(cluster: Cluster) -> None:
    (n1, first), _ = await probes(cluster)

    def too_much(step: Step) -> None:
        step.send("n2", Leave("x" * 70_000), DATAGRAM)

    act(n1, too_much)
    assert isinstance(first.error, OrdercastError)
    assert "a datagram of 70" in str(first.error)


# --- under another library's roof -----------------------------------------------------------------


def test_a_node_runs_under_anyio(tmp_path: Path) -> None:
    anyio = pytest.importorskip("anyio", reason="anyio is not installed; nothing else needs it")

    async def main() -> None:
        async with (
            ordercast.open(name="n1", data=str(tmp_path / "n1")) as n1,
            ordercast.open(name="n2", data=str(tmp_path / "n2")) as n2,
        ):
            introduce(n1, n2)
            first, second = (node.join("orders", QUICK, ["n1", "n2"]) for node in (n1, n2))
            got: list[bytes] = []

            async def read() -> None:
                got.extend(await data_of(second, 100))

            with anyio.fail_after(30):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(read)
                    for number in range(100):
                        await first.send(b"%d" % number)
                        await anyio.sleep(0)
            assert got == [b"%d" % number for number in range(100)]
            with anyio.move_on_after(0.05) as scope:
                async for _ in second:
                    pass
            assert scope.cancelled_caught
            await first.send(b"more", until="stable")
            assert await data_of(second, 1) == [b"more"]
            with anyio.CancelScope() as scope:
                async with first:
                    await first.send(b"in a hurry")
                    scope.cancel()
                    await anyio.sleep_forever()
            await view_of(second, "n2")

    anyio.run(main, backend="asyncio")


@live
async def test_a_timer_never_runs_out_early(cluster: Cluster) -> None:
    """uvloop rounds to milliseconds. A machine that is called early sets its timer again: what was
    meant as a wait of 400 microseconds kept the processor busy."""
    (node,) = await cluster.nodes("n1")
    loop = asyncio.get_running_loop()
    for after in (1, 400_000, 1_400_000, 3_000_000):
        begin = loop.time()
        alarm = node.driver.wake(None, "timer", 1, after)  # type: ignore[arg-type]
        assert hasattr(alarm, "when"), "it is due at once"
        assert round(alarm.when() - begin, 6) >= after / 1e9
        alarm.cancel()
