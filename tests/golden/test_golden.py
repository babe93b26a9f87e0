"""Every interaction file plays as it is written; and the players of such files are right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import msgspec
import pytest

from ordercast.errors import PeerError, UsageError
from ordercast.kernel.family import Family, Plan
from ordercast.kernel.inputs import Input, StatusResult
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import DATAGRAM, LINK, STATUS, Step, Timer
from ordercast.testing.interaction import COMMANDS, Interaction, check_interaction
from ordercast.testing.stage import Stage, StageError
from ordercast.types import Event, NodeId, Payloads

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_every_file_plays_as_written(path: Path) -> None:
    check_interaction(path)


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_every_file_opens_with_what_it_shows(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("# ")


# --- files -----------------------------------------------------------------------------------

SMALL = """\
# A lone member is a group at once.
group fifo n1
----
n1 timer tick in 12.2ms
n1 view {n1}

# Said twice, in one block.
submit n1 a
submit n1 b
----
n1 delivers n1:1 [a]
n1 delivers n1:2 [b]

# The end.
"""


@pytest.fixture(autouse=True)
def _no_rewriting(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """`make golden` is for the files here, not for those that these tests write."""
    if "path" not in request.fixturenames:
        monkeypatch.delenv("ORDERCAST_GOLDEN", raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    place = tmp_path / "small.txt"
    place.write_text(SMALL, encoding="utf-8")
    return place


def test_rewriting_leaves_a_right_file_unchanged(file: Path) -> None:
    check_interaction(file)
    assert Interaction(SMALL, "small.txt").played() == SMALL


def test_a_wrong_expectation_fails_with_the_difference(file: Path) -> None:
    file.write_text(SMALL.replace("n1:2 [b]", "n1:2 [c]"), encoding="utf-8")
    with pytest.raises(AssertionError) as caught:
        check_interaction(file)
    said = str(caught.value).splitlines()
    assert said[0].startswith("small.txt: ")
    assert "-n1 delivers n1:2 [c]" in said
    assert "+n1 delivers n1:2 [b]" in said
    assert " submit n1 b" in said


def test_rewriting_puts_the_outputs_right_and_keeps_the_rest(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(SMALL.replace("n1 delivers n1:2 [b]", "nonsense\nand more"), encoding="utf-8")
    monkeypatch.setenv("ORDERCAST_GOLDEN", "rewrite")
    check_interaction(file)
    assert file.read_text(encoding="utf-8") == SMALL


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("sumbit n1 a", "unknown command 'sumbit': did you mean 'submit'?"),
        ("submit n1", "write `submit NAME [SERVICE:] MESSAGE...`"),
        ("submit n9 a", "there is no process 'n9'"),
        ("crash", "write `crash NAME`"),
        ("deliver n1 n2 Data", "nothing such (Data) is underway from n1 to n2"),
        ("drop n2 n1 Start", "a link loses nothing"),
        ("double n2 n1 Start", "a link is never doubled"),
        ("restart n1", "n1 is already there"),
        ("tick n1 tock", "n1 has no such timer set; it has [tick]"),
        ("settle ticks=many", "write `settle [ticks=COUNT]`"),
        ("cut n1 n2 sideways", "'sideways': both ways, or `one-way`"),
        ("hide fifo.date", "unknown kind of line 'fifo.date': did you mean 'fifo.data'?"),
        ("group fifo n1", "one group a file"),
    ],
)
def test_a_wrong_command_is_reported_with_its_line(line: str, said: str) -> None:
    before = "# Two members.\ngroup fifo n1 n2\n----\n\nsettle\ntick n1\ndeliver n1 n2\n"
    with pytest.raises(UsageError) as caught:
        Interaction(f"{before}{line}\n----\n", "bad.txt").played()
    assert str(caught.value).startswith("bad.txt:8: ")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("settle\n----\n", 1, "there is no group yet"),
        ("group fofi n1\n----\n", 1, "unknown family 'fofi': did you mean 'fifo'?"),
        ("group fifo n1 heartbeat=soon\n----\n", 1, "'soon' is not a duration"),
        ("group fifo n1 windw=2\n----\n", 1, "windw"),
        ("# x\n\ngroup fifo n1\n\n----\n", 4, "a command, then ----, then its output"),
        ("----\n", 1, "a command, then ----"),
        ("group fifo n1", 2, "a command, then ----"),
    ],
)
def test_a_file_that_cannot_be_played_says_why(text: str, line: int, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        Interaction(text, "bad.txt").played()
    assert str(caught.value).startswith(f"bad.txt:{line}: ")
    assert said in str(caught.value)


def test_every_command_is_used_by_some_file() -> None:
    used = {line.split()[0] for path in FILES for line in _commands(path)}
    assert set(COMMANDS) <= used


def _commands(path: Path) -> list[str]:
    blocks = Interaction(path.read_text(encoding="utf-8"), path.name).blocks
    return [text for block in blocks for _, text in block.commands]


# --- the stage, with a family that uses everything -------------------------------------------


class Ask(Packet, tag="toy.ask"):
    words: list[bytes]


class Record(Packet, tag="toy.record"):
    number: int


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Toy:
    """Sends what is submitted by all three channels, keeps a record, and answers nothing."""

    takes = (StatusResult,)

    def __init__(self, me: NodeId, plan: Plan, records: Sequence[Packet]) -> None:
        self.groups = (plan.group,)
        self.me = me
        self.others = tuple(name for name in plan.members if name != me.name)
        self.number = len(records)

    def start(self, step: Step) -> None:
        step.set_timer(("slow", self.me), 2_000_000)
        step.set_timer("quick", 1_000_000)

    def accepts(self, group: str, now: int) -> bool:
        return True

    def stable_up_to(self, group: str) -> int:
        return 0

    def submit(self, step: Step, group: str, payloads: Payloads, size: int) -> Event:
        self.number += 1
        event = Event(group, self.me, self.number, payloads, order=7)
        step.deliver(event)
        step.persist(Record(group, self.number))
        for other in self.others:
            step.send(NodeId(other), Ask(group, payloads), LINK)
            step.send(other, Ask(group, payloads), DATAGRAM)
            step.send(other, Ask(group, payloads), STATUS, token=self.number)
        return event

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        step.note("lose", group=packet.group, origin=sender.name, number=3, cause="obsolete")
        if isinstance(packet, Ask) and packet.words == [b"bad"]:
            raise PeerError(f"{sender} is rude")

    def expire(self, step: Step, timer: Timer) -> None:
        step.set_timer("quick", None)

    def on(self, step: Step, given: Input) -> None:
        assert isinstance(given, StatusResult)
        step.note("told", token=given.token, arrived=given.arrived)


def build_toys(
    me: NodeId, plans: tuple[Plan, ...], chance: Random, records: Sequence[Packet]
) -> list[Machine]:
    return [Toy(me, plan, records) for plan in plans]


TOY = Family("toy", Options, (Ask,), build_toys, largest_group=9)


def test_packets_of_a_family_without_wording_are_shown_by_their_fields() -> None:
    text = """\
group toy n1 n2
----
n1 timer [slow n1] in 2ms
n1 timer quick in 1ms
n2 timer [slow n2] in 2ms
n2 timer quick in 1ms

submit n1 x*20 y
----
n1 persists toy.record number=1
n1 → n2 link toy.ask words=[x*20 y]
n1 → n2 datagram toy.ask words=[x*20 y]
n1 → n2 status toy.ask words=[x*20 y]
n1 delivers n1:1 [x*20 y] order=7

settle
----
n2 ← n1 link toy.ask words=[x*20 y]
n2 notes lose n1:3 cause=obsolete
n2 ← n1 datagram toy.ask words=[x*20 y]
n2 notes lose n1:3 cause=obsolete
n2 ← n1 status toy.ask words=[x*20 y]
n2 notes lose n1:3 cause=obsolete
n1 notes told token=1 arrived=True

submit n1 bad
deliver n1 n2
tick n1 quick
tick n1
show n2
----
n1 persists toy.record number=2
n1 → n2 link toy.ask words=[bad]
n1 → n2 datagram toy.ask words=[bad]
n1 → n2 status toy.ask words=[bad]
n1 delivers n1:2 [bad] order=7
n2 ← n1 link toy.ask words=[bad]
PeerError: n1 is rude
n1 timer quick off
n1 timer quick off
{groups=[g] me=n2 others=[n1] number=0}
"""
    assert Interaction(text, "toy.txt", {"toy": TOY}).difference() == ""


def told(stage: Stage) -> list[object]:
    return [note.columns["arrived"] for note in stage.notes(NodeId("n1"), "told")]


def test_a_status_send_is_always_answered() -> None:
    stage = Stage.of(TOY, "n1 n2")
    for _ in range(5):
        stage.submit("n1", [b"a"])
    first, second, third, *rest = (p for p in stage.underway() if p.channel is STATUS)
    stage.drop(first)
    assert told(stage) == [False]
    stage.deliver(second, answered=False)
    assert told(stage) == [False, False]
    stage.cut("n2", "n1", one_way=True)
    stage.deliver(third)
    assert told(stage) == [False, False, False]
    stage.cut("n1", "n2")
    stage.settle()
    assert told(stage) == [False] * 5
    assert not [parcel for parcel in stage.underway() if parcel in rest]


def test_a_link_is_in_order_and_ends_with_its_sender() -> None:
    stage = Stage.of(TOY, "n1 n2")
    for word in (b"a", b"b", b"c"):
        stage.submit("n1", [word])
    first, second, third = (p for p in stage.underway() if p.channel is LINK)
    with pytest.raises(StageError, match="a link is FIFO"):
        stage.deliver(second)
    stage.crash("n1")
    stage.deliver(first)
    stage.drop(second)
    assert third not in stage.underway()


def test_packets_on_a_link_die_with_their_incarnation_and_a_bare_name_reaches_the_next() -> None:
    stage = Stage.of(TOY, "n1 n2")
    stage.submit("n1", [b"a"])
    stage.crash("n2")
    assert [parcel.channel for parcel in stage.underway()] == [DATAGRAM, STATUS]
    stage.start("n2")
    stage.settle()
    assert len(stage.notes(NodeId("n2", 1), "lose")) == 2


def test_a_network_cut_holds_links_and_loses_new_datagrams() -> None:
    stage = Stage.of(TOY, "n1 n2")
    stage.cut("n1", "n2")
    stage.submit("n1", [b"a"])
    assert [parcel.channel for parcel in stage.underway()] == [LINK, STATUS]
    with pytest.raises(StageError, match="is cut"):
        stage.deliver(stage.underway()[0])
    stage.mend("n1", "n2")
    stage.settle()
    assert stage.underway() == []


def test_only_persisted_records_outlive_a_crash() -> None:
    stage = Stage.of(TOY, "n1 n2")
    stage.submit("n1", [b"a"])
    stage.crash("n1")
    with pytest.raises(StageError, match="n1 is down"):
        stage.submit("n1", [b"b"])
    stage.start("n1")
    event = stage.submit("n1", [b"b"])
    assert event is not None
    assert (event.origin, event.number) == (NodeId("n1", 1), 2)


def test_time_moves_with_the_timers_and_the_next_that_is_due_fires_first() -> None:
    stage = Stage.of(TOY, "n1 n2")
    assert stage.timers("n1") == ["quick", ("slow", NodeId("n1"))]
    assert stage.fire("n1") == "quick"
    assert stage.now == 1_000_000
    stage.fire("n2", ("slow", NodeId("n2")))
    assert stage.now == 2_000_000
    with pytest.raises(StageError, match="no timer 'quick'"):
        stage.fire("n2", "quick")  # cancelled by the other
