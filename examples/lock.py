"""Mutual exclusion that survives its holder: if the holder of a lock fails, the next one gets it.

    python examples/lock.py

Members queue for the lock in one order, and the first in the queue holds it. A holder that is not
in the next view has lost it. Each holder has a number (its *token*), which only grows.

What does "one holder at a time" mean when the network splits?

 - Only the primary side has a holder (see primary.py). In each of its views there is one at a time,
   and all its members agree on it. A holder that is cut off from the primary side is no longer one.
 - It learns that only when its own view ends. Until then it believes that it holds the lock, while
   the primary side may have another holder: no program without synchronised clocks can exclude
   that. But what it does with the lock is a message to the group (`write`) that carries the token,
   and counts only if it is final: that needs all members of the view. So in the one history of
   writes, each is by the holder at that place, and never by an earlier one after a later one.

The program runs five nodes in one process. All of them want the lock. The first holder crashes, the
second is cut off, and the network heals.
"""

import asyncio
from collections.abc import Collection
from typing import Any

from loopback import Loopback
from primary import Primary

from ordercast import NodeId


class Lock(Primary):
    """The queue for a lock, the token of its holder, and how many writes there are."""

    def __init__(self, me: NodeId, voters: Collection[NodeId]) -> None:
        super().__init__(me, voters, {"queue": [], "token": 0, "numbers": {}})
        self.number = 0  # of our last write
        self.final: list[tuple[list[int], str, int, str]] = []  # writes: rank, who, token, text

    @property
    def holder(self) -> str | None:
        """As far as this member knows. None: there is none on this side."""
        queue = self.state["queue"]
        return queue[0] if queue and self.is_working and self.is_final else None

    @property
    def is_held(self) -> bool:
        return self.holder == str(self.me)

    def want(self) -> list[bytes]:
        return self.change(["want"])

    def release(self) -> list[bytes]:
        return self.change(["release", self.state["token"]])

    def write(self, text: str) -> list[bytes]:
        """Does something that only the holder may do."""
        self.number += 1
        return self.change(["write", self.state["token"], self.number, text])

    def begin(self) -> None:
        """Members that are not in the view have lost the lock, or their place in the queue."""
        assert self.view is not None
        here = [str(member) for member in self.view.members]
        self._requeue([one for one in self.state["queue"] if one in here])

    def apply(self, sender: NodeId, what: list[Any]) -> None:
        name, queue = str(sender), self.state["queue"]
        match what:
            case ["want"] if name not in queue:
                self._requeue([*queue, name])
            case ["release", token] if queue[:1] == [name] and token == self.state["token"]:
                self._requeue(queue[1:])
            case ["write", token, number, text] if self._may_write(name, token, number):
                self.state["numbers"][name] = number
                if self.is_final:
                    self.final.append((self.rank, name, token, text))

    def _may_write(self, name: str, token: int, number: int) -> bool:
        is_new = number > self.state["numbers"].get(name, 0)  # it may have been sent twice
        return is_new and self.state["queue"][:1] == [name] and token == self.state["token"]

    def _requeue(self, queue: list[str]) -> None:
        if queue[:1] != self.state["queue"][:1]:
            self.state["token"] += 1
            if queue and self.is_final:
                holder = queue[0].partition("#")[0]
                self.news.append(f"{holder} holds the lock, token {self.state['token']}")
        self.state["queue"] = queue


NAMES = ("n1", "n2", "n3", "n4", "n5")


def make(me: NodeId, voters: Collection[NodeId], _: bytes) -> Lock:
    return Lock(me, voters)


async def main() -> None:
    async with Loopback(make, NAMES, first_port=7161) as group:
        await group.start()
        await group.until(lambda: all(group.core(name).is_working for name in NAMES))
        for name in NAMES:
            await group.send(name, group.core(name).want())
        await group.until(lambda: all(len(core.state["queue"]) == 5 for core in group.cores))
        first = group.core("n1").holder
        assert first is not None
        await group.crash(first.partition("#")[0])
        await group.until(lambda: all(core.holder not in (None, first) for core in group.cores))
        second = group.cores[0].holder
        cut_off = second.partition("#")[0]
        others = [core.me.name for core in group.cores if str(core.me) != second]
        await group.cut(cut_off, " ".join(others))
        cores = [group.core(name) for name in others]
        await group.until(lambda: all(core.holder not in (None, second) for core in cores))
        await group.until(lambda: group.core(cut_off).holder is None)
        third = cores[0].holder
        await group.heal()
        await group.until(lambda: all(core.holder == third for core in group.cores))
        writer = group.core(third.partition("#")[0])
        await group.send(writer.me.name, writer.write("hello"))
        await group.until(lambda: all(core.final for core in group.cores))
        assert {tuple(core.final[-1][1:]) for core in group.cores} == {
            (third, writer.state["token"], "hello")
        }
        print("three holders, one after the other, and all agree who writes now")


if __name__ == "__main__":
    asyncio.run(main())
