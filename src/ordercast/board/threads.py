"""Which posts a page shows, and where: replies below their originals, in some fifty threads.

Rules.
 1. Posts come in the order of the log, so an original comes before its replies. A reply stands
    below its original. Within a thread posts never change their order.
 2. The thread with the newest post is first. There are so many threads at most, so many posts in
    each, and so many posts in all: the thread whose newest post is oldest goes, or in a thread that
    is too long the oldest reply.
 3. Where the original is not there any more, the reply stands at the head of its thread, or else
    in a thread of its own, and says so.

A page repeats what it is told (`PageStep`) and decides nothing. Pure.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

MOST_THREADS = 50
MOST_IN_THREAD = 200
MOST_POSTS = 1000
MOST_GONE = 10_000
"""Replies that are not shown any more, of which it is still known in which thread they were."""

Absent: TypeAlias = Literal["", "earlier", "lost"]
"""Why the original of a reply is not shown: it is one of the earlier posts, or nobody has it."""


class ShownPost(msgspec.Struct, frozen=True):
    """A post as a page has it."""

    key: str
    origin: str  # the node that posted it
    at: int  # when, in Unix milliseconds on the clock of that node
    author: str = ""
    text: str = ""
    foreign: int = -1  # bytes of what is no post of a board; then `text` is how it begins
    answers: str = ""  # the key of the original
    below: str = ""  # the key of the post below which it stands; of none: it begins a thread
    absent: Absent = ""


class PageStep(NamedTuple):
    """What a page does: it shows a post, and first leaves out others."""

    post: ShownPost
    threads_out: tuple[str, ...] = ()  # by the keys of their first posts
    replies_out: tuple[str, ...] = ()  # what stands below them moves up


class Threads:
    """All that a page shows now."""

    def __init__(
        self,
        threads: int = MOST_THREADS,
        in_thread: int = MOST_IN_THREAD,
        posts: int = MOST_POSTS,
    ) -> None:
        assert threads > 0 and in_thread > 1 and posts > 1
        self.most_threads, self.most_in_thread, self.most_posts = threads, in_thread, posts
        self.hidden_threads = self.hidden_replies = 0  # that were shown, and are no more
        # By the key of the first post; the one with the newest post is last.
        self._threads: OrderedDict[str, list[ShownPost]] = OrderedDict()
        self._thread_of: dict[str, str] = {}  # of all posts that are shown
        self._thread_of_gone: OrderedDict[str, str] = OrderedDict()

    def __len__(self) -> int:
        """Threads that are shown."""
        return len(self._threads)

    def __iter__(self) -> Iterator[ShownPost]:
        """In an order in which a page that shows one after the other comes to the same."""
        for posts in self._threads.values():
            yield from posts

    def add(self, post: ShownPost, is_lost: Callable[[str], bool]) -> PageStep:
        """`post` is not placed yet. `is_lost`: whether the post of a key is gone for ever."""
        thread = self._thread_of.get(post.answers) or self._thread_of_gone.get(post.answers, "")
        if thread not in self._threads:
            thread = ""
        if post.answers in self._thread_of:
            post = replace(post, below=post.answers)
        elif post.answers:
            post = replace(
                post, below=thread, absent="lost" if is_lost(post.answers) else "earlier"
            )
        home = thread or post.key
        self._threads.setdefault(home, []).append(post)
        self._threads.move_to_end(home)
        self._thread_of[post.key] = home
        replies_out = tuple(self._shorten(home))
        threads_out = tuple(self._leave_out())
        return PageStep(self._threads[home][-1], threads_out, replies_out)

    def _shorten(self, home: str) -> Iterator[str]:
        """Leaves out the oldest replies of a thread that is too long."""
        posts = self._threads[home]
        while len(posts) > self.most_in_thread or (
            len(self._threads) == 1 and len(posts) > self.most_posts
        ):
            gone = posts.pop(1)
            for place, post in enumerate(posts):
                if post.below == gone.key:
                    posts[place] = replace(post, below=home, absent="earlier")
            del self._thread_of[gone.key]
            self._thread_of_gone[gone.key] = home
            if len(self._thread_of_gone) > MOST_GONE:
                self._thread_of_gone.popitem(last=False)
            self.hidden_replies += 1
            yield gone.key

    def _leave_out(self) -> Iterator[str]:
        """Leaves out the threads in which nothing was posted for longest."""
        while len(self._threads) > self.most_threads or (
            len(self._threads) > 1 and len(self._thread_of) > self.most_posts
        ):
            home, posts = self._threads.popitem(last=False)
            for post in posts:
                del self._thread_of[post.key]
            self.hidden_threads += 1
            yield home
