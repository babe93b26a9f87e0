"""What nodes say about their groups: who is told, who is introduced, and who is in the wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from tests.net.nodes import GENEROUS, until

from ordercast.errors import PeerError
from ordercast.kernel.inputs import Acquainted
from ordercast.net import directory
from ordercast.net.directory import (
    MOST_GROUPS,
    MOST_WARNED,
    Directory,
    FoundedTwice,
    Mismatch,
    OwnGroup,
    unlike,
)
from ordercast.types import NodeId, Waiting
from ordercast.wire import greeting
from ordercast.wire.groups import MOST_MEMBERS, MOST_NOTES, GroupNote, Groups

ME = NodeId("n1")
FIFO = {"kind": "fifo", "members": "open", "window": "64"}
WAITING = {"terms": FIFO, "is_in": False, "age": 5000}


class Contacts(dict[str, Any]):
    """Nodes that are connected, and what we learn of others."""

    def __init__(self, *names: str) -> None:
        super().__init__({name: self.contact(name) for name in names})
        self.incidents = SimpleNamespace(count=lambda what: None)
        self.chance = Random(1)

    def contact(self, name: str) -> Any:
        there = object()
        return SimpleNamespace(name=name, node=NodeId(name), place=f"{name}:1", connection=there)

    def told(self, places: dict[str, str], by: str) -> None:
        for name in places.keys() - self.keys():
            self[name] = SimpleNamespace(name=name, node=None, place=places[name], connection=None)


class Stage:
    """A directory whose node is the test."""

    def __init__(self, *connected: str) -> None:
        self.contacts = Contacts(*connected)
        self.sent: list[tuple[str, Groups]] = []
        self.given: list[Acquainted] = []
        self.ended: list[tuple[str, Mismatch]] = []
        self.told: list[Waiting] = []
        self.inside: Any = None  # what the member of the group knows, which the test decides
        self.directory = Directory(
            ME,
            self.contacts,  # type: ignore[arg-type]
            lambda name, group: name != "barred",
            lambda to, kind, body: self.sent.append((to.name, greeting.decode(body, Groups))),
            lambda group, given: self.given.append(given),  # type: ignore[arg-type]
            self._end,
            self.told.append,
        )

    def _end(self, group: str, why: Mismatch) -> None:
        self.ended.append((group, why))
        self.directory.left(group)

    def join(
        self,
        terms: dict[str, str] = FIFO,
        *,
        is_in: bool = False,
        is_open: bool = True,
        founding: str = "",
        members: tuple[NodeId, ...] = (ME,),
    ) -> OwnGroup:
        self.inside = SimpleNamespace(is_in=is_in, members=members, founding=founding)
        own = OwnGroup(terms, is_open, self.inside)
        self.directory.joined("orders", own)
        return own

    def say(self, name: str, **changed: Any) -> None:
        note = GroupNote("orders", **({**WAITING, **changed}))
        self.hear(name, Groups([note]))

    def hear(self, name: str, groups: Groups) -> None:
        self.directory.receive(self.contacts[name], memoryview(greeting.encode(groups)))


def staged(test: Callable[[Stage], Any], *connected: str) -> None:
    async def on_loop() -> None:
        stage = Stage(*connected)
        result = test(stage)
        if result is not None:
            async with asyncio.timeout(GENEROUS):
                await result
        stage.directory.close()

    asyncio.run(on_loop())


def test_news_of_the_groups_that_are_remembered_counts_however_many_they_are() -> None:
    def story(stage: Stage) -> None:
        names = [f"world/{number}" for number in range(MOST_GROUPS + 10)]
        for is_in in (False, True):
            for first in range(0, len(names), MOST_NOTES):
                some = names[first : first + MOST_NOTES]
                notes = [GroupNote(name, **{**WAITING, "is_in": is_in}) for name in some]
                stage.hear("n2", Groups(notes))
        present = stage.directory.present
        assert [present(name) for name in names[:MOST_GROUPS]] == [{"n2": True}] * MOST_GROUPS
        assert [present(name) for name in names[MOST_GROUPS:]] == [{}] * 10

    staged(story, "n2")


# --- who hears what ----------------------------------------------------------------------------


def test_connected_nodes_that_may_join_hear_of_a_group_and_of_its_end() -> None:
    async def story(stage: Stage) -> None:
        stage.join(is_in=True, members=(ME, NodeId("n2")))
        assert stage.sent == []
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        [(name, groups)] = stage.sent
        assert name == "n2"
        assert [note.name for note in groups.notes] == ["orders"]
        assert groups.notes[0].members == {"n2": "n2:1"}
        stage.directory.left("orders")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert stage.sent[1:] == [("n2", Groups([], ["orders"]))]

    staged(story, "n2", "barred")


def test_a_node_that_connects_hears_of_all_groups() -> None:
    def story(stage: Stage) -> None:
        stage.join()
        stage.directory.met(stage.contacts["n2"])
        assert [note.name for _, groups in stage.sent for note in groups.notes] == ["orders"]

    staged(story, "n2")


def test_of_many_members_a_note_names_some_and_one_more_is_no_news() -> None:
    names = [f"n{number}" for number in range(2, 40)]

    async def story(stage: Stage) -> None:
        stage.join(is_in=True, members=(ME, *map(NodeId, names)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert {name for name, _ in stage.sent} == {*names}
        named = {tuple(groups.notes[0].members) for _, groups in stage.sent}
        assert len(named) == 1, "one note, for all"
        assert len(*named) == MOST_MEMBERS
        stage.sent.clear()
        stage.directory.met(stage.contacts["n2"])
        stage.directory.met(stage.contacts["n3"])
        first, second = (groups.notes[0].members for _, groups in stage.sent)
        assert first.keys() != second.keys(), "others each time"
        stage.sent.clear()
        stage.directory.changed("orders")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert stage.sent == []
        assert not stage.directory.waits()
        stage.inside.is_in = False
        stage.directory.changed("orders")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(stage.sent) == len(names)
        assert stage.directory.waits()

    staged(story, *names)


def test_an_open_group_learns_the_names_of_others_once() -> None:
    def story(stage: Stage) -> None:
        stage.say("n2", members={"n3": "n3:1", "n4": "", "barred": "x:1"})
        stage.join()
        assert stage.given == [Acquainted("orders", ("n2", "n3"))]
        stage.say("n2", members={"n3": "n3:1", "n5": "n5:1"})
        assert stage.given[1:] == [Acquainted("orders", ("n5",))]
        assert stage.directory.present("orders") == {"n2": False}

    staged(story, "n2")


def test_a_node_that_has_connected_again_is_named_again() -> None:
    """A machine may have given it up meanwhile."""

    def story(stage: Stage) -> None:
        stage.join()
        stage.say("n2", members={"n3": "n3:1"})
        stage.say("n2", is_in=True, members={"n3": "n3:1"})
        assert stage.given == [Acquainted("orders", ("n2", "n3"))]
        stage.directory.met(stage.contacts["n2"])
        stage.say("n2", members={"n3": "n3:1"})
        assert stage.given[1:] == [Acquainted("orders", ("n2",))]

    staged(story, "n2")


def test_a_node_that_was_forgotten_is_forgotten_here_too() -> None:
    def story(stage: Stage) -> None:
        own = stage.join()
        stage.say("n2", members={"n3": "n3:1"})
        del stage.contacts["n3"]
        stage.say("n2", members={"n4": "n4:1"})
        assert own.acquainted == {"n2", "n4"}
        stage.say("n2", members={"n3": "n3:1"})
        assert stage.given[-1] == Acquainted("orders", ("n3",))

    staged(story, "n2")


def test_a_closed_group_has_the_members_that_were_listed() -> None:
    def story(stage: Stage) -> None:
        closed = {**FIFO, "members": "n1 n2"}
        stage.join(closed, is_open=False)
        stage.say("n2", terms=closed, members={"n3": "n3:1"})
        assert stage.given == []
        assert "n3" not in stage.contacts

    staged(story, "n2")


def test_a_seed_that_is_not_in_the_group_introduces_those_that_wait() -> None:
    def story(stage: Stage) -> None:
        stage.say("n2", is_in=True)
        assert stage.sent == []
        stage.say("n3")
        assert stage.sent == [("n3", Groups(elsewhere={"orders": {"n2": "n2:1"}}))]
        stage.say("n4")
        assert stage.sent[1:] == [
            ("n4", Groups(elsewhere={"orders": {"n2": "n2:1", "n3": "n3:1"}})),
            ("n3", Groups(elsewhere={"orders": {"n4": "n4:1"}})),
        ]

    staged(story, "n2", "n3", "n4")


def test_one_who_is_introduced_becomes_acquainted() -> None:
    def story(stage: Stage) -> None:
        stage.join()
        stage.hear("n2", Groups(elsewhere={"orders": {"n3": "n3:1"}, "other": {"n4": "n4:1"}}))
        assert stage.given == [Acquainted("orders", ("n3",))]
        assert "n4" not in stage.contacts

    staged(story, "n2")


def test_a_node_that_is_gone_is_not_present() -> None:
    def story(stage: Stage) -> None:
        stage.say("n2")
        stage.contacts["n2"].connection = None
        assert stage.directory.present("orders") == {}
        stage.join()
        assert stage.given == []
        stage.directory.met(stage.contacts["n3"])

    staged(story, "n2", "n3")


def test_nonsense_about_groups_is_refused() -> None:
    def story(stage: Stage) -> None:
        for body in (b"", b"\x91", bytes((1 << 20) + 1)):
            with pytest.raises(PeerError):
                stage.directory.receive(stage.contacts["n2"], memoryview(body))

    staged(story, "n2")


# --- who is in the wrong -----------------------------------------------------------------------

TOTAL = {"kind": "total", "members": "open", "window": "32"}


@pytest.mark.parametrize(
    ("we_are_in", "they_are_in", "their_age", "are_wrong"),
    [
        (False, True, 0, True),
        (True, False, 100_000, False),
        (False, False, 5000, True),  # they are older
        (True, True, 5000, True),
        (False, False, 0, True),  # nobody is surely older: both
    ],
)
def test_the_one_that_waits_is_wrong_or_else_the_younger(
    we_are_in: bool, they_are_in: bool, their_age: int, are_wrong: bool
) -> None:
    def story(stage: Stage) -> None:
        stage.join(is_in=we_are_in)
        for _ in range(2):
            stage.say("n2", terms=TOTAL, is_in=they_are_in, age=their_age)
        assert bool(stage.ended) == are_wrong
        if are_wrong:
            [(group, why)] = stage.ended
            assert group == "orders"
            assert str(why) == (
                "n1 joined 'orders' on other terms than n2: family is fifo here and total there. "
                "Give join the same level, options and members at all nodes of the group. This "
                "node has left it"
            )

    staged(story, "n2")


def pass_seconds(monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    """The directory's clock shows so much more."""
    later = directory.monotonic_ns() + seconds * 1_000_000_000
    monkeypatch.setattr(directory, "monotonic_ns", lambda: later)


def test_the_older_one_logs_one_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def story(stage: Stage) -> None:
        stage.join(is_in=True)
        pass_seconds(monkeypatch, 10)
        for _ in range(3):
            stage.say("n2", terms=TOTAL, is_in=True, age=1)
        assert stage.ended == []
        assert len(caplog.records) == 1
        said = "on other terms than n2: family is fifo here and total there"
        assert caplog.records[0].getMessage().endswith(said), "it has nothing to put right"

    staged(story, "n2")


def test_a_group_of_several_does_not_end_because_of_one_node() -> None:
    def story(stage: Stage) -> None:
        stage.join(is_in=True, members=(ME, NodeId("n2"), NodeId("n3")))
        stage.say("n2", is_in=True)
        stage.say("n3", terms=TOTAL, is_in=True, age=1 << 50)
        assert stage.ended == []
        stage.say("n2", terms=TOTAL, is_in=True)
        [(_, why)] = stage.ended
        assert "than n2" in str(why), "nobody else is on our terms"

    staged(story, "n2", "n3")


def test_of_two_groups_that_were_founded_apart_the_younger_or_the_lonely_one_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def story(stage: Stage) -> None:
        total = {"terms": TOTAL, "is_in": True, "founding": "n3.0.1"}
        stage.join(TOTAL, is_in=True, founding="n1.0.1")
        pass_seconds(monkeypatch, 100)
        stage.say("n3", **total)
        assert stage.ended == [], "it is older"
        stage.say("n3", **total, members={"n4": "n4:1"})
        [(_, why)] = stage.ended
        assert isinstance(why, FoundedTwice)
        assert "n1 joined 'orders' that n1.0.1 founded, and n3 is in one that n3.0.1" in str(why)
        assert stage.told == []

    staged(story, "n3")


def test_of_two_groups_of_one_founder_the_later_incarnation_founded_the_wrong_one() -> None:
    def story(stage: Stage) -> None:
        stage.join(TOTAL, is_in=True, founding="n9.10.1")
        stage.say("n3", terms=TOTAL, is_in=True, age=1 << 40, founding="n9.11.1")
        assert stage.ended == []
        stage.say("n3", terms=TOTAL, is_in=True, age=0, founding="n9.9.1")
        assert len(stage.ended) == 1

    staged(story, "n3")


def test_of_two_groups_with_several_members_neither_ends_and_the_applications_are_told() -> None:
    def story(stage: Stage) -> None:
        stage.join(TOTAL, is_in=True, founding="n1.0.1", members=(ME, NodeId("n2")))
        stage.say("n2", terms=TOTAL, is_in=True, founding="n1.0.1")
        total = {"terms": TOTAL, "is_in": True, "founding": "n3.0.1", "members": {"n4": "n4:1"}}
        stage.say("n3", **total)
        stage.say("n3", **total)
        assert stage.ended == []
        [waiting] = stage.told
        assert waiting.on == ("n3",)
        assert "there are two groups of this name" in waiting.why
        assert Acquainted("orders", ("n3", "n4")) in stage.given, (
            "the group may be re-formed with it"
        )

    staged(story, "n2", "n3")


def test_parts_of_one_group_are_no_two_groups() -> None:
    def story(stage: Stage) -> None:
        stage.join(TOTAL, is_in=True, founding="n1.0.1")
        for founding in ("n1.0.1", ""):
            stage.say("n2", terms=TOTAL, is_in=True, founding=founding)
        stage.say("n2", terms=TOTAL, is_in=True, founding="n2.0.1", members={"n1": "n1:1"})
        assert stage.ended == []

    staged(story, "n2")


def test_a_part_that_is_there_again_is_told_once_and_its_end_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(directory, "MEMBERS_SECONDS", 0.0)

    async def story(stage: Stage) -> None:
        inside = SimpleNamespace(is_in=True, members=(ME,), founding="n1.0.1")
        own = OwnGroup(TOTAL, True, inside, stays_parted=True)
        stage.directory.joined("orders", own)
        part = {"terms": TOTAL, "is_in": True, "founding": "n1.0.1", "members": {"n3": "n3:1"}}
        stage.say("n2", **part)
        await until(lambda: stage.told)
        stage.say("n2", **part)
        looked = asyncio.Event()
        asyncio.get_running_loop().call_later(directory.MEMBERS_SECONDS, looked.set)
        await looked.wait()  # the directory has looked again, and has nothing to say
        [waiting] = stage.told
        assert waiting.on == ("n2",)
        assert "n2 is in another part of 'orders'" in waiting.why
        stage.say("n2", **{**part, "members": {"n1": "n1:1"}})  # its view has us, ours comes soon
        await until(lambda: len(stage.told) == 2)
        stage.say("n2", **part)
        await until(lambda: len(stage.told) == 3)
        stage.hear("n2", Groups(left=["orders"]))
        await until(lambda: len(stage.told) == 4)
        assert [bool(news.why) for news in stage.told] == [True, False, True, False]

    staged(story, "n2")


def test_families_of_one_level_differ_by_the_option_that_chooses() -> None:
    ours = {"kind": "total", "members": "open", "window": "64", "Total.by": "everyone"}
    theirs = ours | {"kind": "sequenced", "window": "32", "Total.by": "sequencer"}
    assert unlike(ours, theirs) == "Total.by is everyone here and sequencer there"
    atomic = {"kind": "atomic", "members": "open", "window": "5"}
    assert unlike(ours, atomic) == "family is total here and atomic there"


def test_what_must_be_the_same() -> None:
    ours = {**FIFO, "expect": "3"}
    assert unlike(ours, {**FIFO, "expect": "4"}) == "expect is 3 here and 4 there"
    assert unlike(ours, FIFO) == "", "a later member need not say it"
    assert unlike(FIFO, {**FIFO, "window": "8"}) == "window is 64 here and 8 there"
    by_peers = {**FIFO, "members": "by peers"}
    assert unlike(by_peers, {**FIFO, "members": "n1 n2"}) == ""
    assert unlike(by_peers, FIFO) == "members is by peers here and open there"


def test_incarnations_of_which_the_log_has_a_line_are_bounded() -> None:
    def story(stage: Stage) -> None:
        own = stage.join(is_in=True, members=(ME, NodeId("n3")))
        stage.say("n3", is_in=True)
        for incarnation in range(MOST_WARNED + 9):
            stage.contacts["n2"].node = NodeId("n2", incarnation)
            for _ in range(2):
                stage.say("n2", terms={**FIFO, "window": "3"})
        assert len(own.warned) == MOST_WARNED
        assert own.warned.evicted == 9, "each has one line"
        assert not stage.ended

    staged(story, "n2", "n3")
