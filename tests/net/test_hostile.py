"""A peer that greets as it should, and then says what it should not: frames of every kind.

Two nodes in a group go on serving each other while a third, which nobody runs but the test, is
let in and lies. What must be refused is refused with a reason, and counted; whatever else it
says, nothing may go wrong where nobody looks, and the other two still talk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.net.nodes import GENEROUS, PATIENT, Caller, data_of, introduce, until, view_of

import ordercast
from ordercast import Group, Node
from ordercast.protocol.families import FAMILIES
from ordercast.protocol.fifo.packets import Alive, Leave, Start
from ordercast.types import NodeId
from ordercast.wire import greeting
from ordercast.wire.codec import LARGEST_PACKET, Codec
from ordercast.wire.framing import HEADER, FrameKind
from ordercast.wire.greeting import (
    PROTOCOL_VERSION,
    GroupKey,
    Hello,
    Names,
    NewKey,
    Refuse,
    Resume,
    Vouch,
)
from ordercast.wire.groups import GroupNote, Groups

LIVE = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
CODEC = Codec(FAMILIES.values())
HUGE = (1 << 63) - 1


def framed(kind: int, body: bytes, length: int | None = None) -> bytes:
    return HEADER.pack(len(body) if length is None else length, kind) + body


def pack(*numbers: int) -> bytes:
    """An array of a number for each, so large or negative as no honest peer's is."""
    return bytes([0x90 + len(numbers)]) + b"".join(
        (b"\xcf" + n.to_bytes(8)) if n >= 0 else (b"\xd3" + n.to_bytes(8, signed=True))
        for n in numbers
    )


# --- what must be refused ------------------------------------------------------------------------

SHORT = st.binary(max_size=300)
COUNTS = st.sampled_from([-1, -(1 << 63), 1, 1 << 32, HUGE, (1 << 64) - 1])


class Wrong(NamedTuple):
    data: bytes
    reason: str  # that is given for it, or a part of it


def no_place(kind: int) -> st.SearchStrategy[Wrong]:
    said = f"a frame of kind {kind} that has no place here"
    return SHORT.map(lambda body: Wrong(framed(kind, body), said))


def bad(kind: int, bodies: st.SearchStrategy[bytes], reason: str) -> st.SearchStrategy[Wrong]:
    return bodies.map(lambda body: Wrong(framed(kind, body), reason))


def not_long(*right: int) -> st.SearchStrategy[bytes]:
    return SHORT.filter(lambda body: len(body) not in right)


NO_PACKET = SHORT.map(lambda body: b"\xc1" + body)  # the one byte that begins nothing
SECOND_HELLO = greeting.encode(Hello(PROTOCOL_VERSION, "ordercast", NodeId("n3", 1 << 40), 0))
NO_KEYS = st.builds(NewKey, st.binary(max_size=31), st.binary(max_size=8)) | st.builds(
    NewKey, st.binary(min_size=32, max_size=32), st.binary(max_size=7)
)
KEYS_TOO_LONG = st.builds(NewKey, st.binary(min_size=33, max_size=99), st.just(bytes(8)))

WRONG: dict[FrameKind, st.SearchStrategy[Wrong]] = {
    FrameKind.HELLO: no_place(FrameKind.HELLO)
    | st.just(Wrong(framed(FrameKind.HELLO, SECOND_HELLO), "has no place here")),
    FrameKind.RESUME: no_place(FrameKind.RESUME)
    | bad(FrameKind.RESUME, st.just(greeting.encode(Resume(0))), "has no place here"),
    FrameKind.REFUSE: bad(FrameKind.REFUSE, NO_PACKET, "not a refuse")
    | bad(FrameKind.REFUSE, st.just(greeting.encode(Refuse("x" * 501))), "not a refuse"),
    FrameKind.DATA: bad(FrameKind.DATA, NO_PACKET, "not a packet that we know"),
    FrameKind.ACK: bad(FrameKind.ACK, not_long(8), "a number of eight bytes")
    | bad(
        FrameKind.ACK,
        st.integers(1 << 20, (1 << 64) - 1).map(lambda n: n.to_bytes(8)),
        "acknowledges frames that were never sent",
    ),
    FrameKind.STATUS: bad(
        FrameKind.STATUS, st.binary(max_size=7), "a status frame without its number"
    )
    | bad(
        FrameKind.STATUS, NO_PACKET.map(lambda body: bytes(8) + body), "not a packet that we know"
    ),
    FrameKind.ANSWER: bad(FrameKind.ANSWER, not_long(8), "an answer is a number of eight bytes"),
    FrameKind.PING: st.builds(  # itself it has nothing wrong; its length has
        lambda n: Wrong(framed(FrameKind.PING, b"", n), f"a frame of {n} bytes; {LARGEST_PACKET}"),
        st.integers(LARGEST_PACKET + 1, (1 << 32) - 1),
    ),
    FrameKind.KEY: bad(FrameKind.KEY, NO_PACKET, "not a newkey")
    | bad(FrameKind.KEY, KEYS_TOO_LONG.map(greeting.encode), "not a newkey")
    | bad(FrameKind.KEY, NO_KEYS.map(greeting.encode), "bytes with an id of"),
    FrameKind.GROUPS: bad(FrameKind.GROUPS, NO_PACKET, "not a groups")
    | bad(FrameKind.GROUPS, st.just(bytes((1 << 20) + 1)), "bytes about groups"),
    FrameKind.NAMES: bad(FrameKind.NAMES, NO_PACKET, "not a names")
    | bad(FrameKind.NAMES, st.just(bytes((256 << 10) + 1)), "bytes about names"),
    FrameKind.GROUP_KEY: bad(FrameKind.GROUP_KEY, NO_PACKET, "not a groupkey")
    | bad(
        FrameKind.GROUP_KEY,
        st.binary(max_size=7).map(lambda key: greeting.encode(GroupKey("g", key, key))),
        "bytes with an id of",
    ),
    FrameKind.BYE: bad(
        FrameKind.BYE, st.binary(min_size=1, max_size=100), "a goodbye carries nothing"
    ),
}
UNKNOWN = st.sampled_from([0, *range(max(FrameKind) + 1, 256)]).flatmap(no_place)
TOO_LONG = st.builds(
    lambda kind, n, body: Wrong(framed(kind, body, n), f"a frame of {n} bytes; {LARGEST_PACKET}"),
    st.integers(0, 255),
    st.integers(LARGEST_PACKET + 1, (1 << 32) - 1),
    SHORT,
)
BEFORE_RESUME = st.sampled_from(
    [
        FrameKind.HELLO,
        FrameKind.DATA,
        FrameKind.ACK,
        FrameKind.STATUS,
        FrameKind.ANSWER,
        FrameKind.KEY,
        FrameKind.GROUPS,
        FrameKind.NAMES,
        FrameKind.GROUP_KEY,
        FrameKind.BYE,
    ]
).flatmap(no_place) | COUNTS.filter(bool).map(
    lambda n: Wrong(
        framed(FrameKind.RESUME, pack(n)),
        "not a resume" if n < 0 else "frames of ours, and should have",
    )
)

# --- what may be anything ------------------------------------------------------------------------

LIVES = st.builds(NodeId, st.sampled_from(["n1", "n2", "n3", "x"]), st.integers(0, 20))
AMOUNTS = st.integers(0, 3) | st.sampled_from([1 << 40, HUGE])
PACKETS = st.one_of(
    st.builds(Start, st.just("orders"), LIVES, st.integers(0, 100)),
    st.builds(
        Alive,
        st.just("orders"),
        st.lists(st.tuples(LIVES, AMOUNTS), max_size=5),
        st.lists(LIVES, max_size=4),
    ),
    st.builds(Leave, st.sampled_from(["orders", "other"])),
).map(CODEC.encode)
TERMS = st.dictionaries(st.sampled_from(["kind", "members", "window"]), st.text(max_size=9))
NOTES = st.builds(
    GroupNote,
    st.sampled_from(["orders", "other"]),
    TERMS,
    st.booleans(),
    st.integers(0, HUGE),
    st.booleans(),
    st.dictionaries(
        st.sampled_from(["n2", "x", "y"]), st.sampled_from(["", "n", "::1:0", "n:70000"])
    ),
)
GROUPS = st.builds(Groups, st.lists(NOTES, max_size=3), st.just(["orders", "none"]))
VOUCHES = st.builds(
    Vouch,
    st.integers(0, (1 << 22) - 1),
    st.binary(max_size=8),
    st.integers(0, HUGE),
    st.booleans(),
    st.sampled_from(["", "127.0.0.1:1", "nowhere", "127.0.0.1:99999", ":"]),
)
NAMES = st.builds(
    Names,
    st.dictionaries(st.sampled_from(["n1", "n2", "n3", "ghost"]), VOUCHES),
    st.just(["n2", "none"]),
)
WHATEVER = st.one_of(
    NAMES.map(lambda names: framed(FrameKind.NAMES, greeting.encode(names))),
    GROUPS.map(lambda groups: framed(FrameKind.GROUPS, greeting.encode(groups))),
    PACKETS.map(lambda body: framed(FrameKind.DATA, body)),
    PACKETS.map(lambda body: framed(FrameKind.STATUS, bytes(8) + body)),
    st.integers(0, HUGE).map(
        lambda key: framed(FrameKind.ANSWER, key.to_bytes(8))
    ),  # of no question
    SHORT.map(lambda body: framed(FrameKind.PING, body)),
    st.just(framed(FrameKind.BYE, b"")),
    st.builds(framed, st.sampled_from(FrameKind), SHORT),
    st.builds(  # cut short: more was promised than comes
        lambda kind, body: framed(kind, body, len(body) + 1000), st.sampled_from(FrameKind), SHORT
    ),
    st.builds(
        lambda kind, count: framed(kind, pack(count)),
        st.sampled_from([FrameKind.RESUME, FrameKind.ACK, FrameKind.KEY]),
        COUNTS,
    ),
)


# --- the three -----------------------------------------------------------------------------------


class Siege:
    """n1 and n2 in a group, on a loop that stands still between two examples; n3 is us."""

    def __init__(self, runner: asyncio.Runner, folder: Path) -> None:
        self._runner = runner
        self._folder = folder
        self._lives = 0
        self.unseen: list[dict[str, Any]] = []
        self.nodes: list[Node] = []
        self.groups: list[Group] = []
        runner.get_loop().set_exception_handler(lambda _, context: self.unseen.append(context))

    def run(self, story: Any) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(GENEROUS):
                await story

        self._runner.run(bounded())
        assert not self.unseen, f"went wrong where nobody looked: {self.unseen}"

    async def begin(self) -> None:
        for name in ("n1", "n2"):
            node = ordercast.open(name=name, data=str(self._folder / name))
            self.nodes.append(await node.__aenter__())
        introduce(*self.nodes)
        for node in self.nodes:
            node.mesh.accept_limiter.a_second = 1 << 20  # examples come faster than callers should
            # A member that acknowledges nothing may make the others wait, so n3 is none.
            self.groups.append(node.join("orders", PATIENT, ["n1", "n2"]))
        for group in self.groups:
            await view_of(group, "n1", "n2")

    async def end(self) -> None:
        for node in self.nodes:
            await node.__aexit__(None, None, None)

    async def attack(self, data: bytes, reason: str | None, resumes: bool = True) -> None:
        """A new incarnation of n3 greets n1 and says this; a reason: for it, it must be refused."""
        node = self.nodes[0]
        self._lives += 1
        refused = node.mesh.counters["refused_frames"]
        caller = Caller(*await asyncio.open_connection("127.0.0.1", node.mesh.port))
        caller.greet("n3", self._lives)
        assert await caller.hear(FrameKind.HELLO)
        if resumes:
            caller.say(FrameKind.RESUME, greeting.encode(Resume(0)))
        caller.write(data)
        if reason is not None:
            assert reason in await caller.refusal()
            assert node.mesh.counters["refused_frames"] == refused + 1
            assert node.mesh.contacts["n3"].connection is None
        await caller.close()
        await until(lambda: len(node.mesh.connections) == 1)  # that with n2
        await self._talk()

    async def _talk(self) -> None:
        for group in self.groups:
            await group.send(b"to all", until="delivered")
        for group in self.groups:
            assert await data_of(group, 2) == [b"to all"] * 2


@pytest.fixture(params=["asyncio", "uvloop"])
def siege(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Siege]:
    """One for all examples of a test: that nothing adds up is a part of what is tested."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        siege = Siege(runner, tmp_path)
        siege.run(siege.begin())
        yield siege
        siege.run(siege.end())


# --- the tests -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FrameKind)
@LIVE
@given(data=st.data())
def test_a_wrong_frame_is_refused_with_the_reason(
    siege: Siege, kind: FrameKind, data: st.DataObject
) -> None:
    wrong = data.draw(WRONG[kind])
    siege.run(siege.attack(wrong.data, wrong.reason))


@LIVE
@given(wrong=UNKNOWN | TOO_LONG)
def test_unknown_frame_kinds_and_impossible_lengths_end_the_connection(
    siege: Siege, wrong: Wrong
) -> None:
    siege.run(siege.attack(wrong.data, wrong.reason))


@LIVE
@given(wrong=BEFORE_RESUME)
def test_only_a_valid_resume_may_follow_the_hello(siege: Siege, wrong: Wrong) -> None:
    siege.run(siege.attack(wrong.data, wrong.reason, resumes=False))


@LIVE
@given(frames=st.lists(WHATEVER, max_size=8), resumes=st.booleans())
def test_the_other_nodes_continue_whatever_a_hostile_node_sends(
    siege: Siege, frames: list[bytes], resumes: bool
) -> None:
    siege.run(siege.attack(b"".join(frames), None, resumes))
