"""The settings of the published membership protocol: its readings and repairs, and its run.

Amir, Dolev, Kramer, Malki: Membership algorithms for multicast communication groups (Transis,
1992). As they are by default, the rules are those of Figures 3 to 8, with one exception: a machine
counts its own FA and JOIN messages, because without that nobody ever assents (`own_counts`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from ordercast.kernel.family import Level
from ordercast.studies.published_synchrony.names import Machines
from ordercast.units import MILLISECOND, Duration, take_units


class MembershipOptions(Level, frozen=True, kw_only=True):
    # --- the group
    service: Literal["causal", "agreed", "safe"] = "causal"  # of all its messages
    sides: tuple[Machines, ...] = ()  # the configurations at the beginning; empty: one of all
    joins: bool = True  # Figures 5 to 8 beside Figure 3; False: foreign messages are ignored
    # --- Figures 3 and 5 to 7: as printed, or repaired
    own_counts: bool = True  # LAST[p], J_LAST[p], F_LAST[p] hold what p itself has sent
    # Figure 7: an FA message that fits is answered each time, or only if F_after grew.
    answers: Literal["every", "growth"] = "every"
    # A machine that reads its own name in f_set: it takes that over, or excludes the sender.
    own_removal: Literal["assents", "excludes"] = "assents"
    # FA messages about machines that are out already: they count as any other, or not at all.
    late: Literal["counts", "ignored"] = "counts"
    # Figure 7: a JOIN message from outside of J is ignored, or remembered until J holds its sender.
    outside: Literal["ignored", "remembered"] = "ignored"
    # --- readings, where the text leaves two
    # The FA messages "of F": all whose f_set is part of F, or those whose f_set is F.
    changes: Literal["message", "set"] = "message"
    # When Stage 2 is over: with the assent, as in Figure 4, or never, as Figure 7 is printed.
    ends: Literal["assent", "never"] = "assent"
    # What is in front of a change and not acknowledged by all: the change waits, or it is delivered
    flush: Literal["waits", "delivers"] = "waits"
    # --- the run
    alpha: Duration = Duration(50 * MILLISECOND)  # Stage 1
    prompt_after: Duration = Duration(10 * MILLISECOND)  # within it, messages are acknowledged
    beat: Duration = Duration(20 * MILLISECOND)
    detect: Duration | None = None  # silence that is a communication break; None: inputs say so
    limit: Annotated[int, Meta(ge=1, le=20_000)] = 2000  # messages that a machine may send

    def __post_init__(self) -> None:
        take_units(self)
        if min(self.alpha, self.prompt_after, self.beat) <= 0:
            raise ValueError("alpha, prompt_after and beat must be longer than nothing")
        if self.detect is not None and self.detect < 2 * self.beat:
            raise ValueError("detect must be at least two beats")
        listed = [name for side in self.sides for name in side]
        if len(listed) != len(dict.fromkeys(listed)):
            raise ValueError("sides: a machine begins in one configuration")
