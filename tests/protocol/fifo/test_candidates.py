"""Names that may be in an open group: how long each is called, and how many there can be."""

from __future__ import annotations

from itertools import pairwise

from ordercast.protocol.fifo.candidates import (
    MOST_CANDIDATES,
    MOST_GIVEN,
    MOST_TOLD,
    TRIES,
    TRIES_TOLD,
    Candidates,
)

LIMIT = 4  # heartbeats in a suspicion limit


def called(candidates: Candidates, ticks: int) -> list[int]:
    """In which of so many heartbeats of ours a candidate is called."""
    found = []
    for tick in range(ticks):
        found += [tick] * len(candidates.due())
        candidates.tick()
    return found


def test_a_name_that_never_answers_is_called_more_and_more_rarely_and_then_dropped() -> None:
    candidates = Candidates("n1", LIMIT)
    candidates.give(["n1", "n2"], {})
    calls = called(candidates, 1000 * LIMIT)
    pauses = [later - earlier for earlier, later in pairwise(calls)]
    assert pauses[:16] == [LIMIT] * 16
    assert pauses == sorted(pauses)
    assert all(pause <= max(LIMIT, at / 16) for at, pause in zip(calls, pauses, strict=False))
    assert len(calls) < 100
    assert candidates.names == ("n2",)
    gone, total = [], len(calls)
    while candidates.names:
        total += len(candidates.due())
        gone += candidates.tick()
        for candidate in candidates._given.values():
            candidate.wait = min(candidate.wait, 1)  # years would pass
    assert (gone, total) == (["n2"], TRIES)


def test_a_name_that_is_given_again_is_called_at_once_and_for_as_long_again() -> None:
    candidates = Candidates("n1", LIMIT)
    candidates.give(["n2"], {})
    first = called(candidates, 100 * LIMIT)
    assert not candidates.due()
    candidates.give(["n2"], {})
    assert called(candidates, 100 * LIMIT) == first


def test_a_former_member_that_a_peer_names_is_called_every_suspicion_limit() -> None:
    """It is in the view of that peer, so it may be reached again at any time."""
    candidates = Candidates("n1", LIMIT)
    candidates.give(["n2"], {})
    candidates.was_dropped("n3", has_left=False)
    called(candidates, 1000 * LIMIT)
    calls = 0
    for _ in range(100 * LIMIT):
        candidates.tell("n4", ["n2", "n3"])
        calls += len(candidates.due())
        assert candidates.tick() == []
    assert calls >= 2 * 99


def test_a_name_that_a_peer_tells_is_called_ten_times() -> None:
    candidates = Candidates("n1", LIMIT)
    candidates.tell("n2", ["n3"])
    assert called(candidates, 100 * LIMIT) == [LIMIT * call for call in range(TRIES_TOLD)]
    assert not candidates.names


def test_names_of_one_teller_take_no_place_from_others() -> None:
    candidates = Candidates("n1", LIMIT)
    for number in range(1000):
        candidates.tell("liar", [f"a{number}"])
    candidates.tell("n2", ["n3"])
    assert len(candidates.names) == MOST_TOLD + 1
    assert "n3" in candidates


def test_all_kinds_of_names_have_a_limit() -> None:
    candidates = Candidates("n1", LIMIT)
    candidates.give([f"g{number}" for number in range(1000)], {})
    for number in range(1000):
        candidates.tell(f"teller{number}", [f"t{number}"])
        candidates.was_dropped(f"d{number}", has_left=False)
    assert len(candidates.names) <= MOST_GIVEN + MOST_CANDIDATES
    assert "d999" in candidates


def test_of_too_many_given_names_the_one_goes_that_was_called_most_in_vain() -> None:
    candidates = Candidates("n1", LIMIT)
    names = [f"visitor{number}" for number in range(MOST_GIVEN)]
    candidates.give(names, {})
    called(candidates, 10 * LIMIT + 1)
    candidates.give([names[0]], {})  # it was connected again
    candidates.give(["new"], {})
    assert "new" in candidates
    assert names[0] in candidates
    assert names[1] not in candidates
    assert candidates.due() == (names[0], "new")
    assert candidates.tick() == [names[1]]
    assert candidates.tick() == []


def test_a_name_that_gave_way_and_is_a_peer_now_is_not_reported_as_gone() -> None:
    candidates = Candidates("n1", LIMIT)
    candidates.give([f"g{number}" for number in range(MOST_GIVEN + 1)], {})
    assert "g0" not in candidates
    candidates.heard("g0")
    assert candidates.tick() == []


def test_a_given_name_that_was_a_peer_and_left_is_not_called_again() -> None:
    candidates = Candidates("n1", LIMIT)
    candidates.give(["n2", "n3"], {"n2": None})
    candidates.heard("n3")
    assert candidates.names == ()
    for name in ("n2", "n3"):
        candidates.was_dropped(name, has_left=True)
    assert called(candidates, 10 * LIMIT) == []


def test_a_peer_that_was_dropped_is_called_after_a_suspicion_limit() -> None:
    candidates = Candidates("n1", LIMIT)
    candidates.was_dropped("n2", has_left=False)
    assert called(candidates, 2 * LIMIT + 1) == [LIMIT, 2 * LIMIT]
