"""Three boards in processes of their own, and their pages in a real browser."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.board.processes import BoardProcess
from tests.chromium import needs_chromium, opened_browser

from ordercast.board.threads import MOST_IN_THREAD, MOST_THREADS

pytestmark = needs_chromium
GENEROUS = 60  # seconds
EVIL = '<img src=x onerror="document.title=1"><script>document.title=1</script>'
TREE = """
const tree = (article) => [
  article.querySelector(".text").textContent, [...article.lastElementChild.children].map(tree)];
return [...document.querySelectorAll(".thread")].map((thread) => tree(thread.firstElementChild));
"""


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in taken]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with opened_browser() as driver:
        yield driver


@pytest.fixture
def boards(tmp_path: Path) -> Iterator[list[BoardProcess]]:
    """n1, n2 below it, and n3 below n2. Each knows the one above it."""
    ports = free_ports(6)
    with ExitStack() as stack:
        found: list[BoardProcess] = []
        for place, (listen, web) in enumerate(zip(ports[:3], ports[3:], strict=True)):
            above = found[-1].name if found else ""
            more = ("--seed", f"127.0.0.1:{ports[place - 1]}", "--parent", above) if above else ()
            board = BoardProcess(tmp_path, f"n{place + 1}", listen, web, *more)
            found.append(stack.enter_context(board))
            board.until_placed(above)
        yield found


class Pages:
    """The pages of several boards, each in a tab of its own."""

    def __init__(self, browser: Any) -> None:
        self.browser = browser
        self._tabs: dict[str, str] = {}

    def open(self, board: BoardProcess) -> None:
        self.browser.switch_to.new_window("tab")
        self.browser.get(board.url)
        self._tabs[board.name] = self.browser.current_window_handle

    def close(self) -> None:
        """All but the first tab of the browser."""
        for tab in self._tabs.values():
            self.browser.switch_to.window(tab)
            self.browser.close()
        self.browser.switch_to.window(self.browser.window_handles[0])

    def at(self, name: str) -> None:
        self.browser.switch_to.window(self._tabs[name])

    def until(self, condition: Callable[[], object]) -> None:
        from selenium.webdriver.support.wait import WebDriverWait

        WebDriverWait(self.browser, GENEROUS, poll_frequency=0.05).until(lambda _: condition())

    def text(self, selector: str) -> str:
        found: str = self.browser.find_element("css selector", selector).text
        return found

    def tree(self) -> Any:
        return self.browser.execute_script(TREE)

    def texts(self) -> list[str]:
        """Of all posts, in the order of the page."""
        script = "return [...document.querySelectorAll('article > .text')].map(e => e.textContent)"
        found: list[str] = self.browser.execute_script(script)
        return found

    def sign_in(self, token: str) -> None:
        self.browser.find_element("name", "token").send_keys(token)
        self.browser.find_element("css selector", "button").click()

    def post(self, text: str, below: str = "") -> None:
        """By the form of the page. It is shown then."""
        if below:
            path = f"//article[div[@class='text' and text()='{below}']]/button"
            self.browser.find_element("xpath", path).click()
        author = self.browser.find_element("id", "author")
        author.clear()
        author.send_keys("ann")
        self.browser.find_element("id", "text").send_keys(text)
        self.browser.find_element("id", "send").click()
        self.until(lambda: text in self.texts())
        self.until(lambda: self.text("#sent") == "Posted.")


@pytest.fixture
def pages(browser: Any) -> Iterator[Pages]:
    browser.get_log("browser")  # nothing of an earlier test
    opened = Pages(browser)
    yield opened
    opened.close()


@pytest.mark.slow(30)
def test_pages_stay_right_while_a_parent_is_killed(
    boards: list[BoardProcess], pages: Pages
) -> None:
    n2 = boards[1]
    for board in boards:
        pages.open(board)
    pages.at("n3")
    pages.until(lambda: pages.text("#path") == "n2 › n1")
    assert pages.text("#parent") == "n2"
    pages.post("first")
    pages.at("n1")
    pages.until(lambda: pages.texts() == ["first"])
    pages.post("a reply", below="first")
    pages.post(EVIL)
    before = [[EVIL, []], ["first", [["a reply", []]]]]
    for name in ("n2", "n3"):
        pages.at(name)
        pages.until(lambda: pages.tree() == before)
    n2.kill()
    pages.at("n1")
    pages.post("while n2 is down", below="a reply")
    after = [["first", [["a reply", [["while n2 is down", []]]]]], [EVIL, []]]
    for name in ("n1", "n3"):
        pages.at(name)
        pages.until(lambda: pages.tree() == after)
    pages.until(lambda: pages.text("#parent") == "n1")
    pages.until(lambda: pages.text("#missing").endswith("Nothing is missing."))
    pages.at("n2")
    pages.until(lambda: "connection is lost" in pages.text("#live"))
    assert pages.tree() == before, "it goes on showing what it has"
    n2.start()
    pages.until(lambda: pages.tree() == after)
    pages.until(lambda: pages.text("#live") == "live")
    pages.browser.refresh()
    pages.until(lambda: pages.tree() == after)
    assert pages.text("#title") == "board at n2", "no script of a post has run"
    complaints = pages.browser.get_log("browser")
    assert not [each for each in complaints if each["source"] != "network"]


@pytest.mark.long
def test_a_page_that_was_open_all_the_time_is_as_a_new_one(
    boards: list[BoardProcess], pages: Pages
) -> None:
    """More threads, and more replies in one of them, than a page shows."""
    n1 = boards[0]
    pages.open(n1)
    first = n1.post("thread 0")
    for number in range(1, MOST_THREADS + 5):
        n1.post(f"thread {number}")
    original = n1.post("a long thread")
    last = original
    for number in range(MOST_IN_THREAD + 5):
        last = n1.post(f"reply {number}", below=last if number % 3 else original)
    n1.post("to what is not shown", below=first)
    pages.until(lambda: pages.texts()[:1] == ["to what is not shown"])
    assert len(pages.tree()) == MOST_THREADS
    assert "answers an earlier post" in pages.text("article")
    said = pages.text("#which")
    assert "Not shown: 7 older threads and 6 earlier replies" in said
    opened = pages.tree()
    assert len(pages.texts()) == MOST_THREADS - 1 + MOST_IN_THREAD
    pages.browser.refresh()
    pages.until(lambda: pages.tree() == opened)
    assert pages.text("#which") == said


@pytest.mark.slow(20)
def test_a_browser_goes_on_where_it_was_when_its_board_comes_back(
    boards: list[BoardProcess], pages: Pages
) -> None:
    n1, _, n3 = boards
    for board in (n1, n3):
        pages.open(board)
    pages.at("n1")
    for number in range(3):
        pages.post(f"thread {number}")
    pages.at("n3")
    pages.until(lambda: pages.texts() == ["thread 2", "thread 1", "thread 0"])
    n3.kill()
    pages.until(lambda: "connection is lost" in pages.text("#live"))
    pages.at("n1")
    pages.post("while n3 is down", below="thread 0")
    pages.at("n3")
    pages.browser.find_element("id", "text").send_keys("written while n3 is down")
    pages.browser.find_element("id", "author").send_keys("ben")
    pages.browser.find_element("id", "send").click()
    pages.until(lambda: "cannot be reached" in pages.text("#sent"))
    n3.start()
    pages.until(lambda: pages.texts()[:1] == ["thread 0"])
    assert pages.texts() == ["thread 0", "while n3 is down", "thread 2", "thread 1"]
    pages.browser.find_element("id", "send").click()
    pages.until(lambda: "written while n3 is down" in pages.texts())
    pages.at("n1")
    pages.until(lambda: "written while n3 is down" in pages.texts())
    assert len(pages.texts()) == len({*pages.texts()}) == 5
    assert n1.interrupt()[0] == 0


@pytest.mark.slow(10)
def test_a_person_signs_in_with_the_token(tmp_path: Path, pages: Pages) -> None:
    listen, web = free_ports(2)
    token = "correct-horse-battery"
    with BoardProcess(tmp_path, "n1", listen, web, "--token", token) as board:
        pages.open(board)
        assert not pages.browser.find_elements("id", "threads")
        pages.sign_in("wrong-horse-battery")
        pages.until(lambda: pages.browser.find_elements("css selector", "[role=alert]"))
        assert not pages.browser.find_elements("id", "threads")
        pages.sign_in(token)
        pages.until(lambda: pages.browser.find_elements("id", "threads"))
        pages.until(lambda: pages.text("#live") == "live")
        pages.post("x" * 300)
        pages.post("y" * 300, below="x" * 300)
        pages.browser.set_window_size(400, 900)
        wide, seen = pages.browser.execute_script(
            "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        assert wide <= seen
        pages.browser.delete_all_cookies()
        board.kill()
        board.start()
        pages.until(lambda: pages.browser.find_elements("name", "token"))
