"""Tails of distributions, exactly, where the papers use Chernoff's bound.

Summed from the edge of the tail outwards, term by term, so they cost about the square root of
the mean. Pure, and from the standard library alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable


def poisson_at_least(mean: float, count: int) -> float:
    """P(X >= count)."""
    if count <= 0 or mean <= 0:
        return float(count <= 0)

    def log_chance(k: int) -> float:
        return k * math.log(mean) - mean - math.lgamma(k + 1)

    if count > mean:
        return _tail(math.exp(log_chance(count)), lambda k: mean / (k + 1), count, 1)
    below = _tail(math.exp(log_chance(count - 1)), lambda k: k / mean, count - 1, -1)
    return max(0.0, 1 - below)


def binomial_at_least(trials: int, chance: float, count: int) -> float:
    """P(X >= count)."""
    if count <= 0 or count > trials:
        return float(count <= 0)
    odds = chance / (1 - chance)

    def log_chance(k: int) -> float:
        ways = math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
        return ways + k * math.log(chance) + (trials - k) * math.log1p(-chance)

    if count > trials * chance:
        first = math.exp(log_chance(count))
        return _tail(first, lambda k: (trials - k) / (k + 1) * odds, count, 1)
    first = math.exp(log_chance(count - 1))
    below = _tail(first, lambda k: k / (trials - k + 1) / odds, count - 1, -1)
    return max(0.0, 1 - below)


def _tail(first: float, ratio: Callable[[int], float], k: int, step: int) -> float:
    """first + first * ratio(k) + ..., as long as it matters."""
    total = term = first
    while term > total * 1e-17 and k >= 0:
        term *= ratio(k)
        total += term
        k += step
    return min(1.0, total)


def poisson_capped(mean: float, most: int) -> float:
    """E[min(X, most)]."""
    return mean * (1 - poisson_at_least(mean, most)) + most * poisson_at_least(mean, most + 1)


def smallest(chance: Callable[[int], float], limit: float) -> int:
    """The smallest number from 1 whose chance, which falls, is at most the limit."""
    high = 1
    while chance(high) > limit:
        high *= 2
    low = high // 2  # not enough, or 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if chance(middle) > limit else (low, middle)
    return high
