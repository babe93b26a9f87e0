"""What `ordercast plan` prints is put into the simulator, which misses what was promised.

The simulator runs the real members: out of step, eager, with a message delay of a hundredth of a
round. Gossip alone is measured: the family `gossip`, and `causal` with recovery and digests off.

Misses come in clumps, for an event that misses one process is likelier to miss a second, and 60
processes and a loss of 0.002 miss one in 200 events. So what is planned is held to a wide factor,
and one hop less, where more is missed than luck can hide, to a narrow one. Measured with four
seeds, 4600 events of 60 processes, 980 or more of 250, missed an event:

                     as planned                    one hop less
  processes, loss    promised   gossip   causal    promised   gossip   causal
  60, 0.002          0.0053     0.0061   0.0080    0.62       0.61     0.57
  60, 0.05           0.0115     0.0154   0.0154    0.92       0.95     0.87
  250, 0.002         0.034      0.026    0.027     3.20       2.89     3.04
  250, 0.05          0.0002     0        0         0.080      0.074    0.086
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any, NamedTuple

import pytest

from ordercast.cli.main import main
from ordercast.kernel.family import Family, Plan, machine_per_group
from ordercast.kernel.step import Step
from ordercast.protocol.cluster import GOSSIP as FAMILY
from ordercast.protocol.cluster.advice import minimum_history
from ordercast.protocol.cluster.member import GossipMember
from ordercast.protocol.cluster.packets import Rumour
from ordercast.protocol.families import FAMILIES
from ordercast.scenario.file import parse_scenario
from ordercast.testing import simulate
from ordercast.trace.schema import TraceLevel
from ordercast.types import NodeId

GROUPS = [(60, 0.002), (60, 0.05), (250, 0.002), (250, 0.05)]
EVENTS_PER_ROUND = 6
ROUNDS = {60: 120, 250: 25}
CREATORS = 25  # of causal clusters; in plain gossip everybody creates
GOSSIP = ("round", "fan_out", "hops", "events_per_message", "history")


class Seen(NamedTuple):
    events: int
    missed: float  # processes an event


def planned(
    capsys: pytest.CaptureFixture[str], processes: int, loss: float, *more: object
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options that are printed, and what is promised for them."""
    words = ["plan", "--processes", processes, "--events-per-round", EVENTS_PER_ROUND]
    words += ["--loss", loss, "--delay", "1ms", "--round", "100ms", *more]
    assert main([str(word) for word in words]) == 0
    options = tomllib.loads(capsys.readouterr().out)["options"]
    assert main([*(str(word) for word in words), "--json"]) == 0
    return options, json.loads(capsys.readouterr().out)["promise"]


def seen(
    family: str,
    options: dict[str, Any],
    processes: int,
    loss: float,
    families: Mapping[str, Family] = FAMILIES,
) -> Seen:
    """What gossip alone misses with these options."""
    creators = processes if family == "gossip" else CREATORS
    if family == "gossip":
        options = {name: options[name] for name in GOSSIP}
    else:
        options = {**options, "recovery": "off", "digests": False, "tickets": CREATORS}
        options["ownership"] = "fixed"
    document = {
        "name": "planned",
        "family": family,
        "processes": processes,
        "duration": f"{ROUNDS[processes] * 100}ms",
        "quiet": "3s",
        "options": options,
        "workload": {
            "per_round": EVENTS_PER_ROUND / creators, "senders": creators, "payload": 10,
        },
        "network": {"delay": "1ms", "loss": loss},
    }  # fmt: skip
    run = simulate(parse_scenario(document), 1, level=TraceLevel.OFF, families=families)
    assert run.outcome.error is None
    had = Counter(
        (event.origin, event.number) for name in run.heard for event in run.delivered_by(name)
    )
    return Seen(len(had), sum(processes - count for count in had.values()) / len(had))


def together(parts: list[Seen]) -> Seen:
    events = sum(part.events for part in parts)
    return Seen(events, sum(part.events * part.missed for part in parts) / events)


@pytest.mark.parametrize(("processes", "loss"), GROUPS)
def test_a_plan_misses_no_more_than_a_few_times_its_promise(
    capsys: pytest.CaptureFixture[str], processes: int, loss: float
) -> None:
    options, promise = planned(capsys, processes, loss)
    assert promise["missed"] <= 0.05
    found = together([seen(family, options, processes, loss) for family in ("gossip", "causal")])
    luck = 4 / found.events  # an unlucky event or two
    assert found.missed < 3 * promise["missed"] + luck


@pytest.mark.parametrize(
    ("family", "processes", "loss"),
    [*(("gossip", *group) for group in GROUPS), ("causal", 60, 0.05)],
)
def test_with_one_hop_less_a_plan_misses_as_many_as_predicted(
    capsys: pytest.CaptureFixture[str], family: str, processes: int, loss: float
) -> None:
    fewer = planned(capsys, processes, loss)[0]["hops"] - 1
    options, promise = planned(capsys, processes, loss, "--hops", fewer)
    assert options["hops"] == fewer
    found = seen(family, options, processes, loss)
    luck = 6 / found.events
    assert promise["missed"] / 1.4 - luck < found.missed < promise["missed"] * 1.4 + luck


class Watched(GossipMember):
    """Counts what gossip took for new, and how often that was for the second time."""

    taken: Counter[str]

    def _take(self, step: Step, rumour: Rumour, age: int) -> None:
        had: set[object] = self.__dict__.setdefault("had", set())
        self.taken["again"] += rumour.key in had
        self.taken["all"] += 1
        had.add(rumour.key)
        super()._take(step, rumour, age)


def doubles(options: dict[str, Any], processes: int, loss: float) -> float:
    """The share of what gossip took for new that it had forgotten."""
    taken: Counter[str] = Counter()

    def watched(me: NodeId, plan: Plan, chance: Random) -> Watched:
        member = Watched(me, plan, chance)
        member.taken = taken
        return member

    families = {"gossip": FAMILY._replace(build=machine_per_group(watched))}
    seen("gossip", options, processes, loss, families=families)
    return taken["again"] / taken["all"]


def test_with_the_planned_history_no_old_event_counts_as_new(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With half of the fewest ids that are ever enough, it is."""
    options, promise = planned(capsys, 60, 0.05)
    assert promise["forgotten"] < 0.01
    assert doubles(options, 60, 0.05) < 0.001
    few = minimum_history(EVENTS_PER_ROUND, options["hops"]) // 2
    assert doubles({**options, "history": few}, 60, 0.05) > 0.05
