"""Whether the seams carry: a family and a law that only this file knows, in every world.

The family is a token that goes round: the member that has it may send, and the token goes on when
everybody has what was sent. It has options, three packets, an input, news and two services of its
own, a facet (the permit to send), words for interaction files and a mutant. The law says that no
event of an origin is left out. If one of the tests below needs a line elsewhere in src, the seam is
not there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from tests.net.nodes import Cluster, introduce, live

import ordercast
from ordercast.check.history import History
from ordercast.check.law import Delivery, Law, LawForm, Streaming
from ordercast.check.laws import check
from ordercast.check.verdict import Answer, Verdict, broken, holds
from ordercast.cli.main import main
from ordercast.kernel.family import (
    Family,
    Level,
    Mutant,
    Permit,
    Plan,
    Promises,
    Words,
    machine_per_group,
)
from ordercast.kernel.inputs import Backpressure, Input, Seek, StatusResult
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import STATUS, Step, Timer
from ordercast.protocol.families import FAMILIES
from ordercast.sim.explore import Bounds, explore, setting
from ordercast.spark.laws import judge_lake
from ordercast.spark.online import breaks
from ordercast.spark.stream import register
from ordercast.testing import simulate
from ordercast.testing.interaction import Interaction
from ordercast.testing.mutants import mutant_families
from ordercast.trace.parquet import run_folder, write_trace
from ordercast.trace.record_log import RecordLog
from ordercast.trace.recording import Record
from ordercast.trace.schema import Trace
from ordercast.types import Event, NodeId, Payloads, Updating, event_number
from ordercast.units import MILLISECOND, Duration, take_units

ROOT = Path(__file__).resolve().parent.parent

# --- the family ------------------------------------------------------------------------------


class Ring(Level, frozen=True):
    """Messages in one order, sent by the member that has the token."""

    hold: Duration = Duration(5 * MILLISECOND)  # a token rests that long before it goes on

    def __post_init__(self) -> None:
        take_units(self)
        if self.hold <= 0:
            raise ValueError("hold must be longer than nothing")


class Said(Packet, tag="ring.said"):
    origin: NodeId
    number: int
    order: int
    payloads: list[bytes]
    size: int

    def carries(self) -> tuple[int, int, int]:
        return len(self.payloads), self.size, 250

    def makers(self) -> tuple[str, ...]:
        return (self.origin.name,)


class Murmur(Packet, tag="ring.murmur"):
    """What waits for no turn: it is delivered when it comes."""

    number: int
    payloads: list[bytes]
    size: int

    def carries(self) -> tuple[int, int, int]:
        return len(self.payloads), self.size, 250


class Token(Packet, tag="ring.token"):
    passes: int  # how often it went on


class Passed(msgspec.Struct, frozen=True):
    """Told to the application: the token went on."""

    group: str
    passes: int


@dataclass(frozen=True, slots=True)
class Hurry(Input):
    """Given by the application: the token goes on as soon as it can."""

    group: str
    turns: int = 1


class Holder:
    """Sends by status, again until it arrived: what comes twice is known by its number."""

    takes = (Seek, StatusResult, Hurry)

    def __init__(self, me: NodeId, plan: Plan, chance: Random) -> None:
        assert isinstance(plan.options, Ring)
        self.me, self.group, self.groups = me, plan.group, (plan.group,)
        self.options = plan.options
        self.others = tuple(name for name in plan.members if name != me.name)
        place = plan.members.index(me.name)
        self.next = plan.members[(place + 1) % len(plan.members)]
        self.passes = 0 if place == 0 and not me.incarnation else -1
        self.has_token = self.passes == 0
        self.order = self.made = 0
        self.is_wanted = self.had = False
        self.hurried = 0
        self.is_over = False  # it has rested long enough
        self.unanswered: dict[str, Packet] = {}  # by receiver

    def start(self, step: Step) -> None:
        if self.has_token:
            self._take(step)

    def accepts(self, group: str, now: int) -> bool:
        return self.has_token and self.is_wanted and not self.is_over and not self.unanswered

    def stable_up_to(self, group: str) -> int:
        stable = self.made - bool(self.unanswered and self.has_token)
        return event_number(self.me.incarnation, stable) if stable else 0

    def submit(
        self, step: Step, group: str, payloads: Payloads, size: int, service: str = ""
    ) -> Event:
        self.made += 1
        number = event_number(self.me.incarnation, self.made)
        if service == "aside":
            event = Event(group, self.me, number, payloads, size=size, service=service)
            step.deliver(event)
            step.send(tuple(map(NodeId, self.others)), Murmur(group, number, payloads, size))
            return event
        self.order += 1
        event = Event(group, self.me, number, payloads, order=self.order, size=size)
        step.deliver(event)
        said = Said(group, self.me, number, self.order, payloads, size)
        self._send(step, dict.fromkeys(self.others, said))
        return event

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        match packet:
            case Murmur(group, number, payloads, size):
                step.deliver(Event(group, sender, number, payloads, size=size, service="aside"))
            case Said(_, origin, number, order, payloads, size) if order == self.order + 1:
                self.order = order
                self._hear(
                    step, Event(self.group, origin, number, payloads, order=order, size=size)
                )
            case Token(_, passes) if passes > self.passes:
                self.passes = passes
                self._take(step)

    def _hear(self, step: Step, event: Event) -> None:
        step.deliver(event)

    def expire(self, step: Step, timer: Timer) -> None:
        self.is_over = True
        self._pass_on(step)

    def on(self, step: Step, given: Input) -> None:
        if isinstance(given, StatusResult):
            packet = self.unanswered.pop(str(given.token), None)
            if packet is not None and not given.arrived:
                self._send(step, {str(given.token): packet})
            self._pass_on(step)
        elif isinstance(given, Hurry):
            self.hurried += given.turns
            self.expire(step, "hold")
        elif isinstance(given, Seek):
            self.is_wanted = given.wanted
            if self.has_token or not given.wanted:
                self._notify(step, "acquired" if given.wanted else "released")

    def counters(self, group: str) -> dict[str, int]:
        return {"passes": self.passes, "hurried": self.hurried}

    def _take(self, step: Step) -> None:
        self.has_token, self.is_over = True, False
        step.set_timer("hold", self.options.hold)
        if self.is_wanted:
            self._notify(step, "resumed" if self.had else "acquired")

    def _pass_on(self, step: Step) -> None:
        if self.has_token and self.is_over and not self.unanswered and self.others:
            self.has_token = False
            if self.is_wanted:
                self._notify(step, "suspended")
            self.passes += 1
            step.notify(Passed(self.group, self.passes))
            self._send(step, {self.next: Token(self.group, self.passes)})

    def _notify(self, step: Step, cause: Any) -> None:
        if cause == "acquired" or self.had:
            self.had = cause != "released"
            step.notify(Updating(self.group, cause, 0))

    def _send(self, step: Step, packets: dict[str, Packet]) -> None:
        self.unanswered |= packets
        for name, packet in packets.items():
            step.send(name, packet, STATUS, token=name)


class Deaf(Holder):
    """Drops every fifth event of others without a word."""

    def _hear(self, step: Step, event: Event) -> None:
        if event.number % 5:
            step.deliver(event)


RING = Family(
    "ring",
    Ring,
    (Said, Murmur, Token),
    machine_per_group(Holder),
    largest_group=20,
    promises=Promises(
        ("no-creation", "no-duplication", "fifo", "total"), ("causal", "completeness")
    ),
    words=Words(
        packets={Token: lambda token: f"pass {token.passes}"},
        state=lambda holder: [f"has the token: {'yes' if holder.has_token else 'no'}"],
    ),
    services={"in turn": "agreed", "aside": "basic"},
    mutants={"deaf": Mutant("completeness", machine_per_group(Deaf))},
    permit=Permit(
        needed=lambda plan: True,
        lease=lambda options: int(options.hold),
        bootstrap_node=lambda plan: plan.members[0],
    ),
)
KNOWN = {**FAMILIES, "ring": RING}

# --- the law ---------------------------------------------------------------------------------

NAME = "unbroken"


def judge(history: History) -> Verdict:
    for log in history.histories:
        last: dict[tuple[Any, Any], int] = {}
        for row in log.deliveries:
            key = row.group, row.origin
            assert row.number is not None
            if row.number != last.get(key, row.number - 1) + 1:
                return broken(NAME, (row,), f"{row.process} left out what {row.origin} sent before")
            last[key] = row.number
    return holds(NAME)


def seen_left_out(
    last: dict[str, int], deliveries: Sequence[Delivery]
) -> Iterator[tuple[Delivery, str]]:
    for each in deliveries:
        if each.number != last.get(each.origin, each.number - 1) + 1:
            yield each, "one before it was left out"
        last[each.origin] = each.number


UNBROKEN = Law(
    name=NAME,
    says="a process leaves out no event between two of one origin that it delivers",
    reads=("deliver",),
    judge=judge,
    stream=Streaming(dict, seen_left_out),
)

# --- the worlds ------------------------------------------------------------------------------

SCENARIO = """
name = "ring"
family = "{family}"
processes = 4
duration = "{duration}"
quiet = "2s"
options = {{ hold = "{hold}" }}

[workload]
rate = 40

[[fault]]
at = "500ms"
kind = "give"
nodes = ["n2"]
input = "Hurry"
values = {{ turns = 3 }}
"""


def scenario_in(folder: Path, family: str = "ring", hold: str = "5ms", length: str = "4s") -> Path:
    path = folder / "ring.toml"
    path.write_text(SCENARIO.format(family=family, hold=hold, duration=length), encoding="utf-8")
    return path


def answers(verdicts: list[Verdict]) -> dict[str, Answer]:
    return {one.law: one.answer for one in verdicts}


def test_a_toy_family_runs_in_the_simulator_from_a_scenario_file(tmp_path: Path) -> None:
    run = simulate(scenario_in(tmp_path), seed=3, families=KNOWN)
    assert run.outcome.error is None
    assert answers(run.verdicts) == dict.fromkeys(
        (
            *("no-creation", "no-duplication", "fifo", "completeness"),
            *("optimistic-causal", "causal", "total"),
        ),
        Answer.HOLDS,
    )
    assert len({row.origin for row in run.trace.rows if row.kind == "deliver"}) == 4
    assert answers(check(run.trace, [UNBROKEN])) == {NAME: Answer.HOLDS}


@pytest.mark.parametrize("word", ["Hury", "StatusResult"])
def test_an_input_that_no_application_gives_is_refused(tmp_path: Path, word: str) -> None:
    path = scenario_in(tmp_path)
    path.write_text(path.read_text(encoding="utf-8").replace("Hurry", word), encoding="utf-8")
    with pytest.raises(ordercast.UsageError, match=rf"unknown input '{word}'.*Hurry"):
        simulate(path, seed=3, families=KNOWN)


def test_options_of_a_toy_family_are_checked_as_any_others(tmp_path: Path) -> None:
    with pytest.raises(ordercast.UsageError, match="hold must be longer than nothing"):
        simulate(scenario_in(tmp_path, hold="0ms"), seed=1, families=KNOWN)


def test_a_toy_family_runs_by_the_command_and_the_name_of_its_module(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = scenario_in(tmp_path, "tests.test_seams:RING")
    assert main(["sim", str(path), "--seed", "2"]) == 0
    assert "7 hold" in capsys.readouterr().out


def test_the_mutant_of_a_toy_family_is_caught_by_the_toy_law(tmp_path: Path) -> None:
    path = scenario_in(tmp_path)
    run = simulate(path, seed=3, families=mutant_families("deaf", KNOWN))
    assert answers(run.verdicts)["completeness"] is Answer.BROKEN
    assert answers(check(run.trace, [UNBROKEN])) == {NAME: Answer.BROKEN}


def test_a_toy_family_runs_in_the_explorer() -> None:
    where = setting(RING, 2, prelude=False, inputs=(Seek("g", False),))
    bounds = Bounds(submissions=1, timers=1, inputs=1, depth=11)

    def judge_all(trace: Trace) -> list[Verdict]:
        return check(trace, ["no-creation", "no-duplication", "fifo", "total", UNBROKEN])

    report = explore(where, bounds, judge_all)
    assert report.broken is None, report.broken
    assert report.complete
    assert report.judged > 10


def test_a_toy_family_runs_in_an_interaction_file() -> None:
    text = """
hide timers
group ring n1 n2
seek n1 on
submit n1 a
----
n1 is notified: ticket 0 acquired
n1 → n2 status ring.said origin=n1 number=1 order=1 payloads=[a] size=1
n1 delivers n1:1 [a] order=1

settle
----
n2 ← n1 status ring.said origin=n1 number=1 order=1 payloads=[a] size=1
n2 delivers n1:1 [a] order=1

give n1 Hurry turns=2
show n1 n2
----
n1 → n2 status ring.token pass 1
n1 is notified: ticket 0 suspended
n1 is notified: Passed passes=1
has the token: no
has the token: no

settle
show n2
----
n2 ← n1 status ring.token pass 1
has the token: yes
"""
    assert Interaction(text, "ring.txt", {"ring": RING}).difference() == ""


@live
async def test_a_toy_family_runs_live_over_sockets(cluster: Cluster) -> None:
    names = ("n1", "n2", "n3")
    nodes = [await cluster.open(name, families=KNOWN) for name in names]
    introduce(*nodes)
    groups = [node.join("ring", Ring(), list(names)) for node in nodes]
    for number, group in enumerate(groups):
        await group.become_updater()
        for turn in range(3):
            await group.send(b"%d.%d" % (number, turn), until="stable")
    heard: list[list[bytes]] = []
    passed = False
    for group in groups:
        data: list[bytes] = []
        while len(data) < 9:
            event = await anext(group)
            if isinstance(event, ordercast.Message):
                data.append(event.data)
            passed = passed or isinstance(event, Passed)
        heard.append(data)
    assert passed
    groups[0].give(Hurry("ring"))
    assert groups[0].status()["counters"]["hurried"] == 1
    with pytest.raises(ordercast.UsageError, match="'ring' is ring: no Backpressure is taken"):
        groups[0].give(Backpressure("ring", True))
    assert heard[0] == heard[1] == heard[2]
    assert sorted(heard[0]) == [b"%d.%d" % (one, turn) for one in range(3) for turn in range(3)]


@pytest.mark.slow
def test_a_toy_family_runs_live_between_processes_from_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    path = scenario_in(tmp_path, "tests.test_seams:RING", length="2s")
    assert main(["live", str(path), "--out", str(tmp_path / "lake")]) == 0


@pytest.mark.slow
def test_a_toy_law_is_judged_on_spark(tmp_path: Path, spark: Any) -> None:
    folders = []
    for families in (KNOWN, mutant_families("deaf", KNOWN)):
        run = simulate(scenario_in(tmp_path), seed=3, families=families)
        header = msgspec.structs.replace(run.trace.header, run=f"ring-{len(folders)}")
        trace = Trace(header, run.trace.rows)
        write_trace(tmp_path / "lake", trace)
        folders.append(run_folder(tmp_path / "lake", header.run))
    sound, deaf = judge_lake(spark, folders, [UNBROKEN, "fifo"])
    assert answers(sound.verdicts) == {NAME: Answer.HOLDS, "fifo": Answer.HOLDS}
    assert answers(deaf.verdicts) == {NAME: Answer.BROKEN, "fifo": Answer.HOLDS}
    assert sound.forms == {NAME: LawForm.PLAIN, "fifo": LawForm.VECTOR}


@pytest.mark.slow
def test_a_toy_law_is_judged_on_a_stream(tmp_path: Path, spark: Any) -> None:
    run = simulate(scenario_in(tmp_path), seed=3, families=mutant_families("deaf", KNOWN))
    heard = [one for one in run.delivered_by("n2") if one.origin.name == "n1"]
    log = RecordLog(tmp_path / "records")
    log.append(
        [
            Record(0, "deliver", 1, "n2", 0, "ring", "n1", 0, one.number, size=1, payloads=[b"x"])
            for one in heard
        ]
    )
    log.close()
    register(spark)
    stream = spark.readStream.format("ordercast").load(str(tmp_path / "records"))
    found: list[Any] = []
    query = (
        breaks(stream, [UNBROKEN])
        .writeStream.foreachBatch(lambda frame, number: found.extend(frame.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert found
    assert {row["law"] for row in found} == {NAME}
    assert found[0]["why"].endswith("one before it was left out")
