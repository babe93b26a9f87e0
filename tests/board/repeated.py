"""A page as its script has it (`board.js`), for tests that need no browser."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ordercast.board.threads import PageStep, ShownPost


class RepeatedPage:
    """It repeats what it is told, and knows no limits."""

    def __init__(self) -> None:
        self._posts: dict[str, ShownPost] = {}
        self._below: dict[str, list[str]] = {}  # by key: replies in their order
        self._threads: list[str] = []  # the one with the newest post is last
        self.below_another: list[str] = []  # replies whose original is shown elsewhere

    def step(self, step: PageStep) -> None:
        for key in step.replies_out:
            above = self._posts.pop(key).below
            moved = self._below.pop(key)
            for each in moved:
                self._posts[each] = replace(self._posts[each], below=above, absent="earlier")
            order = [*self._posts]  # as they came
            here = [each for each in self._below[above] if each != key]
            self._below[above] = sorted([*here, *moved], key=order.index)
        for key in step.threads_out:
            self._threads.remove(key)
            self._forget(key)
        self.show(step.post)

    def _forget(self, key: str) -> None:
        del self._posts[key]
        for below in self._below.pop(key):
            self._forget(below)

    def show(self, post: ShownPost) -> None:
        assert post.key not in self._posts, "it came twice"
        above = post.answers if post.answers in self._posts else post.below
        if above != post.below:
            self.below_another.append(post.key)
        self._posts[post.key], self._below[post.key] = post, []
        if above:
            self._below[above].append(post.key)
        thread = post.key
        while self._posts[thread].below:
            thread = self._posts[thread].below
        if thread in self._threads:
            self._threads.remove(thread)
        self._threads.append(thread)

    def tree(self) -> list[Any]:
        """The threads as they are shown, each a post and the replies below it."""
        return [self._tree(key) for key in reversed(self._threads)]

    def _tree(self, key: str) -> Any:
        return self._posts[key], [self._tree(each) for each in self._below[key]]

    def of_thread(self, tree: Any) -> list[str]:
        post, below = tree
        return [post.key, *(key for each in below for key in self.of_thread(each))]
