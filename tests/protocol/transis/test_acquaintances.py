"""Names that may be in a synchrony group: whom a member announces itself to, and how often."""

from __future__ import annotations

import pytest

from ordercast.kernel.family import FoundingRule, Plan
from ordercast.protocol.transis.acquaintances import MOST_NAMES, TRIES, KnownNames
from ordercast.protocol.transis.options import SynchronyOptions


def open_names(*names: str) -> KnownNames:
    known = KnownNames("n1", Plan("g", ("n1",), SynchronyOptions(), False, FoundingRule()))
    known.tell(names)
    return known


def announced(known: KnownNames, name: str, rounds: int, *view: str) -> int:
    """How often a name is announced to in so many rounds."""
    return sum(name in known.next_round(("n1", *view)) for _ in range(rounds))


def test_a_listed_name_is_announced_to_in_every_round() -> None:
    known = KnownNames("n1", Plan("g", ("n1", "n2"), SynchronyOptions()))
    assert announced(known, "n2", 1000) == 1000


def test_a_name_of_an_open_group_that_is_gone_is_announced_to_more_and_more_rarely() -> None:
    """Though our own host named it. It was announced to in every round, for ever."""
    known = open_names("n1", "n2")
    assert announced(known, "n2", 30) == 30
    assert announced(known, "n2", 970) < 70
    assert "n2" in known


def test_a_name_that_never_answers_is_dropped() -> None:
    known = open_names("n2")
    calls = 0
    while "n2" in known:
        calls += announced(known, "n2", 1)
        entry = known._names.get("n2")
        if entry is not None:
            entry.due = min(entry.due, known._now + 1)  # years would pass
    assert calls == TRIES


@pytest.mark.parametrize("news", ["heard", "told", "in a view"])
def test_a_name_of_which_there_is_news_is_announced_to_like_a_new_one(news: str) -> None:
    known = open_names("n2")
    announced(known, "n2", 1000)
    if news == "heard":
        known.heard("n2")
    elif news == "told":
        known.tell(["n2"])
    else:
        assert announced(known, "n2", 1, "n2") == 0
    assert announced(known, "n2", 30) == 30


def test_of_too_many_names_the_one_goes_that_was_silent_longest() -> None:
    known = open_names(*(f"visitor{number}" for number in range(MOST_NAMES)))
    known.heard("visitor0")
    known.tell(["new"])
    assert "new" in known
    assert "visitor0" in known
    assert "visitor1" not in known
