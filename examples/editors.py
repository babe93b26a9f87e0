"""Three editors share one pen: the editor that has it writes a paragraph and gives it back.

    python examples/editors.py ann
    python examples/editors.py ben
    python examples/editors.py cid

They write one novel: a causal cluster with a single ticket, which is the pen. Each editor waits for
the pen, writes two sentences and gives it back, twice. All editors read the same novel, and no
paragraph contains a sentence of another editor. If you kill the editor that has the pen, another
editor gets it after a second or two.
"""

import asyncio
import sys

import ordercast

PLACES = {"ann": "127.0.0.1:7121", "ben": "127.0.0.1:7122", "cid": "127.0.0.1:7123"}
NOVEL = ordercast.Causal(tickets=1, lease="1s")
PARAGRAPHS = 2


async def write(novel: ordercast.Group, me: str) -> None:
    for number in range(1, PARAGRAPHS + 1):
        await novel.become_updater()
        try:
            await novel.send(f"{me} begins paragraph {number}".encode())
            await novel.send(f"{me} ends paragraph {number}".encode())
            await novel.stop_updating()
        except ordercast.TicketLost as error:
            print(f"{me}: {error}")  # unreachable for too long: another editor has it


async def read(novel: ordercast.Group, me: str) -> None:
    begun, ended = None, 0
    async for event in novel:
        match event:
            case ordercast.Updating(cause=cause):
                print(f"{me}: the pen is {cause}")
            case ordercast.Message(sender=writer, data=data):
                print(f"{me}: {data.decode()}")
                assert begun in (None, writer), "another editor writes into this paragraph"
                begun = writer if b"begins" in data else None
                ended += begun is None
                if ended == PARAGRAPHS * len(PLACES):
                    return


async def main(me: str) -> None:
    peers = {name: place for name, place in PLACES.items() if name != me}
    async with (
        ordercast.open(name=me, listen=PLACES[me], peers=peers) as node,
        node.join("novel", NOVEL, list(PLACES)) as novel,
    ):
        await asyncio.gather(write(novel, me), read(novel, me))


if __name__ == "__main__":
    if sys.argv[1:] not in [[name] for name in PLACES]:
        sys.exit(f"usage: editors.py {'|'.join(PLACES)}")
    asyncio.run(main(sys.argv[1]))
