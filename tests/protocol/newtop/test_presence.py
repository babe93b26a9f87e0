"""Names that may be in an open group: whom a member announces itself to, and how often."""

from __future__ import annotations

import pytest

from ordercast.protocol.newtop.presence import MOST_KNOWN, AnnouncedMembers


def announced(presence: AnnouncedMembers, name: str, rounds: int, *view: str) -> int:
    """How often a name is announced to in so many rounds."""
    found = 0
    for _ in range(rounds):
        presence.ticks += 1
        outside = [one for one in presence.others if one not in view]
        found += name in presence.due(outside, view)
    return found


def test_a_name_that_is_gone_is_announced_to_more_and_more_rarely() -> None:
    """It was announced to in every round, for ever."""
    presence = AnnouncedMembers(())
    presence.learn(["n2"])
    assert announced(presence, "n2", 30) == 30
    assert announced(presence, "n2", 970) < 70


@pytest.mark.parametrize("is_in_view", [False, True])
def test_a_name_of_which_there_is_news_is_announced_to_like_a_new_one(is_in_view: bool) -> None:
    presence = AnnouncedMembers(())
    presence.learn(["n2"])
    announced(presence, "n2", 1000)
    if is_in_view:
        assert announced(presence, "n2", 1, "n2") == 0
    else:
        assert presence.learn(["n2"]) == ()
    assert announced(presence, "n2", 30) == 30


def test_of_too_many_names_the_one_goes_that_was_silent_longest() -> None:
    presence = AnnouncedMembers(())
    names = [f"visitor{number}" for number in range(MOST_KNOWN)]
    presence.learn(names)
    presence.learn(["new", names[0]])
    assert set(presence.due(presence.others, ())) == {"new", names[0], *names[2:]}
