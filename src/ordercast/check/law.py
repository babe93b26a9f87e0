"""What a law is: one frozen value, with its sentence, its judge and its faster forms.

The plain judge is the law: a pure function of one run's history. The other forms are optional and
only faster. An engine (in `ordercast.spark`) that finds the form that it needs uses it; without
the form it asks the plain judge. A form computes nothing by itself: it names facts, and calls
operations, of the object that the engine passes in, so this package needs neither numpy nor Spark.

  judge    the answer, from all rows of a run
  select   the vector form: a row selection, rows on which `judge` gives the same verdict as on the
           whole run, word by word; None for "all rows are needed"
  prove    the form for a run that is read in slices: whether the law is known to hold. A proof that
           fails says nothing: the law may hold all the same
  stream   the streaming form: breaks among the deliveries of one group at one process, told as
           they come, from a bounded memory
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from ordercast.check.facts import Rows, RunFacts, SliceFacts
from ordercast.check.history import EVENT_KINDS, History
from ordercast.check.verdict import Verdict

EVENTS = EVENT_KINDS
MEMBERS = ("join", "leave", "view", "suspect")

ORDERED = ("", "agreed", "safe")
"""What services promise whose events have one order, and events without a service."""

ORIGINS = 1000
"""The most origins that a streaming form remembers: that which was silent longest is forgotten."""


class LawForm(StrEnum):
    """Which form of a law gave its answer."""

    PLAIN = "plain"
    VECTOR = "vector"
    SLICES = "slices"
    STREAM = "stream"


class Proof(NamedTuple):
    """The form for slices. `needs` names the further passes over the run that it asks for."""

    holds: Callable[[SliceFacts], bool]
    needs: tuple[str, ...] = ()


class Delivery(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a stream tells of one delivery."""

    offset: int
    at: int
    incarnation: int
    origin: str
    number: int
    index: int | None = None
    stamp: tuple[int, ...] | None = None
    size: int | None = None
    cause: str | None = None  # what its service promises, where the family has several
    messages: int = 0


class Streaming(NamedTuple):
    """The streaming form.

    `memory()` is what a group at a process has seen before its first delivery: a value that
    msgspec can write down, and bounded. `breaks` adds further deliveries to it, and yields those
    that break the law, with the reason. Nothing may be called broken because of what was forgotten.
    """

    memory: Callable[[], Any]
    breaks: Callable[[Any, Iterable[Delivery]], Iterator[tuple[Delivery, str]]]


class Implication(NamedTuple):
    """Where this law and those of `given` hold, `law` is not broken."""

    law: str
    because: str
    source: str
    given: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Law:
    """One law. Only the first four fields are needed.

    reads            the kinds of row that it reads: where one of them is flawed, it is unknown
    remark           what the sentence leaves open, for docs/laws.md
    unknown_when     when it cannot be decided, for docs/laws.md
    finished_only    it speaks of what never happened: unknown, unless the run has finished
    skeleton_only    membership, view and ticket rows decide it, and no event beyond the few of the
                     skeleton rows: every engine judges these alone
    parameters       what the header must say: without it the law is not asked, unless by its name
    promised_only    most systems do not mean to keep it: asked where a family promises it, or by its
                     name
    shows_absence    a witness cannot show what is missing: pictures show what is around it
    services         which services are judged together, where a run has services, by what they
                     promise (`Guarantee`): each part is a run of its own, without the events of
                     the others. "" stands for events that have none. Nothing here: all events are
                     judged together
    implies          which laws follow from it
    place            where it is listed: smaller first, and then by name
    """

    name: str
    says: str
    reads: tuple[str, ...]
    judge: Callable[[History], Verdict]
    remark: str = ""
    unknown_when: str = ""
    finished_only: bool = False
    skeleton_only: bool = False
    parameters: tuple[str, ...] = ()
    promised_only: bool = False
    shows_absence: bool = False
    select: Callable[[RunFacts], Rows | None] | None = None
    prove: Proof | None = None
    stream: Streaming | None = None
    services: tuple[tuple[str, ...], ...] = ()
    implies: tuple[Implication, ...] = ()
    place: int = 1000
