"""What members of a group compare when they meet."""

from __future__ import annotations

import msgspec

from ordercast.kernel.family import FoundingRule, Plan
from ordercast.kernel.terms import differences, terms_of


class Options(msgspec.Struct, frozen=True):
    window: int = 3
    taste: str = "sweet"


def test_a_difference_names_both_values() -> None:
    ours = terms_of("fifo", Plan("g", ("a", "b"), Options()))
    theirs = terms_of("total", Plan("g", ("a", "b"), Options(window=4)))
    assert differences(ours, theirs) == (
        "family is fifo here and total there; window is 3 here and 4 there"
    )


def test_personal_options_may_differ() -> None:
    plan, other = Plan("g", ("a",), Options()), Plan("g", ("a",), Options(taste="sour"))
    assert not differences(terms_of("k", plan, {"taste"}), terms_of("k", other, {"taste"}))


def test_an_open_group_is_not_a_closed_one() -> None:
    closed, opened = (
        Plan("g", ("a",), Options()),
        Plan("g", ("a",), Options(), entry=FoundingRule()),
    )
    assert "members is a here and open there" in differences(
        terms_of("k", closed), terms_of("k", opened)
    )


def test_only_members_that_name_a_founder_must_name_the_same() -> None:
    ours, none, other = (
        terms_of("k", Plan("g", ("a",), Options(), entry=FoundingRule(founder=founder)))
        for founder in ("n1", "", "n2")
    )
    assert differences(ours, none) == differences(none, ours) == ""
    assert differences(ours, other) == "founder is n1 here and n2 there"


def test_many_members_are_compared_by_a_short_text() -> None:
    names = tuple(f"member-{number}" for number in range(50))
    ours, theirs = (
        terms_of("k", Plan("g", names, Options())),
        terms_of("k", Plan("g", (*names[:-1], "another"), Options())),
    )
    assert "members" in differences(ours, theirs)
    assert len(ours["members"]) < 80
