"""Durations, sizes and rates: what people write is what is meant, and can be written back."""

from __future__ import annotations

import contextlib
from decimal import Decimal

import hypothesis.strategies as st
import pytest
from hypothesis import given

from ordercast import Atomic, Causal, Fifo, Gossip, Total, UsageError
from ordercast.kernel.family import Level
from ordercast.units import MILLISECOND, SECOND, Duration, Quantity, Rate, Size

KINDS = [Duration, Size, Rate]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Duration, "2ms", 2 * MILLISECOND),
        (Duration, "1.5s", 3 * SECOND // 2),
        (Duration, " 10 us ", 10_000),
        (Duration, "0s", 0),
        (Duration, "2min", 120 * SECOND),
        (Duration, "1h", 3600 * SECOND),
        (Size, "4MiB", 4 << 20),
        (Size, "1kB", 1000),
        (Size, "0.5KiB", 512),
        (Size, 4096, 4096),
        (Rate, "100MB/s", 100_000_000),
        (Rate, "1GiB/s", 1 << 30),
    ],
)
def test_quantities_are_read_as_people_write_them(
    kind: type[Quantity], text: object, value: int
) -> None:
    found = kind.parse(text)
    assert found == value
    assert type(found) is kind


@pytest.mark.parametrize("kind", KINDS)
@given(value=st.integers(0, (1 << 53) - 1))
def test_a_written_quantity_is_read_back(kind: type[Quantity], value: int) -> None:
    assert kind.parse(str(kind(value))) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Duration(0), "0ns"),
        (Duration(50 * MILLISECOND), "50ms"),
        (Duration(1001), "1001ns"),
        (Duration(90 * SECOND), "90s"),
        (Duration(7200 * SECOND), "2h"),
        (Size(0), "0B"),
        (Size(16 << 20), "16MiB"),
        (Size(3000), "3kB"),
        (Size(1025), "1025B"),
        (Rate(100_000_000), "100MB/s"),
    ],
)
def test_the_largest_unit_that_is_exact_is_written(value: Quantity, text: str) -> None:
    assert str(value) == text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "wrong", ["", "ms", "5", "5 parsecs", "-1ms", "1e3ms", "1,5s", "1ms2", None, 1.5, True, [], -1]
)
def test_text_that_is_no_quantity_is_rejected_with_an_example(
    kind: type[Quantity], wrong: object
) -> None:
    with pytest.raises(ValueError, match=f"is not a {kind.__name__.lower()}") as caught:
        kind.parse(wrong)
    assert repr(kind.example) in str(caught.value)


def test_a_bare_number_is_a_size_and_nothing_else() -> None:
    assert Size.parse(7) == 7
    for kind in (Duration, Rate):
        with pytest.raises(ValueError, match="with a unit"):
            kind.parse(7)


@pytest.mark.parametrize(
    ("kind", "text"), [(Duration, "9999999999h"), (Size, f"{1 << 62}B"), (Rate, f"{1 << 62}B/s")]
)
def test_a_quantity_beyond_the_largest_is_rejected(kind: type[Quantity], text: str) -> None:
    with pytest.raises(ValueError, match="is too large"):
        kind.parse(text)


def test_the_largest_quantity_is_read() -> None:
    assert Duration.parse(f"{(1 << 62) - 1}ns") == Size.parse((1 << 62) - 1) == (1 << 62) - 1
    with pytest.raises(ValueError, match="is not a size"):
        Size.parse(1 << 62)


NUMBERS = st.decimals(0, 1 << 63, allow_nan=False, places=3).map(str) | st.integers(0).map(str)
UNITS = st.sampled_from([unit for kind in KINDS for unit in kind.units])


@given(st.text(max_size=12) | st.builds(str.__add__, NUMBERS | st.text(max_size=3), UNITS))
def test_any_text_is_read_or_rejected(text: str) -> None:
    for kind in KINDS:
        with contextlib.suppress(ValueError):
            assert 0 <= kind.parse(text) < 1 << 62


@given(NUMBERS, UNITS)
def test_a_number_and_a_unit_are_a_quantity_of_the_kind_that_has_the_unit(
    number: str, unit: str
) -> None:
    for kind in KINDS:
        value = round(Decimal(number) * kind.units.get(unit, 0))
        if unit not in kind.units or value >= 1 << 62:
            with pytest.raises(ValueError, match="is too large" if value else "is not a"):
                kind.parse(number + unit)
        else:
            assert kind.parse(number + unit) == value


def test_a_number_of_any_length_is_read_or_refused() -> None:
    with pytest.raises(ValueError, match="too large"):
        Duration.parse("9" * 400 + "ns")


@pytest.mark.parametrize("level", [Fifo, Gossip, Causal, Total, Atomic])
def test_an_option_that_a_level_does_not_have_is_rejected_with_the_nearest_one(
    level: type[Level],
) -> None:
    name = level.__name__
    with pytest.raises(UsageError, match=f"unknown option of {name} 'windw_size': did you mean"):
        level(windw_size=3)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match=f"unknown option of {name} 'xyzzy': known are .*window"):
        level(xyzzy=3)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match=f"{name} takes options by name"):
        level(3)  # type: ignore[call-arg]


def test_text_where_a_level_has_a_number_is_rejected_with_the_option() -> None:
    with pytest.raises(TypeError, match="Fifo: window: expected a number, not the text 'x'"):
        Fifo(window="x")  # type: ignore[arg-type]
