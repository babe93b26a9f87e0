"""The accept limiter: how many may knock at once, and how often, with bounded memory."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from ordercast.net.accept_limiter import SOURCES, AcceptLimiter
from ordercast.units import MILLISECOND, SECOND


class Obvious:
    """The same rules, counted in fractions, with everything remembered."""

    def __init__(self, half_open: int, half_open_a_source: int, a_second: int) -> None:
        self.limits = (half_open, half_open_a_source)
        self.a_second = a_second
        self.open: list[str] = []
        self.tokens: dict[str, tuple[Fraction, int]] = {}

    def enter(self, source: str, now: int) -> bool:
        had, at = self.tokens.get(source, (Fraction(self.a_second), now))
        has = min(Fraction(self.a_second), had + Fraction(now - at, SECOND) * self.a_second)
        room = len(self.open) < self.limits[0] and self.open.count(source) < self.limits[1]
        enters = room and has >= 1
        self.tokens[source] = (has - enters, now)
        if enters:
            self.open.append(source)
        return enters

    def leave(self, source: str) -> None:
        self.open.remove(source)


CALLS = st.lists(
    st.tuples(st.sampled_from(["enter", "leave"]), st.sampled_from("abc"), st.integers(0, 700)),
    max_size=60,
)


@given(CALLS, st.integers(1, 6), st.integers(1, 4), st.integers(1, 5))
def test_the_limiter_agrees_with_an_obvious_one(
    calls: list[tuple[str, str, int]], half_open: int, a_source: int, a_second: int
) -> None:
    ours, model = (
        AcceptLimiter(half_open, a_source, a_second),
        Obvious(half_open, a_source, a_second),
    )
    now, refused = 0, 0
    for call, source, later in calls:
        now += later * MILLISECOND
        if call == "enter":
            entered = ours.enter(source, now)
            assert entered == model.enter(source, now)
            refused += not entered
        elif source in model.open:
            ours.leave(source)
            model.leave(source)
    assert ours.refused == refused


def test_half_open_connections_are_limited_in_total_and_per_source() -> None:
    ours = AcceptLimiter(half_open=5, half_open_a_source=3, a_second=100)
    assert [ours.enter("a", 0) for _ in range(4)] == [True, True, True, False]
    assert [ours.enter("b", 0) for _ in range(3)] == [True, True, False]
    ours.leave("a")
    assert ours.enter("b", 0)
    assert not ours.enter("c", 0)


def test_a_source_that_connects_too_often_is_refused_until_the_next_second() -> None:
    ours = AcceptLimiter(a_second=4)
    for _ in range(4):
        assert ours.enter("a", 0)
        ours.leave("a")
    assert not ours.enter("a", 0)
    assert ours.enter("b", 0), "others do not suffer for it"
    assert not ours.enter("a", SECOND // 4 - 1)
    assert ours.enter("a", SECOND // 4)


def test_a_refused_connection_costs_no_token() -> None:
    ours = AcceptLimiter(a_second=2)
    now = 0
    entered = 0
    while now < 10 * SECOND:
        if ours.enter("a", now):
            entered += 1
            ours.leave("a")
        now += MILLISECOND
    assert entered == 2 + 2 * 10 - 1  # the first two at once, the last one due just after the end


@given(st.lists(st.integers(0, 3 * SOURCES), min_size=1, max_size=50))
def test_the_limiter_remembers_a_bounded_number_of_sources(sources: list[int]) -> None:
    ours = AcceptLimiter(half_open=1 << 30)
    for number in range(SOURCES):
        ours.enter(str(number), 0)
    for number in sources:
        ours.enter(str(number), 0)
        assert len(ours) <= SOURCES


def test_a_forgotten_source_may_connect_again() -> None:
    ours = AcceptLimiter(half_open=1 << 30, half_open_a_source=1)
    assert ours.enter("a", 0)
    assert not ours.enter("a", 0)
    for number in range(SOURCES):
        ours.enter(str(number), 0)
    assert ours.enter("a", 0)
    ours.leave("a")
    ours.leave("a")
    assert ours.enter("a", 0)
