"""Workers share tasks, and take over what a worker that fails has not completed.

    python examples/work.py

In each view the tasks that are left are dealt out by turns to its members. A worker sends the
result of a task to the group, as safe. When the result is delivered, the task is completed: every
member of the view has the result, and the worker answers its client. So the other workers know
which tasks a worker that fails has completed, and do the rest themselves.

If the network splits, each side takes over the tasks of the other: all of them are completed, and
some twice. When the sides merge, the ones that were completed twice are found and told.

The program runs four nodes in one process. One of them crashes, the rest splits in two sides, which
do the work to the end, and the network heals.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from loopback import Loopback
from merging import Page, Replica

from ordercast import NodeId


class Worker(Replica):
    """What it has on its page: by task, the result."""

    def __init__(
        self, me: NodeId, names: Iterable[str], tasks: int, journal: bytes = b"{}"
    ) -> None:
        super().__init__(me, names, journal)
        self.tasks = tasks
        self.portions: dict[str, list[str]] = {}  # dealt out to the members of this view
        self.answered: list[str] = []  # our tasks that are completed: the client has the result
        self.reclaimed: list[tuple[str, list[str], list[str]]] = []  # who, completed, left
        self.twice: list[str] = []  # completed by two workers, as far as is known

    def completed(self) -> set[str]:
        return {task for page in self.pages.values() for task in page}

    def left(self) -> list[str]:
        completed = self.completed()
        return [task for task in map(str, range(self.tasks)) if task not in completed]

    def next_task(self) -> str | None:
        """What to do next. None: wait, or there is nothing left for us."""
        if not self.is_settled or not self.is_regular or self.open:
            return None
        completed = self.completed()
        mine = [task for task in self.portions.get(self.me.name, ()) if task not in completed]
        return mine[0] if mine else None

    def finish(self, task: str) -> list[bytes]:
        return self.ask([task, f"{task} by {self.me.name}"])

    def may_decide(self, sender: NodeId) -> bool:
        return True  # a result is one, wherever it is delivered

    def decide(self, name: str, key: str, what: list[Any]) -> None:
        task, result = what
        self.pages[name][task] = result
        self._tell_twice()  # it may have waited through the merge of two sides

    def done(self, key: str, what: list[Any]) -> None:
        self.answered.append(what[0])

    def merged(self, name: str) -> Page:
        """Results come while sides merge, too: nothing of what we have is lost."""
        found = self.pages[name]
        for report in self.reports:
            found = found | report["pages"][name]
        return found

    def settled(self) -> None:
        assert self.view is not None
        here = [member.name for member in self.view.members]
        for name, portion in self.portions.items():
            if name not in here:
                completed = [task for task in portion if task in self.pages[name]]
                left = [task for task in portion if task not in self.completed()]
                self.reclaimed.append((name, completed, left))
                self.news.append(
                    f"{name} is gone: it completed {len(completed)} of {len(portion)} tasks,"
                    f" and {len(left)} are dealt out again"
                )
        self._tell_twice()
        left = self.left()
        self.portions = {name: left[place :: len(here)] for place, name in enumerate(here)}

    def _tell_twice(self) -> None:
        times = Counter(task for page in self.pages.values() for task in page)
        twice = [task for task in map(str, range(self.tasks)) if times[task] > 1]
        if twice != self.twice:
            self.twice = twice
            self.news.append(f"completed by two workers: {', '.join(twice)}")


NAMES = ("n1", "n2", "n3", "n4")
TASKS = 60


def make(me: NodeId, voters: Collection[NodeId], journal: bytes) -> Worker:
    return Worker(me, NAMES, TASKS, journal)


async def toil(group: Loopback, name: str) -> None:
    while group.is_alive(name):
        task = group.core(name).next_task()
        await asyncio.sleep(0.02)  # the work itself
        if task is not None and group.is_alive(name) and group.core(name).next_task() == task:
            await group.send(name, group.core(name).finish(task))


async def main() -> None:
    async with Loopback(make, NAMES, first_port=7171) as group:
        await group.start()
        await group.until(lambda: all(core.is_whole and core.is_settled for core in group.cores))
        toiling = [asyncio.create_task(toil(group, name)) for name in NAMES]
        await group.until(lambda: len(group.core("n1").completed()) >= 10)
        await group.crash("n4")
        await group.until(lambda: any(one[0] == "n4" for one in group.core("n1").reclaimed))
        await group.cut("n1 n2", "n3")
        await group.until(lambda: not any(core.left() for core in group.cores))
        await group.heal()
        await group.until(
            lambda: all(len(core.view.members) == 3 and core.is_settled for core in group.cores)
        )
        for task in toiling:
            task.cancel()
        pages = [core.pages for core in group.cores]
        assert pages[0] == pages[1] == pages[2]
        print(f"all {TASKS} tasks are completed, {len(group.core('n1').twice)} of them twice")


if __name__ == "__main__":
    asyncio.run(main())
