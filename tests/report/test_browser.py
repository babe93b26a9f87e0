"""The page in a real browser: it is readable at two widths and in the dark, and can be clicked.

Needs Chromium and its driver; `make test` installs Debian's where it may.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from tests.chromium import needs_chromium, opened_browser
from tests.report.pages import folder_of_a_sweep

from ordercast.report.page import write_page
from ordercast.report.run_page import run_page
from ordercast.report.sweep_page import sweep_page
from ordercast.testing import simulate
from ordercast.trace.parquet import write_trace

pytestmark = needs_chromium
SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
WIDTHS = (1280, 400)
TITLES = ["Laws", "Figures", "Every combination", "What broke", "Settings"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with opened_browser() as driver:
        yield driver


@pytest.fixture
def page(browser: Any, tmp_path: Path) -> Any:
    path = tmp_path / "report.html"
    write_page(path, sweep_page(folder_of_a_sweep(tmp_path, sound=False)))
    browser.set_window_size(WIDTHS[0], 900)
    browser.get(path.as_uri())
    return browser


@pytest.fixture
def trees(browser: Any, tmp_path: Path) -> Any:
    """The page of a run of 31 nodes that form a tree."""
    write_trace(tmp_path, simulate(SCENARIOS / "feed-many.toml", 1).trace)
    path = tmp_path / "report.html"
    write_page(path, run_page(tmp_path))
    browser.get(path.as_uri())
    return browser


def sees(browser: Any, selector: str) -> list[Any]:
    return [each for each in browser.find_elements("css selector", selector) if each.is_displayed()]


def test_every_link_leads_to_its_section(page: Any) -> None:
    links = sees(page, "nav a")
    assert [link.text for link in links] == TITLES
    for link in links:
        link.click()
        fragment = page.current_url.partition("#")[2]
        assert page.find_element("id", fragment).find_element("css selector", "h2").text == (
            link.text
        )


def test_broken_runs_open_and_close(page: Any) -> None:
    first, second = sees(page, "#broken details")
    assert len(sees(page, "#broken svg")) == 1, "the first one is open"
    second.find_element("tag name", "summary").click()
    assert "numbers <increase>" in second.text
    first.find_element("tag name", "summary").click()
    assert not sees(page, "#broken svg")
    sees(page, "#settings summary")[0].click()
    assert "network.loss" in page.find_element("id", "settings").text


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_a_window_of(page: Any, width: int) -> None:
    """Whatever is wider scrolls in its own place, and not the whole page."""
    page.set_window_size(width, 900)
    wide, seen = page.execute_script(
        "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wide <= seen


def test_the_page_is_readable_in_dark_and_light_mode(page: Any) -> None:
    for scheme in ("light", "dark"):
        feature = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", feature)
        ink, paper = page.execute_script(
            "const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]"
        )
        assert contrast(ink, paper) >= 7, (scheme, ink, paper)
        for selector in (".bad", ".good", ".soft", "nav a", "h2"):
            for each in sees(page, selector)[:3]:
                colour = each.value_of_css_property("color")
                assert contrast(colour, paper) >= 4.5, (scheme, selector, colour)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_tree_of_many_nodes_can_be_read_at_a_width_of(trees: Any, width: int) -> None:
    """No node covers another, words are not tiny, and what is wider scrolls in its own place."""
    trees.set_window_size(width, 900)
    wide, seen = trees.execute_script(
        "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wide <= seen
    pictures = sees(trees, "svg.tree")
    assert len(pictures) == 4
    for picture in pictures:
        boxes = trees.execute_script(BOXES, picture)
        assert len(boxes) >= 20
        assert all(bottom - top >= 12 for _, top, _, bottom in boxes)
        for one, other in combinations(boxes, 2):
            apart = one[2] <= other[0] or other[2] <= one[0]
            assert apart or one[3] <= other[1] or other[3] <= one[1]
    assert len(sees(trees, "svg.lanes .span")) > 31


BOXES = """
return [...arguments[0].querySelectorAll('rect')].map(each => {
  const box = each.getBoundingClientRect(); return [box.left, box.top, box.right, box.bottom]
})
"""


def contrast(one: str, other: str) -> float:
    """Between two colours, as the Web Content Accessibility Guidelines count it."""
    lights = sorted(light(colour) for colour in (one, other))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def light(colour: str) -> float:
    numbers = colour[colour.index("(") + 1 : -1].split(",")[:3]
    parts = [float(number) / 255 for number in numbers]
    linear = [
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_page_fetches_nothing_and_logs_no_error(page: Any) -> None:
    assert page.get_log("browser") == []
    asked = [entry["message"] for entry in page.get_log("performance")]
    requests = [each for each in asked if "Network.requestWillBeSent" in each]
    assert requests
    assert not [each for each in requests if '"url":"http' in each]
