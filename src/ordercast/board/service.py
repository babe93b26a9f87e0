"""A board: it reads its feed into threads, posts, and says what each browser has still to show.

Every change of the page is a *step*, which bears the mark of the post that made it. The last steps
are kept. A browser comes with the mark of the last step that it has shown, and gets those behind
it, each once. If its mark is not among them, it was away for too long, or the board was started
again: then it gets the whole page anew. So nothing is repeated, and nothing skipped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from itertools import chain
from typing import Any

from ordercast import (
    Abandoned,
    Gap,
    LoggedGroup,
    Mark,
    OrdercastError,
    Post,
    UsageError,
    Waiting,
)
from ordercast.board.content import Content, encoded, foreign_text, read_content
from ordercast.board.events import BEGIN, COMMENT, server_event
from ordercast.board.keys import key_of_post, reference_of
from ordercast.board.missing import LostPosts
from ordercast.board.threads import ShownPost, Threads
from ordercast.net.readiness import waiting_text
from ordercast.net.subscription import LOST

MOST_STEPS = 1000
MOST_STEP_BYTES = 4 << 20
QUIET_SECONDS = 15.0
"""How often a browser is shown that the board is there."""
LOOK_SECONDS = 1.0
"""How often the place in the tree is looked at."""
POST_SECONDS = 20.0
MOST_READ = 20_000
"""Entries of the log that a board reads when it starts: the last ones."""
READ_AT_ONCE = 64


class BoardService:
    """Runs while `run` does. `join` joins the feed; again, if this incarnation is over."""

    def __init__(self, join: Callable[[], LoggedGroup], name: str) -> None:
        self.name, self._join = name, join
        self.feed = join()
        self.ended = ""  # why, as a sentence
        self._changed = asyncio.Event()  # of the next change: each gets another one
        self._next = 0  # the number of the next step
        self._state: dict[str, Any] = {}
        self._begin()

    def _begin(self) -> None:
        """With an empty page, which all browsers are to show."""
        self._next += 1
        self._first = self._next
        self._steps: deque[tuple[str, bytes]] = deque()  # from `_first` on: mark, event
        self._bytes = 0
        self._after: dict[str, int] = {}  # by mark: the number of the step behind it
        self._mark = ""  # of the last step
        self.threads, self.missing = Threads(), LostPosts()
        self._waiting: Waiting | None = None

    async def run(self) -> None:
        """Until the feed is left. OrdercastError: why it ended without us."""
        watching = asyncio.create_task(self._watch())
        try:
            while True:
                try:
                    await self._read()
                    return
                except Abandoned:
                    self.feed = self._join()
                    self._begin()
        except OrdercastError as error:
            self.ended = str(error)
            raise
        finally:
            watching.cancel()
            self.ended = self.ended or f"{self.name} has left the board"
            self._look()

    # --- reading ---------------------------------------------------------------------------------

    async def _read(self) -> None:
        feed = self.feed
        first = Mark(feed.log, max(feed.floor, feed.tail - MOST_READ))
        async with feed.since(first) as items:
            count = 0
            async for item in items:
                self._take(item)
                count += 1
                if count % READ_AT_ONCE == 0:
                    await asyncio.sleep(0)  # a long log must not keep browsers waiting

    def _take(self, item: object) -> None:
        if isinstance(item, Waiting):
            # Also for a parent. That is known of the feed, and posts come meanwhile.
            if item.why == LOST:
                self._waiting = item
        elif isinstance(item, Gap):
            self._waiting = None
            self.missing.add(item)
        elif isinstance(item, Post):
            was_waiting, self._waiting = self._waiting, None
            self._show(item)
            if not was_waiting:
                return
        self._look()

    def _show(self, post: Post) -> None:
        placed = self.threads.add(shown(post), self.missing.is_lost)
        mark = str(post.mark)
        step = server_event("post", {**placed._asdict(), "hidden": self._hidden()}, mark)
        self._steps.append((mark, step))
        self._bytes += len(step)
        self._next += 1
        self._mark, self._after[mark] = mark, self._next
        while len(self._steps) > MOST_STEPS or self._bytes > MOST_STEP_BYTES:
            gone, old = self._steps.popleft()
            self._bytes -= len(old)
            self._first += 1
            del self._after[gone]
        self._notify()

    def _hidden(self) -> tuple[int, int]:
        return self.threads.hidden_threads, self.threads.hidden_replies

    # --- the state -------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            self._look()
            await asyncio.sleep(LOOK_SECONDS)

    def _look(self) -> None:
        state = self.state()
        if state != self._state:
            self._state = state
            self._notify()

    def state(self) -> dict[str, Any]:
        """Where this node is in the tree, and what the board lacks, as plain values."""
        place = self.feed.status()["place"]
        if place["seeks"] is not None:
            place = {**place, "seeks": int(place["seeks"])}
        waiting = self._waiting or self.feed.waiting
        return {
            "node": self.name,
            "group": self.feed.name,
            "place": place,
            "waiting": waiting_text(waiting) if waiting is not None else "",
            "gaps": self.missing.sentences(),
            "gap_count": self.missing.count,
            "ended": self.ended,
        }

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # --- browsers --------------------------------------------------------------------------------

    async def events(self, mark: str) -> AsyncGenerator[bytes, None]:
        """All that a browser has to show which has shown everything up to this mark."""
        yield BEGIN
        number = self._after.get(mark, 0)
        state: dict[str, Any] = {}
        while True:
            changed = self._changed
            if number < self._first:
                number, page = self._next, self._whole_page()
                for event in page:
                    yield event
            while self._first <= number < self._next:
                event = self._steps[number - self._first][1]
                number += 1
                yield event
            if number < self._first:
                continue
            if state != self._state:
                state = self._state
                yield server_event("state", state)
            if self.ended:
                return
            try:
                async with asyncio.timeout(QUIET_SECONDS):
                    await changed.wait()
            except TimeoutError:
                yield COMMENT

    def _whole_page(self) -> Iterator[bytes]:
        """As it is now, however long a browser takes to read it."""
        posts, mark = [*self.threads], self._mark
        limits = {"threads": self.threads.most_threads, "hidden": self._hidden()}
        # The mark comes last: a browser that has part of the page comes back for all of it.
        return chain(
            [server_event("page", limits)],
            (server_event("shown", post) for post in posts),
            [server_event("whole", {}, mark)],
        )

    async def post(self, author: str, text: str, reply_to: str = "") -> dict[str, str]:
        """Its mark and its key. UsageError: what is wrong. TimeoutError: it may be posted yet."""
        content = Content(author.strip(), text.replace("\r\n", "\n").strip())
        data = encoded(content)
        original = reference_of(reply_to) if reply_to else None
        if self.ended:
            raise UsageError(self.ended)
        try:
            async with asyncio.timeout(POST_SECONDS):
                mark = await self.feed.post(data, reply_to=original)
        except TimeoutError:
            raise TimeoutError(
                f"{self.name} has not stored the post after {POST_SECONDS:.0f} s"
                f"{self.feed.reason()}. It may still appear: look before you post it again"
            ) from None
        assert mark.reference is not None
        return {"mark": str(mark), "key": key_of_post(mark.reference)}


def shown(post: Post) -> ShownPost:
    """A post of the feed as a page has it, whoever posted it, and whatever."""
    content = read_content(post.data)
    return ShownPost(
        key_of_post(post.reference),
        post.sender.name,
        post.at // 1_000_000,
        author=content.author if content else "",
        text=content.text if content else foreign_text(post.data),
        foreign=-1 if content else len(post.data),
        answers=key_of_post(post.reply_to) if post.reply_to is not None else "",
    )
