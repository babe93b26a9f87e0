"""What cannot work in the settings of a group that gossips, in sentences.

Plain arithmetic on averages, cheap enough for every start of a group. Settings that it lets pass
may still be poor: the planner (studies/planner.py) computes what settings promise.
"""

from __future__ import annotations

import math


def minimum_history(events_per_round: float, hops: int) -> int:
    """Ids that must be remembered so that one is not forgotten, on average, while its event lives.

    Below it events come back as new. A plan takes more, because events do not come evenly.
    """
    return max(1, math.ceil(events_per_round * (hops + 1)))


def doubts(
    *,
    processes: int,
    fan_out: int,
    hops: int,
    events_per_message: int,
    history: int,
    events_per_round: float | None = None,
    recovery_buffer: int | None = None,
    asked: int | None = None,
) -> list[str]:
    """What cannot work in such settings, a sentence each.

    Without `events_per_round` nothing is said about load.
    """
    said = []
    others = processes - 1
    if fan_out > others:
        said.append(f"fan_out is {fan_out}, but a process has only {max(0, others)} others.")
    reach, sent = 1.0, min(fan_out, max(others, 0))
    for _ in range(hops + 1):
        reach = min(float(processes), reach * (1 + sent))
    if reach < processes:
        word = "hop" if hops == 1 else "hops"
        said.append(
            f"With fan_out {fan_out} and {hops} {word} an event reaches at most {reach:.0f} of "
            f"{processes} processes."
        )
    if asked is not None and asked > others:
        said.append(f"recovery asks {asked}, but a process has only {max(0, others)} others.")
    if events_per_round is None or events_per_round <= 0:
        return said
    if sent * events_per_message < events_per_round:
        said.append(
            f"events_per_message is {events_per_message}: with fan_out {fan_out} a process hears "
            f"of {sent * events_per_message} events a round, but {events_per_round:g} are made."
        )
    needed = minimum_history(events_per_round, hops)
    if history < needed:
        said.append(
            f"history is {history}: {events_per_round:g} events a round that live for {hops + 1} "
            f"rounds need at least {needed}, or events come back as new."
        )
    kept = math.ceil(events_per_round * 4 * (hops + 1))
    if recovery_buffer is not None and recovery_buffer < kept:
        said.append(
            f"recovery_buffer is {recovery_buffer}: an event may be asked for during "
            f"{4 * (hops + 1)} rounds, in which {kept} are made."
        )
    return said
