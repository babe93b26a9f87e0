"""A server moves to another machine, and its clients notice nothing.

    python examples/migration.py

Two servers, p1 and p2, keep the same accounts. Tom and Zoe send them requests in the group "old",
and each request is answered once. p2 has to go, and p3 comes in its place, while the requests go on
(after Newtop, by Ezhilchelvan, Macêdo and Shrivastava, 1995, section 2):

 1. The group "new" is formed beside "old", of all of them and p3. It begins with the state of p1.
 2. What p1 carries out in "old" from then on it passes on in "new", so that p3 keeps up.
 3. p3 says that it is ready. Whoever delivers that sends to "new" from then on, and leaves "old"
    when all its requests there are answered.
 4. When the clients have left "old", p1 says in "new" that it is over. Requests in "new" have
    waited for that. p1 and p2 leave "old", and p2 leaves "new" too.

There is one order over both groups, and everybody reads them together, in that order. So what p1
passes on comes after the request itself, for p2 as well, and "it is over" comes after all of it.
Here all five are nodes of one process, each with a socket of its own.
"""

import asyncio
import json
import tempfile
from collections import Counter
from contextlib import AsyncExitStack

import ordercast

PLACES = {
    name: f"127.0.0.1:{7131 + place}" for place, name in enumerate("p1 p2 p3 tom zoe".split())
}
OLD = ["p1", "p2", "tom", "zoe"]
NEW = ["p1", "p2", "p3", "tom", "zoe"]
LEVEL = ordercast.Total(prompt_after="2ms")
BEFORE, AFTER = 100, 100  # requests of a client, before the move begins and after it is over


class Server:
    """Keeps accounts: what it has carried out, in which order, follows from what was delivered."""

    def __init__(self, node: ordercast.Node) -> None:
        self.node = node
        self.me = node.me.name
        self.balances: Counter[str] = Counter()
        self.servers: dict[str, list[str]] = {}  # by group: those in the view
        self.passes_on = False  # the others in "new" have our state, and want what comes after it
        self.is_over = False  # nothing comes in "old" any more
        self.waiting: list[list[str]] = []  # requests in "new", until that is so

    def join(self, name: str, members: list[str]) -> ordercast.Group:
        return self.node.join(name, LEVEL, members, snapshot=self.snapshot, restore=self.restore)

    def snapshot(self) -> bytes:
        self.passes_on = len(self.node.groups) == 2
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
            print(f"p3: has the state, {sum(self.balances.values())} in all, and is ready")
            await self.node.groups["new"].send(b"ready")
        if group == "old" and self.me == "p1" and names == ["p1", "p2"]:
            print("p1: the clients have left the old group, and it is over")
            await self.node.groups["new"].send(b"over")

    async def take(self, group: str, words: list[str]) -> None:
        match words:
            case ["request", *request] if group == "old" or self.is_over:
                await self.carry_out(group, request)
            case ["request", *request]:
                self.waiting.append(request)
            case ["passed-on", client, _, amount] if self.me == "p3":
                self.balances[client] += int(amount)
            case ["over"]:
                await self.begin()

    async def carry_out(self, group: str, request: list[str]) -> None:
        client, number, amount = request
        self.balances[client] += int(amount)
        if self.passes_on and group == "old":
            await self.node.groups["new"].send(f"passed-on {' '.join(request)}".encode())
        if self.servers[group][-1] == self.me:  # they all have the same view here: one answers
            answer = f"answer {client} {number} {self.balances[client]} {self.me}"
            await self.node.groups[group].send(answer.encode())

    async def begin(self) -> None:
        """All that comes now comes in "new"."""
        self.is_over = True
        for request in self.waiting:
            await self.carry_out("new", request)
        if self.me != "p3":
            await self.node.groups["old"].leave()
        if self.me == "p2":
            print("p2: leaves")
            await self.node.groups["new"].leave()


class Client:
    """Sends requests all the time, and has each of them answered once."""

    def __init__(self, node: ordercast.Node) -> None:
        self.node = node
        self.me = node.me.name
        self.group = "old"  # into which it sends
        self.open: dict[int, str] = {}  # requests that are not answered, and where they are
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
        self, stream: ordercast.Together, begun: asyncio.Event, moved: asyncio.Event
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
                begun.set()
            is_in_both = self.group == "new" and "old" in self.node.groups
            if is_in_both and "old" not in self.open.values():
                print(f"{self.me}: sends to the new group, and leaves the old one")
                await self.node.groups["old"].leave()

    def take_answer(self, number: int, balance: int, server: str) -> None:
        assert number in self.open, f"request {number} of {self.me} is answered twice"
        assert number == len(self.answers) + 1, f"a request before {number} was left out"
        del self.open[number]
        self.answers.append(balance)
        self.answered_by[server] += 1

    def check(self) -> int:
        """Every request was carried out once: each answer has what all before it came to."""
        assert not self.open, f"not answered: {self.open}"
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
    begun, moved = asyncio.Event(), asyncio.Event()
    streams, tasks = {}, []
    for name in OLD:
        if name in servers:
            streams[name] = ordercast.Together(servers[name].join("old", OLD))
            tasks.append(asyncio.create_task(servers[name].run(streams[name])))
        else:
            group = clients[name].node.join("old", LEVEL, OLD)
            streams[name] = ordercast.Together(group)
            tasks.append(asyncio.create_task(clients[name].read(streams[name], begun, moved)))
    sending = [asyncio.create_task(client.send(moved)) for client in clients.values()]
    await begun.wait()
    print("p2 has to go: p3 comes in its place, while requests go on")
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
