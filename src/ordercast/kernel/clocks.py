"""Logical time: vector clocks as plain tuples, Lamport's clock, and a clock that is patient.

A vector clock is a tuple of integers with one entry a writer. Tuples compare and merge fastest
in CPython at the lengths that we use (25 entries and fewer), and none can change after it was
sent.
"""

from __future__ import annotations

from typing import TypeAlias

Vector: TypeAlias = tuple[int, ...]


def merge(a: Vector, b: Vector) -> Vector:
    """The entrywise maximum: the smallest clock that covers both."""
    assert len(a) == len(b), "clocks of one group have one length"
    return tuple(map(max, a, b))


class LogicalClock:
    """Lamport's clock: what is numbered after something was witnessed has a larger number."""

    __slots__ = ("value",)

    def __init__(self, value: int = 0) -> None:
        self.value = value  # the largest number given or witnessed; it never falls

    def tick(self) -> int:
        """A fresh number, above all that were given or witnessed."""
        self.value += 1
        return self.value

    def witness(self, value: int) -> None:
        """A number of another process arrived."""
        if value > self.value:
            self.value = value


class PatientClock:
    """Time as it passes for a member that runs: in steps no longer than its timer was set to."""

    __slots__ = ("_read_at", "passed", "time")

    def __init__(self) -> None:
        self.time = 0  # nanoseconds; it never falls
        self.passed = 0  # the same with all stalls: what others have seen pass
        self._read_at: int | None = None  # on the member's own clock, which may jump

    def advance(self, now: int, asleep: int, stalled: int) -> None:
        """`asleep` is what the timer was set to, `stalled` is what counts if twice that has passed:
        then the process was stalled."""
        gone = 0 if self._read_at is None else max(0, now - self._read_at)
        self.time += stalled if gone > 2 * asleep else gone
        self.passed += gone
        self._read_at = now
