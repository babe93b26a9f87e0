"""Which laws follow from which: read off the laws themselves.

An implication is about verdicts: where the laws that it starts from are answered `holds`, the law
that follows is not `broken`. It may still be unknown, for want of rows that only it reads. Each has
its argument and its source (`Implication` in law.py), and random histories are tried against it.
Textbooks know more of them, of which some are not true of our sentences: causal order does not
imply `fifo`, for that law compares numbers, and speaks of an origin's incarnations too.

So a family promises the strongest laws that it keeps, and the others follow.
"""

from __future__ import annotations

from collections.abc import Iterable

from ordercast.check.law import Implication, Law


def implications(laws: Iterable[Law]) -> list[tuple[Law, Implication]]:
    return [(law, one) for law in laws for one in law.implies]


def with_implied(names: Iterable[str], laws: Iterable[Law]) -> frozenset[str]:
    """These laws, and all that follow from them."""
    known = frozenset(names)
    rules = implications(laws)
    while True:
        follow = {
            one.law for law, one in rules if law.name in known and known.issuperset(one.given)
        }
        if follow <= known:
            return known
        known |= follow
