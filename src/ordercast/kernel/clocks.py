"""Logical time: vector clocks as plain tuples, and Lamport's clock.

A vector clock is a tuple of integers with one entry a writer. Tuples compare and merge fastest
in CPython at the lengths that we use (25 entries and fewer), and nobody can change one that has
been sent.
"""

from __future__ import annotations

from operator import ge, le
from typing import TypeAlias

Vector: TypeAlias = tuple[int, ...]


def merge(a: Vector, b: Vector) -> Vector:
    """The entrywise maximum: the smallest clock that covers both."""
    assert len(a) == len(b), "clocks of one group have one length"
    return tuple(map(max, a, b))


def covers(a: Vector, b: Vector) -> bool:
    """Whether whoever is at `a` has seen all that `b` has: entrywise at least."""
    assert len(a) == len(b), "clocks of one group have one length"
    return all(map(ge, a, b))


def precedes(a: Vector, b: Vector) -> bool:
    """Whether `a` lies in the past of `b`: entrywise at most, and not the same."""
    assert len(a) == len(b), "clocks of one group have one length"
    return a != b and all(map(le, a, b))


def concurrent(a: Vector, b: Vector) -> bool:
    """Whether neither has seen all that the other has."""
    assert len(a) == len(b), "clocks of one group have one length"
    return not all(map(le, a, b)) and not all(map(ge, a, b))


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
        """Somebody else's number arrived."""
        if value > self.value:
            self.value = value
