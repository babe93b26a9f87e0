"""What the cluster paper claims, restated in our words and measured in the simulator.

Gidenstam, Koldehofe, Papatriantafilou, Tsigas: Scalable group communication supporting
configurable levels of consistency, 2011. Each test names the section or theorem. Everything is
small and seeded; figures that were measured stand beside what is asked of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ordercast.kernel.family import Family, Plan, machine_per_group
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step
from ordercast.protocol.cluster import CAUSAL
from ordercast.protocol.cluster.causal_member import CausalMember
from ordercast.protocol.cluster.packets import INDEX_BITS, Recover
from ordercast.protocol.families import FAMILIES
from ordercast.scenario.file import parse_scenario
from ordercast.studies.planner import GossipSettings, GroupModel, bounds
from ordercast.testing import Simulated, simulate
from ordercast.types import NodeId

ROOT = Path(__file__).resolve().parents[2]
ROUND = 50_000_000  # nanoseconds


def run(
    *,
    processes: int,
    rounds: int,
    events_per_round: float,
    creators: int,
    loss: float = 0.0,
    seed: int = 1,
    family: str = "causal",
    crashed: int = 0,
    families: dict[str, Family] | None = None,
    **options: Any,
) -> Simulated:
    """A group, of which the last `crashed` die after a second. Clocks are not compared."""
    if family == "causal":
        options = {"tickets": creators, "join_wait": "100ms", "digests": False, **options}
        options["ownership"] = "fixed"
    dead = [f"n{number}" for number in range(processes - crashed + 1, processes + 1)]
    document = {
        "name": "claim",
        "family": family,
        "processes": processes,
        "duration": f"{rounds * 50}ms",
        "quiet": "3s",
        "options": {"round": "50ms", **options},
        "workload": {"per_round": events_per_round / creators, "senders": creators, "payload": 10},
        "network": {"delay": "1ms", "loss": loss},
        "fault": [{"at": "1s", "kind": "crash", "nodes": dead}] if dead else [],
    }
    done = simulate(parse_scenario(document), seed, families=families or FAMILIES)
    assert done.outcome.error is None
    return done


def counted(done: Simulated) -> Counter[str]:
    """Rows by kind, or by cause where there is one."""
    return Counter(row.cause or row.kind for row in done.trace.rows)


def delays(done: Simulated) -> list[float]:
    """How long each delivery by another than its maker took, in rounds, sorted."""
    made = {(row.origin, row.number): row.at for row in done.trace.rows if row.kind == "submit"}
    return sorted(
        (row.at - made[row.origin, row.number]) / ROUND
        for row in done.trace.rows
        if row.kind == "deliver" and row.process != row.origin
    )


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


# --- lemma 5.1: without failures and losses, order is causal and nothing is missing -----------


@pytest.mark.parametrize("seed", range(1, 6))
def test_lemma_5_1_while_nothing_fails_everything_is_delivered_in_causal_order(seed: int) -> None:
    done = simulate(ROOT / "scenarios" / "causal-calm.toml", seed)
    answers = {verdict.law: str(verdict.answer) for verdict in done.verdicts}
    assert {"causal", "completeness"} <= answers.keys()
    assert set(answers.values()) == {"holds"}
    rows = counted(done)
    assert rows["deliver"] == 30 * rows["submit"] > 10_000


@pytest.mark.parametrize("seed", [1, 2])
def test_lemma_5_1_where_gossip_misses_some_recovery_makes_up_for_it(seed: int) -> None:
    """Two hops are too few for 30, and nothing else goes wrong: gossip alone misses 1.2 of them."""
    done = run(
        processes=30, rounds=60, events_per_round=4, creators=6, hops=2, seed=seed,
        recovery="originator", digests=True,
    )  # fmt: skip
    rows = counted(done)
    assert rows["asked"] > 50
    assert rows["deliver"] == 30 * rows["submit"]
    assert not done.broken


# --- theorem 5.1: a buffer of 2npT holds what is asked for ------------------------------------


class Watched(CausalMember):
    """Counts what others asked it for, and what of that it had let go."""

    asked: Counter[str]

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        buffer = self.recovery.buffer
        for ticket, first, last in packet.ranges if isinstance(packet, Recover) else ():
            for entry in range(first, last + 1):
                kept = buffer.get(entry << INDEX_BITS | ticket) is not None
                self.asked["asked"] += 1
                self.asked["let go"] += not kept and entry <= buffer.floor[ticket]
        super().receive(step, sender, packet)


def share_let_go(load: float, buffer: int, seed: int) -> tuple[int, float]:
    """How often somebody was asked for an event, and how often he had it no more."""
    asked: Counter[str] = Counter()

    def watched(me: NodeId, plan: Plan, chance: Random) -> Watched:
        member = Watched(me, plan, chance)
        member.asked = asked
        return member

    run(
        processes=20, rounds=300, events_per_round=load, creators=10, loss=0.2, seed=seed,
        families={"causal": CAUSAL._replace(build=machine_per_group(watched))},
        hops=2, fan_out=3, recovery="any-3", recovery_buffer=buffer,
    )  # fmt: skip
    return asked["asked"], asked["let go"] / asked["asked"]


@pytest.mark.parametrize("load", [0.1, 0.3, 1.0])
def test_theorem_5_1_a_buffer_of_2npt_has_let_go_no_more_than_the_bound_says(load: float) -> None:
    """n creators, each with the chance p a round; T rounds for which an event may be asked for.

    2npT is 3, 9 and 28 here, and the bound 0.58, 0.20 and 0.0045. Requests of one run are not
    independent: a single burst may go beyond it, as seed 4 does with 0.0046 for 28. So several
    runs are counted together. An eighth of the buffer shows that this can fail: 0.7 to 0.9.
    """
    group = GroupModel(processes=20, events_per_round=load, loss=0.2, creators=10)
    four = {"hops": 2, "time_to_terminate": 4, "time_to_recover": 4}
    settings = GossipSettings(
        fan_out=3, events_per_message=20, history=1000, recovery_buffer=1, asked=3, **four
    )
    bound = bounds(group, settings)
    assert bound.recovery_buffer == pytest.approx(2 * load * bound.retention, abs=1)
    runs = [share_let_go(load, bound.recovery_buffer, seed) for seed in range(1, 7)]
    asked = sum(count for count, _ in runs)
    assert asked > 1000
    assert sum(count * share for count, share in runs) / asked < bound.buffer_failure
    assert share_let_go(load, max(1, bound.recovery_buffer // 8), seed=1)[1] > 0.5


# --- theorem 5.2: whoever asks k is answered while p_f is at most k/2n ------------------------


def unanswered(asked: int, seed: int) -> float:
    """The share of requests that nobody answered, in a group of 30 of whom 3 have failed."""
    done = run(
        processes=30, crashed=3, rounds=120, events_per_round=1.2, creators=6, loss=0.02,
        seed=seed, hops=2, fan_out=3, recovery=f"any-{asked}",
    )  # fmt: skip
    rows = counted(done)
    assert rows["asked"] > 400
    return rows["failed"] / rows["asked"]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_theorem_5_2_with_k_asked_a_reply_comes_although_k_in_2n_have_failed(seed: int) -> None:
    """n = 30, k = 6, p_f = 3/30 = k/2n: the bound is (e/4)^3 = 0.31. Measured: none fails.

    With k = 1, for which so many failures are too many, 0.22 to 0.24 fail.
    """
    settings = GossipSettings(
        fan_out=3, hops=2, events_per_message=20, history=1000, recovery_buffer=1000, asked=6,
        time_to_terminate=4, time_to_recover=4,
    )  # fmt: skip
    bound = bounds(GroupModel(processes=30, events_per_round=1.2, failure=0.1), settings)
    assert (bound.asked, bound.tolerated_failure) == (6, pytest.approx(0.1))
    assert unanswered(6, seed) < 0.02 < bound.asked_failure
    assert unanswered(1, seed) > 0.1


# --- section 6.3: what the experiments say ----------------------------------------------------


def test_section_6_3_recovery_reduces_the_events_that_are_lost_under_load() -> None:
    """Messages with room for 8 events of 10 a round. Measured: 1.2 missed an event, then
    less than 0.01."""

    def loaded(recovery: str) -> tuple[float, int]:
        done = run(
            processes=40, rounds=40, events_per_round=10, creators=25, hops=3,
            events_per_message=8, recovery=recovery,
        )  # fmt: skip
        rows = counted(done)
        return (40 * rows["submit"] - rows["deliver"]) / rows["submit"], rows["unrecovered"]

    missed, lost = loaded("off")
    assert missed > 0.5
    for recovery in ("originator", "any-4"):
        still_missed, still_lost = loaded(recovery)
        assert still_missed < missed / 10
        assert still_lost < lost / 10


def test_section_6_3_recovery_reduces_the_events_that_are_lost_on_a_bad_network() -> None:
    lost = {
        recovery: counted(
            run(processes=60, rounds=50, events_per_round=6, creators=25, loss=0.05, hops=3,
                recovery=recovery)
        )["unrecovered"]
        for recovery in ("off", "any-4")
    }  # fmt: skip
    assert lost["off"] > 100
    assert lost["any-4"] < lost["off"] / 10


@pytest.mark.parametrize("seed", [1, 2])
def test_section_6_3_the_causality_layer_adds_little_latency(seed: int) -> None:
    """Measured: gossip alone 0.73 rounds on average and 2.0 at the 99th percentile; with order
    0.80 and 2.2."""
    shape: dict[str, Any] = {
        "processes": 60, "rounds": 60, "events_per_round": 6, "creators": 25, "loss": 0.002,
        "hops": 4, "seed": seed,
    }  # fmt: skip
    plain, ordered = delays(run(family="gossip", **shape)), delays(run(**shape))
    assert mean(plain) < mean(ordered) < 1.25 * mean(plain)
    late = int(0.99 * len(plain)), int(0.99 * len(ordered))
    assert ordered[late[1]] < 1.4 * plain[late[0]]


def test_section_6_3_at_constant_load_the_delay_grows_like_the_logarithm_of_the_group() -> None:
    """Three times as many members: as much more each time. Measured: 1.69, 2.54, 3.40 and 4.20
    hops; 0.29, 0.67, 0.96 and 1.29 rounds."""
    hops, rounds = [], []
    for processes in (10, 30, 90, 270):
        done = run(
            processes=processes, rounds=20, events_per_round=6, creators=6, hops=6, recovery="off"
        )
        hops.append(
            mean([row.hops for row in done.trace.rows if row.kind == "deliver" and row.hops])
        )
        rounds.append(mean(delays(done)))
    for grown in (hops, rounds):
        steps = [later - before for before, later in pairwise(grown)]
        assert min(steps) > 0
        assert max(steps) < 1.6 * min(steps)
        assert grown[-1] < 27 * grown[0] / 4
