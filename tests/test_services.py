"""Messages with a service, in every world: from the application to what others read of it.

The family of this file has four services and treats them alike: what counts here is that the word
arrives, that batches end where it changes, and that an unknown one is refused where it is given.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from tests.net.nodes import Cluster, introduce, limit, live, messages_of, until
from tests.test_seams import RING, answers, scenario_in

import ordercast
from ordercast import Fifo, Merged, UsageError, View
from ordercast.check.law import Delivery
from ordercast.check.laws import LAWS, check
from ordercast.check.verdict import Answer
from ordercast.kernel.family import Family, Level, Plan, machine_per_group
from ordercast.kernel.inputs import Input, StatusResult
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import STATUS, Step, Timer
from ordercast.live.member import GroupPlan, LoadPlan, Session, send
from ordercast.live.run import plan_of
from ordercast.net.group import Group
from ordercast.protocol.families import FAMILIES
from ordercast.scenario.file import parse_scenario
from ordercast.scenario.schema import Scenario
from ordercast.spark.laws import JudgeLimits, judge_lake
from ordercast.spark.online import explained
from ordercast.testing import simulate
from ordercast.testing.interaction import Interaction
from ordercast.testing.stage import Stage, StageError
from ordercast.trace.parquet import run_folder, write_trace
from ordercast.trace.schema import Trace
from ordercast.trace.text import format_history, parse_history
from ordercast.types import GUARANTEES, Event, NodeId, Payloads, event_number


class Spoken(Level, frozen=True):
    service: str = "agreed"  # of messages that do not say


class Speech(Packet, tag="speech.said"):
    number: int
    service: str
    payloads: list[bytes]
    size: int

    def carries(self) -> tuple[int, int, int]:
        return len(self.payloads), self.size, 250


class Speaker:
    """Delivers what comes when it comes, and sends again what did not arrive."""

    takes = (StatusResult,)

    def __init__(self, me: NodeId, plan: Plan, chance: Random) -> None:
        assert isinstance(plan.options, Spoken)
        self.me, self.group, self.groups = me, plan.group, (plan.group,)
        self.default, self.made = plan.options.service, 0
        self.members = tuple(NodeId(name) for name in plan.members)
        self.others = tuple(name for name in plan.members if name != me.name)

    def start(self, step: Step) -> None:
        alone = View(self.group, 1, (self.me,), transitional=True)
        together = View(self.group, 2, self.members, came_with=(self.me,))
        step.install(alone)
        step.install(together)
        rest = tuple(node for node in self.members if node != self.me)
        step.notify(Merged(self.group, together, ((self.me,), rest)))

    def accepts(self, group: str, now: int) -> bool:
        return True

    def stable_up_to(self, group: str) -> int:
        return 0

    def submit(
        self, step: Step, group: str, payloads: Payloads, size: int, service: str = ""
    ) -> Event:
        self.made += 1
        number, service = event_number(self.me.incarnation, self.made), service or self.default
        event = Event(group, self.me, number, payloads, size=size, service=service)
        step.deliver(event)
        for name in self.others:
            self._send(step, name, Speech(group, number, service, payloads, size))
        return event

    def _send(self, step: Step, name: str, packet: Speech) -> None:
        step.send(name, packet, STATUS, token=(name, packet))

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        match packet:
            case Speech(group, number, service, payloads, size):
                step.deliver(Event(group, sender, number, payloads, size=size, service=service))

    def expire(self, step: Step, timer: Timer) -> None:
        raise AssertionError("no timer is set")

    def on(self, step: Step, given: Input) -> None:
        assert isinstance(given, StatusResult)
        if not given.arrived:
            token: Any = given.token
            self._send(step, *token)

    def counters(self, group: str) -> dict[str, int]:
        return {}


SPEECH = Family(
    "speech",
    Spoken,
    (Speech,),
    machine_per_group(Speaker),
    largest_group=9,
    services={word: word for word in GUARANTEES},
)
KNOWN = {**FAMILIES, "speech": SPEECH}


# --- live ------------------------------------------------------------------------------------


async def two_groups(cluster: Cluster, level: Any = Spoken()) -> list[Group]:  # noqa: B008
    nodes = [await cluster.open(name, families=KNOWN) for name in ("n1", "n2")]
    introduce(*nodes)
    return [node.join("talk", level, ["n1", "n2"]) for node in nodes]


@live
async def test_a_message_arrives_with_its_service(cluster: Cluster) -> None:
    first, second = await two_groups(cluster)
    await first.send(b"a")
    await first.send(b"b", service="safe")
    await first.send_many([b"c", b"d"], service="basic", until="delivered")
    for group in (first, second):
        read = [(message.data, message.service) for message in await messages_of(group, 4)]
        assert sorted(read) == [(b"a", "agreed"), (b"b", "safe"), (b"c", "basic"), (b"d", "basic")]


@live
async def test_a_batch_ends_where_the_service_changes(cluster: Cluster) -> None:
    first, second = await two_groups(cluster)
    words = ["safe", "safe", "", "", "basic", "safe"]
    receipts = [await first.send(b"x", service=word) for word in words]
    await until(lambda: all(receipt.number is not None for receipt in receipts))
    assert [receipt.number for receipt in receipts] == [1, 1, 2, 2, 3, 4]
    batches: list[Event] = []
    while len(batches) < 4:
        item = await second.next_batch()
        if isinstance(item, Event):
            batches.append(item)
    found = {batch.number: (batch.service, len(batch.payloads)) for batch in batches}
    assert found == {1: ("safe", 2), 2: ("agreed", 2), 3: ("basic", 1), 4: ("safe", 1)}


@live
async def test_what_is_left_of_a_batch_keeps_its_service(cluster: Cluster) -> None:
    first, _ = await two_groups(cluster)
    await first.send_many([b"a", b"b", b"c"], service="causal")
    assert [message.service for message in await messages_of(first, 1)] == ["causal"]
    rest = await first.next_batch()
    assert isinstance(rest, Event)
    assert (rest.payloads, rest.service) == ([b"b", b"c"], "causal")


@live
async def test_senders_that_wait_for_credit_keep_their_service(cluster: Cluster) -> None:
    first, second = await two_groups(cluster)
    limit(first, credit_count=1)  # so each waits for the one before
    for word in ("safe", "basic", "causal"):
        await first.send(b"x", service=word)
    read = [message.service for message in await messages_of(second, 3)]
    assert sorted(read) == ["basic", "causal", "safe"]


@live
async def test_an_unknown_service_is_refused_with_the_nearest_one(cluster: Cluster) -> None:
    first, _ = await two_groups(cluster)
    for sent in (first.send(b"x", service="save"), first.send_many([b"x"], service="save")):
        with pytest.raises(
            UsageError, match="'talk': unknown service of speech 'save': did you me"
        ):
            await sent
    assert not first.queue.unsent


@live
async def test_a_family_without_services_refuses_them_all(cluster: Cluster) -> None:
    first, _ = await two_groups(cluster, Fifo())
    with pytest.raises(UsageError, match="'talk' is fifo, which has no services: leave service"):
        await first.send(b"x", service="safe")
    await first.send(b"x")
    assert [message.service for message in await messages_of(first, 1)] == [""]


@live
async def test_an_application_reads_which_sides_have_merged(cluster: Cluster) -> None:
    first, _ = await two_groups(cluster)
    alone, together, merged = [await anext(first) for _ in range(3)]
    n1, n2 = NodeId("n1"), NodeId("n2")
    assert isinstance(alone, View)
    assert alone.transitional
    assert isinstance(together, View)
    assert together.came_with == (n1,)
    assert isinstance(merged, ordercast.Merged)
    assert (merged.view, merged.sides) == (together, ((n1,), (n2,)))


@live
async def test_the_load_of_a_live_member_has_the_services_of_its_plan(cluster: Cluster) -> None:
    first, second = await two_groups(cluster)
    load = LoadPlan(senders=["n1"], services=["safe", "basic"])
    now = asyncio.get_running_loop().time()
    await send(Session(first), load, 2000, Random(1), now + 0.1)
    read = {message.service for message in await messages_of(second, 10)}
    assert read == {"safe", "basic"}


# --- simulated -------------------------------------------------------------------------------


def scenario(**load: Any) -> Scenario:
    given = {"name": "x", "family": "speech", "processes": 3, "duration": "2s", "workload": load}
    return parse_scenario(given, families=KNOWN)


def services_of(found: Scenario, seed: int = 1) -> list[tuple[str | None, str | None]]:
    run = simulate(found, seed, families=KNOWN)
    assert run.outcome.error is None
    assert all(row.cause is None for row in run.trace.rows if row.kind == "join")
    submitted = [(row.origin, row.cause) for row in run.trace.rows if row.kind == "submit"]
    delivered = [(row.origin, row.cause) for row in run.trace.rows if row.kind == "deliver"]
    assert len(submitted) > 50
    assert sorted(delivered, key=str) == sorted(submitted * 3, key=str)
    return submitted


def test_a_simulated_load_has_the_service_of_its_scenario() -> None:
    assert {word for _, word in services_of(scenario())} == {"agreed"}
    assert {word for _, word in services_of(scenario(service="safe"))} == {"safe"}


def test_the_services_of_a_list_are_drawn_by_the_seed() -> None:
    mixed = scenario(service=list(GUARANTEES))
    found = services_of(mixed)
    assert {word for _, word in found} == set(GUARANTEES)
    assert found == services_of(mixed)
    assert found != services_of(mixed, seed=2)


def test_what_is_made_together_has_one_service() -> None:
    run = simulate(scenario(service=["safe", "basic"], batch=5), 1, families=KNOWN)
    assert {row.count for row in run.trace.rows if row.kind == "submit"} == {5}


@pytest.mark.parametrize(
    ("family", "service", "why"),
    [
        ("speech", "save", "workload.service: unknown service of speech 'save': did you mean 'sa"),
        ("speech", ["safe", "agred"], "unknown service of speech 'agred': did you mean 'agreed'"),
        ("speech", [], "workload.service is empty: name at least one"),
        ("fifo", "safe", "workload.service: fifo has no services: leave it out"),
    ],
)
def test_a_scenario_names_services_of_its_families(family: str, service: Any, why: str) -> None:
    given = {"name": "x", "family": family, "workload": {"service": service}}
    with pytest.raises(UsageError, match=why):
        parse_scenario(given, families=KNOWN)


def test_a_live_run_has_the_services_of_its_scenario() -> None:
    given = {
        "name": "x",
        "family": "tests.test_services:SPEECH",
        "workload": {"service": ["safe", "basic"]},
    }
    plan = plan_of(parse_scenario(given), 1)
    assert plan.load.services == ["safe", "basic"]
    assert isinstance(plan.groups[0], GroupPlan)


# --- on a stage ------------------------------------------------------------------------------

TALK = """\
# Services on a stage.
group speech n1 n2
----
n1 transitional view {n1}
n1 view {n1 n2}
n1 merged {n1} {n2}
n2 transitional view {n2}
n2 view {n1 n2}
n2 merged {n2} {n1}

hide sends receipts
submit n1 a b
submit n2 safe: c
settle
----
n1 delivers n1:1 [a b] service=agreed
n2 delivers n2:1 [c] service=safe
n2 delivers n1:1 [a b] service=agreed
n1 delivers n2:1 [c] service=safe
"""


def test_an_interaction_file_may_name_services() -> None:
    assert Interaction(TALK, "talk.txt", KNOWN).difference() == ""


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("submit n1 save: c", "talk.txt:5: unknown service of speech 'save': did you mean 'safe'"),
        ("submit n1 safe:", "talk.txt:5: submit what"),
    ],
)
def test_an_interaction_file_names_services_of_its_family(line: str, why: str) -> None:
    text = f"group speech n1 n2\n----\n\n# wrong\n{line}\n----\n"
    with pytest.raises(UsageError, match=why):
        Interaction(text, "talk.txt", KNOWN).played()


def test_a_stage_refuses_services_where_there_are_none() -> None:
    with pytest.raises(StageError, match="fifo has no services"):
        Stage.of("fifo", "n1 n2").submit("n1", [b"x"], service="safe")


# --- the laws, which judge a service by what its family says of it -----------------------------


def served(folder: Path) -> Trace:
    """A run in which half of the messages are said aside."""
    path = scenario_in(folder)
    text = path.read_text(encoding="utf-8")
    text = text.replace("rate = 40", 'rate = 40\nservice = ["in turn", "aside"]')
    path.write_text(text, encoding="utf-8")
    return simulate(path, seed=3, families={"ring": RING}).trace


ORDERS = ("fifo", "causal", "total")


def unexplained(trace: Trace) -> Trace:
    """The same rows, and nothing says what the services of the family promise."""
    return Trace(msgspec.structs.replace(trace.header, run="unexplained", services={}), trace.rows)


def test_a_service_of_a_toy_family_is_judged_by_what_it_promises(tmp_path: Path) -> None:
    trace = served(tmp_path)
    assert {row.cause for row in trace.rows if row.kind == "deliver"} == {None, "aside"}
    assert trace.header.services == {"in turn": "agreed", "aside": "basic"}
    assert answers(check(trace, ORDERS)) == dict.fromkeys(ORDERS, Answer.HOLDS)
    # What is said aside has no place in the one order: nobody may take it for a message in turn.
    assert answers(check(unexplained(trace), ORDERS))["total"] is Answer.BROKEN
    written = parse_history(format_history(trace))
    assert written.header.services == trace.header.services


@pytest.mark.slow
def test_a_service_of_a_toy_family_is_judged_on_spark(tmp_path: Path, spark: Any) -> None:
    trace = served(tmp_path)
    both = [trace, unexplained(trace)]
    for one in both:
        write_trace(tmp_path / "lake", one)
    folders = [run_folder(tmp_path / "lake", one.header.run) for one in both]
    for limits in (JudgeLimits(), JudgeLimits(huge=0)):  # in a task, and in slices first
        judged = judge_lake(spark, folders, ORDERS, limits)
        found = {one.run: one.verdicts for one in judged}
        assert found == {one.header.run: check(one, ORDERS) for one in both}


def test_a_service_of_a_toy_family_is_judged_on_a_stream() -> None:
    """What is said aside overtakes what is said in turn, and breaks no order by that."""
    given = [Delivery(0, 0, 0, "n1", 2, cause="aside"), Delivery(1, 0, 0, "n1", 1, cause="in turn")]
    fifo = LAWS["fifo"].stream
    assert fifo is not None
    for services, count in ((RING.services, 0), ({}, 1)):
        promised = [explained(one, services) for one in given]
        assert len(list(fifo.breaks(fifo.memory(), promised))) == count
