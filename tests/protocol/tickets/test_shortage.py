"""Why nobody grants tickets: what the application is told, and when."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ordercast.protocol.tickets.packets import Configuration
from ordercast.protocol.tickets.shortage import LEASES_TO_TELL, Shortage
from ordercast.types import NodeId, Waiting

LEASE = 1000
LONG = LEASES_TO_TELL * LEASE
N1, N2, N3 = NodeId("n1"), NodeId("n2"), NodeId("n3", 2)
SET = Configuration(4, (N1, N2, N3))
ALL = {"n1": N1, "n2": N2, "n3": N3}


def told(
    replica_set: Configuration | None,
    reached: Mapping[str, NodeId],
    sealed: Collection[str] = (),
    absent: tuple[str, ...] = (),
) -> Waiting | None:
    shortage = Shortage("g", LEASE)
    assert shortage.look(7, replica_set, reached, sealed, absent) is None
    assert shortage.look(7 + LONG - 1, replica_set, reached, sealed, absent) is None
    return shortage.look(7 + LONG, replica_set, reached, sealed, absent)


def test_while_a_majority_answers_there_is_nothing_to_tell() -> None:
    assert told(SET, ALL) is None
    assert told(SET, {"n1": N1, "n2": N2}) is None


def test_replicas_that_do_not_answer_are_named() -> None:
    news = told(SET, {"n3": N3, "n7": NodeId("n7")})
    assert news is not None
    assert news.on == ("n1", "n2")
    assert news.since == 7
    assert "it takes 2 of the lease replicas n1 n2 n3 (no answer from n1 n2)" in news.why


def test_a_replica_that_lost_its_folder_does_not_count() -> None:
    news = told(SET, {"n1": NodeId("n1", 8), "n3": N3})
    assert news is not None
    assert news.on == ("n1", "n2")
    assert "(no answer from n2; n1 lost the data folder)" in news.why
    assert "Start the members that are missing" in news.why, "n2 may come back"


def test_a_majority_that_lost_its_folders_is_told_soon() -> None:
    shortage, reached = Shortage("g", LEASE), {"n1": NodeId("n1", 8), "n2": NodeId("n2", 5)}
    assert shortage.look(7, SET, reached, (), ()) is None
    assert shortage.look(7 + LEASE - 1, SET, reached, (), ()) is None, "a newer set may be known"
    news = shortage.look(7 + LEASE, SET, reached, (), ())
    assert news is not None
    assert news.why == (
        "no ticket can be had: it takes 2 of the lease replicas n1 n2 n3 (no answer from n3; "
        "n1 n2 lost the data folder). Nobody can update this group any more: stop all members, "
        "delete their data folders, and start them"
    )


def test_replicas_that_are_being_replaced_without_end_do_not_count() -> None:
    news = told(SET, ALL, {"n1", "n3"})
    assert news is not None
    assert "(other members are to replace n1 n3)" in news.why


def test_where_nobody_knows_the_replicas_those_are_named_that_are_missing() -> None:
    news = told(None, {"n1": N1}, absent=("n4", "n5"))
    assert news is not None
    assert news.on == ("n4", "n5")
    assert "knows which ones they are" in news.why


def test_the_same_is_told_once_and_again_when_it_happens_again() -> None:
    shortage = Shortage("g", LEASE)

    def look(now: int, *names: str) -> Waiting | None:
        return shortage.look(now, SET, {name: ALL[name] for name in names}, (), ())

    look(0)
    assert look(LONG) is not None
    assert look(3 * LONG) is None
    assert look(3 * LONG + 1, "n1") is not None, "another reason"
    assert look(3 * LONG + 2) is None, "not so soon"
    assert look(4 * LONG, "n1", "n2") is None
    assert look(5 * LONG, "n1") is None
    assert look(6 * LONG, "n1") is not None
    shortage.over()
    look(7 * LONG, "n1")
    assert look(8 * LONG, "n1") is not None
