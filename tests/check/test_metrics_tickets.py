"""Metrics of tickets: from rows that a person can follow, and against a slow count."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ordercast.check.metric import MeasuredRun
from ordercast.check.metrics import measure, tickets
from ordercast.check.metrics.tickets import TicketCounts, together
from ordercast.trace.schema import Row
from ordercast.trace.text import parse_history
from ordercast.types import GroupTimes
from ordercast.units import SECOND

TURNS = ("acquired", "released", "disconnected")
NAMES = [metric.name for metric in tickets.METRICS]
LIVES = """
run tickets family=causal ending=finished
n1 start at=0
n2 start at=0
n3 start at=0
n1 ticket cause=wanted at=10
n1 ticket index=0 cause=acquired until=100 at=15
n2 ticket cause=wanted at=20
n2 ticket index=0 cause=refused at=25
n1 ticket index=0 cause=renewed until=150 at=60
"""


def rows(text: str) -> list[Row]:
    return parse_history(LIVES + text).rows


def counted(text: str, **expected: Any) -> None:
    assert tickets.counted(MeasuredRun(rows(text))) == TicketCounts(**expected)


def test_grants_refusals_and_waits_are_counted() -> None:
    counted("", granted=1, refused=1, waits=(5,))


def test_a_ticket_that_was_given_back_is_not_reclaimed() -> None:
    given = "n1 ticket index=0 cause=released at=70\nn2 ticket index=0 cause=acquired at=80\n"
    counted(given, granted=2, refused=1, given_back=1, waits=(5, 60))


def test_the_ticket_of_a_crashed_owner_counts_as_reclaimed() -> None:
    died = "n1 crash at=70\nn2 ticket index=0 cause=acquired at=170\n"
    counted(died, granted=2, refused=1, waits=(5, 150), reclaims=(100,))


def test_a_start_row_ends_the_earlier_incarnation() -> None:
    again = "n1#1 start at=90\nn2 ticket index=0 cause=acquired at=170\n"
    counted(again, granted=2, refused=1, waits=(5, 150), reclaims=(80,))


def test_a_process_that_lost_its_ticket_waits_from_then_on() -> None:
    lost = (
        "n1 ticket index=0 cause=disconnected at=160\n"
        "n2 ticket index=0 cause=acquired at=165\n"
        "n1 ticket index=1 cause=acquired at=200\n"
    )
    counted(lost, granted=3, refused=1, lost=1, waits=(5, 145, 40), reclaims=(5,))


def test_a_higher_epoch_of_the_same_owner_is_no_grant() -> None:
    counted("n1 ticket index=0 cause=acquired at=90\n", granted=1, refused=1, waits=(5,))


def test_a_withdrawn_request_is_no_wait() -> None:
    died = "n2 crash at=50\nn2#1 start at=60\nn2#1 ticket index=1 cause=acquired at=99\n"
    counted(died, granted=2, refused=1, waits=(5,))


def test_counts_of_several_runs_are_added_up() -> None:
    one = TicketCounts(granted=1, waits=(3,))
    assert together([one, TicketCounts(lost=2, reclaims=(7,)), one]) == TicketCounts(
        granted=2, lost=2, waits=(3, 3), reclaims=(7,)
    )


# --- access, use and reclaims ----------------------------------------------------------------


def metrics_of(text: str) -> dict[str, float]:
    return measure(MeasuredRun(parse_history(text, "here").rows, GroupTimes(lease=SECOND)))


def ticket(who: str, cause: str, at: str, index: int | None = None) -> str:
    more = "" if index is None else f" index={index}"
    return f"{who} ticket group=g cause={cause} at={at}{more}\n"


def test_access_is_a_grant_within_a_lease_of_the_request() -> None:
    """n1 founds the cluster. n2 is quick, n3 waits too long, n4 dies before its time was over and
    n5 has hardly begun when the run ends: of two that count one had access."""
    text = "run r\n" + ticket("n1", "wanted", "0s") + ticket("n1", "acquired", "5s", 0)
    text += ticket("n2", "wanted", "6s") + ticket("n3", "wanted", "6s")
    text += ticket("n4", "wanted", "6s") + ticket("n2", "acquired", "6500ms", 1)
    text += "n4 crash at=6800ms\n" + ticket("n3", "acquired", "8s", 2)
    text += ticket("n5", "wanted", "8s") + "n1 stop at=8500ms\n"
    found = metrics_of(text)
    assert found["ticket_access"] == pytest.approx(1 / 2)
    assert found["ticket_granted"] == 3
    assert found["ticket_wait_mean"] == pytest.approx((5 + 0.5 + 2) / 3)


def test_use_counts_the_tickets_of_live_processes_over_time() -> None:
    """n1 holds a ticket for four seconds of four, n2 one for two, until it dies."""
    text = "run r\n" + ticket("n1", "acquired", "1s", 0) + ticket("n2", "acquired", "1s", 1)
    text += "n2 crash at=3s\n" + ticket("n1", "renewed", "5s", 0)
    assert metrics_of(text)["ticket_use"] == pytest.approx(1.5)


def test_a_reclaim_lasts_from_the_crash_to_the_next_owner() -> None:
    text = "run r\n" + ticket("n1", "acquired", "1s", 0) + ticket("n2", "acquired", "1s", 1)
    text += "n1 crash at=2s\n" + ticket("n2", "disconnected", "3s", 1)
    text += ticket("n3", "acquired", "3500ms", 0) + ticket("n3", "acquired", "3600ms", 0)
    text += ticket("n4", "acquired", "4500ms", 1)
    found = metrics_of(text)
    assert found["ticket_reclaimed"] == 2
    assert found["ticket_reclaim_mean"] == pytest.approx(1.5)
    assert found["ticket_granted"] == 4  # the same to the same again is none
    assert found["ticket_lost"] == 1


def test_a_run_without_tickets_has_no_ticket_metrics() -> None:
    text = "run r\nn1 submit n1:1\nn1 deliver n1:1\n"
    assert not set(NAMES) & metrics_of(text).keys()


# --- a slow count ----------------------------------------------------------------------------


def random_tickets(seed: int) -> list[Row]:
    """Few processes, groups, tickets and instants, so that whatever can coincide does."""
    chance = Random(seed)
    causes = ["wanted", "wanted", "acquired", "acquired", "acquired", "released", "disconnected"]
    rows: list[Row] = []
    lives = dict.fromkeys(("n1", "n2", "n3", "n4"), 0)
    at = 0
    for step in range(chance.randint(1, 70)):
        at += chance.choice([0, 0, 1, 7, 30])
        process = chance.choice(sorted(lives))
        kind = chance.choice(["ticket"] * 8 + ["crash", "start", "stop"])
        lives[process] += kind == "start"
        life = lives[process]
        if kind != "ticket":
            rows.append(Row(process, life, step, at, kind))
            continue
        cause = chance.choice([*causes, "renewed", "refused"])
        index = None if cause in ("wanted", "refused") else chance.randint(0, 2)
        group = chance.choice(["g", "h", None]) if seed % 3 == 0 else "g"
        row = Row(process, life, step, at, kind, group=group, index=index, cause=cause)
        rows.append(row)
    chance.shuffle(rows)
    return rows


def slow_counts(rows: list[Row]) -> TicketCounts:
    """For each `acquired` row by itself, by looking back at what its process and its ticket did."""
    rows = sorted(rows, key=lambda row: (row.at, row.process, row.incarnation, row.step))

    def about(process: str, group: str | None, before: int) -> list[Row]:
        """Rows about tickets of the process in the group and its deaths, the latest first."""
        found = []
        for row in reversed(rows[:before]):
            ticket = row.kind == "ticket" and (row.group or "") == (group or "")
            if row.process == process and (ticket or row.kind in ("crash", "start")):
                found.append(row)
        return found

    def held(process: str, group: str | None, before: int) -> int | None:
        for row in about(process, group, before):
            if row.cause == "acquired":
                return row.index or 0
            if row.kind != "ticket" or row.cause in ("released", "disconnected"):
                return None
        return None

    def is_grant(place: int) -> bool:
        row = rows[place]
        return row.cause == "acquired" and held(row.process, row.group, place) != (row.index or 0)

    waits, reclaims = [], []
    for place in (place for place in range(len(rows)) if is_grant(place)):
        row, wanted = rows[place], None
        for earlier in about(row.process, row.group, place):
            if earlier.cause == "disconnected":
                wanted = earlier.at
            elif earlier.cause == "acquired":
                wanted = None  # a process that has a ticket requests none
            if earlier.kind != "ticket" or earlier.cause in TURNS:
                break
            if earlier.cause == "wanted":
                wanted = earlier.at
        if wanted is not None:
            waits.append(row.at - wanted)
        orphaned = None
        for before in range(place - 1, -1, -1):
            earlier = rows[before]
            same = (earlier.group or "", earlier.index or 0) == (row.group or "", row.index or 0)
            if same and is_grant(before):
                break
            if earlier.kind in ("crash", "start"):
                owned = held(earlier.process, row.group, before)
                orphaned = earlier.at if owned == (row.index or 0) else orphaned
            elif same and earlier.cause == "disconnected":
                orphaned = earlier.at
        if orphaned is not None:
            reclaims.append(row.at - orphaned)
    causes = [row.cause for row in rows]
    counts = (causes.count(cause) for cause in ("refused", "released", "disconnected"))
    granted = sum(is_grant(place) for place in range(len(rows)))
    return TicketCounts(granted, *counts, tuple(waits), tuple(reclaims))


@pytest.mark.parametrize("seed", range(150))
def test_a_slow_and_obvious_count_gives_the_same(seed: int) -> None:
    rows = random_tickets(seed)
    assert tickets.counted(MeasuredRun(rows)) == slow_counts(rows)
