"""Figure 4: who must send what to whom, so that all correspondents of a failed node have the same.

Adly, Kumar: HPP, a hierarchical propagation protocol (1994), section 5.1. A function from what the
correspondents report to what the coordinator asks of them: the step numbers are those of the
figure. If the failed node is the root there is no P(f), and steps 1, 5 and 8 fall away (the paper
does not say what happens then).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ordercast.studies.published_feed.packets import Resend, VectorValue, What


class ParentReport(NamedTuple):
    """What P(f) knows: W, D_j and V^C.L_j, where f is its j-th child."""

    name: str
    sent_down: int
    received: int  # D_j: all that came from f
    made: int  # V^C.L_j: what f made


class Transition(NamedTuple):
    resends: dict[str, list[Resend]]  # by who is asked
    # y of step 8: how many upward messages P(f) seems to lack. Below zero: the sum has lost the
    # entry of a child that moved away.
    lacking: int


def plan(
    failed: str, parent: ParentReport | None, children: Mapping[str, VectorValue]
) -> Transition:
    """`children`: V^P of each child, as that child has it."""
    resends: dict[str, list[Resend]] = {name: [] for name in children}
    if parent is not None:
        resends[parent.name] = []

    # (3) who has most of what f itself made
    most, who = (parent.made, parent.name) if parent is not None else (0, "")
    for name, vector in children.items():
        if vector.local > most or not who:
            most, who = vector.local, name

    if parent is not None:  # (5)
        for name, vector in children.items():
            _ask(resends[parent.name], (name,), "down", parent.sent_down - vector.up)

    for name, vector in children.items():  # (6)
        if name != who:
            _ask(resends[who], (name,), "made", most - vector.local)
    if parent is not None and who != parent.name:
        _ask(resends[who], (parent.name,), "made", most - parent.made)

    for name, vector in children.items():  # (4), (7)
        neighbours = tuple(other for other in children if other != name)
        highest = vector.down.get(name, 0)
        lowest = min(other.down.get(name, 0) for other in children.values())
        _ask(resends[name], neighbours, "up", highest - lowest)

    lacking = 0
    if parent is not None:  # (8)
        sent = sum(vector.down.get(name, 0) for name, vector in children.items())
        lacking = sent - (parent.received - most)
        for name in children:
            _ask(resends[name], (parent.name,), "up", lacking)
    return Transition(resends, lacking)


def _ask(asked: list[Resend], to: tuple[str, ...], what: What, count: int) -> None:
    if to and count > 0:
        asked.append(Resend(to, what, count))
