"""A real browser for tests of pages: Chromium and its driver.

`make test` installs Debian's where it may.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

try:
    from selenium import webdriver
except ImportError:
    webdriver = None
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
needs_chromium = [
    pytest.mark.slow,
    pytest.mark.skipif(webdriver is None, reason="selenium is not installed"),
    pytest.mark.skipif(
        not (CHROMIUM and DRIVER), reason="no chromium with chromedriver on this machine"
    ),
]


@contextmanager
def opened_browser() -> Iterator[Any]:
    """It logs what its pages say, and what they ask for."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()
