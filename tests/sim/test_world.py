"""A run as a whole: how it ends, what its header says, what it is called."""

from __future__ import annotations

from typing import Any

import pytest

from ordercast import __version__
from ordercast.errors import UsageError
from ordercast.kernel.family import Family, machine_per_group
from ordercast.kernel.step import Step
from ordercast.protocol.families import FAMILIES
from ordercast.protocol.fifo.member import FifoMember
from ordercast.scenario.file import parse_scenario
from ordercast.scenario.schema import Scenario
from ordercast.sim.world import Outcome, Simulation
from ordercast.trace.schema import Ending, Row, TraceLevel
from ordercast.trace.sinks import MemorySink, check_run_id
from ordercast.types import Event
from ordercast.units import SECOND


def scenario(**keys: Any) -> Scenario:
    return parse_scenario({"name": "x", "processes": 3, "duration": "2s", "quiet": "1s", **keys})


def run(scenario: Scenario, seed: int = 1, **settings: Any) -> tuple[Outcome, list[Row]]:
    sink = MemorySink()
    return Simulation(scenario, seed, sink=sink, **settings).run(), sink.rows


# --- endings ---------------------------------------------------------------------------------


def test_a_run_that_has_its_time_is_finished() -> None:
    outcome, rows = run(scenario())
    assert outcome.error is None
    assert outcome.header.ending is Ending.FINISHED
    assert outcome.header.end == 3 * SECOND
    assert outcome.submitted == sum(row.kind == "submit" for row in rows) > 0
    assert outcome.delivered == sum(row.kind == "deliver" for row in rows)
    assert outcome.delivered == 3 * outcome.submitted  # a submission is an event, here one for all
    assert [row.kind for row in rows[-3:]] == ["stop"] * 3


@pytest.mark.parametrize("most_events", [0, 1, 100, 500])
def test_a_run_with_too_many_events_is_truncated(most_events: int) -> None:
    outcome, rows = run(scenario(), most_events=most_events)
    assert outcome.header.ending is Ending.CUT
    assert outcome.queue_events == most_events
    assert outcome.error is None
    whole = run(scenario())[1]
    kept = [row for row in rows if row.kind != "stop"]
    assert kept == whole[: len(kept)]


def test_a_run_may_take_exactly_as_many_events_as_it_needs() -> None:
    needed = run(scenario())[0].queue_events
    assert run(scenario(), most_events=needed)[0].header.ending is Ending.FINISHED
    assert run(scenario(), most_events=needed - 1)[0].header.ending is Ending.CUT


class Breaks(FifoMember):
    """Cannot bear its third submission."""

    def submit(self, step: Step, group: str, payloads: list[bytes], size: int) -> Event:
        event = super().submit(step, group, payloads, size)
        if event.number == 3:
            raise RuntimeError("three is\n too many")
        return event


def families_of(kind: type[FifoMember]) -> dict[str, Family]:
    return {**FAMILIES, "fifo": FAMILIES["fifo"]._replace(build=machine_per_group(kind))}


def test_a_machine_that_raises_fails_the_run_which_keeps_its_rows() -> None:
    outcome, rows = run(scenario(), families=families_of(Breaks))
    assert outcome.header.ending is Ending.FAILED
    assert outcome.error is not None
    assert outcome.error.startswith("RuntimeError at ")
    assert "test_world.py:" in outcome.error  # where, with the line
    assert outcome.error.endswith(": three is too many")  # in one line
    assert outcome.header.end is not None
    assert 0 < outcome.header.end < 2 * SECOND
    whole = run(scenario())[1]
    kept = [row for row in rows if row.kind != "stop"]
    assert len(kept) > 10
    assert kept == whole[: len(kept)]


def test_a_scenario_that_cannot_be_run_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="does not fit the window of 1KiB"):
        run(scenario(options={"window_size": "1KiB"}, workload={"payload": "2kB"}))


def test_a_scenario_may_have_no_sender() -> None:
    outcome, rows = run(scenario(workload={"senders": 0}))
    assert outcome.header.ending is Ending.FINISHED
    assert outcome.submitted == 0
    assert {row.kind for row in rows} == {"start", "join", "view", "stop"}


# --- the header ------------------------------------------------------------------------------


def test_the_header_has_everything_to_repeat_the_run() -> None:
    one = scenario(name="One Run", fault=[{"at": "1s", "kind": "crash", "nodes": ["n3"]}])
    header = run(one, seed=7, level=TraceLevel.WIRE)[0].header
    assert header.run == "one-run-7"
    assert header.family == "fifo"
    assert header.seed == 7
    assert header.version == __version__
    assert header.level is TraceLevel.WIRE
    assert header.start == 0
    assert header.parameters["duration"] == "2s"
    assert header.parameters["network"]["delay"] == "2ms"
    assert header.parameters["fault"][0]["nodes"] == ["n3"]
    assert parse_scenario(header.parameters) == one


def test_a_run_without_a_sink_has_no_trace() -> None:
    outcome = Simulation(scenario(), 1).run()
    assert outcome.header.level is TraceLevel.OFF
    assert outcome.submitted == run(scenario())[0].submitted


# --- names -----------------------------------------------------------------------------------

NAMES = {
    "one crash": "one-crash-1",
    "Figure 5 (b)": "figure-5-b-1",
    "  --  ": "run-1",
    "Größe": "gr-e-1",
    "因果": "run-1",
    "../../etc/passwd": "etc-passwd-1",
    "a\x00b\nc": "a-b-c-1",
    "x" * 100: "x" * 100 + "-1",
}


@pytest.mark.parametrize("name", NAMES)
def test_the_name_of_a_run_is_a_valid_folder_name(name: str) -> None:
    found = scenario(name=name).run_name(1)
    assert found == NAMES[name]
    assert check_run_id(found) == found
