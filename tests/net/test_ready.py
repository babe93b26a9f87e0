"""Whether a member is in its group, for whom it waits, and what a timeout says about it."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import Any

import pytest
from tests.net.nodes import (
    PATIENT,
    QUICK,
    Cluster,
    introduce,
    limit,
    live,
    place_of,
    until,
    view_of,
)
from tests.net.ordered import QUICK as ORDERED

from ordercast import Atomic, GroupClosed, Joined, Left, NodeId, Updating, View, Waiting
from ordercast.kernel.family import Plan
from ordercast.net.absence import Absence
from ordercast.net.readiness import Readiness, waiting_text

UNORDERED = Atomic(prompt_after="5ms", silence_limit="50ms", suspicion_limit="400ms")
ME, OTHER = NodeId("n1", 3), NodeId("n2")


@live
async def test_ready_returns_the_first_view_and_takes_nothing(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    first, second = (node.join("orders", ORDERED, ["n1", "n2"]) for node in (n1, n2))
    view = await first.ready()
    assert view is not None
    assert view.members == (n1.me, n2.me)
    assert await second.ready(timeout=30) == view
    assert first.members == view.members
    assert first.waiting is None
    assert await anext(first) == view


@live
async def test_a_timeout_names_the_member_that_is_not_connected(cluster: Cluster) -> None:
    n1, _ = await cluster.nodes("n1", "n2")
    await until(lambda: n1.mesh.contacts["n2"].connection is not None)
    group = n1.join("orders", ORDERED, ["n1", "n2", "n3"])
    n1.mesh.know("n3", place_of(n1).rpartition(":")[0] + ":1")
    said = r"n1 is not in 'orders' after 0 s: it waits for n3.*: n3 is not connected"
    with pytest.raises(TimeoutError, match=said):
        await group.ready(timeout=0)
    receipt = await group.send(b"early")
    with pytest.raises(TimeoutError, match=r"not delivered after 0 s: it waits for n3"):
        await receipt.wait("delivered", timeout=0)
    with pytest.raises(TimeoutError, match=r"saw no new formation .* again: it waits for n3"):
        await n1.reform("orders", timeout=0)
    assert group.waiting is not None
    assert group.waiting.on == ("n3", "n2")
    assert group.waiting.why == "n3 is not connected; n2 has not joined 'orders'"
    assert "waits for n3, n2" in n1.status()["groups"]["orders"]["waits"]


@live
async def test_the_stream_says_whose_address_is_missing(cluster: Cluster) -> None:
    (n1,) = await cluster.nodes("n1")
    group = n1.join("orders", ORDERED, ["n1", "n2"])
    waiting = await anext(group)
    assert isinstance(waiting, Waiting)
    assert waiting.on == ("n2",)
    assert "no address of n2 is known: add it to [peers]" in waiting.why
    n2 = await cluster.open("n2")
    introduce(n1, n2)
    n2.join("orders", ORDERED, ["n1", "n2"])
    view = await view_of(group, "n1", "n2")
    assert await group.ready() == view
    assert group.waiting is None


@live
async def test_a_stable_message_waits_for_the_member_that_is_gone(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    first, _ = await cluster.join(n1, n2, level=PATIENT)
    n1.mesh.set_cuts(frozenset({"n2"}), frozenset({"n2"}))
    receipt = await first.send(b"x", until="delivered")
    with pytest.raises(TimeoutError, match="'orders' is not stable after 0 s: it waits for n2: n2"):
        await receipt.wait("stable", timeout=0)
    n1.mesh.set_cuts(frozenset(), frozenset())
    assert await receipt.wait("stable", timeout=30) is receipt


@live
async def test_ready_raises_why_the_group_ended(cluster: Cluster) -> None:
    n1, _ = await cluster.nodes("n1", "n2")
    group = n1.join("orders", ORDERED, ["n1", "n2"])
    waiting = asyncio.create_task(group.ready())
    await asyncio.sleep(0)
    await group.leave()
    for call in (waiting, group.ready()):
        with pytest.raises(GroupClosed, match="n1 has left orders"):
            await call
    assert group.waiting is None


@live
async def test_a_timeout_names_who_has_not_acknowledged_and_why(cluster: Cluster) -> None:
    """n3 does not read, and so acknowledges nothing more; n2 has all."""
    levels = {"fifo": PATIENT, "total": ORDERED, "atomic": UNORDERED}
    for kind, level in levels.items():
        names = [f"{kind}{number}" for number in (1, 2, 3)]
        nodes = await cluster.nodes(*names)
        first, second, slow = (node.join("orders", level, names) for node in nodes)
        await first.ready()
        limit(slow, most_unread=10)
        reading = [asyncio.create_task(one.run(lambda item: None)) for one in (first, second)]
        for _ in range(20):
            await first.send(b"x", until="delivered")
        await until(lambda slow=slow: slow.status()["throttled"])
        receipt = await first.send(b"x", until="delivered")
        said = f"'orders' is not stable after 0.05 s: it waits for {names[2]}: {names[2]} has not "
        more = r"acknowledged it, and was last heard \d\.\d s ago: its application may not read"
        with pytest.raises(TimeoutError, match=said + more):
            await receipt.wait("stable", timeout=0.05)
        slow_reading = asyncio.create_task(slow.run(lambda item: None))
        assert (await receipt.wait("stable")).stable
        for group in (slow, second, first):
            await group.leave()
        await asyncio.gather(*reading, slow_reading)


@live
async def test_a_send_that_is_blocked_says_who_does_not_acknowledge(cluster: Cluster) -> None:
    """n2 does not read: the log of n1 names it, and so does `waiting`, until it reads."""
    names = ["n1", "n2"]
    n1, n2 = await cluster.nodes(*names)
    first, slow = (node.join("orders", ORDERED, names) for node in (n1, n2))
    await first.ready()
    limit(slow, most_unread=10)
    reading = [asyncio.create_task(first.run(lambda item: None))]

    async def send() -> None:
        for _ in range(400):
            await first.send(bytes(100_000))

    sending = asyncio.create_task(send())
    await until(lambda: "n1 waits for n2" in cluster.log.text)
    said = "send is blocked: n2 has not acknowledged what was sent, and was last heard"
    assert said in cluster.log.text
    waiting = first.waiting
    assert waiting is not None
    assert waiting.on == ("n2",)
    assert waiting.why.startswith(said)
    assert said in n1.status()["groups"]["orders"]["waits"]
    assert cluster.log.text.count("n1 waits for n2") == 1
    reading.append(asyncio.create_task(slow.run(lambda item: None)))
    await sending
    assert first.waiting is None
    for group in (slow, first):
        await group.leave()
    await asyncio.gather(*reading)


def test_a_member_that_was_silent_may_be_paused_and_one_without_a_connection_is_not_there() -> None:
    contacts: Any = {
        "n2": SimpleNamespace(connection=SimpleNamespace(heard_at=0), is_live=False),
        "n3": SimpleNamespace(connection=None, is_live=False),
    }
    absence = Absence(Plan("orders", ("n1", "n2", "n3"), None), "n1", contacts, lambda _: {}, ())
    n2, *others = absence.unacknowledged(("n2", "n3", "n4")).split("; ")
    said = (
        r"n2 has not acknowledged it, and was last heard \d+\.\d s ago: it may be paused or cut off"
    )
    assert re.fullmatch(said, n2)
    assert others == [
        f"{name} has not acknowledged it, and is not connected" for name in ("n3", "n4")
    ]


@live
async def test_a_member_that_does_not_read_knows_the_view(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    silent = n1.join("orders", QUICK, ["n1", "n2"], read=False)
    n2.join("orders", QUICK, ["n1", "n2"])
    await until(lambda: len(silent.members) == 2)
    assert silent.view is not None
    assert silent.view.members == (n1.me, n2.me)


# --- what the machine says ---------------------------------------------------------------------


class Shown:
    """A member without connections, whose machine is the test."""

    def __init__(self, *listed: str) -> None:
        self.items: list[Waiting] = []
        plan = Plan("orders", listed, None)
        absence = Absence(plan, ME.name, {}, lambda group: {}, ())
        self.changes = 0
        self.readiness = Readiness("orders", ME, absence, self.items.append, self._change)

    def _change(self) -> None:
        self.changes += 1


def played(story) -> None:
    """On a loop whose clock the story moves on."""

    async def on_loop() -> None:
        loop, calls = asyncio.get_running_loop(), []

        def later(after: float, call: Any) -> Any:
            calls.append(call)
            return SimpleNamespace(cancel=calls.clear)

        loop.call_later = later  # type: ignore[method-assign, assignment]

        def look() -> bool:
            """A second passes; whether anything was planned."""
            due, calls[:] = calls[:], []
            for call in due:
                call()
            return bool(due)

        try:
            story(look)
        finally:
            del loop.call_later  # type: ignore[attr-defined]

    asyncio.run(on_loop())


def test_what_the_machine_says_is_shown_once_and_again_when_it_changes() -> None:
    def story(look) -> None:
        shown = Shown("n1")
        for why in ("nobody", "nobody", "somebody"):
            shown.readiness.heard(Waiting("orders", ("n2",), why, 0))
            assert not shown.items or shown.items[-1].why != "somebody"
            look()
        unknown = "(no address of n2 is known: add it to [peers], or name a seed that knows it)"
        assert [item.why for item in shown.items] == [f"nobody {unknown}", f"somebody {unknown}"]
        shown.readiness.heard(View("orders", 1, (ME,)))
        assert shown.readiness.waiting is None
        look()
        assert not look(), "a member that is in its group is not looked at any more"
        shown.readiness.heard(Waiting("orders", (), "the disk is full", 0))
        look()
        assert shown.items[-1].why == "the disk is full"

    played(story)


def test_a_member_that_is_in_within_a_second_shows_nothing() -> None:
    def story(look) -> None:
        shown = Shown("n1", "n2")
        assert shown.readiness.waiting is not None
        shown.readiness.heard(Waiting("orders", ("n2",), "nobody", 0))
        shown.readiness.heard(Joined("orders", ME))
        look()
        assert shown.items == []
        assert shown.readiness.is_in

    played(story)


def test_a_member_that_gets_the_ticket_for_which_it_waited_waits_no_more() -> None:
    def story(look) -> None:
        shown = Shown("n1")
        shown.readiness.heard(Joined("orders", ME))
        for change in ("acquired", "resumed"):
            shown.readiness.heard(Waiting("orders", (), "no ticket can be had", 0))
            assert "no ticket can be had" in shown.readiness.reason()
            shown.readiness.heard(Updating("orders", "suspended", 0))
            assert shown.readiness.waiting is not None
            shown.readiness.heard(Updating("orders", change, 0))
            assert shown.readiness.waiting is None
        look()
        assert shown.items == []

    played(story)


def test_presence_is_what_joined_and_left_say() -> None:
    def story(look) -> None:
        shown = Shown("n1")
        readiness = shown.readiness
        assert readiness.heard(Joined("orders", OTHER))
        assert not readiness.is_in
        readiness.heard(Joined("orders", ME))
        assert readiness.members == (ME, OTHER)
        readiness.heard(Left("orders", OTHER, "silent"))
        assert readiness.members == (ME,)
        assert shown.changes == 3
        readiness.end()
        assert not look()

    played(story)


def test_many_names_are_counted() -> None:
    names = tuple(f"n{number}" for number in range(10))
    text = waiting_text(Waiting("orders", names, "they are away", 0))
    assert "for n0, n1, n2, n3, n4, n5, n6, n7 and 2 more, since" in text
    assert text.endswith("s: they are away")
