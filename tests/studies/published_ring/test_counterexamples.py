"""The runs in which the published ring gives one ticket to two: docs/tickets-published.md.

Each is a scenario that anybody can run. It ends as documented whatever the seed; without what goes
wrong in it, nothing does; and the table of who waits longer is as it is there.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.studies.published_ring.figures import FIGURES, Figure, made, path_of
from tests.studies.published_ring.shapes import overlaps

from ordercast.cli.main import main
from ordercast.scenario.file import parse_scenario
from ordercast.testing import Simulated, simulate
from ordercast.trace.schema import TraceLevel
from ordercast.units import MILLISECOND

ROOT = Path(__file__).resolve().parents[3]


class Shown(NamedTuple):
    earlier: str
    later: str
    ticket: int
    since: int  # milliseconds
    lasts: int
    shape: str
    holds_from: int | None  # more_rounds with which the law is kept; None: with no number of them


SHOWN = {
    "ce1": Shown("n7", "n9", 1, 11279, 1071, "stays", None),
    "ce2": Shown("n1", "n6", 1, 6179, 821, "stays", 1),
    "ce2b": Shown("n5", "n6", 1, 6179, 1796, "lost status", 2),
    "ce3": Shown("n6", "n7", 1, 7179, 1746, "two givers", 2),
    "ce4": Shown("n1", "n6", 1, 7179, 821, "stays on", 2),
    "ce5": Shown("n1", "n6", 1, 7179, 1841, "stays on", None),
}
CASES = pytest.mark.parametrize("name", SHOWN)


def document(name: str) -> dict[str, Any]:
    path = ROOT / "scenarios" / f"tickets-published-{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def ran(name: str, seed: int = 1, **changes: Any) -> Simulated:
    """The scenario, with other options of the ring, or without its faults (fault=[])."""
    found = document(name)
    found |= {"fault": changes.pop("fault", found["fault"])}
    found["options"]["published"] |= changes
    return simulate(parse_scenario(found), seed, level=TraceLevel.WIRE)


def is_broken(run: Simulated) -> bool:
    return [verdict.law for verdict in run.broken] == ["ticket-uniqueness"]


@CASES
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_one_ticket_has_two_owners(name: str, seed: int) -> None:
    shown, run = SHOWN[name], ran(name, seed)
    assert is_broken(run)
    assert f"{shown.later} acquired ticket {shown.ticket} of g while {shown.earlier}" in (
        run.broken[0].why
    )
    (found,) = overlaps(run.trace.rows)
    assert found.shape == shown.shape
    assert (found.earlier.process, found.later.process) == (shown.earlier, shown.later)
    assert found.later.start // MILLISECOND == shown.since
    assert found.lasts // MILLISECOND == shown.lasts


@CASES
def test_without_the_fault_it_has_one(name: str) -> None:
    run = ran(name, fault=[])
    assert not run.broken
    assert not run.outcome.error


def waits_longer(name: str, more: int) -> bool:
    """Whether it is broken if everybody waits so many rounds more, and the newcomer comes then."""
    found = document(name)
    published, faults, later = found["options"]["published"], found["fault"], SHOWN[name].later
    shift = (more - published.get("more_rounds", 0)) * 1000
    seek = milliseconds(published["seeks"][later]) + shift
    if name == "ce5":  # it stands still for longer
        faults[0]["for"] = f"{2500 + shift}ms"
    elif name == "ce1":  # the first exclusion takes longer too, and what follows comes later
        seek += shift
        for fault in faults[1:]:
            fault["at"] = f"{milliseconds(fault['at']) + shift}ms"
    found["duration"] = "20s"
    published |= {"more_rounds": more, "seeks": {**published["seeks"], later: f"{seek}ms"}}
    run = simulate(parse_scenario(found), 1)
    assert not run.outcome.error
    return is_broken(run)


def milliseconds(text: str) -> int:
    return int(text.removesuffix("ms"))


@CASES
def test_waiting_longer_helps_against_some_only(name: str) -> None:
    broken = [waits_longer(name, more) for more in range(4)]
    safe = SHOWN[name].holds_from
    assert broken == [safe is None or more < safe for more in range(4)]


# --- how it comes to that ------------------------------------------------------------------------


def messages(
    run: Simulated, kind: str, message: str, since: int, until: int
) -> list[tuple[str, str]]:
    return [
        (row.process, row.peer or "")
        for row in run.trace.rows
        if (row.kind, row.message) == (kind, message) and since <= row.at // MILLISECOND < until
    ]


def test_ce1_one_of_the_three_that_agree_was_excluded_itself() -> None:
    run = ran("ce1")
    agreed = [who for who, to in messages(run, "send", "Ackcoord", 10_200, 10_500) if to == "n6"]
    assert sorted(agreed) == ["n3", "n5"]  # n6 agrees with itself
    lost = [row for row in run.trace.rows if row.cause == "disconnected" and row.process == "n3"]
    assert lost[0].at < 10_200 * MILLISECOND
    heard = [who for to, who in messages(run, "receive", "Alive", 10_350, 11_350) if to == "n7"]
    assert sorted(heard) == ["n1", "n2", "n4"]  # k + 1 = 3


def test_ce2_the_message_that_keeps_the_excluded_member_is_older_than_the_agreement() -> None:
    run = ran("ce2")
    assert messages(run, "send", "Ackcoord", 5_120, 5_400) == [("n2", "n4")]
    heard = [who for to, who in messages(run, "receive", "Alive", 5_000, 6_000) if to == "n1"]
    assert heard == ["n2", "n3"]  # at 5.05 and 5.10 s, and it is out at 5.3 s


def test_ce3_both_givers_are_right_by_what_they_know() -> None:
    (found,) = overlaps(ran("ce3").trace.rows)
    assert (found.earlier.granter, found.later.granter) == ("n1", "n4")


def test_ce4_the_alive_is_a_second_late() -> None:
    run = ran("ce4")
    sent = [row.at for row in run.trace.rows if is_alive(row, "send", "n2", "n1")]
    came = [row.at for row in run.trace.rows if is_alive(row, "receive", "n1", "n2")]
    assert 5_050 * MILLISECOND in sent
    assert 6_060 * MILLISECOND in came
    assert not [at for at in came if 5_000 * MILLISECOND < at < 6_000 * MILLISECOND]


def is_alive(row: Any, kind: str, process: str, peer: str) -> bool:
    return (row.kind, row.message, row.process, row.peer) == (kind, "Alive", process, peer)


def test_ce5_a_paused_owner_uses_the_ticket_after_its_epoch_has_ended() -> None:
    """Only the epochs of the causal layer, which the paper has not, keep it from making events."""
    run = ran("ce5")
    goes_on = 7_620 * MILLISECOND
    (found,) = overlaps(run.trace.rows)
    assert found.earlier.end > goes_on > found.later.start
    made = [row for row in run.trace.rows if row.kind == "submit" and row.at > goes_on]
    assert "n6" in {row.process for row in made}
    assert "n1" not in {row.process for row in made}


# --- as a command --------------------------------------------------------------------------------


@CASES
def test_the_command_ends_with_1_and_shows_the_witness(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    path = f"scenarios/tickets-published-{name}.toml"
    shown = SHOWN[name]
    assert main(["sim", path, "--seed", "1"]) == 1
    told = capsys.readouterr().out
    assert f"ticket-uniqueness is broken: {shown.later} acquired ticket" in told
    assert told.count(f"acquired ticket {shown.ticket}") == 3  # the sentence, and the diagram
    assert f"again: ordercast sim {path} --seed 1" in told


@CASES
def test_the_published_ring_is_rejected_live(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = ROOT / "scenarios" / f"tickets-published-{name}.toml"
    assert main(["live", str(path)]) == 2
    assert "runs in the simulator only, as it can give one ticket to two" in capsys.readouterr().err


# --- its figures ---------------------------------------------------------------------------------


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_the_figure_shows_the_run_as_it_is(figure: Figure) -> None:
    """If this fails after a change that was meant: python -m
    tests.studies.published_ring.figures."""
    assert path_of(figure).read_text(encoding="utf-8") == made(figure)


def test_every_figure_is_in_the_page() -> None:
    page = (ROOT / "docs" / "tickets-published.md").read_text(encoding="utf-8")
    assert all(f"figures/{path_of(figure).name}" in page for figure in FIGURES)
