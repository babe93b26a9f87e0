"""The family of the published ring and its settings: a causal cluster but for its tickets."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from ordercast.cli.main import main
from ordercast.errors import UsageError
from ordercast.kernel.family import Plan
from ordercast.protocol.cluster.sampler import Everybody
from ordercast.protocol.cluster.updaters import may_send, tickets_move
from ordercast.protocol.families import FAMILIES
from ordercast.scenario.file import parse_scenario
from ordercast.studies.published_ring import FAMILY, ring_tickets
from ordercast.studies.published_ring.failure_free import FailureFree
from ordercast.studies.published_ring.fault_tolerant import FaultTolerant
from ordercast.studies.published_ring.options import PublishedOptions, RingOptions
from ordercast.studies.published_ring.packets import PACKETS
from ordercast.testing import simulate
from ordercast.types import NodeId
from ordercast.units import MILLISECOND, SECOND

RING = "ordercast.studies.published_ring:FAMILY"


def part(me: NodeId, published: PublishedOptions | None = None, **more: Any) -> Any:
    options = RingOptions(published=published or PublishedOptions(), **more)
    plan = Plan("g", ("n1", "n2", "n3"), options)
    assert tickets_move(plan)
    assert may_send(plan, "n3")
    everybody = Everybody(me, plan.members, Random(1))
    return ring_tickets(me, plan, everybody, tuple, Random(1), ())


def test_the_lease_is_the_round_and_the_guards_are_2k_plus_1() -> None:
    found = part(NodeId("n2"), lease="4s", guards=5, tickets=9)
    assert isinstance(found, FaultTolerant)
    rules = found.rules
    assert (rules.tickets, rules.k, rules.round, rules.delay) == (9, 2, 4 * SECOND, SECOND)


def test_algorithm_1_can_be_chosen() -> None:
    assert isinstance(part(NodeId("n2"), PublishedOptions(algorithm="failure-free")), FailureFree)


def test_one_incarnation_of_one_process_begins_with_all_tickets() -> None:
    lives = (NodeId("n1"), NodeId("n1", 1), NodeId("n2"))
    assert [part(life).founder for life in lives] == [True, False, False]
    assert part(NodeId("n2"), founder="n2").founder


WRONG = [
    ({"published": {"delay": "600ms"}, "lease": "2s"}, "may be a quarter of lease (2s) at most"),
    ({"published": {"preferred": {"n1": 3}}, "tickets": 3}, "n1 wants 3, tickets is 3"),
    ({"published": {"dealy": "1ms"}}, "dealy"),
    ({"published": {"algorithm": "best"}}, "best"),
    ({"published": {"delay": "0ms"}}, "delay must be longer than nothing"),
    ({"published": {"grace": 1}, "ownership": "fixed"}, "tickets of the ring change hands"),
]


@pytest.mark.parametrize(("options", "what"), WRONG, ids=[what for _, what in WRONG])
def test_options_that_do_not_fit_are_rejected(options: dict[str, Any], what: str) -> None:
    document = {"name": "x", "family": RING, "options": options}
    with pytest.raises(UsageError) as refused:
        parse_scenario(document)
    assert what in str(refused.value)


@pytest.mark.parametrize("algorithm", ["failure-free", "fault-tolerant"])
def test_a_cluster_in_which_nothing_fails_keeps_every_law(algorithm: str) -> None:
    document = {
        "name": "x",
        "family": RING,
        "processes": 6,
        "duration": "8s",
        "options": {
            "tickets": 4,
            "lease": "800ms",
            "round": "100ms",
            "published": {"algorithm": algorithm, "delay": "100ms"},
        },
        "workload": {"rate": 5},
        "network": {"answer_within": "100ms"},
    }
    run = simulate(parse_scenario(document), 1, round_trip=True)
    assert not run.outcome.error
    assert not run.broken
    owners = {row.process for row in run.trace.rows if row.cause == "acquired"}
    assert len(owners) == 4
    makers = {row.process for row in run.trace.rows if row.kind == "submit"}
    assert makers == owners
    late = [row for row in run.trace.rows if row.kind == "submit" and row.at > 7000 * MILLISECOND]
    assert len({row.process for row in late}) == 4


def test_a_live_node_rejects_the_family_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "node.toml"
    config.write_text(
        f'name = "n1"\nlisten = "127.0.0.1:0"\n[group.world]\nfamily = "{RING}"\n'
        'members = ["n1"]\n',
        encoding="utf-8",
    )
    assert main(["node", str(config)]) == 2
    told = capsys.readouterr().err
    assert "'world': the published ring runs in the simulator only" in told
    assert "one ticket to two processes" in told


def test_the_live_codec_does_not_know_its_packets() -> None:
    live = {kind for family in FAMILIES.values() for kind in family.packets}
    assert not live & set(PACKETS)
    assert set(PACKETS) < set(FAMILY.packets)
