"""What the application of a group asks about other sides, after views have merged."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ordercast.errors import OrdercastError
from ordercast.kernel.inputs import DifferenceWanted, Input
from ordercast.net.progress import Progress
from ordercast.types import Difference, Merged, NodeId


class DifferenceLost(OrdercastError):
    """No member of that side could be asked what it delivered."""


class _Question:
    """One call that waits."""

    __slots__ = ("answer", "side", "view")

    def __init__(self, view: int, side: tuple[NodeId, ...]) -> None:
        self.view = view
        self.side = side
        self.answer: Difference | None = None


class MergeQuestions:
    def __init__(self, progress: Progress, give: Callable[[Input], None]) -> None:
        self._progress = progress
        self._give = give  # to the machine
        self._open: list[_Question] = []

    def heard(self, item: Merged | Difference) -> Merged | None:
        """What the application reads of it."""
        if isinstance(item, Merged):
            return msgspec.structs.replace(item, fetch=self._fetch)
        for question in self._open:
            if (question.view, question.side) == (item.view, item.side):
                question.answer = item
        self._progress.changed.notify()
        return None

    async def _fetch(self, view: int, side: tuple[NodeId, ...]) -> Difference:
        question = _Question(view, side)
        self._open.append(question)
        try:
            self._give(DifferenceWanted(self._progress.group, view, side))
            while question.answer is None:
                await self._progress.change()
        finally:
            self._open.remove(question)
        if question.answer.unheard == side:
            named = ", ".join(map(str, side))
            raise DifferenceLost(
                f"{self._progress.group!r}: none of {named} is there to tell what it delivered "
                "apart; what is left of it is in the states of other members"
            )
        return question.answer
