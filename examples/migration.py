"""A server moves to another machine while its clients keep sending requests.

    python examples/migration.py

Two servers, p1 and p2, store the same accounts. The clients tom and zoe send requests to the group
"old", and each request is answered once. Then p3 replaces p2, while the requests continue (after
Newtop, by Ezhilchelvan, Macêdo and Shrivastava, 1995, section 2):

 1. The group "new" is formed beside "old". Its members are all of them and p3. It starts with the
    state of p1.
 2. From then on p1 forwards every request that it executes in "old" to "new", so that p3 keeps up.
 3. p3 sends "ready". A client that delivers it sends its requests to "new" from then on, and leaves
    "old" when all its requests there are answered.
 4. When the clients have left "old", p1 sends "over" in "new". The servers have held back the
    requests in "new" until then. p1 and p2 leave "old", and p2 leaves "new" too.

There is one order over both groups, and all members read the two groups together, in that order. So
a forwarded request comes after the request itself, for p2 as well, and "over" comes after all of
them. In this example all five nodes run in one process, each with its own socket.
"""

import asyncio
import json
import tempfile
from collections import Counter
from contextlib import AsyncExitStack

import ordercast

PLACES = {
    name: f"127.0.0.1:{7141 + place}" for place, name in enumerate("p1 p2 p3 tom zoe".split())
}
OLD = ["p1", "p2", "tom", "zoe"]
NEW = ["p1", "p2", "p3", "tom", "zoe"]
LEVEL = ordercast.Total(prompt_after="2ms")
BEFORE, AFTER = 100, 100  # requests of a client before the move starts and after it is over


class Server:
    """Stores accounts. It executes the requests that it delivers, in the order of delivery."""

    def __init__(self, node: ordercast.Node) -> None:
        self.node = node
        self.me = node.me.name
        self.balances: Counter[str] = Counter()
        self.servers: dict[str, list[str]] = {}  # by group: the servers in its view
        self.forwards = False  # forward requests: "new" has our state already
        self.is_over = False  # nothing more will be delivered in "old"
        self.waiting: list[list[str]] = []  # requests in "new" that wait for "over"

    def join(self, name: str, members: list[str]) -> ordercast.Group:
        return self.node.join(name, LEVEL, members, snapshot=self.snapshot, restore=self.restore)

    def snapshot(self) -> bytes:
        self.forwards = len(self.node.groups) == 2
        return json.dumps(self.balances).encode()

    def restore(self, state: bytes) -> None:
        if not self.balances:
            self.balances = Counter(json.loads(state))

    async def run(self, stream: ordercast.Together) -> None:
        async for item in stream:
            if isinstance(item, ordercast.View):
                names = [member.name for member in item.members]
                self.servers[item.group] = [name for name in names if name in ("p1", "p2", "p3")]
                await self.take_view(item.group, names)
            elif isinstance(item, ordercast.Message):
                await self.take(item.group, item.data.decode().split())

    async def take_view(self, group: str, names: list[str]) -> None:
        if group == "new" and self.me == "p3" and "p2" in names:
            print(f"p3: received the state, {sum(self.balances.values())} in all, and is ready")
            await self.node.groups["new"].send(b"ready")
        if group == "old" and self.me == "p1" and names == ["p1", "p2"]:
            print("p1: the clients have left the old group: it is over")
            await self.node.groups["new"].send(b"over")

    async def take(self, group: str, words: list[str]) -> None:
        match words:
            case ["request", *request] if group == "old" or self.is_over:
                await self.execute(group, request)
            case ["request", *request]:
                self.waiting.append(request)
            case ["forwarded", client, _, amount] if self.me == "p3":
                self.balances[client] += int(amount)
            case ["over"]:
                await self.finish_move()

    async def execute(self, group: str, request: list[str]) -> None:
        client, number, amount = request
        self.balances[client] += int(amount)
        if self.forwards and group == "old":
            await self.node.groups["new"].send(f"forwarded {' '.join(request)}".encode())
        if self.servers[group][-1] == self.me:  # all have the same view: one answers
            answer = f"answer {client} {number} {self.balances[client]} {self.me}"
            await self.node.groups[group].send(answer.encode())

    async def finish_move(self) -> None:
        """The old group is over: executes the requests that waited, and leaves it."""
        self.is_over = True
        for request in self.waiting:
            await self.execute("new", request)
        if self.me != "p3":
            await self.node.groups["old"].leave()
        if self.me == "p2":
            print("p2: leaves both groups")
            await self.node.groups["new"].leave()


class Client:
    """Sends requests all the time, and checks that each is answered once."""

    def __init__(self, node: ordercast.Node) -> None:
        self.node = node
        self.me = node.me.name
        self.group = "old"  # the group that it sends to
        self.open: dict[int, str] = {}  # unanswered requests, and the group of each
        self.answers: list[int] = []  # the balance after each request
        self.answered_by: Counter[str] = Counter()

    async def send(self, moved: asyncio.Event) -> None:
        number, left = 0, AFTER
        while left:
            number += 1
            self.open[number] = self.group
            request = f"request {self.me} {number} {number % 7}"
            await self.node.groups[self.group].send(request.encode())
            await asyncio.sleep(0.002)
            left -= moved.is_set()

    async def read(
        self, stream: ordercast.Together, started: asyncio.Event, moved: asyncio.Event
    ) -> None:
        async for item in stream:
            match item:
                case ordercast.Message(data=b"ready"):
                    self.group = "new"
                case ordercast.Message(data=b"over"):
                    moved.set()
                case ordercast.Message(data=data) if data.startswith(b"answer"):
                    _, client, number, balance, server = data.decode().split()
                    if client == self.me:
                        self.take_answer(int(number), int(balance), server)
            if len(self.answers) == BEFORE:
                started.set()
            is_in_both = self.group == "new" and "old" in self.node.groups
            if is_in_both and "old" not in self.open.values():
                print(f"{self.me}: sends to the new group now, and leaves the old one")
                await self.node.groups["old"].leave()

    def take_answer(self, number: int, balance: int, server: str) -> None:
        assert number in self.open, f"request {number} of {self.me} is answered twice"
        assert number == len(self.answers) + 1, f"a request before {number} was skipped"
        del self.open[number]
        self.answers.append(balance)
        self.answered_by[server] += 1

    def check(self) -> int:
        """Every request was executed once: each answer is the sum of the requests up to it."""
        assert not self.open, f"unanswered: {self.open}"
        balance = 0
        for number, answer in enumerate(self.answers, 1):
            balance += number % 7
            assert answer == balance, f"request {number} of {self.me}"
        return balance


async def main() -> None:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        nodes = {}
        for name, place in PLACES.items():
            peers = {other: there for other, there in PLACES.items() if other != name}
            node = ordercast.open(name=name, listen=place, peers=peers, data=f"{folder}/{name}")
            nodes[name] = await stack.enter_async_context(node)
        servers = {name: Server(nodes[name]) for name in ("p1", "p2", "p3")}
        clients = {name: Client(nodes[name]) for name in ("tom", "zoe")}
        await migrate(servers, clients)


async def migrate(servers: dict[str, Server], clients: dict[str, Client]) -> None:
    started, moved = asyncio.Event(), asyncio.Event()
    streams, tasks = {}, []
    for name in OLD:
        if name in servers:
            streams[name] = ordercast.Together(servers[name].join("old", OLD))
            tasks.append(asyncio.create_task(servers[name].run(streams[name])))
        else:
            group = clients[name].node.join("old", LEVEL, OLD)
            streams[name] = ordercast.Together(group)
            tasks.append(asyncio.create_task(clients[name].read(streams[name], started, moved)))
    sending = [asyncio.create_task(client.send(moved)) for client in clients.values()]
    await started.wait()
    print("p3 replaces p2 while requests continue")
    for name in NEW:
        if name in servers:
            group = servers[name].join("new", NEW)
        else:
            group = clients[name].node.join("new", LEVEL, NEW)
        if name in streams:
            streams[name].add(group)
        else:
            tasks.append(asyncio.create_task(servers[name].run(ordercast.Together(group))))
    await asyncio.gather(*sending)
    while any(client.open for client in clients.values()):
        await asyncio.sleep(0.01)
    for name in ("tom", "zoe", "p1", "p3"):
        node = (servers.get(name) or clients[name]).node
        await node.groups["new"].leave()
    await asyncio.gather(*tasks)
    total = sum(client.check() for client in clients.values())
    assert servers["p1"].balances == servers["p3"].balances, "the servers differ"
    assert sum(servers["p3"].balances.values()) == total
    for name, client in clients.items():
        by = ", ".join(
            f"{count} by {server}" for server, count in sorted(client.answered_by.items())
        )
        print(f"{name}: {len(client.answers)} requests, each answered once: {by}")
    print(f"p1 and p3 have the same accounts, {total} in all")


if __name__ == "__main__":
    asyncio.run(main())
