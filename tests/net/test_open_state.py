"""Members that join an open fifo group are given the state of the application."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.net.nodes import Cluster, live, place_of, until

from ordercast import (
    Atomic,
    Causal,
    Ejected,
    Fifo,
    Group,
    Message,
    Mismatch,
    Node,
    OrdercastError,
    StateMissing,
    Total,
    UsageError,
)
from ordercast.kernel.family import Level

LEVEL = Fifo(heartbeat="10ms", suspicion_limit="400ms", state=True)
TIMES: Any = {"prompt_after": "5ms", "silence_limit": "50ms", "suspicion_limit": "400ms"}
QUICK, SEQUENCED, ATOMIC = Total(**TIMES), Total(by="sequencer", **TIMES), Atomic(**TIMES)
LINES = 200


class Log:
    """An application whose state is all that it has read."""

    def __init__(self, node: Node, level: Level = LEVEL, **wanted: object) -> None:
        self.lines: list[str] = []
        self.restored = 0
        self.group: Group = node.join(
            "log",
            level,
            snapshot=lambda: "\n".join(self.lines).encode(),
            restore=self._restore,
            **wanted,  # type: ignore[arg-type]
        )
        self.reading = asyncio.create_task(self._read())

    def _restore(self, state: bytes) -> None:
        assert not self.lines
        self.lines, self.restored = state.decode().splitlines(), self.restored + 1

    async def _read(self) -> None:
        async for item in self.group:
            if isinstance(item, Message):
                self.lines.append(item.data.decode())

    async def write(self) -> None:
        for number in range(LINES):
            await self.group.send(f"{self.group.node.me.name} {number}".encode())
            await asyncio.sleep(0)

    async def close(self) -> None:
        await self.group.leave()
        await asyncio.wait([self.reading])


@live
async def test_a_newcomer_has_the_state_and_then_every_message_once(cluster: Cluster) -> None:
    n1 = await cluster.open("n1")
    logs = [Log(n1)]
    await logs[0].group.ready()
    writing = [asyncio.create_task(logs[0].write())]
    for name in ("n2", "n3", "n4"):
        node = await cluster.open(name, seeds=[place_of(n1)])
        logs.append(Log(node))
        await logs[-1].group.ready()
        writing.append(asyncio.create_task(logs[-1].write()))
    await asyncio.gather(*writing)
    await until(lambda: all(len(log.lines) >= 4 * LINES for log in logs))
    first = sorted(logs[0].lines)
    assert len({*first}) == 4 * LINES
    assert all(sorted(log.lines) == first for log in logs)
    assert [log.restored for log in logs] == [0, 1, 1, 1]
    for log in logs:
        await log.close()


@live
async def test_newcomers_whose_state_nobody_can_make_end_no_healthy_member(
    cluster: Cluster,
) -> None:
    """A bug that all members have, or a state that has grown too large."""
    n1 = await cluster.open("n1")
    first = Log(n1)
    second = Log(await cluster.open("n2", seeds=[place_of(n1)]))
    await second.group.ready()
    await until(lambda: second.restored == 1)
    lines, first.lines, second.lines = first.lines, [b"no text"], [b"no text"]  # type: ignore
    third = Log(await cluster.open("n3", seeds=[place_of(n1)]))
    await until(lambda: third.group.ended is not None)
    assert "could not give its state: TypeError" in str(third.group.ended)
    first.lines, second.lines = lines, []
    await second.group.send(b"a", until="stable")
    await until(lambda: first.lines == ["a"] == second.lines)
    for log in (first, second):
        await log.close()


@live
async def test_a_snapshot_that_returns_nothing_is_a_mistake_and_no_state(cluster: Cluster) -> None:
    """A `return` was forgotten. The newcomer does not begin as if there were nothing to know."""
    nothing: Any = {"snapshot": lambda: None, "restore": lambda state: None}
    for number, level in enumerate((Fifo(state=True), Causal(state=True), Total())):
        n1 = await cluster.open(f"a{number}")
        first = n1.join("log", level, **nothing)
        reading = asyncio.create_task(first.run(lambda item: None))
        await first.ready()
        n2 = await cluster.open(f"b{number}", seeds=[place_of(n1)])
        with pytest.raises(OrdercastError, match="snapshot must return bytes, not NoneType"):
            await n2.join("log", level, **nothing).run(lambda item: None)
        await first.leave()
        await reading


@live
async def test_an_application_that_does_not_read_is_told_that_its_state_is_needed(
    cluster: Cluster,
) -> None:
    """Alone it may take its time: nobody needs its state."""
    n1 = await cluster.open("n1")
    group = n1.join("log", QUICK, snapshot=lambda: b"", restore=lambda state: None)
    await group.ready()
    assert group.waiting is None
    n2 = await cluster.open("n2", seeds=[place_of(n1)])
    newcomer = n2.join("log", QUICK, snapshot=lambda: b"", restore=lambda state: None)
    await until(lambda: "log: the state of this application is needed" in cluster.log.text)
    assert group.waiting is not None
    assert "state of this application is needed, and it does not" in group.waiting.why
    reading = asyncio.create_task(group.run(lambda item: None))
    await until(lambda: group.waiting is None)
    for one in (newcomer, group):
        await one.leave()
    await reading


@live
async def test_a_member_that_reads_gives_the_state_for_one_that_does_not(
    cluster: Cluster,
) -> None:
    """All stay together. Who waits meanwhile is told for whom, and that it is over."""
    for kind, level in {"t": QUICK, "s": SEQUENCED, "a": ATOMIC}.items():
        n1 = await cluster.open(f"{kind}1")
        first = Log(n1, level)
        await first.group.ready()
        second = Log(await cluster.open(f"{kind}2", seeds=[place_of(n1)]), level)
        await second.group.ready()
        await first.group.send(b"a", until="stable")
        await until(lambda log=second: log.lines == ["a"])
        first.reading.cancel()
        third = Log(await cluster.open(f"{kind}3", seeds=[place_of(n1)]), level)
        await until(lambda log=second: log.group.waiting is not None)
        assert second.group.waiting is not None
        assert second.group.waiting.on == (n1.me.name,)
        assert "has not given the state of its application" in second.group.waiting.why
        await third.group.ready()
        await until(lambda log=third: log.restored == 1)
        assert second.group.waiting is None
        await second.group.send(b"b", until="stable")
        assert {len(log.group.members) for log in (first, second, third)} == {3}
        await until(lambda log=third: log.lines == ["a", "b"])
        assert second.lines == ["a", "b"]
        for log in (third, second, first):
            await log.close()


@live
async def test_a_newcomer_learns_that_no_member_reads(cluster: Cluster) -> None:
    """Also while it waits in `ready`. The group goes on as before."""
    n1 = await cluster.open("n1")
    first = Log(n1, QUICK)
    await first.group.ready()
    second = Log(await cluster.open("n2", seeds=[place_of(n1)]), QUICK)
    await until(lambda: second.restored == 1)
    for log in (first, second):
        log.reading.cancel()
    n3 = await cluster.open("n3", seeds=[place_of(n1)])
    third = n3.join("log", QUICK, snapshot=lambda: b"", restore=lambda state: None)
    with pytest.raises(StateMissing, match="no member can give its state: the application of n2"):
        await third.ready()
    assert isinstance(third.ended, StateMissing)
    await first.group.send(b"a", until="stable")
    assert first.group.members == second.group.members == (n1.me, second.group.node.me)
    for log in (second, first):
        await log.close()


@live
async def test_a_member_that_reads_nothing_while_others_need_its_state_is_ejected(
    cluster: Cluster,
) -> None:
    n1 = await cluster.open("n1", eject_after="300ms")
    asleep = n1.join("log", LEVEL, snapshot=lambda: b"", restore=lambda state: None)
    await asleep.ready()
    second = Log(await cluster.open("n2", seeds=[place_of(n1)]))
    await until(lambda: asleep.ended)
    with pytest.raises(Ejected, match="'log': others waited for its state, and its application"):
        await asleep.send(b"x")
    await second.group.leave()
    await second.reading


@live
async def test_a_group_has_a_state_at_all_members_or_at_none(cluster: Cluster) -> None:
    n1 = await cluster.open("n1")
    log = Log(n1)
    await log.group.ready()
    n2 = await cluster.open("n2", seeds=[place_of(n1)])
    plain = n2.join("log", Fifo(heartbeat="10ms", suspicion_limit="400ms"))
    await until(lambda: plain.ended)
    assert isinstance(plain.ended, Mismatch)
    assert "state is False here and True there" in str(plain.ended)
    await log.close()


@live
async def test_a_state_that_cannot_be_is_refused_with_a_sentence(cluster: Cluster) -> None:
    n1 = await cluster.open("n1", peers={"n2": "127.0.0.1:1"})
    hooks = {"snapshot": lambda: b"", "restore": lambda state: None}
    for members in (["n1", "n2"], None):  # its peers are the members then
        with pytest.raises(UsageError, match="is for members that join an open group"):
            n1.join("log", LEVEL, members, **hooks)
    with pytest.raises(UsageError, match=r"hands over no state: say Fifo\(state=True\)"):
        n1.join("log", Fifo(), founder="n1", **hooks)
    with pytest.raises(UsageError, match="give join a snapshot and a restore"):
        n1.join("log", LEVEL, founder="n1")
    for wrong in ("snapshot", "restore", "vote"):
        with pytest.raises(UsageError, match=f"{wrong} must be a function, not 5"):
            n1.join("log", LEVEL, founder="n1", **{**hooks, wrong: 5})
    with pytest.raises(UsageError, match="read must be True or False, not 'no'"):
        n1.join("log", Fifo(), founder="n1", read="no")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a member with read=False has none"):
        n1.join("log", LEVEL, founder="n1", read=False)
