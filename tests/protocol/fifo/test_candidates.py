"""Names that may be in an open group: how long each is called, and how many there can be."""

from __future__ import annotations

from ordercast.protocol.fifo.candidates import (
    MOST_CANDIDATES,
    MOST_GIVEN,
    MOST_TOLD,
    Candidates,
)

LIMIT = 4  # heartbeats in a suspicion limit


def test_names_that_the_host_gives_are_called_for_ever() -> None:
    candidates = Candidates("n1")
    candidates.give(["n1", "n2"], [])
    calls = 0
    for _ in range(100 * LIMIT):
        calls += len(candidates.due(LIMIT))
        assert candidates.tick() == []
    assert calls == 100
    assert candidates.names == ("n2",)


def test_names_of_one_teller_take_no_place_from_others() -> None:
    candidates = Candidates("n1")
    for number in range(1000):
        candidates.tell("liar", [f"a{number}"])
    candidates.tell("n2", ["n3"])
    assert len(candidates.names) == MOST_TOLD + 1
    assert "n3" in candidates


def test_all_kinds_of_names_have_a_limit() -> None:
    candidates = Candidates("n1")
    candidates.give([f"g{number}" for number in range(1000)], [])
    for number in range(1000):
        candidates.tell(f"teller{number}", [f"t{number}"])
        candidates.was_dropped(f"d{number}", False, LIMIT)
    assert len(candidates.names) <= MOST_GIVEN + MOST_CANDIDATES
    assert "d999" in candidates


def test_a_given_name_that_was_a_peer_is_called_again_when_it_is_dropped() -> None:
    candidates = Candidates("n1")
    candidates.give(["n2"], ["n2"])
    assert candidates.names == ()
    candidates.was_dropped("n2", True, 0)
    assert candidates.due(LIMIT) == ("n2",)
