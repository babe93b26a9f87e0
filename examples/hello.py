"""Three processes greet each other.

Run each in its own terminal: python examples/hello.py n1, and the same with n2 and n3.
"""

import asyncio
import sys

import ordercast

PLACES = {"n1": "127.0.0.1:7101", "n2": "127.0.0.1:7102", "n3": "127.0.0.1:7103"}


async def main(me: str) -> None:
    peers = {name: place for name, place in PLACES.items() if name != me}
    async with (
        ordercast.open(name=me, listen=PLACES[me], peers=peers) as node,
        node.join("hello", ordercast.Fifo()) as group,
    ):
        await group.send(f"hello from {me}".encode())
        greeted = 0
        async for event in group:
            match event:
                case ordercast.View(members=members):
                    print(f"{me}: members:", *(member.name for member in members))
                case ordercast.Message(data=data):
                    print(f"{me}: {data.decode()}")
                    greeted += 1
            if greeted == len(PLACES):
                return


if __name__ == "__main__":
    if sys.argv[1:] not in [[name] for name in PLACES]:
        sys.exit(f"usage: hello.py {'|'.join(PLACES)}")
    asyncio.run(main(sys.argv[1]))
