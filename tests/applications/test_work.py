"""examples/work.py: every task is completed, and what a dead worker has completed is known."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from tests.applications.driven import Driven, crashes, example, stormy

from ordercast import NodeId
from ordercast.units import MILLISECOND

work = example("work")
WORKERS = 5
TASKS = 200
SEEDS = [*range(1, 31), 1027, 1050]  # in the last two, results came after a merge


class Shop:
    """One run, and what the clients of each worker were answered in which view."""

    def __init__(self, worker: type[Any], service: str, seed: int) -> None:
        scenario = stormy(WORKERS, *crashes(seed, WORKERS, back=1, for_good=1))

        def make(me: NodeId, voters: tuple[NodeId, ...], journal: bytes) -> Any:
            return worker(me, scenario.names, TASKS, journal)

        self.seed = seed
        self.answered: dict[tuple[int, str], list[str]] = {}  # before a transitional view
        self.seen: dict[NodeId, tuple[int, int]] = {}  # its view, and how many it has answered
        self.checked = 0  # answers of members of a view that the others had to know at its end
        self.run = Driven(make, scenario, seed, service)
        self.run.watch = self._watch
        self.run.act(60 * MILLISECOND, self._toil, to_the_end=True)
        self.run.go()

    @staticmethod
    def _toil(worker: Any, draw: Random) -> list[bytes]:
        task = worker.next_task()
        return [] if task is None else worker.finish(task)

    def _watch(self, worker: Any) -> None:
        before, count = self.seen.get(worker.me, (worker.view.id, 0))
        self.seen[worker.me] = worker.view.id, len(worker.answered)
        if worker.is_regular:
            key = worker.view.id, worker.me.name
            self.answered.setdefault(key, []).extend(worker.answered[count:])
        if before != worker.view.id:
            self._judge(worker, before)

    def _judge(self, worker: Any, ended: int) -> None:
        """Does it know all that the members of the view that has ended have answered in it?"""
        for name in self.run.names:
            for task in self.answered.get((ended, name), ()):
                self.checked += 1
                known = task in worker.pages[name]
                assert known, f"seed {self.seed}: {worker.me} does not know that {name} did {task}"


def count_all(worker: type[Any], service: str = "safe") -> Counter[str]:
    found: Counter[str] = Counter()
    for seed in SEEDS:
        shop = Shop(worker, service, seed)
        workers = shop.run.alive()
        assert len(workers) == WORKERS - 1
        for one in workers:
            assert one.pages == workers[0].pages, f"seed {seed}, {one.me}: they differ"
            times = Counter(task for page in one.pages.values() for task in page)
            twice = [task for task in map(str, range(TASKS)) if times[task] > 1]
            assert one.twice == twice, f"seed {seed}: told {one.twice}, and there are {twice}"
            found["reclaimed"] += len(one.reclaimed)
        assert not workers[0].left(), f"seed {seed}: tasks are left"
        found["checked"] += shop.checked
        found["twice"] += len(workers[0].twice)
    return found


def test_every_task_is_completed_and_what_the_missing_have_completed_is_known() -> None:
    found = count_all(work.Worker)
    assert found["checked"] > 1000
    assert found["reclaimed"] > 100
    assert found["twice"] > 0


class AnswersTooEarly(work.Worker):
    """Its client has the result before the group has."""

    def finish(self, task: str) -> list[bytes]:
        self.answered.append(task)
        return super().finish(task)

    def done(self, key: str, what: list[Any]) -> None: ...


class DealsOutOnce(work.Worker):
    """It does not take over what a member that is gone has left."""

    dealt: dict[str, list[str]] | None = None

    def settled(self) -> None:
        super().settled()
        if self.dealt is None and self.is_whole:
            self.dealt = self.portions
        if self.dealt is not None:
            self.portions = self.dealt


class MergesNothing(work.Worker):
    def merged(self, name: str) -> dict[str, Any]:
        return self.pages[name]


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (AnswersTooEarly, "does not know"),
        (DealsOutOnce, "left"),
        (MergesNothing, "differ"),
    ],
)
def test_a_worker_that_breaks_a_rule_is_found(broken: type[Any], why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        count_all(broken)


def test_agreed_messages_are_not_enough_to_know_what_the_missing_have_completed() -> None:
    with pytest.raises(AssertionError, match="does not know"):
        count_all(work.Worker, "agreed")
