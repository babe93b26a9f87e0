"""A consensus object: everybody proposes a value, and everybody ends with the same decision.

    python examples/consensus.py

The decision is a function of the values that the members of a view have collected, as in the paper
on Transis (Amir, Dolev, Kramer and Malki, 1992): the value that most of them propose, and if there
are several such values, the smallest. If a member fails meanwhile, the others decide without it.
Every member of a view collects the same values, so they decide the same.

Whose decision is it? The paper's object decides once in each part of a partition. This one decides
once for all: only the primary side decides (see primary.py), and the others learn it when they
merge. A decision is never changed, whoever crashes. If most of the voters crash for good before
there is a decision, there will be none.

The program runs five nodes in one process. The network is cut when they start. The side of two
waits, and the side of three decides. Then one of the three crashes, and the network heals.
"""

import asyncio
from collections import Counter
from collections.abc import Collection
from typing import Any

from loopback import Loopback
from primary import Primary

from ordercast import NodeId


def choose(values: Collection[str]) -> str:
    """The value that is proposed most often; the smallest if there are several."""
    counted = Counter(values)
    return min(counted, key=lambda value: (-counted[value], value))


class Consensus(Primary):
    def __init__(self, me: NodeId, voters: Collection[NodeId], value: str) -> None:
        super().__init__(me, voters, {"chosen": None})
        self.value = value
        self.decision: str | None = None

    def report(self) -> dict[str, Any]:
        return {"value": self.value, "decision": self.decision}

    def learn(self) -> None:
        known = [one["decision"] for one in self.reports.values() if one["decision"] is not None]
        if known:
            self._decide(known[0])

    def begin(self) -> None:
        if self.state["chosen"] is None:
            self.state["chosen"] = choose([one["value"] for one in self.reports.values()])
        if self.is_final:
            self._decide(self.state["chosen"])

    def _decide(self, value: str) -> None:
        if self.decision is None:
            self.news.append(f"decides {value}")
        self.decision = value


VALUES = {"n1": "left", "n2": "right", "n3": "right", "n4": "left", "n5": "left"}


def make(me: NodeId, voters: Collection[NodeId], _: bytes) -> Consensus:
    return Consensus(me, voters, VALUES[me.name])


async def main() -> None:
    async with Loopback(make, VALUES, first_port=7151) as group:
        await group.cut("n1 n2 n3", "n4 n5")
        await group.start()
        await group.until(lambda: any(group.core(name).decision for name in ("n1", "n2", "n3")))
        await group.crash("n1")
        await group.heal()
        alive = [group.core(name) for name in ("n2", "n3", "n4", "n5")]
        await group.until(lambda: all(core.decision for core in alive))
        assert {core.decision for core in alive} == {"right"}
        print("n2, n3, n4 and n5 have one decision: right")


if __name__ == "__main__":
    asyncio.run(main())
