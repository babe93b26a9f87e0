"""The page of a live stream: what it counts, when it is written, and that it escapes."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from ordercast.errors import UsageError
from ordercast.report.live_page import BREAKS_SHOWN, MEMBERS_COUNTED, LivePage
from ordercast.spark.online import BUCKETS, count_latencies


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Page(HTMLParser):
    """The words of a page, and every address that a browser would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.cells: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.cells.append(data.strip())


def judged(events: int, *, group: str = "g", process: str = "r", offset: int = 0) -> dict[str, Any]:
    latency = count_latencies([3_000_000] * events)
    return {
        "kind": "judged", "law": None, "group": group, "process": process, "offset": offset,
        "at": 0, "why": None, "events": events, "messages": 2 * events, "bytes": 100 * events,
        "latency": latency,
    }  # fmt: skip


def broken(law: str, why: str, offset: int = 7) -> dict[str, Any]:
    return judged(0, offset=offset) | {"kind": "broken", "law": law, "why": why, "at": 10**9}


def cell_after(page: Page, name: str) -> str:
    return page.cells[page.cells.index(name) + 1]


def test_the_page_shows_how_much_was_judged_and_which_laws_broke(tmp_path: Path) -> None:
    clock = Clock()
    page = LivePage(tmp_path / "live.html", "orders", clock)
    clock.now += 2
    page.add(0, [judged(1_500, offset=1_499), broken("fifo", "r delivered n1:1 after n1:2")])
    seen = Page((tmp_path / "live.html").read_text(encoding="utf-8"))
    assert "1,500 events judged, 1 break" in seen.cells
    assert cell_after(seen, "fifo") == "1"
    assert cell_after(seen, "no-duplication") == "0"
    assert "r delivered n1:1 after n1:2" in seen.cells
    assert seen.cells[seen.cells.index("events a second") - 1] == "750"  # in the 2 s there were
    p50 = seen.cells[seen.cells.index("latency, p50") - 1]
    assert p50 == f"{min(end for end in BUCKETS if end >= 3_000_000) / 1e6:.0f} ms"


def test_the_page_fetches_nothing_and_has_no_script(tmp_path: Path) -> None:
    LivePage(tmp_path / "live.html").add(0, [judged(1), broken("fifo", "x")])
    text = (tmp_path / "live.html").read_text(encoding="utf-8")
    seen = Page(text)
    assert seen.fetched == []
    assert not {"script", "link", "img", "iframe"} & set(seen.tags)
    assert "url(" not in text
    assert "@import" not in text


def test_text_of_a_stream_is_escaped(tmp_path: Path) -> None:
    nasty = "<script>alert(1)</script>{title}&\"'"
    clock = Clock()
    page = LivePage(tmp_path / "live.html", nasty, clock)
    clock.now += 5
    rows = [broken("fifo", nasty), judged(1, group=nasty, process=nasty)]
    page.add(0, [{**row, "group": nasty} for row in rows])
    text = (tmp_path / "live.html").read_text(encoding="utf-8")
    assert "<script>" not in text
    assert Page(text).cells.count(nasty) >= 3


def test_the_page_is_written_at_most_once_a_second_and_at_the_end(tmp_path: Path) -> None:
    clock = Clock()
    path = tmp_path / "live.html"
    page = LivePage(path, clock=clock)
    clock.now += 1
    page.add(0, [judged(10)])
    first = path.read_text(encoding="utf-8")
    clock.now += 0.5
    page.add(1, [judged(10)])
    assert path.read_text(encoding="utf-8") == first
    clock.now += 0.5
    page.add(2, [judged(10)])
    assert "30 events judged" in path.read_text(encoding="utf-8")
    page.add(3, [judged(12)])
    assert 'http-equiv="refresh"' in path.read_text(encoding="utf-8")
    page.close()
    last = path.read_text(encoding="utf-8")
    assert "42 events judged" in last
    assert 'http-equiv="refresh"' not in last
    assert sorted(each.name for each in tmp_path.iterdir()) == ["live.html"]


def test_a_batch_that_spark_repeats_is_counted_once(tmp_path: Path) -> None:
    page = LivePage(tmp_path / "live.html")
    page.add(0, [judged(5)])
    page.add(0, [judged(5)])
    page.add(1, [judged(5)])
    page.close()
    assert "10 events judged" in (tmp_path / "live.html").read_text(encoding="utf-8")


def test_the_page_remembers_a_bounded_number_of_rows(tmp_path: Path) -> None:
    page = LivePage(tmp_path / "live.html")
    page.add(0, [broken("fifo", f"break {number}.") for number in range(3 * BREAKS_SHOWN)])
    page.add(1, [judged(1, process=f"r{number}") for number in range(MEMBERS_COUNTED + 10)])
    page.close()
    text = (tmp_path / "live.html").read_text(encoding="utf-8")
    assert f"{3 * BREAKS_SHOWN} breaks" in text  # all are counted, the last are shown
    assert len(re.findall(r"break \d+\.", text)) == BREAKS_SHOWN
    assert f"break {3 * BREAKS_SHOWN - 1}." in text
    assert "break 0." not in text
    assert len(text) < 200_000


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere/live.html cannot be written"):
        LivePage(tmp_path / "nowhere" / "live.html")
