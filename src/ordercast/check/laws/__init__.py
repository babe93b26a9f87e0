"""All laws, one file each, and `check`, which judges one run by their plain judges.

This is the reference: whatever else judges traces must answer the same. A pure function of the
trace, with no I/O. What each law means exactly is said at the top of its file; what a law is, and
which faster forms it may have, in ../law.py. Every file in this folder is a law, and no other list
names them.

A law is asked only if the rows that it reads are as the contract wants them, and the run was traced
at all. Otherwise it is unknown, with the first reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import NamedTuple

from ordercast.check.history import PROMISES, FamilyPromises, History
from ordercast.check.implications import with_implied
from ordercast.check.law import Law
from ordercast.check.promise import (
    NotAsked,
    families_of,
    judge_families,
    promised,
    rows_of_groups,
)
from ordercast.check.verdict import Verdict, unknown, worst
from ordercast.errors import UsageError, unknown_word
from ordercast.trace.schema import Trace, TraceLevel


def _find() -> Iterable[Law]:
    files = (import_module(f"{__name__}.{one.name}") for one in iter_modules(__path__))
    return sorted((file.LAW for file in files), key=lambda law: (law.place, law.name))


LAWS: dict[str, Law] = {law.name: law for law in _find()}


class Checked(NamedTuple):
    """What was found about one run, and which laws were left out because something failed."""

    verdicts: list[Verdict]
    not_asked: list[NotAsked]


def check(
    trace: Trace,
    laws: Iterable[Law | str] | None = None,
    promises: FamilyPromises = PROMISES,
) -> list[Verdict]:
    """Judges one run by these laws (a name stands for a law of this folder), each once.

    Without `laws`, by what its family promises; of no family that is known, by all laws.
    """
    return judge_run(trace, laws, promises).verdicts


def judge_run(
    trace: Trace,
    laws: Iterable[Law | str] | None = None,
    promises: FamilyPromises = PROMISES,
) -> Checked:
    """As `check`, with the laws that were not asked."""
    wanted = named(laws)
    left_out: list[NotAsked] = []

    def judged(rows: Trace) -> list[Verdict]:
        history = History(rows, promises)
        if wanted is None:
            left_out.extend(not_asked(history))
        return [judge(law, history) for law in wanted_of(history, wanted)]

    if wanted is not None or not families_of(trace.header):
        return Checked(judged(trace), left_out)
    verdicts = judge_families(
        trace.header,
        lambda header, groups: judged(Trace(header, rows_of_groups(trace, groups))),
        LAWS,
    )
    return Checked(verdicts, left_out)


def named(laws: Iterable[Law | str] | None) -> list[Law] | None:
    """Each law once, those given by name looked up. UsageError: no law has the name."""
    if laws is None:
        return None
    found: dict[str, Law] = {}
    for law in laws:
        if isinstance(law, str):
            if law not in LAWS:
                raise UsageError(unknown_word("law", law, LAWS))
            law = LAWS[law]
        found.setdefault(law.name, law)
    return list(found.values())


def wanted_of(history: History, laws: Sequence[Law] | None) -> Sequence[Law]:
    """These laws, or without any those that the run's family promises for it."""
    if laws is not None:
        return laws
    promises = promised(history)
    if promises is None:
        unasked = (law for law in LAWS.values() if not law.promised_only)
        return [law for law in unasked if _has_parameters(law, history)]
    return _asked(history, promises)


def _has_parameters(law: Law, history: History) -> bool:
    return history.header.parameters.keys() >= set(law.parameters)


def not_asked(history: History) -> list[NotAsked]:
    """The laws that the run's family would have promised, had nothing failed: one entry or none."""
    promises = history.promises
    if promises is None or history.calm:
        return []
    asked = _asked(history, frozenset(promises.laws))
    in_calm = _asked(history, frozenset(promises.laws + promises.when_nothing_fails))
    laws = tuple(law.name for law in in_calm if law.name not in {one.name for one in asked})
    return [NotAsked(history.header.family or "", laws, history.first_failure)] if laws else []


def _asked(history: History, promises: frozenset[str]) -> list[Law]:
    """These laws, and those that follow from them and have rows in the run."""
    nowhere = [_not_given(name) for name in sorted(promises - LAWS.keys())]
    # A law that only follows is asked where the run has rows for it: without views, say, it would
    # be unknown, and nobody promised views.
    seen = {"submit", "deliver", *history.kinds}
    follow = with_implied(promises, LAWS.values())
    wanted = [
        law
        for law in LAWS.values()
        if (law.name in promises or (law.name in follow and seen.issuperset(law.reads)))
        and _has_parameters(law, history)
    ]
    return wanted + nowhere


def _not_given(name: str) -> Law:
    """A law that a family promises under a name that no law here has."""
    why = "its family promises it, but the checker does not have it: give the law as a value"
    return Law(name=name, says="", reads=(), judge=lambda _: unknown(name, why), skeleton_only=True)


def judge(law: Law, history: History) -> Verdict:
    """What the law's plain judge says, if its rows let it judge."""
    if history.header.level == TraceLevel.OFF:
        return unknown(law.name, "the run was not traced: its trace level is off")
    flaw = history.flaw(law.reads)
    if flaw is not None:
        return unknown(law.name, flaw)
    if law.services and (parts := parts_of(law, history.services)):
        return worst(law.judge(history.serving(part)) for part in parts)
    return law.judge(history)


def parts_of(law: Law, services: frozenset[str]) -> tuple[tuple[str, ...], ...]:
    """Which services are judged together in a run that has these; none: all events are."""
    if services <= {""} or any(services.issubset(part) for part in law.services):
        return ()
    return law.services
