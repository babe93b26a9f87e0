"""How commands speak: data on stdout, narration on stderr, colours only for people."""

from __future__ import annotations

import shutil
import sys
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from ordercast.check.metric import percentile
from ordercast.check.metrics.tickets import TicketCounts
from ordercast.check.promise import NotAsked
from ordercast.check.verdict import Answer, Verdict
from ordercast.units import SECOND


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # rich would exit with 1, which here means a broken law


def stdout() -> Console:
    """The console for data. Off a terminal: no colours, and lines as long as they are."""
    return _Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 100)


def stderr() -> Console:
    return _Console(stderr=True, highlight=False, soft_wrap=True)


class _Rate(ProgressColumn):
    """How many a second are done, lately."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.1f}/s", "progress.data.speed")


def progress(console: Console, *, hidden: bool = False) -> Progress:
    """A bar with how many are done, how fast, and how long it will take, for people only."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=hidden or not console.is_terminal,
    )


def json_line(value: Any) -> None:
    """One JSON object on one line."""
    print(msgspec.json.encode(value, enc_hook=str, order="deterministic").decode())


def explanation_width() -> int:
    """As wide as the terminal, and never wider than is easy to read."""
    return min(100, shutil.get_terminal_size((100, 24)).columns) - 4


COLOURS = {Answer.HOLDS: "green", Answer.BROKEN: "bold red", Answer.UNKNOWN: "yellow"}


def laws_in_short(verdicts: list[Verdict]) -> Text:
    """`5 hold`, or the names of those that do not."""
    if not verdicts:
        return Text("not judged", COLOURS[Answer.UNKNOWN])
    parts = []
    for answer in (Answer.BROKEN, Answer.UNKNOWN):
        names = [verdict.law for verdict in verdicts if verdict.answer is answer]
        if names:
            parts.append(Text(f"{answer}: {', '.join(names)}", COLOURS[answer]))
    count = sum(verdict.answer is Answer.HOLDS for verdict in verdicts)
    if count:
        word = "holds" if count == 1 else "hold"
        parts.append(Text(f"{count} {word}", COLOURS[Answer.HOLDS]))
    return Text("; ").join(parts)


def verdict_fields(verdict: Verdict) -> dict[str, Any]:
    """A verdict as it appears in --json."""
    fields: dict[str, Any] = {"law": verdict.law, "answer": str(verdict.answer)}
    if verdict.why:
        fields["why"] = verdict.why
    if verdict.witness:
        fields["witness"] = [
            {
                name: value
                for name, value in msgspec.structs.asdict(row).items()
                if value is not None
            }
            for row in verdict.witness
        ]
    return fields


def not_asked_fields(found: list[NotAsked]) -> list[dict[str, Any]]:
    """The laws that were not asked, as they appear in --json."""
    return [msgspec.structs.asdict(one) for one in found]


def ticket_fields(tickets: TicketCounts) -> dict[str, Any]:
    """Tickets as JSON has them; times in seconds."""
    return {
        "granted": tickets.granted,
        "refused": tickets.refused,
        "given_back": tickets.given_back,
        "lost": tickets.lost,
        "reclaimed": len(tickets.reclaims),
        "waits": [wait / SECOND for wait in tickets.waits],
        "reclaims": [reclaim / SECOND for reclaim in tickets.reclaims],
    }


def tickets_in_short(tickets: TicketCounts) -> str:
    """How often tickets were had, turned down and taken over, and how long that took."""
    found = f"tickets: {tickets.granted} granted{_times(tickets.waits, 'after')}, "
    found += f"{tickets.refused} claims refused, {tickets.given_back} given back, "
    found += f"{tickets.lost} lost; {len(tickets.reclaims)} reclaimed"
    return found + _times(tickets.reclaims, "after")


def _times(times: tuple[int, ...], word: str) -> str:
    if not times:
        return ""
    ordered = sorted(times)
    middle, late = (percentile(ordered, share) / SECOND for share in (0.5, 0.99))
    return f" {word} {middle:.2f} s (median; 99 %: {late:.2f} s)"
