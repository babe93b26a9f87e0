"""What became of tickets: counted from rows that a person can follow."""

from __future__ import annotations

from typing import Any

from ordercast.check.tenures import Tenures, tenures_of, together
from ordercast.trace.schema import Row
from ordercast.trace.text import parse_history

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
    assert tenures_of(rows(text)) == Tenures(**expected)


def test_a_grant_a_refusal_and_a_wait() -> None:
    counted("", granted=1, refused=1, waits=(5,))


def test_a_ticket_that_was_given_back_is_not_reclaimed() -> None:
    given = "n1 ticket index=0 cause=released at=70\nn2 ticket index=0 cause=acquired at=80\n"
    counted(given, granted=2, refused=1, given_back=1, waits=(5, 60))


def test_the_ticket_of_the_dead_is_reclaimed() -> None:
    died = "n1 crash at=70\nn2 ticket index=0 cause=acquired at=170\n"
    counted(died, granted=2, refused=1, waits=(5, 150), reclaims=(100,))


def test_a_start_tells_that_an_earlier_life_died() -> None:
    again = "n1#1 start at=90\nn2 ticket index=0 cause=acquired at=170\n"
    counted(again, granted=2, refused=1, waits=(5, 150), reclaims=(80,))


def test_who_lost_its_ticket_wants_another() -> None:
    lost = (
        "n1 ticket index=0 cause=disconnected at=160\n"
        "n2 ticket index=0 cause=acquired at=165\n"
        "n1 ticket index=1 cause=acquired at=200\n"
    )
    counted(lost, granted=3, refused=1, lost=1, waits=(5, 145, 40), reclaims=(5,))


def test_a_higher_epoch_of_the_same_owner_is_no_grant() -> None:
    counted("n1 ticket index=0 cause=acquired at=90\n", granted=1, refused=1, waits=(5,))


def test_who_no_longer_wants_one_has_not_waited() -> None:
    died = "n2 crash at=50\nn2#1 start at=60\nn2#1 ticket index=1 cause=acquired at=99\n"
    counted(died, granted=2, refused=1, waits=(5,))


def test_runs_are_put_together() -> None:
    one = Tenures(granted=1, waits=(3,))
    assert together([one, Tenures(lost=2, reclaims=(7,)), one]) == Tenures(
        granted=2, lost=2, waits=(3, 3), reclaims=(7,)
    )
