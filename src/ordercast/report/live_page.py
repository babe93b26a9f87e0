"""A page of a live stream: rates, latency, how much was judged, and which laws broke.

    page = LivePage(Path("live.html"))
    judged(live).writeStream.foreachBatch(page.take).start()

One file with no script and nothing from the network, which asks the browser to load it again every
other second. It is written to a new file that takes the old one's place, so nobody ever sees half a
page, and at most once a second however often batches come. All text that comes from a stream is
escaped. A page is for one query: a batch that Spark repeats is known by its number, and counted
once. It counts from the moment it was made, and a page that is made again begins with nothing.

What it keeps is bounded: two minutes of rates, the last breaks, and so many members.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from ordercast.errors import UsageError
from ordercast.spark.online import BROKEN, BUCKETS, STREAMED, quantile

WRITE_SECONDS = 1.0
RELOAD_SECONDS = 2
WINDOW_SECONDS = 120
RATE_SECONDS = 10
"""Rates and latency are those of so many seconds; the curve shows the whole window."""
BREAKS_SHOWN = 50
MEMBERS_COUNTED = 1000
MEMBERS_SHOWN = 100

Row = Mapping[str, Any]


class _Second:
    """What was judged in one second."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.events = self.messages = self.bytes = 0
        self.latency = [0] * len(BUCKETS)


class _Member:
    def __init__(self) -> None:
        self.events = self.messages = self.broken = 0
        self.offset = -1


class LivePage:
    def __init__(
        self, path: Path, title: str = "Live", clock: Callable[[], float] = time.time
    ) -> None:
        self._path = path
        self._title = title
        self._clock = clock
        self._lock = threading.Lock()  # the query has a thread of its own
        self._began = clock()
        self._written = float("-inf")
        self._last_batch = -1
        self._seconds: deque[_Second] = deque(maxlen=WINDOW_SECONDS + 1)
        self._members: dict[tuple[str, str], _Member] = {}
        self._broken: Counter[str] = Counter()
        self._breaks: deque[Row] = deque(maxlen=BREAKS_SHOWN)
        self._events = 0
        self.write(live=True)

    def take(self, frame: Any, batch: int) -> None:
        """For `foreachBatch`: a micro-batch of what `ordercast.spark.online.judged` gives."""
        self.add(batch, frame.collect())

    def add(self, batch: int, rows: Iterable[Row]) -> None:
        """Counts a batch, unless it was counted before, and writes the page if it is time."""
        with self._lock:
            if batch > self._last_batch:
                self._last_batch = batch
                for row in rows:
                    self._count(row)
            due = self._clock() - self._written >= WRITE_SECONDS
        if due:
            self.write(live=True)

    def close(self) -> None:
        """The last page, which does not ask to be loaded again."""
        self.write(live=False)

    def write(self, live: bool) -> None:
        with self._lock:
            text = self.text(live)
            self._written = self._clock()
            fresh = self._path.with_name(self._path.name + ".tmp")
            try:
                fresh.write_text(text, encoding="utf-8")
                fresh.replace(self._path)
            except OSError as error:
                raise UsageError(f"{self._path} cannot be written: {error.strerror}") from error

    # --- counting ----------------------------------------------------------------------------

    def _count(self, row: Row) -> None:
        key = (str(row["group"]), str(row["process"]))
        member = self._members.pop(key, None) or _Member()
        self._members[key] = member  # the last one was heard of last
        if len(self._members) > MEMBERS_COUNTED:
            del self._members[next(iter(self._members))]
        member.offset = max(member.offset, row["offset"])
        if row["kind"] == BROKEN:
            member.broken += 1
            self._broken[str(row["law"])] += 1
            self._breaks.appendleft(row)
            return
        second = self._second()
        for total in (member, second):
            total.events += row["events"]
            total.messages += row["messages"]
        self._events += row["events"]
        second.bytes += row["bytes"]
        for place, count in enumerate(row["latency"]):
            second.latency[place] += count

    def _second(self) -> _Second:
        now = int(self._clock())
        if not self._seconds or self._seconds[-1].at != now:
            self._seconds.append(_Second(now))
        return self._seconds[-1]

    # --- showing -----------------------------------------------------------------------------

    def text(self, live: bool) -> str:
        now = self._clock()
        count = sum(self._broken.values())
        laws = dict.fromkeys([*(law.name for law in STREAMED), *self._broken])
        told = f"{count:,} breaks" if count > 1 else "1 break" if count else "nothing broken"
        return _PAGE.format(
            reload=f'<meta http-equiv="refresh" content="{RELOAD_SECONDS}">' if live else "",
            title=escape(self._title),
            tone="bad" if count else "good",
            lead=f"{self._events:,} events judged, {told}",
            when=datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
            state="loads itself again" if live else "ended",
            seconds=f"{max(0, now - self._began):,.0f}",
            cards=self._cards(now),
            curve=self._curve(int(now)),
            laws=_table(["law", "breaks"], [(law, f"{self._broken[law]:,}") for law in laws], {1}),
            members=self._member_table(),
            breaks=self._break_table(),
        )

    def _cards(self, now: float) -> str:
        recent = [each for each in self._seconds if now - RATE_SECONDS < each.at]
        span = max(1.0, min(float(RATE_SECONDS), now - self._began))
        latency = [sum(counts) for counts in zip(*(each.latency for each in recent), strict=True)]
        cards = [
            ("events a second", f"{sum(each.events for each in recent) / span:,.0f}"),
            ("messages a second", f"{sum(each.messages for each in recent) / span:,.0f}"),
            ("kB a second", f"{sum(each.bytes for each in recent) / span / 1000:,.0f}"),
            ("latency, p50", _milliseconds(quantile(latency, 0.5))),
            ("latency, p99", _milliseconds(quantile(latency, 0.99))),
        ]
        return "".join(
            f'<div class="card"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
            for name, value in cards
        )

    def _curve(self, now: int) -> str:
        """Events a second over the window, as a drawing with its largest value."""
        known = {each.at: each.events for each in self._seconds}
        values = [known.get(now - WINDOW_SECONDS + place, 0) for place in range(WINDOW_SECONDS)]
        top = max(1, *values)
        points = " ".join(
            f"{5 * place},{80 - 76 * value / top:.1f}" for place, value in enumerate(values)
        )
        return (
            f'<svg viewBox="0 0 {5 * WINDOW_SECONDS} 84" role="img" aria-label="events a second">'
            f'<polyline points="{points}"/></svg>'
            f'<p class="soft">events a second, the last {WINDOW_SECONDS} s; the top is {top:,}</p>'
        )

    def _member_table(self) -> str:
        latest = list(self._members.items())[: -MEMBERS_SHOWN - 1 : -1]
        rows = [
            (
                group,
                process,
                f"{one.events:,}",
                f"{one.messages:,}",
                str(one.offset),
                f"{one.broken:,}",
            )
            for (group, process), one in sorted(latest, key=lambda each: each[0])
        ]
        heads = ["group", "recorder", "events", "messages", "last offset", "breaks"]
        return _table(heads, rows, {2, 3, 4, 5})

    def _break_table(self) -> str:
        if not self._breaks:
            return '<p class="soft">none so far</p>'
        rows = [
            (_time(row["at"]), row["law"], row["group"], str(row["offset"]), row["why"])
            for row in self._breaks
        ]
        return _table(["recorded", "law", "group", "offset", "what"], rows, {3})


def _time(nanoseconds: int) -> str:
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC).strftime("%H:%M:%S.%f")[:-3]


def _milliseconds(nanoseconds: int | None) -> str:
    return "–" if nanoseconds is None else f"{nanoseconds / 1e6:,.0f} ms"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: set[int]) -> str:
    def cells(tag: str, values: Sequence[str]) -> str:
        return "".join(
            f'<{tag} class="number">{escape(str(value))}</{tag}>'
            if place in numbers
            else f"<{tag}>{escape(str(value))}</{tag}>"
            for place, value in enumerate(values)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{cells("th", heads)}</tr>{body}</table></div>'


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
{reload}
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title} · ordercast</title>
<style>
:root {{
  --paper: #fdfdfb; --card: #ffffff; --ink: #1d2327; --soft: #5c666e; --line: #dfe3e6;
  --good: #1a7f46; --bad: #b3261e; --accent: #0f6292;
}}
@media (prefers-color-scheme: dark) {{
  :root {{
    --paper: #14181b; --card: #1b2024; --ink: #e6eaec; --soft: #9aa5ad; --line: #323a40;
    --good: #5bc98a; --bad: #ff8a80; --accent: #6fb7e9;
  }}
}}
* {{ box-sizing: border-box; }}
body {{
  margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 60rem; background: var(--paper);
  color: var(--ink); font: 16px/1.55 system-ui, "Segoe UI", Roboto, sans-serif;
}}
h1 {{ font-size: 1.9rem; line-height: 1.2; margin: 0 0 .4rem; }}
h2 {{ font-size: 1.25rem; margin: 2.2rem 0 .6rem; }}
p {{ margin: .4rem 0; }}
.soft {{ color: var(--soft); font-size: .9rem; }}
.mark {{ color: var(--soft); font-size: .85rem; letter-spacing: .04em; margin-bottom: .8rem; }}
.lead {{ font-size: 1.15rem; font-weight: 600; }}
.good {{ color: var(--good); }} .bad {{ color: var(--bad); }}
.cards {{ display: flex; flex-wrap: wrap; gap: .8rem; margin: 1.2rem 0; }}
.card {{ flex: 1 1 9rem; padding: .7rem 1rem; background: var(--card);
  border: 1px solid var(--line); border-radius: 8px; }}
.card b {{ display: block; font-size: 1.5rem; font-variant-numeric: tabular-nums; }}
.card span {{ color: var(--soft); font-size: .9rem; }}
svg {{ width: 100%; height: auto; display: block; }}
polyline {{ fill: none; stroke: var(--accent); stroke-width: 2; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: .92rem; }}
th, td {{ text-align: left; padding: .38rem 1.1rem .38rem 0; vertical-align: top;
  border-bottom: 1px solid var(--line); }}
th {{ color: var(--soft); font-weight: 600; white-space: nowrap; }}
.number {{ text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }}
</style>
</head>
<body>
<div class="mark">ordercast</div>
<h1>{title}</h1>
<p class="lead {tone}">{lead}</p>
<p class="soft">{when}, {state}; counted for {seconds} s</p>
<div class="cards">{cards}</div>
{curve}
<h2>Laws</h2>
{laws}
<h2>Recorders</h2>
{members}
<h2>Breaks</h2>
{breaks}
</body>
</html>
"""
